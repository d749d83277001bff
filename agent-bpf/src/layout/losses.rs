//! Losses of the programs.

/// Losses by cause. Counters start when the programs are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Losses {
    /// Events: the ring buffer was full.
    pub ring: u64,
    /// Calls: too many in flight at once.
    pub in_flight: u64,
    /// Communicators: too many at once.
    pub comms: u64,
    /// Call counters: too many processes and functions.
    pub sums: u64,
    /// Threads: too many at once.
    pub threads: u64,
    /// Arguments behind pointers that could not be read.
    pub unreadable: u64,
    /// Calls of untraced processes: too many are traced.
    pub traced: u64,
    /// Host activity of processes: too many at once.
    pub host_sums: u64,
}

impl Losses {
    /// Returns the losses that cost events.
    pub fn events(&self) -> u64 {
        self.ring.saturating_add(self.in_flight)
    }

    /// Returns the losses since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut rises = self.counts().into_iter().zip(before.counts());
        Self::from_counts(|_| {
            let (now, before) = rises.next().unwrap_or_default();
            now.saturating_sub(before)
        })
    }

    /// Returns the counts in the order of `enum loss`.
    pub(crate) fn counts(&self) -> [u64; 8] {
        let Self {
            ring,
            in_flight,
            comms,
            sums,
            threads,
            unreadable,
            traced,
            host_sums,
        } = *self;
        [
            ring, in_flight, comms, sums, threads, unreadable, traced, host_sums,
        ]
    }

    /// Reads all counts by their numbers in `enum loss`, in order.
    pub(crate) fn from_counts(mut count: impl FnMut(u32) -> u64) -> Self {
        Self {
            ring: count(0),
            in_flight: count(1),
            comms: count(2),
            sums: count(3),
            threads: count(4),
            unreadable: count(5),
            traced: count(6),
            host_sums: count(7),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_an_earlier_agent_are_subtracted() {
        let before = Losses {
            ring: 7,
            traced: 2,
            ..Losses::default()
        };
        let now = Losses {
            ring: 9,
            host_sums: 1,
            ..before
        };
        let since = Losses {
            ring: 2,
            host_sums: 1,
            ..Losses::default()
        };
        assert_eq!(now.since(&before), since);
        assert_eq!(since.events(), 2);
    }
}
