//! Summary of a replay, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;

use fleet_agent_core::event::Event;
use fleet_agent_core::verdict::{Mode, Tally};
use fleet_agent_export::delivery::report::Report;
use serde_json::{Value, json};

/// Events by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventCounts {
    /// Library calls.
    pub calls: u64,
    /// Windows of kernel launches.
    pub launches: u64,
    /// Context switches.
    pub context_switches: u64,
    /// Windows of copies and graph launches.
    pub windows: u64,
    /// Operations that ran on GPUs.
    pub device: u64,
}

impl EventCounts {
    /// Returns the number of all events.
    pub fn total(&self) -> u64 {
        self.calls + self.launches + self.context_switches + self.windows + self.device
    }

    pub(super) fn count(&mut self, event: &Event) {
        match event {
            Event::Call(_) | Event::Returned(_) => self.calls += 1,
            Event::Launches(_) => self.launches += 1,
            Event::ContextSwitch(_) => self.context_switches += 1,
            Event::Activity(_) | Event::Delays(_) | Event::CallDurations(_) => self.windows += 1,
            Event::GpuOperation(_) => self.device += 1,
            // The entry of a call that is counted at its return, and events that recordings do not
            // hold.
            Event::Entered(_)
            | Event::CommState(_)
            | Event::Stack(_)
            | Event::Lost(_)
            | Event::Started(_)
            | Event::Ended(_) => {}
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.launches += other.launches;
        self.context_switches += other.context_switches;
        self.windows += other.windows;
        self.device += other.device;
    }
}

/// Summary of a replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Events read.
    pub events: EventCounts,
    /// Blocks closed, over all communicators and processes.
    pub blocks: u64,
    /// Operations on communicators made before the recording began.
    pub unknown_comm_ops: u64,
    /// Self-verdicts of the processes, by mode.
    pub self_verdicts: BTreeMap<Mode, Tally>,
    /// Report of the delivery of points and verdicts.
    pub delivery: Report,
}

impl Summary {
    /// Returns the summary as JSON, with the error that ended the replay.
    pub fn to_json(&self, error: Option<&str>) -> Value {
        let delivery = &self.delivery;
        let by_mode = |(mode, tally): (&Mode, &Tally)| {
            let Tally {
                blocks,
                raised,
                cleared,
            } = *tally;
            let tally = json!({"blocks": blocks, "raised": raised, "cleared": cleared});
            (mode.name().to_owned(), tally)
        };
        let self_verdicts: serde_json::Map<String, Value> =
            self.self_verdicts.iter().map(by_mode).collect();
        json!({
            "events": {
                "total": self.events.total(),
                "calls": self.events.calls,
                "launches": self.events.launches,
                "context_switches": self.events.context_switches,
                "windows": self.events.windows,
            },
            "blocks": self.blocks,
            "unknown_comm_ops": self.unknown_comm_ops,
            "points_sent": delivery.points_sent,
            "points_rejected": delivery.points_rejected,
            "points_dropped": delivery.points_dropped,
            "reasons": delivery.reasons,
            "batches_acked": delivery.batches_acked,
            "retries": delivery.retries,
            "policy_version": delivery.policy_version,
            "self_verdicts": self_verdicts,
            "verdicts_sent": delivery.verdicts.sent,
            "verdicts_rejected": delivery.verdicts.rejected,
            "verdicts_dropped": delivery.verdicts.dropped,
            "error": error,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            points_sent,
            points_rejected,
            points_dropped,
            ..
        } = self.delivery;
        let Report {
            batches_acked,
            retries,
            ..
        } = self.delivery;
        write!(f, "read {} events, ", self.events.total())?;
        write!(f, "sent {points_sent} points of {} blocks ", self.blocks)?;
        write!(f, "in {batches_acked} batches; ")?;
        write!(
            f,
            "{points_rejected} points rejected, {points_dropped} dropped, {retries} retries"
        )?;
        match self.delivery.policy_version {
            Some(version) => write!(f, ", policy v{version}")?,
            None => write!(f, ", no policy received")?,
        }
        let raised: u64 = self.self_verdicts.values().map(|tally| tally.raised).sum();
        if raised > 0 {
            write!(f, "; {raised} self-verdicts raised")?;
        }
        if self.delivery.verdicts.dropped > 0 {
            write!(
                f,
                ", {} self-verdicts dropped",
                self.delivery.verdicts.dropped
            )?;
        }
        if self.unknown_comm_ops > 0 {
            write!(
                f,
                "; {} operations on unknown communicators",
                self.unknown_comm_ops
            )?;
        }
        for (reason, points) in &self.delivery.reasons {
            write!(f, "; {points} points: {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_one_line_with_the_reasons_at_the_end() {
        let mut summary = Summary {
            blocks: 3,
            ..Summary::default()
        };
        summary.delivery.reasons.insert("no cluster".to_owned(), 2);
        let line = summary.to_string();
        assert!(
            !line.contains('\n') && line.ends_with("; 2 points: no cluster"),
            "{line}"
        );
        assert_eq!(summary.to_json(Some("broken"))["reasons"]["no cluster"], 2);
    }
}
