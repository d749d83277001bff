//! Self-verdicts of one host's processes.

use std::collections::BTreeMap;

use fleet_proto::metric;
use fleet_proto::policy::PolicySet;

use crate::classify::Classifier;
use crate::policy::{cohort_key, find_cohort};
use crate::signal::{Point, Summary, Value};
use crate::verdict::{Mode, SelfVerdict, Tally};

/// Classifiers of one host's processes.
#[derive(Debug, Default)]
pub(super) struct SelfVerdicts {
    policy: Option<ReceivedPolicy>,
    classifiers: BTreeMap<u32, Classifier>,
    pending: BTreeMap<u32, Vec<SelfVerdict>>,
}

#[derive(Debug)]
struct ReceivedPolicy {
    set: PolicySet,
    at_ns: u64,
}

impl SelfVerdicts {
    /// Sets the policy set, received at `now_ns` of the host's wall clock.
    pub(super) fn set_policy(&mut self, set: &PolicySet, now_ns: u64) {
        let known = self.policy.as_ref().map(|received| &received.set);
        if known != Some(set) {
            self.policy = Some(ReceivedPolicy {
                set: set.clone(),
                at_ns: now_ns,
            });
        }
    }

    /// Evaluates the points of one process in order, in wall time, and judges every block of its
    /// busiest communicator.
    pub(super) fn observe(&mut self, pid: u32, job: Option<&str>, points: &[Point]) {
        let mut gaps = Summary::default();
        for point in points {
            match (&point.value, point.metric) {
                (Value::Gauge(period_ms), metric::PERIOD) => {
                    self.classifiers
                        .entry(pid)
                        .or_default()
                        .record_period(*period_ms);
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

    /// Returns the verdicts since the last call, by process.
    pub(super) fn take_verdicts(&mut self) -> BTreeMap<u32, Vec<SelfVerdict>> {
        std::mem::take(&mut self.pending)
    }

    /// Removes a process and adds its verdict counts to `tallies`.
    pub(super) fn forget(&mut self, pid: u32, tallies: &mut BTreeMap<Mode, Tally>) {
        self.pending.remove(&pid);
        let classifier = self.classifiers.remove(&pid);
        for (mode, tally) in classifier.iter().flat_map(Classifier::tallies) {
            tallies.entry(*mode).or_default().add(tally);
        }
    }

    fn judge(&mut self, pid: u32, job: Option<&str>, last: &Point, gaps: &Summary) {
        let classifier = self.classifiers.entry(pid).or_default();
        let key = cohort_key(last.block.role, job);
        classifier.set_cohort(key.as_deref());
        if let Some(ReceivedPolicy { set, at_ns }) = &self.policy
            && let Some(cohort) = key.and_then(|key| find_cohort(set, &key))
        {
            classifier.set_policy(set.version, set.computed_unix_nano, cohort, *at_ns);
        }
        let verdict = classifier.judge(&last.block, gaps, last.time_ns);
        if let Some(verdict) = verdict {
            self.pending.entry(pid).or_default().push(verdict);
        }
    }
}

#[cfg(test)]
mod tests {
    use fleet_proto::policy::CohortPolicy;

    use super::*;
    use crate::event::Op;
    use crate::signal::{Block, CommId, Role};

    const SECOND: u64 = 1_000_000_000;

    /// Block `n` of a process that is late according to the policy of `train/{role 1}`.
    fn late_block(n: u64, role: u64) -> Vec<Point> {
        let block = Block {
            comm: CommId::new(1),
            comm_rank: 0,
            comm_nranks: 4,
            source: crate::signal::Source::Host,
            op: Op::AllReduce,
            seq_first: 32 * n,
            seq_last: 32 * n + 31,
            iterations: Some(4.0),
            role: Some(Role::new(role)),
        };
        let mut gaps = Summary::default();
        (0..4).for_each(|_| gaps.add(12.0));
        let values = [
            (metric::PERIOD, Value::Gauge(50.0)),
            (metric::HOST_GAP, Value::from(gaps)),
            (metric::ARRIVAL, Value::from(Summary::default())),
        ];
        let point = |(metric, value)| Point {
            metric,
            start_ns: n * SECOND,
            time_ns: (n + 1) * SECOND,
            block: block.clone(),
            value,
        };
        values.map(point).to_vec()
    }

    fn modes(job: &str, roles: &[u64]) -> Vec<Mode> {
        let mut self_verdicts = SelfVerdicts::default();
        let policy = CohortPolicy {
            cohort: cohort_key(Some(Role::new(1)), Some("train")).unwrap(),
            signal: "host_gap".to_owned(),
            center_ms: 4.0,
            sigma_ms: 0.2,
            effect_gate: 0.05,
            critical_z: 3.5,
            period_ms: 50.0,
            quorum_met: true,
            valid_until_unix_nano: 60 * SECOND,
            ..CohortPolicy::default()
        };
        let set = PolicySet {
            cohorts: vec![policy],
            ..PolicySet::default()
        };
        self_verdicts.set_policy(&set, 0);
        for (role, n) in roles.iter().zip(0..) {
            self_verdicts.observe(7, Some(job), &late_block(n, *role));
        }
        let verdicts = self_verdicts.take_verdicts().remove(&7).unwrap_or_default();
        verdicts.iter().map(|verdict| verdict.mode).collect()
    }

    #[test]
    fn the_policy_of_another_job_or_of_an_earlier_role_is_not_used() {
        assert_eq!(modes("train", &[1, 1]), [Mode::Fleet]);
        assert_eq!(modes("train-2", &[1; 5]), []);
        assert_eq!(modes("train", &[2; 5]), []);
        // The verdict by the old policy is withdrawn.
        assert_eq!(
            modes("train", &[1, 1, 2, 2, 2, 2]),
            [Mode::Fleet, Mode::None, Mode::None]
        );
    }
}
