//! Rate limit of inspected files.
//!
//! Each file costs a symbol lookup and, when it is probed, memory here and in the kernel until a
//! minute after its last process has ended. Any user who may start processes can create files and
//! names without limit.

/// Burst size, and time until one more file may be inspected, nanoseconds. Removing the probes of a
/// file takes the kernel a tenth of a second or two, during which the agent sees nothing else.
const BURST: u32 = 64;
const REFILL_NS: u64 = 2_000_000_000;

/// Maximum number of known files.
const MAX_KNOWN: usize = 4_096;

/// Token bucket of files.
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
    /// Refills the bucket.
    pub(super) fn refill(&mut self, now_ns: u64) {
        let more = now_ns.saturating_sub(self.refilled_ns) / REFILL_NS;
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(more).min(BURST);
            self.refilled_ns = now_ns;
        }
    }

    /// Returns whether one more file may be inspected, given the number of known files. A process
    /// that has lasted from one scan to the next takes no token.
    pub(super) fn try_acquire(&mut self, has_lasted: bool, n_known: usize) -> bool {
        let may = n_known < MAX_KNOWN && (has_lasted || self.tokens > 0);
        if !may {
            self.deferred_files += 1;
        } else if !has_lasted {
            self.tokens -= 1;
        }
        may
    }

    /// Returns the number of deferred inspections.
    pub(super) const fn deferred_files(&self) -> u64 {
        self.deferred_files
    }

    /// Returns the number of deferred inspections since the last call.
    pub(super) const fn take_newly_deferred(&mut self) -> u64 {
        let newly_deferred = self.deferred_files - self.reported;
        self.reported = self.deferred_files;
        newly_deferred
    }
}

#[cfg(test)]
mod tests {
    use super::{BURST, MAX_KNOWN, REFILL_NS, RateLimiter};

    #[test]
    fn a_burst_of_files_is_deferred_and_counted_and_a_lasting_process_is_not() {
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
    fn the_bucket_refills_up_to_the_burst_size() {
        let mut rate_limiter = RateLimiter::default();
        while rate_limiter.try_acquire(false, 0) {}
        rate_limiter.refill(REFILL_NS);
        assert!(rate_limiter.try_acquire(false, 0) && !rate_limiter.try_acquire(false, 0));
        rate_limiter.refill(u64::MAX);
        let taken = (0..1_000)
            .filter(|_| rate_limiter.try_acquire(false, 0))
            .count();
        assert_eq!(taken, BURST as usize);
    }

    #[test]
    fn no_more_files_are_inspected_than_can_be_known() {
        assert!(!RateLimiter::default().try_acquire(true, MAX_KNOWN));
    }
}
