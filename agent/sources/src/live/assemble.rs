//! Assembly of poll results into a stream in order of time. Pure.
//!
//! A call is recorded when it returns, but takes effect at its entry; so a long call is yielded in
//! two parts. Nothing is yielded that a later poll could precede.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent_bpf::layout::CallRecord;

use crate::functions;
use crate::watch::PollResult;

/// Call, or one half of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEvent {
    /// Call that has returned and whose entry was not yielded.
    Complete(CallRecord),
    /// Call in flight.
    Entered(CallRecord),
    /// Return of a call whose entry was yielded.
    Returned(CallRecord),
}

impl CallEvent {
    pub(crate) fn record(&self) -> &CallRecord {
        match self {
            Self::Complete(record) | Self::Entered(record) | Self::Returned(record) => record,
        }
    }

    /// Returns the time at which it takes effect, nanoseconds.
    pub(crate) fn at_ns(&self) -> u64 {
        match self {
            Self::Complete(record) | Self::Entered(record) => record.entered_ns,
            Self::Returned(record) => record.entered_ns.saturating_add(record.duration_ns),
        }
    }
}

/// Key of a call: process, thread, entry.
type Key = (u32, u32, u64);

fn key(record: &CallRecord) -> Key {
    (record.tgid, record.tid, record.entered_ns)
}

/// Assembler of poll results.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    pending: BTreeMap<(u64, u64), CallEvent>,
    entered: BTreeSet<Key>,
    pushed: u64,
    until_ns: u64,
    patience_ns: u64,
}

impl Assembler {
    /// Creates an assembler that yields a call in one part when it lasts no longer than this,
    /// nanoseconds; later calls wait that long.
    pub(crate) fn with_patience(patience_ns: u64) -> Self {
        Self {
            patience_ns,
            ..Self::default()
        }
    }

    /// Stops waiting for calls to return.
    pub(crate) fn stop_waiting(&mut self) {
        self.patience_ns = 0;
    }

    /// Adds a poll result and returns all events that are certain now, in order.
    pub(crate) fn assemble(&mut self, polled: &PollResult) -> Vec<CallEvent> {
        let mut returned = BTreeSet::new();
        for record in &polled.returned {
            returned.insert(key(record));
            let seen = if self.entered.remove(&key(record)) {
                CallEvent::Returned(*record)
            } else {
                CallEvent::Complete(*record)
            };
            self.push(seen);
        }
        let is_reported = |record: &&CallRecord| functions::call_kind(record).is_some();
        let in_flight: Vec<&CallRecord> = polled.in_flight.iter().filter(is_reported).collect();
        let mut until_ns = polled.until_ns;
        for record in &in_flight {
            let is_over = returned.contains(&key(record));
            let due_ns = record.entered_ns.saturating_add(self.patience_ns);
            if due_ns > polled.until_ns && !is_over && !self.entered.contains(&key(record)) {
                until_ns = until_ns.min(record.entered_ns.saturating_sub(1));
            } else if !is_over && self.entered.insert(key(record)) {
                self.push(CallEvent::Entered(**record));
            }
        }
        // The return of a call that is in neither list was lost.
        let here: BTreeSet<Key> = in_flight.into_iter().map(key).collect();
        self.entered.retain(|call| here.contains(call));
        self.until_ns = until_ns;
        self.release()
    }

    /// Returns the time up to which all events were yielded, nanoseconds.
    pub(crate) fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Removes the calls of a process that will never return.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.entered.retain(|(tgid, _, _)| *tgid != pid);
    }

    fn push(&mut self, seen: CallEvent) {
        self.pushed += 1;
        self.pending.insert((seen.at_ns(), self.pushed), seen);
    }

    fn release(&mut self) -> Vec<CallEvent> {
        let mut certain = Vec::new();
        while let Some(first) = self.pending.first_entry() {
            if first.key().0 > self.until_ns {
                break;
            }
            certain.push(first.remove());
        }
        certain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::functions::FUNCTIONS;

    fn op(name: &str) -> u8 {
        let at = FUNCTIONS.iter().position(|function| function.name == name);
        u8::try_from(at.unwrap()).unwrap()
    }

    fn wait(tid: u32, entered_ns: u64, duration_ns: u64) -> CallRecord {
        CallRecord {
            tgid: 1,
            tid,
            entered_ns,
            duration_ns,
            op: op("cudaStreamSynchronize"),
            ..CallRecord::default()
        }
    }

    fn collective(tid: u32, entered_ns: u64) -> CallRecord {
        CallRecord {
            op: op("ncclAllReduce"),
            ..wait(tid, entered_ns, 5)
        }
    }

    fn polled(until_ns: u64, returned: &[CallRecord], in_flight: &[CallRecord]) -> PollResult {
        PollResult {
            now_ns: until_ns,
            until_ns,
            returned: returned.to_vec(),
            in_flight: in_flight.to_vec(),
            ..PollResult::default()
        }
    }

    #[test]
    fn calls_are_yielded_in_order_of_entry_though_they_arrive_in_order_of_return() {
        let mut assembler = Assembler::default();
        let events =
            assembler.assemble(&polled(1000, &[collective(2, 500), wait(1, 100, 600)], &[]));
        assert_eq!(
            events,
            [
                CallEvent::Complete(wait(1, 100, 600)),
                CallEvent::Complete(collective(2, 500))
            ]
        );
    }

    #[test]
    fn a_long_wait_is_yielded_in_two_parts_and_delays_nothing() {
        let mut assembler = Assembler::default();
        let events = assembler.assemble(&polled(1000, &[collective(2, 500)], &[wait(1, 100, 0)]));
        assert_eq!(
            events,
            [
                CallEvent::Entered(wait(1, 100, 0)),
                CallEvent::Complete(collective(2, 500))
            ]
        );
        assert_eq!(
            assembler.assemble(&polled(2000, &[], &[wait(1, 100, 0)])),
            []
        );
        let events = assembler.assemble(&polled(
            3000,
            &[collective(2, 2600), wait(1, 100, 2400)],
            &[],
        ));
        assert_eq!(
            events,
            [
                CallEvent::Returned(wait(1, 100, 2400)),
                CallEvent::Complete(collective(2, 2600))
            ]
        );
    }

    #[test]
    fn events_that_a_later_poll_could_precede_are_delayed() {
        let mut assembler = Assembler::default();
        assert_eq!(
            assembler.assemble(&polled(1000, &[collective(2, 1500)], &[])),
            []
        );
        let events = assembler.assemble(&polled(2000, &[collective(3, 1400)], &[]));
        assert_eq!(
            events,
            [
                CallEvent::Complete(collective(3, 1400)),
                CallEvent::Complete(collective(2, 1500))
            ]
        );
    }

    #[test]
    fn with_patience_a_call_is_yielded_in_one_part_and_later_calls_wait_for_it() {
        let mut assembler = Assembler::with_patience(5000);
        let events = assembler.assemble(&polled(1000, &[collective(2, 500)], &[wait(1, 100, 0)]));
        assert_eq!((events, assembler.until_ns()), (Vec::new(), 99));
        let events = assembler.assemble(&polled(3000, &[wait(1, 100, 2400)], &[]));
        assert_eq!(
            events,
            [
                CallEvent::Complete(wait(1, 100, 2400)),
                CallEvent::Complete(collective(2, 500))
            ]
        );
    }

    #[test]
    fn patience_has_an_end() {
        let mut assembler = Assembler::with_patience(5000);
        assembler.assemble(&polled(1000, &[], &[wait(1, 100, 0)]));
        let events = assembler.assemble(&polled(5100, &[], &[wait(1, 100, 0)]));
        assert_eq!(events, [CallEvent::Entered(wait(1, 100, 0))]);
        assembler.stop_waiting();
        let in_flight = [wait(1, 100, 0), wait(3, 5500, 0)];
        let events = assembler.assemble(&polled(6000, &[], &in_flight));
        assert_eq!(events, [CallEvent::Entered(wait(3, 5500, 0))]);
    }

    #[test]
    fn a_call_in_flight_and_in_the_ring_is_one_call() {
        let mut assembler = Assembler::default();
        let events = assembler.assemble(&polled(1000, &[wait(1, 100, 600)], &[wait(1, 100, 0)]));
        assert_eq!(events, [CallEvent::Complete(wait(1, 100, 600))]);
    }

    #[test]
    fn a_call_whose_return_was_lost_is_forgotten() {
        let mut assembler = Assembler::default();
        assembler.assemble(&polled(1000, &[], &[wait(1, 100, 0)]));
        assembler.assemble(&polled(2000, &[], &[]));
        assert!(assembler.entered.is_empty());
    }
}
