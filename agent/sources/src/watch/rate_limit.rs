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
pub(super) struct Allowance {
    left: u32,
    refilled_ns: u64,
    put_off: u64,
    told: u64,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left: BURST,
            refilled_ns: 0,
            put_off: 0,
            told: 0,
        }
    }
}

impl Allowance {
    /// Adds what came in since the last time.
    pub(super) fn refill(&mut self, now_ns: u64) {
        let more = now_ns.saturating_sub(self.refilled_ns) / ONE_MORE_NS;
        if more > 0 {
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.left = self.left.saturating_add(more).min(BURST);
            self.refilled_ns = now_ns;
        }
    }

    /// Whether one more may be looked into where so many are known. A process that has lasted from one scan to the next takes
    /// nothing from those that come and go.
    pub(super) fn take(&mut self, has_lasted: bool, n_known: usize) -> bool {
        let may = n_known < MAX_KNOWN && (has_lasted || self.left > 0);
        if !may {
            self.put_off += 1;
        } else if !has_lasted {
            self.left -= 1;
        }
        may
    }

    /// Looks that were put off.
    pub(super) const fn put_off(&self) -> u64 {
        self.put_off
    }

    /// How many of them are news.
    pub(super) const fn take_news(&mut self) -> u64 {
        let news = self.put_off - self.told;
        self.told = self.put_off;
        news
    }
}

#[cfg(test)]
mod tests {
    use super::{Allowance, BURST, MAX_KNOWN, ONE_MORE_NS};

    #[test]
    fn a_storm_of_files_is_put_off_and_counted_and_a_process_that_lasts_is_not() {
        let mut allowance = Allowance::default();
        let taken = (0..16_000).filter(|_| allowance.take(false, 10)).count();
        assert_eq!(taken, 64);
        assert_eq!(allowance.put_off(), 16_000 - 64);
        assert_eq!(allowance.take_news(), 16_000 - 64);
        assert_eq!(allowance.take_news(), 0);
        assert!(allowance.take(true, 10));
    }

    #[test]
    fn there_is_one_more_after_a_while_and_never_more_than_at_first() {
        let mut allowance = Allowance::default();
        while allowance.take(false, 0) {}
        allowance.refill(ONE_MORE_NS);
        assert!(allowance.take(false, 0) && !allowance.take(false, 0));
        allowance.refill(u64::MAX);
        let taken = (0..1_000).filter(|_| allowance.take(false, 0)).count();
        assert_eq!(taken, BURST as usize);
    }

    #[test]
    fn nobody_gets_more_than_is_remembered() {
        assert!(!Allowance::default().take(true, MAX_KNOWN));
    }
}
