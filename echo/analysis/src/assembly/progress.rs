//! Progress of each rank on each communicator; distinguishes an operation that never ends from a
//! slow one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use echo_core::ids::{CommId, Op, Rank};
use echo_core::model::event::{Block, Event, Origin, Reading};
use echo_core::units::Nanos;
use fleet_proto::attribute;

use crate::assembly::exit::{End, Exit};
use crate::attributes;

/// Communicators followed per job; ranks of one communicator are bounded by the job.
const MAX_COMMS: usize = 65_536;

/// Longest time before its first report in which an operation may have been issued.
const LONGEST_AGE: Duration = Duration::from_mins(1);

/// Attribute of a stopped process, as in JSON.
const STOPPED: &str = "\"fleet.stopped\":true";

/// Progress of a job's ranks.
#[derive(Debug, Default)]
pub struct Progress {
    comms: BTreeMap<CommId, BTreeMap<Rank, Position>>,
    /// Communicators with sends or receives.
    transfers: BTreeSet<CommId>,
    alive: BTreeMap<Rank, (Arc<Origin>, Nanos)>,
    /// Ranks whose processes have ended.
    ended: BTreeMap<Rank, End>,
}

/// Progress of one rank on one communicator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// Operations issued.
    pub issued: u64,
    /// First report of the last of them, arrival time.
    pub advanced: Nanos,
    /// When it was issued, by the rank's own clock; the first report, if that is unknown.
    pub advanced_at: Nanos,
    /// True if the reports have the time at which it was issued.
    pub is_timed: bool,
    /// Latest report of the rank on this communicator, arrival time.
    pub last_received: Nanos,
    /// The same by the rank's own clock.
    pub last_timestamp: Nanos,
    /// Duration of its synchronisation with the GPU in progress at that report, milliseconds.
    pub waiting_ms: f64,
    /// True if its process was stopped at that report, by a signal or a debugger.
    pub is_stopped: bool,
    /// Operations on any communicator that its GPU had begun and not ended at that report; `None` where that is
    /// unknown.
    pub running: Option<u64>,
}

impl Progress {
    /// Records that a rank has reported, with any signal.
    pub(super) fn record_report(&mut self, rank: Rank, origin: &Arc<Origin>, received: Nanos) {
        self.alive.insert(rank, (Arc::clone(origin), received));
    }

    /// Latest report of the rank with any signal, arrival time.
    pub fn alive(&self, rank: Rank) -> Option<Nanos> {
        self.alive.get(&rank).map(|(_, received)| *received)
    }

    /// Identity of the rank.
    pub fn origin(&self, rank: Rank) -> Option<&Arc<Origin>> {
        self.alive.get(&rank).map(|(origin, _)| origin)
    }

    /// The ranks that have reported.
    pub fn ranks(&self) -> impl Iterator<Item = Rank> {
        self.alive.keys().copied()
    }

    /// The ranks whose processes have ended, since the latest start of the job.
    pub fn ended(&self) -> impl Iterator<Item = (Rank, End)> {
        self.ended.iter().map(|(rank, end)| (*rank, *end))
    }

    /// Whether the process of a rank has ended.
    pub fn has_ended(&self, rank: Rank) -> bool {
        self.ended.contains_key(&rank)
    }

    /// Whether the processes of all ranks have ended.
    pub fn is_over(&self) -> bool {
        self.ranks().all(|rank| self.has_ended(rank))
    }

    /// Records whether the process of a rank had ended at a report. A new communicator is made by ranks
    /// that live, so those that ended before belong to an earlier start.
    fn record_end(&mut self, rank: Rank, event: &Event, received: Nanos, is_new_comm: bool) {
        let at = event.timestamp;
        if is_new_comm {
            self.ended.retain(|_, end| end.at >= at);
        }
        match Exit::from_attributes(&event.attrs) {
            Some(exit) => {
                let end = End { exit, at, received };
                self.ended.entry(rank).or_insert(end);
            }
            None => {
                self.ended
                    .retain(|other, end| *other != rank || end.at >= at);
            }
        }
    }

    /// Records a report of the operations issued so far.
    pub(super) fn add(&mut self, block: &Block, rank: Rank, event: &Event, received: Nanos) {
        let Some(issued) = issued(event.reading) else {
            return;
        };
        if self.comms.len() >= MAX_COMMS && !self.comms.contains_key(&block.comm) {
            return;
        }
        if matches!(block.op.as_ref().map(Op::as_str), Some("Send" | "Recv")) {
            self.transfers.insert(block.comm);
        }
        let age = age(&event.attrs);
        let position = Position {
            issued,
            advanced: received,
            advanced_at: event.timestamp.before(age.unwrap_or_default()),
            is_timed: age.is_some(),
            last_received: received,
            last_timestamp: event.timestamp,
            waiting_ms: waiting_ms(&event.attrs).unwrap_or(0.0),
            is_stopped: event.attrs.contains(STOPPED),
            running: running(&event.attrs),
        };
        self.record_end(rank, event, received, !self.comms.contains_key(&block.comm));
        let ranks = self.comms.entry(block.comm).or_default();
        let before = ranks.get(&rank).map(|known| known.last_timestamp);
        let position = Position {
            // It was issued after the report before. Senders may report any age.
            advanced_at: position
                .advanced_at
                .max(before.unwrap_or_else(|| event.timestamp.before(LONGEST_AGE))),
            ..position
        };
        let known = ranks.entry(rank).or_insert(position);
        if known.issued == issued {
            let (advanced, advanced_at) = (known.advanced, known.advanced_at);
            *known = Position {
                advanced,
                advanced_at,
                ..position
            };
        } else {
            *known = position;
        }
    }

    /// Returns whether the ranks of a communicator issue the same operations, so that their numbers
    /// can be compared: of two ranks, each send of one is a receive of the other.
    pub fn is_comparable(&self, comm: CommId) -> bool {
        let n_ranks = self.comms.get(&comm).map_or(0, BTreeMap::len);
        n_ranks <= 2 || !self.transfers.contains(&comm)
    }

    /// Returns whether a communicator has sends or receives.
    pub fn has_transfers(&self, comm: CommId) -> bool {
        self.transfers.contains(&comm)
    }

    /// The communicators with the positions of their ranks.
    pub fn comms(&self) -> impl Iterator<Item = (CommId, &BTreeMap<Rank, Position>)> {
        self.comms.iter().map(|(comm, ranks)| (*comm, ranks))
    }
}

/// Time since a rank issued its last operation, from the attributes of a point.
fn age(attrs: &str) -> Option<Duration> {
    let ms = attributes::number(attrs, attribute::AGE_MS)?;
    Duration::try_from_secs_f64(ms / 1e3).ok()
}

/// Duration of a rank's wait from the attributes of a point.
fn waiting_ms(attrs: &str) -> Option<f64> {
    attributes::number(attrs, attribute::WAITING_MS).filter(|ms| *ms >= 0.0)
}

/// Operations that a GPU is in, from the attributes of a point.
fn running(attrs: &str) -> Option<u64> {
    let n = attributes::number(attrs, attribute::RUNNING)?;
    issued(Reading::Double(n))
}

fn issued(reading: Reading) -> Option<u64> {
    match reading {
        Reading::Int(n) => u64::try_from(n).ok(),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts are whole numbers far below 2^53; the cast saturates"
        )]
        Reading::Double(n) => (n >= 0.0).then_some(n as u64),
        Reading::Histogram(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use fleet_proto::attribute;

    use super::{STOPPED, waiting_ms};

    #[test]
    fn the_time_that_a_rank_has_waited_is_read_from_the_attribute_that_agents_send() {
        let attrs = format!(r#"{{"a":1,"{}":5000.5,"b":2}}"#, attribute::WAITING_MS);
        assert_eq!(waiting_ms(&attrs), Some(5000.5));
    }

    #[test]
    fn a_stopped_process_is_known_by_the_attribute_that_agents_send() {
        assert_eq!(STOPPED, format!("\"{}\":true", attribute::STOPPED));
    }

    #[test]
    fn a_malformed_duration_is_none() {
        for attrs in [
            "{}",
            "",
            r#"{"fleet.waiting_ms":"x"}"#,
            r#"{"fleet.waiting_ms":-1}"#,
            r#"{"fleet.waiting_ms":1e999}"#,
        ] {
            assert_eq!(waiting_ms(attrs), None, "{attrs}");
        }
    }
}
