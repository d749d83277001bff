//! What the processes of one host hold of themselves.

use std::collections::BTreeMap;

use fleet_proto::metric;
use fleet_proto::policy::PolicySet;

use crate::classify::Classifier;
use crate::policy::own_cohort;
use crate::signal::{Point, Summary, Value};
use crate::verdict::{Mode, SelfVerdict, Tally};

/// The classifiers of one host's processes.
#[derive(Debug, Default)]
pub(super) struct OwnVerdicts {
    policy: Option<Received>,
    classifiers: BTreeMap<u32, Classifier>,
    pending: BTreeMap<u32, Vec<SelfVerdict>>,
}

#[derive(Debug)]
struct Received {
    set: PolicySet,
    at_ns: u64,
}

impl OwnVerdicts {
    /// Takes a policy set, received at `now_ns` of the host's wall clock.
    pub(super) fn learn(&mut self, set: &PolicySet, now_ns: u64) {
        let known = self.policy.as_ref().map(|received| &received.set);
        if known != Some(set) {
            self.policy = Some(Received {
                set: set.clone(),
                at_ns: now_ns,
            });
        }
    }

    /// Takes the points of one process in order, in wall time, and judges every block of its busiest communicator.
    pub(super) fn observe(&mut self, pid: u32, job: Option<&str>, points: &[Point]) {
        let mut gaps = Summary::default();
        for point in points {
            match (&point.value, point.metric) {
                (Value::Gauge(period_ms), metric::PERIOD) => {
                    self.classifiers.entry(pid).or_default().period(*period_ms);
                }
                (Value::Summary { summary, .. }, metric::HOST_GAP) => gaps = *summary,
                (_, metric::ARRIVAL) => {
                    self.judge(pid, job, point, &gaps);
                    gaps = Summary::default();
                }
                _ => {}
            }
        }
    }

    /// The verdicts since the last call, by process.
    pub(super) fn take(&mut self) -> BTreeMap<u32, Vec<SelfVerdict>> {
        std::mem::take(&mut self.pending)
    }

    /// Forgets the processes and adds up how they judged themselves.
    pub(super) fn end(&mut self, tallies: &mut BTreeMap<Mode, Tally>) {
        for (_, classifier) in std::mem::take(&mut self.classifiers) {
            for (mode, tally) in classifier.tallies() {
                tallies.entry(*mode).or_default().add(tally);
            }
        }
    }

    fn judge(&mut self, pid: u32, job: Option<&str>, last: &Point, gaps: &Summary) {
        let classifier = self.classifiers.entry(pid).or_default();
        if let Some(Received { set, at_ns }) = &self.policy
            && let Some(cohort) = own_cohort(set, last.block.role, job)
        {
            classifier.learn(set.version, set.computed_unix_nano, cohort, *at_ns);
        }
        let verdict = classifier.judge(&last.block, gaps, last.time_ns);
        if let Some(verdict) = verdict {
            self.pending.entry(pid).or_default().push(verdict);
        }
    }
}
