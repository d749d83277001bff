//! How many files are looked into.
//!
//! Each costs a look at its symbols and, when it is probed, memory here and in the kernel until a minute after its last process
//! has ended. Whoever may start processes can give them files and names without end.

/// Files that are looked into at once, and how long it takes until there is one more, nanoseconds. To take the probes out of one
/// takes the kernel a tenth of a second or two, for which the agent sees nothing else.
const BURST: u32 = 64;
const ONE_MORE_NS: u64 = 2_000_000_000;

/// Files that are remembered.
const MAX_KNOWN: usize = 4_096;

/// Counts files.
#[derive(Debug)]
pub(super) struct RateLimiter {
    tokens: u32,
    refilled_ns: u64,
    deferred_files: u64,
    reported: u64,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self {
            tokens: BURST,
            refilled_ns: 0,
            deferred_files: 0,
            reported: 0,
        }
    }
}

impl RateLimiter {
    /// Adds what came in since the last time.
    pub(super) fn refill(&mut self, now_ns: u64) {
        let more = now_ns.saturating_sub(self.refilled_ns) / ONE_MORE_NS;
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(more).min(BURST);
            self.refilled_ns = now_ns;
        }
    }

    /// Whether one more may be looked into where so many are known. A process that has lasted from one scan to the next takes
    /// nothing from those that come and go.
    pub(super) fn try_acquire(&mut self, has_lasted: bool, n_known: usize) -> bool {
        let may = n_known < MAX_KNOWN && (has_lasted || self.tokens > 0);
        if !may {
            self.deferred_files += 1;
        } else if !has_lasted {
            self.tokens -= 1;
        }
        may
    }

    /// Looks that were put off.
    pub(super) const fn deferred_files(&self) -> u64 {
        self.deferred_files
    }

    /// How many of them are news.
    pub(super) const fn take_newly_deferred(&mut self) -> u64 {
        let newly_deferred = self.deferred_files - self.reported;
        self.reported = self.deferred_files;
        newly_deferred
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, MAX_KNOWN, ONE_MORE_NS, RateLimiter};

    #[test]
    fn a_storm_of_files_is_put_off_and_counted_and_a_process_that_lasts_is_not() {
        let mut rate_limiter = RateLimiter::default();
        let taken = (0..16_000)
            .filter(|_| rate_limiter.try_acquire(false, 10))
            .count();
        assert_eq!(taken, 64);
        assert_eq!(rate_limiter.deferred_files(), 16_000 - 64);
        assert_eq!(rate_limiter.take_newly_deferred(), 16_000 - 64);
        assert_eq!(rate_limiter.take_newly_deferred(), 0);
        assert!(rate_limiter.try_acquire(true, 10));
    }

    #[test]
    fn there_is_one_more_after_a_while_and_never_more_than_at_first() {
        let mut rate_limiter = RateLimiter::default();
        while rate_limiter.try_acquire(false, 0) {}
        rate_limiter.refill(ONE_MORE_NS);
        assert!(rate_limiter.try_acquire(false, 0) && !rate_limiter.try_acquire(false, 0));
        rate_limiter.refill(u64::MAX);
        let taken = (0..1_000)
            .filter(|_| rate_limiter.try_acquire(false, 0))
            .count();
        assert_eq!(taken, BURST as usize);
    }

    #[test]
    fn nobody_gets_more_than_is_remembered() {
        assert!(!RateLimiter::default().try_acquire(true, MAX_KNOWN));
    }
}
