//! Communicators older than the agent, read in the memory of their processes now and then. Pure.

use std::collections::{BTreeMap, VecDeque};

use fleet_agent_core::event::CommState;

/// Communicators that are read at a time; a process has a handful.
const MAX_COMMS: usize = 1024;
/// Looks at each of which a communicator is read.
const FIRST_POLLS: u32 = 40;
/// Looks from one reading to the next after that: calls that were lost may make it necessary to count anew.
const LATER_POLLS: u32 = 100;

/// Which communicators are older than the agent, and what was read of them.
#[derive(Debug, Default)]
pub(crate) struct PreexistingComms {
    comms: BTreeMap<(u32, u64), u32>,
    states: VecDeque<CommState>,
}

impl PreexistingComms {
    /// Records that a process uses a communicator that was made before tracing began.
    pub(crate) fn record_use(&mut self, pid: u32, pointer: u64) {
        if self.comms.len() < MAX_COMMS {
            self.comms.entry((pid, pointer)).or_default();
        }
    }

    /// The communicators that are to be read with this look, by process and pointer.
    pub(crate) fn due(&mut self) -> Vec<(u32, u64)> {
        let mut due = Vec::new();
        for (comm, polls) in &mut self.comms {
            *polls += 1;
            if *polls <= FIRST_POLLS {
                due.push(*comm);
            } else if *polls >= FIRST_POLLS + LATER_POLLS {
                *polls = FIRST_POLLS;
                due.push(*comm);
            }
        }
        due
    }

    /// Takes that calls may be missing: the communicators are read as often as at first.
    pub(crate) fn restart_reads(&mut self) {
        for polls in self.comms.values_mut() {
            *polls = 0;
        }
    }

    /// Takes what was read.
    pub(crate) fn push(&mut self, state: CommState) {
        self.states.push_back(state);
    }

    /// What was read by then: the calls before it are told first.
    pub(crate) fn take_until(&mut self, until_ns: u64) -> Vec<CommState> {
        let mut states = Vec::new();
        while let Some(state) = self.states.pop_front_if(|state| state.ts_ns <= until_ns) {
            states.push(state);
        }
        states
    }

    /// Forgets a communicator that is gone.
    pub(crate) fn remove(&mut self, pid: u32, pointer: u64) {
        self.comms.remove(&(pid, pointer));
    }

    /// Forgets a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.comms.retain(|(its, _), _| *its != pid);
        self.states.retain(|state| state.pid != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_is_read_at_first_with_each_look_and_later_now_and_then() {
        let mut comms = PreexistingComms::default();
        comms.record_use(7, 0xa);
        let mut due = |polls: u32| (0..polls).filter(|_| !comms.due().is_empty()).count();
        assert_eq!(due(FIRST_POLLS), FIRST_POLLS as usize);
        assert_eq!(due(10 * LATER_POLLS), 10);
        comms.restart_reads();
        assert!((0..FIRST_POLLS).all(|_| !comms.due().is_empty()));
    }

    #[test]
    fn what_was_read_waits_for_the_calls_before_it() {
        let mut comms = PreexistingComms::default();
        let state = |ts_ns| CommState {
            from_ns: ts_ns - 1,
            ts_ns,
            pid: 7,
            pointer: 0xa,
            comm_id: 1,
            rank: 0,
            nranks: 2,
            collectives: 5,
        };
        comms.push(state(100));
        comms.push(state(200));
        assert_eq!(comms.take_until(150), [state(100)]);
        comms.forget(7);
        assert_eq!(comms.take_until(u64::MAX), []);
    }

    #[test]
    fn one_that_is_gone_is_not_read() {
        let mut comms = PreexistingComms::default();
        comms.record_use(7, 0xa);
        comms.record_use(8, 0xa);
        comms.remove(7, 0xa);
        assert_eq!(comms.due(), [(8, 0xa)]);
    }
}
