//! Communicators older than the agent, read periodically from the memory of their processes. Pure.

use std::collections::{BTreeMap, VecDeque};

use fleet_agent_core::event::CommState;

/// Maximum number of communicators read at a time; a process has a handful.
const MAX_COMMS: usize = 1024;
/// Number of initial polls in each of which a communicator is read.
const FIRST_POLLS: u32 = 40;
/// Number of polls between reads after that: lost calls may require counting again.
const LATER_POLLS: u32 = 100;

/// Communicators older than the agent, and their states.
#[derive(Debug, Default)]
pub(crate) struct PreexistingComms {
    comms: BTreeMap<(u32, u64), u32>,
    states: VecDeque<CommState>,
}

impl PreexistingComms {
    /// Records that a process uses a communicator that was created before tracing began.
    pub(crate) fn record_use(&mut self, pid: u32, pointer: u64) {
        if self.comms.len() < MAX_COMMS {
            self.comms.entry((pid, pointer)).or_default();
        }
    }

    /// Returns the communicators to read in this poll, by process and pointer.
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

    /// Restarts the initial reads of all communicators, since calls may be missing.
    pub(crate) fn restart_reads(&mut self) {
        for polls in self.comms.values_mut() {
            *polls = 0;
        }
    }

    /// Adds a state.
    pub(crate) fn push(&mut self, state: CommState) {
        self.states.push_back(state);
    }

    /// Takes the states read by `until_ns`; earlier calls are yielded first.
    pub(crate) fn take_until(&mut self, until_ns: u64) -> Vec<CommState> {
        let mut states = Vec::new();
        while let Some(state) = self.states.pop_front_if(|state| state.ts_ns <= until_ns) {
            states.push(state);
        }
        states
    }

    /// Removes a communicator that was destroyed.
    pub(crate) fn remove(&mut self, pid: u32, pointer: u64) {
        self.comms.remove(&(pid, pointer));
    }

    /// Removes a process.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.comms.retain(|(owner, _), _| *owner != pid);
        self.states.retain(|state| state.pid != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_is_read_at_each_poll_at_first_and_periodically_later() {
        let mut comms = PreexistingComms::default();
        comms.record_use(7, 0xa);
        let mut due = |polls: u32| (0..polls).filter(|_| !comms.due().is_empty()).count();
        assert_eq!(due(FIRST_POLLS), FIRST_POLLS as usize);
        assert_eq!(due(10 * LATER_POLLS), 10);
        comms.restart_reads();
        assert!((0..FIRST_POLLS).all(|_| !comms.due().is_empty()));
    }

    #[test]
    fn a_state_waits_for_earlier_calls() {
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
    fn a_destroyed_communicator_is_not_read() {
        let mut comms = PreexistingComms::default();
        comms.record_use(7, 0xa);
        comms.record_use(8, 0xa);
        comms.remove(7, 0xa);
        assert_eq!(comms.due(), [(8, 0xa)]);
    }
}
