//! Text output of tool results. Fields are looked up by name: unknown fields of a newer server are
//! ignored, and missing fields print as a dash.

use echo_core::text::{decimal, visible};
use jiff::Timestamp;
use serde_json::Value;

/// Placeholder for an unknown value.
pub(super) const UNKNOWN: &str = "-";

/// Escapes control characters in all strings, because names come from outside and could overwrite
/// the terminal.
pub(super) fn sanitize(answer: Value) -> Value {
    match answer {
        Value::String(text) => Value::String(visible(&text).into_owned()),
        Value::Array(items) => items.into_iter().map(sanitize).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .map(|(name, value)| (visible(&name).into_owned(), sanitize(value)))
                .collect()
        }
        plain => plain,
    }
}

/// Returns a text field; a dash if absent.
pub(super) fn text(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns a number; `None` if absent.
pub(super) fn number(value: &Value, name: &str) -> Option<f64> {
    value.get(name)?.as_f64()
}

/// Formats a number with this many decimals; a dash if absent.
pub(super) fn decimals(value: &Value, name: &str, places: usize) -> String {
    number(value, name).map_or_else(|| UNKNOWN.to_owned(), |number| decimal(number, places))
}

/// Formats a share as a percentage; a dash if absent.
pub(super) fn percent(value: &Value, name: &str) -> String {
    number(value, name).map_or_else(
        || UNKNOWN.to_owned(),
        |share| format!("{} %", decimal(share * 100.0, 1)),
    )
}

/// Returns the items of a list; empty if absent.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Formats the cluster and the window of a result as a heading.
pub(super) fn heading(answer: &Value) -> String {
    let cluster = answer.get("cluster").and_then(Value::as_str);
    let window = answer.get("window").unwrap_or(&Value::Null);
    format!(
        "{}, {} to {}",
        cluster.map_or("all clusters", |cluster| cluster),
        text(window, "from"),
        text(window, "to"),
    )
}

/// Formats the data quality of a result as a sentence.
pub(super) fn quality(answer: &Value) -> String {
    let quality = answer.get("data_quality").unwrap_or(&Value::Null);
    let (reporting, expected) = (
        text(quality, "ranks_reporting"),
        text(quality, "ranks_expected"),
    );
    let age = number(quality, "last_event_age_s").map_or_else(String::new, |age| {
        format!(", last event {age:.1} s before the end")
    });
    let note = quality
        .get("note")
        .and_then(Value::as_str)
        .map_or_else(String::new, |note| format!("\nnote: {note}"));
    format!("{reporting} of {expected} ranks report{age}{note}")
}

/// Formats money with two decimals, amounts below 1 with six; a dash if absent.
pub(super) fn money(row: &Value, name: &str) -> String {
    let is_small = number(row, name).is_some_and(|amount| amount > 0.0 && amount < 1.0);
    decimals(row, name, if is_small { 6 } else { 2 })
}

/// Formats any value on one line; a dash if absent.
pub(super) fn value(row: &Value, name: &str) -> String {
    match row.get(name) {
        None | Some(Value::Null) => UNKNOWN.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns an instant; `None` if absent.
pub(super) fn instant(value: &Value, name: &str) -> Option<Timestamp> {
    value.get(name)?.as_str()?.parse().ok()
}

/// Formats the time between two instants with its two largest units, such as `1m51s`.
pub(super) fn span(from: Timestamp, to: Timestamp) -> String {
    let seconds = to.duration_since(from).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

/// Formats how long an incident has been open at this time, or how long it lasted if it is cleared; a
/// dash if unknown.
pub(super) fn age(incident: &Value, now: Option<Timestamp>) -> String {
    let is_open = text(incident, "state") == "open";
    let end = if is_open {
        now
    } else {
        instant(incident, "last_seen")
    };
    let times = instant(incident, "first_seen").zip(end);
    times.map_or_else(|| UNKNOWN.to_owned(), |(from, to)| span(from, to))
}

/// Formats model and UUID of a GPU, the UUID as its first group, which tools such as `nvidia-smi`
/// accept; a dash if both are unknown.
pub(super) fn gpu(rank: &Value) -> String {
    let field = |name| rank.get(name).and_then(Value::as_str);
    let uuid = field("gpu_uuid").map(|uuid| {
        let groups: Vec<&str> = uuid.splitn(3, '-').take(2).collect();
        groups.join("-")
    });
    let parts = [field("gpu_model").map(str::to_owned), uuid];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return UNKNOWN.to_owned();
    }
    parts.join(" ")
}

/// Formats a count with its noun.
pub(super) fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Returns how often the GPU or the node had incidents before; `None` for the first.
pub(super) fn recurrence(incident: &Value) -> Option<String> {
    let sentence = incident.pointer("/recurrence/sentence")?.as_str()?;
    Some(sentence.to_owned())
}

/// Returns what to do about an open incident; nothing once it is cleared.
pub(super) fn advice(incident: &Value) -> Vec<String> {
    let is_open = text(incident, "state") == "open";
    let advice = list(incident, "advice").iter().filter(|_| is_open);
    let advice = advice.filter_map(Value::as_str);
    advice.map(str::to_owned).collect()
}

/// Returns the sentences of the host evidence of an outlier.
pub(super) fn host_evidence(outlier: &Value) -> Vec<String> {
    let is_host_evidence = |evidence: &&Value| evidence.get("lag_ms").is_some_and(Value::is_null);
    let evidence = list(outlier, "evidence").iter().filter(is_host_evidence);
    evidence
        .map(|evidence| text(evidence, "sentence"))
        .collect()
}
