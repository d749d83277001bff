//! Times at which batches are closed. Pure.

/// Schedule of a host's batches. Times are those of the events, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flushing {
    every_ns: u64,
    last_ns: u64,
    waiting: u64,
}

impl Flushing {
    /// Schedules a batch every `every_ns`.
    pub(super) fn new(every_ns: u64) -> Self {
        Self {
            every_ns,
            last_ns: 0,
            waiting: 0,
        }
    }

    /// Records that a batch was closed at this time, or that the schedule begins.
    pub(super) fn flushed(&mut self, now_ns: u64) {
        self.last_ns = now_ns;
    }

    /// Records how many closed batches wait behind the one that is being sent.
    pub(super) fn set_waiting(&mut self, batches: u64) {
        self.waiting = batches;
    }

    /// Returns whether a batch would be sent as soon as it is closed.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0
    }

    /// Returns whether a batch is due. With each batch that waits, the next one is closed an interval later: a slow
    /// receiver answers few large batches sooner than many small ones.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        let interval_ns = self.every_ns.saturating_mul(self.waiting.saturating_add(1));
        now_ns.saturating_sub(self.last_ns) >= interval_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_batch_is_due_every_interval_and_later_for_each_that_waits() {
        let mut flushing = Flushing::new(5 * SECOND);
        flushing.flushed(100 * SECOND);
        assert!(!flushing.is_due(105 * SECOND - 1));
        assert!(flushing.is_due(105 * SECOND));
        flushing.set_waiting(2);
        assert!(!flushing.is_due(115 * SECOND - 1));
        assert!(flushing.is_due(115 * SECOND));
        flushing.set_waiting(u64::MAX);
        assert!(!flushing.is_due(1_000 * SECOND));
    }

    /// Receiver that answers one batch at a time, in two thirds of a second and a millisecond for each point.
    fn longest_delay_ns(adapts: bool) -> u64 {
        let mut flushing = Flushing::new(SECOND / 5);
        let (mut closed_at, mut free_at_ns, mut longest_ns) = (Vec::new(), 0, 0);
        for now_ns in (0..60 * SECOND).step_by(100_000_000) {
            closed_at.retain(|begins_ns| *begins_ns > now_ns);
            if adapts {
                flushing.set_waiting(closed_at.len() as u64);
            }
            if flushing.is_due(now_ns) {
                let points = (now_ns - flushing.last_ns) / (SECOND / 100);
                flushing.flushed(now_ns);
                let begins_ns = now_ns.max(free_at_ns);
                free_at_ns = begins_ns + SECOND * 2 / 3 + points * 1_000_000;
                closed_at.push(begins_ns);
                longest_ns = longest_ns.max(free_at_ns - now_ns);
            }
        }
        longest_ns
    }

    #[test]
    fn points_for_a_receiver_slower_than_the_interval_are_late_by_seconds_and_not_ever_later() {
        assert!(longest_delay_ns(false) > 60 * SECOND);
        assert!(longest_delay_ns(true) < 5 * SECOND);
    }
}
