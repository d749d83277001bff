//! Deletion of a slice in steps, between the writer's commits.

use crate::duckdb::rows::partition::Events;

/// Event numbers per step: the writer deletes them in about ten milliseconds.
const STEP_EVENTS: u64 = 100_000;

/// Steps between checkpoints: an hour can hold more than the log should.
const CHECKPOINT_AFTER: u32 = 10;

/// Ranges of event numbers, lowest first.
#[derive(Debug)]
pub(super) struct Steps {
    next: Option<u64>,
    /// Highest number.
    pub(super) last: u64,
    since_checkpoint: u32,
}

impl Steps {
    /// Steps of a range, if there is one.
    pub(super) fn new(events: Option<Events>) -> Self {
        Self {
            next: events.map(|events| events.first),
            last: events.map_or(0, |events| events.last),
            since_checkpoint: 0,
        }
    }

    /// Continues with another range.
    pub(super) fn set_range(&mut self, events: Option<Events>) {
        *self = Self {
            since_checkpoint: self.since_checkpoint,
            ..Self::new(events)
        };
    }

    /// Returns the numbers of the next step.
    pub(super) fn next(&mut self) -> Option<Events> {
        let first = self.next.filter(|first| *first <= self.last)?;
        let last = first.saturating_add(STEP_EVENTS - 1).min(self.last);
        self.next = last.checked_add(1);
        Some(Events { first, last })
    }

    /// Counts a step. Returns whether a checkpoint is due.
    pub(super) const fn is_checkpoint_due(&mut self) -> bool {
        self.since_checkpoint += 1;
        let is_due = self.since_checkpoint >= CHECKPOINT_AFTER;
        if is_due {
            self.since_checkpoint = 0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::{CHECKPOINT_AFTER, STEP_EVENTS, Steps};
    use crate::duckdb::rows::partition::Events;

    fn range(first: u64, last: u64) -> Events {
        Events { first, last }
    }

    #[test]
    fn steps_cover_a_range_once_and_end() {
        let mut steps = Steps::new(Some(range(7, 7 + 2 * STEP_EVENTS)));
        assert_eq!(steps.next(), Some(range(7, 6 + STEP_EVENTS)));
        assert_eq!(
            steps.next(),
            Some(range(7 + STEP_EVENTS, 6 + 2 * STEP_EVENTS))
        );
        let last = 7 + 2 * STEP_EVENTS;
        assert_eq!(steps.next(), Some(range(last, last)));
        assert_eq!(steps.next(), None);
        assert_eq!(Steps::new(None).next(), None);
        let mut highest = Steps::new(Some(range(u64::MAX, u64::MAX)));
        assert_eq!(highest.next(), Some(range(u64::MAX, u64::MAX)));
        assert_eq!(highest.next(), None);
    }

    #[test]
    fn a_large_slice_is_checkpointed_on_the_way() {
        let mut steps = Steps::new(Some(range(1, 25 * STEP_EVENTS)));
        let mut checkpoints = 0;
        while let Some(events) = steps.next() {
            checkpoints += u32::from(steps.is_checkpoint_due());
            // Skipping numbers does not delay it.
            steps.set_range(Some(range(events.last + 1, 25 * STEP_EVENTS)));
        }
        assert_eq!(checkpoints, 25 / CHECKPOINT_AFTER);
    }
}
