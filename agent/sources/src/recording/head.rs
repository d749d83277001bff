//! Beginning of a line about calls, which names their process. Pure.

use fleet_agent_core::event::{Call, CallKind, Entered, Event, Launches};

/// Fields with which recorders begin a line about calls: `{"kind":"call","ts":5,"dur":2,"pid":7,`.
pub(super) struct Head<'a> {
    kind: &'a str,
    ts_ns: u64,
    dur_ns: u64,
    pub(super) pid: u32,
}

impl<'a> Head<'a> {
    /// Reads the beginning of a line; `None` if the line is truncated or begins with other fields.
    pub(super) fn read(line: &'a [u8]) -> Option<Self> {
        let text = str::from_utf8(line).ok()?.strip_suffix("}\n")?;
        let (kind, rest) = text.strip_prefix("{\"kind\":\"")?.split_once('"')?;
        let (ts_ns, rest) = number(rest, ",\"ts\":")?;
        let (dur_ns, rest) = number(rest, ",\"dur\":").unwrap_or((0, rest));
        let (_, rest) = number(rest, ",\"window_ns\":").unwrap_or((0, rest));
        let (pid, _) = number(rest, ",\"pid\":")?;
        Some(Self {
            kind,
            ts_ns,
            dur_ns,
            pid: pid.try_into().ok()?,
        })
    }

    /// Returns the event without what the rest of the line says about it; `None` if the line is not
    /// about calls.
    pub(super) fn event(&self) -> Option<Event> {
        let (ts_ns, pid) = (self.ts_ns, self.pid);
        let kind = CallKind::Other;
        let call = Call {
            ts_ns,
            dur_ns: self.dur_ns,
            pid,
            tid: pid,
            kind,
        };
        Some(match self.kind {
            "call" => Event::Call(call),
            "returned" => Event::Returned(call),
            "entered" => Event::Entered(Entered {
                ts_ns,
                pid,
                tid: pid,
                kind,
            }),
            "launches" => Event::Launches(Launches { ts_ns, pid, n: 0 }),
            _ => return None,
        })
    }
}

/// Reads a number between its name and a comma; returns it with the text from the comma on.
fn number<'a>(text: &'a str, name: &str) -> Option<(u64, &'a str)> {
    let text = text.strip_prefix(name)?;
    let end = text.bytes().position(|byte| !byte.is_ascii_digit())?;
    let (digits, rest) = text.split_at_checked(end)?;
    let number = digits.parse().ok()?;
    rest.starts_with(',').then_some((number, rest))
}
