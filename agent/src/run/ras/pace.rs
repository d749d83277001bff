//! Interval of the queries to one address.

use std::time::Duration;

/// Longest interval at which ranks are reported.
const LONGEST_REPORTING: Duration = Duration::from_secs(15);
/// Increase of the interval per host: NCCL passes each query to all processes of the job, and every
/// host has an agent.
const PER_HOST: Duration = Duration::from_millis(20);
/// Interval while nothing has to be reported.
const LONGEST: Duration = Duration::from_mins(1);

/// Outcome of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Ranks of a job on this many hosts were reported.
    Reported {
        /// Number of hosts.
        hosts: usize,
    },
    /// All ranks of this host are reported by probes, or no rank is here.
    Unneeded,
    /// No usable answer.
    Failed,
}

/// Interval of the queries, and the time of the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// Shortest interval. Two reports have to fall into the time after which a hang is named.
    shortest: Duration,
    interval: Duration,
    due_ns: u64,
    has_failed: bool,
}

impl Pace {
    /// Creates the pace of an address that becomes known at `now_ns`; the first query follows soon.
    pub(super) fn new(now_ns: u64, shortest: Duration) -> Self {
        Self {
            shortest,
            interval: shortest / 2,
            due_ns: after(now_ns, shortest),
            has_failed: false,
        }
    }

    /// Returns the time of the next query, nanoseconds.
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Returns whether the last query had no usable answer.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Records the outcome of a query that ended at `now_ns`.
    pub(super) fn record(&mut self, outcome: Outcome, now_ns: u64) {
        self.interval = match outcome {
            Outcome::Reported { hosts } => {
                let hosts = u32::try_from(hosts).unwrap_or(u32::MAX);
                let interval = PER_HOST.saturating_mul(hosts);
                interval.min(LONGEST_REPORTING).max(self.shortest)
            }
            Outcome::Unneeded => LONGEST.max(self.shortest),
            Outcome::Failed => (self.interval * 2).min(LONGEST.max(self.shortest)),
        };
        self.has_failed = outcome == Outcome::Failed;
        self.due_ns = after(now_ns, self.interval);
    }
}

fn after(now_ns: u64, interval: Duration) -> u64 {
    now_ns.saturating_add(u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(outcomes: &[Outcome]) -> Vec<u64> {
        let now_ns = 7;
        let mut pace = Pace::new(now_ns, Duration::from_secs(5));
        let record = |outcome: &Outcome| {
            pace.record(*outcome, now_ns);
            (pace.due_ns() - now_ns) / 1_000_000_000
        };
        outcomes.iter().map(record).collect()
    }

    #[test]
    fn a_silent_port_is_queried_ever_less_often() {
        assert_eq!(intervals(&[Outcome::Failed; 6]), [5, 10, 20, 40, 60, 60]);
    }

    #[test]
    fn the_agents_of_a_large_job_query_less_often_than_those_of_a_small_one() {
        let reported = [1, 500, 100_000].map(|hosts| Outcome::Reported { hosts });
        assert_eq!(intervals(&reported), [5, 10, 15]);
    }

    #[test]
    fn an_answer_without_use_is_requested_rarely() {
        let small = Outcome::Reported { hosts: 1 };
        assert_eq!(intervals(&[Outcome::Unneeded, small]), [60, 5]);
    }
}
