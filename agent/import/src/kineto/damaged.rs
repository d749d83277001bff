//! Reading of a damaged trace event by event, so that one damaged event costs one event, and a cut-off
//! trace its end.
//!
//! Damage that is known from traces of real jobs and mended: bytes that are not UTF-8, control
//! characters and backslashes in names, numbers such as `inf`, `nan` and `N/A`, numbers as text. Where a
//! quote within a name hides the end of an event, the next event begins at the next `{"ph"`.

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;

use super::{Args, Events, GroupConfig, Ranks, TraceEvent, set_group};
use crate::kernel::may_be_collective;
use crate::trace::RankTrace;

/// Key with which Kineto begins each event.
const FIRST_KEY: &[u8] = b"\"ph\"";

/// Maximum size of an event that is mended, bytes; what is longer has lost its end.
const MAX_EVENT: usize = 1 << 20;

/// Largest whole number that a float has exactly, plus one: 2^53.
const MAX_WHOLE: f64 = 9_007_199_254_740_992.0;

/// Reads what can be read; `None` if that is no event.
pub(super) fn read(bytes: &[u8]) -> Option<Events> {
    let mut events = Events::default();
    if let Some(info) = value_of(bytes, "distributedInfo") {
        read_info(&mut events.trace, &info);
    }
    let devices = value_of(bytes, "deviceProperties");
    let model = devices.and_then(|devices| Some(devices.get("name")?.as_str()?.to_owned()));
    events.trace.gpu_model = model;
    let mut n_read = 0_u64;
    let mut has_lost_collective = false;
    for piece in Pieces::of(bytes)? {
        if let Some(event) = event(piece).filter(|_| !has_lost_collective) {
            n_read += 1;
            events.add(event);
        } else {
            events.trace.n_unread += 1;
            // Without it, the later ones would be compared with others of the peers.
            has_lost_collective |= !events.are_numbered() && may_be_collective(piece);
        }
    }
    (n_read > 0).then_some(events)
}

/// What follows this key.
fn after<'b>(bytes: &'b [u8], key: &str) -> Option<&'b [u8]> {
    let key = format!("\"{key}\"");
    let place = memmem::find(bytes, key.as_bytes())?;
    bytes.get(place + key.len()..)
}

/// What follows blanks and these signs.
fn without<'b>(bytes: &'b [u8], signs: &[u8]) -> &'b [u8] {
    let is_left_out = |byte: &&u8| byte.is_ascii_whitespace() || signs.contains(byte);
    let n = bytes.iter().take_while(is_left_out).count();
    bytes.get(n..).unwrap_or_default()
}

/// The object of this key, or the first one of its list.
fn value_of(bytes: &[u8], key: &str) -> Option<Value> {
    let object = without(after(bytes, key)?, b":[");
    let object = object.get(..object_end(object)?)?;
    serde_json::from_str(&mended(object)).ok()
}

fn read_info(trace: &mut RankTrace, info: &Value) {
    let number = |name| info.get(name).and_then(number);
    let whole = |name| number(name).and_then(whole_number);
    (trace.rank, trace.world_size) = (whole("rank"), whole("world_size"));
    let groups = info.get("pg_config").and_then(Value::as_array);
    for group in groups.into_iter().flatten() {
        if let Ok(group) = GroupConfig::deserialize(group) {
            set_group(trace, group);
        }
    }
}

/// Events of a trace, one after the other, each with its braces.
struct Pieces<'b> {
    list: &'b [u8],
    place: usize,
    /// Place of the first event that begins as Kineto writes it, at or after `place`.
    marked: Option<usize>,
    /// Whether the missing end of the list was returned as a piece.
    is_over: bool,
}

impl<'b> Pieces<'b> {
    fn of(bytes: &'b [u8]) -> Option<Self> {
        let list = without(after(bytes, "traceEvents")?, b":").strip_prefix(b"[")?;
        Some(Self {
            list,
            place: 0,
            marked: next_event(list, 0),
            is_over: false,
        })
    }

    /// Place of the first marked event from a place on. The list is searched once.
    fn marked_from(&mut self, place: usize) -> Option<usize> {
        while let Some(marked) = self.marked.filter(|marked| *marked < place) {
            self.marked = next_event(self.list, marked + 1);
        }
        self.marked
    }
}

impl<'b> Iterator for Pieces<'b> {
    type Item = &'b [u8];

    fn next(&mut self) -> Option<&'b [u8]> {
        let rest = without(self.list.get(self.place..)?, b",");
        let here = self.list.len() - rest.len();
        let first = rest.first();
        // What else is there is the rest of an event that was cut at a quote.
        let is_event = first == Some(&b'{');
        let begin = if is_event {
            Some(here)
        } else {
            self.marked_from(here)
        };
        let Some(begin) = begin else {
            // A list without an end is one event that is not read.
            let is_cut = first != Some(&b']') && !self.is_over;
            self.is_over = true;
            return is_cut.then_some(b"");
        };
        let most = self.marked_from(begin + 1).unwrap_or(self.list.len());
        let most = self.list.get(begin..most)?;
        let end = object_end(most);
        self.place = begin + end.unwrap_or(most.len());
        self.is_over = end.is_none() && self.place == self.list.len();
        most.get(..end.unwrap_or(most.len()))
    }
}

/// Place of the next event as Kineto writes it, from a place on.
fn next_event(bytes: &[u8], from: usize) -> Option<usize> {
    memmem::find_iter(bytes.get(from..)?, FIRST_KEY).find_map(|key| {
        let before = bytes.get(..from + key)?.trim_ascii_end();
        let brace = before.len().checked_sub(1)?;
        (before.last() == Some(&b'{') && brace >= from).then_some(brace)
    })
}

/// Length of the object at the beginning; `None` if there is none, or it does not end.
fn object_end(bytes: &[u8]) -> Option<usize> {
    if bytes.first() != Some(&b'{') {
        return None;
    }
    let (mut depth, mut is_text, mut is_escaped) = (0_u32, false, false);
    for (place, byte) in bytes.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' if !is_text => depth += 1,
            b'}' if !is_text => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(place + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Replaces what JSON does not have: other bytes than UTF-8, control characters, escapes and words.
fn mended(piece: &[u8]) -> String {
    let text = String::from_utf8_lossy(piece);
    let mut mended = String::with_capacity(text.len());
    let (mut is_text, mut word) = (false, String::new());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if is_text && letter == '\\' {
            let hex = letters.clone().skip(1).take(4);
            let is_code = hex.filter(char::is_ascii_hexdigit).count() == 4;
            let is_escape = |next: &char| "\"\\/bfnrt".contains(*next) || *next == 'u' && is_code;
            mended.push('\\');
            mended.push(letters.next_if(is_escape).unwrap_or('\\'));
            continue;
        }
        let letter = if letter.is_control() { ' ' } else { letter };
        is_text ^= letter == '"';
        if is_text || letter.is_whitespace() || "\"{}[]:,".contains(letter) {
            push_word(&mut mended, &mut word);
            mended.push(letter);
        } else {
            word.push(letter);
        }
    }
    mended
}

/// Adds a number, `true`, `false` or `null`; `null` for what is none of them.
fn push_word(mended: &mut String, word: &mut String) {
    if word.is_empty() {
        return;
    }
    let is_value = serde_json::from_str::<Value>(word).is_ok();
    mended.push_str(if is_value { word } else { "null" });
    word.clear();
}

/// Reads an event; `None` if it cannot be read, or has no time where it needs one.
fn event(piece: &[u8]) -> Option<TraceEvent<'_>> {
    if let Ok(event) = serde_json::from_slice::<TraceEvent<'_>>(piece) {
        // One that was cut within its name has no times.
        if event.ph != "X" || event.ts > 0.0 || event.dur > 0.0 {
            return Some(event);
        }
    }
    if piece.len() > MAX_EVENT {
        return None;
    }
    let fields: Value = serde_json::from_str(&mended(piece)).ok()?;
    let text = |name| Cow::Owned(text(&fields, name).unwrap_or_default().to_owned());
    let time = |name| fields.get(name).and_then(number);
    let (ph, ts, dur) = (text("ph"), time("ts"), time("dur"));
    if ph == "X" && (ts.is_none() || dur.is_none()) {
        return None;
    }
    Some(TraceEvent {
        ph,
        cat: text("cat"),
        name: text("name"),
        ts: ts.unwrap_or_default(),
        dur: dur.unwrap_or_default(),
        pid: fields.get("pid").cloned().unwrap_or_default(),
        tid: fields.get("tid").cloned().unwrap_or_default(),
        args: fields.get("args").map(arguments),
    })
}

fn arguments(fields: &Value) -> Args<'static> {
    let words = |name| text(fields, name).map(|text| Cow::Owned(text.to_owned()));
    let number = |name| fields.get(name).and_then(number);
    let ranks = fields.get("Process Group Ranks");
    Args {
        collective: words("Collective name"),
        group: words("Process Group Name"),
        ranks: ranks.and_then(|ranks| Ranks::deserialize(ranks).ok()),
        elements: number("In msg nelems").and_then(whole_number),
        seq: number("Seq").and_then(whole_number),
        stream: fields.get("stream").cloned(),
        correlation: number("correlation").and_then(whole_number),
    }
}

fn text<'v>(fields: &'v Value, name: &str) -> Option<&'v str> {
    fields.get(name)?.as_str()
}

/// A number, or one as text.
fn number(value: &Value) -> Option<f64> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok()?,
        other => other.as_f64()?,
    };
    number.is_finite().then_some(number)
}

/// A number without a fraction that fits; sizes and numbers of operations are below 2^53.
fn whole_number<T: TryFrom<i64>>(number: f64) -> Option<T> {
    let is_whole = number.fract() == 0.0 && number.abs() < MAX_WHOLE;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is whole and below 2^53"
    )]
    let whole = number as i64;
    is_whole.then(|| T::try_from(whole).ok()).flatten()
}

#[cfg(test)]
mod tests;
