//! Communicators older than the agent, read in the memory of their processes now and then. Pure.

use std::collections::{BTreeMap, VecDeque};

use fleet_agent_core::event::CommState;

/// Communicators that are read at a time; a process has a handful.
const MAX_COMMS: usize = 1024;
/// Looks at each of which a communicator is read.
const FIRST_LOOKS: u32 = 40;
/// Looks from one reading to the next after that: calls that were lost may make it necessary to count anew.
const LATER_LOOKS: u32 = 100;

/// Which communicators are older than the agent, and what was read of them.
#[derive(Debug, Default)]
pub(crate) struct Older {
    comms: BTreeMap<(u32, u64), u32>,
    states: VecDeque<CommState>,
}

impl Older {
    /// Records that a process uses a communicator that was made before tracing began.
    pub(crate) fn used(&mut self, pid: u32, pointer: u64) {
        if self.comms.len() < MAX_COMMS {
            self.comms.entry((pid, pointer)).or_default();
        }
    }

    /// The communicators that are to be read with this look, by process and pointer.
    pub(crate) fn due(&mut self) -> Vec<(u32, u64)> {
        let mut due = Vec::new();
        for (comm, looks) in &mut self.comms {
            *looks += 1;
            if *looks <= FIRST_LOOKS {
                due.push(*comm);
            } else if *looks >= FIRST_LOOKS + LATER_LOOKS {
                *looks = FIRST_LOOKS;
                due.push(*comm);
            }
        }
        due
    }

    /// Takes that calls may be missing: the communicators are read as often as at first.
    pub(crate) fn lost(&mut self) {
        for looks in self.comms.values_mut() {
            *looks = 0;
        }
    }

    /// Takes what was read.
    pub(crate) fn take(&mut self, state: CommState) {
        self.states.push_back(state);
    }

    /// What was read by then: the calls before it are told first.
    pub(crate) fn until(&mut self, until_ns: u64) -> Vec<CommState> {
        let mut states = Vec::new();
        while let Some(state) = self.states.pop_front_if(|state| state.ts_ns <= until_ns) {
            states.push(state);
        }
        states
    }

    /// Forgets a communicator that is gone.
    pub(crate) fn gone(&mut self, pid: u32, pointer: u64) {
        self.comms.remove(&(pid, pointer));
    }

    /// Forgets a process.
    pub(crate) fn left(&mut self, pid: u32) {
        self.comms.retain(|(its, _), _| *its != pid);
        self.states.retain(|state| state.pid != pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_communicator_is_read_at_first_with_each_look_and_later_now_and_then() {
        let mut older = Older::default();
        older.used(7, 0xa);
        let mut due = |looks: u32| (0..looks).filter(|_| !older.due().is_empty()).count();
        assert_eq!(due(FIRST_LOOKS), FIRST_LOOKS as usize);
        assert_eq!(due(10 * LATER_LOOKS), 10);
        older.lost();
        assert!((0..FIRST_LOOKS).all(|_| !older.due().is_empty()));
    }

    #[test]
    fn what_was_read_waits_for_the_calls_before_it() {
        let mut older = Older::default();
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
        older.take(state(100));
        older.take(state(200));
        assert_eq!(older.until(150), [state(100)]);
        older.left(7);
        assert_eq!(older.until(u64::MAX), []);
    }

    #[test]
    fn one_that_is_gone_is_not_read() {
        let mut older = Older::default();
        older.used(7, 0xa);
        older.used(8, 0xa);
        older.gone(7, 0xa);
        assert_eq!(older.due(), [(8, 0xa)]);
    }
}
