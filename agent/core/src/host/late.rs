//! Ranks of one host that its policy calls late.

use fleet_proto::policy::{CohortPolicy, PolicySet};

use crate::batch::Resource;
use crate::host::Host;
use crate::host::resources::job_name;
use crate::pipeline::Pipeline;
use crate::policy::{cohort_key, find_cohort, is_of_job};

/// Process of a late rank, and one to compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateProcess {
    /// Process of the late rank.
    pub pid: u32,
    /// Process of a rank of the same job on this host that is not late, if there is one.
    pub peer: Option<u32>,
}

impl Host {
    /// Returns the processes whose ranks a policy set names as culprits, or has examined.
    pub fn late_processes(&self, set: &PolicySet) -> Vec<LateProcess> {
        let late = self.pipelines.values().filter_map(|pipeline| {
            let pid = pipeline.process().pid;
            if self.is_late(set, pipeline) {
                let peer = self.peer(pid, |other| !self.is_late(set, other));
                return Some(LateProcess { pid, peer });
            }
            let is_examined = self.is_listed(set, pipeline, |entry| &entry.examined_ranks);
            is_examined.then_some(LateProcess { pid, peer: None })
        });
        late.collect()
    }

    /// Returns a process that calls itself late, with a peer.
    pub fn late_process(&self, pid: u32) -> LateProcess {
        LateProcess {
            pid,
            peer: self.peer(pid, |_| true),
        }
    }

    /// Returns the processes of late ranks and of their peers that have issued nothing for some seconds: their
    /// job hangs.
    pub fn still_processes(&self, late: &[LateProcess], now_ns: u64) -> Vec<Resource> {
        let pids = late.iter().flat_map(|late| [Some(late.pid), late.peer]);
        let pipelines = pids.filter_map(|pid| self.pipelines.get(&pid?));
        let still = pipelines.filter(|pipeline| pipeline.still_ns(now_ns).is_some());
        still.map(|pipeline| self.resource(pipeline)).collect()
    }

    fn is_late(&self, set: &PolicySet, pipeline: &Pipeline) -> bool {
        self.is_listed(set, pipeline, |entry| &entry.outlier_ranks)
    }

    /// Returns whether an entry of the process's job lists its rank. Its role may be unknown, since verdicts need no
    /// calls; only in jobs without a name, which have one entry per role together, it tells them apart.
    fn is_listed(
        &self,
        set: &PolicySet,
        pipeline: &Pipeline,
        ranks: impl Fn(&CohortPolicy) -> &[u32],
    ) -> bool {
        let rank = pipeline.process().rank;
        let is_listed = |entry: &CohortPolicy| ranks(entry).contains(&rank);
        if let Some(job) = self.job_of(pipeline) {
            let mut own = set.cohorts.iter().filter(|entry| is_of_job(entry, &job));
            return own.any(is_listed);
        }
        let key = cohort_key(pipeline.iteration_pattern().role(), None);
        let own = key.and_then(|key| find_cohort(set, &key));
        own.is_some_and(is_listed)
    }

    /// Returns a process of the job of `pid` that satisfies a condition.
    fn peer(&self, pid: u32, condition: impl Fn(&Pipeline) -> bool) -> Option<u32> {
        let job = self.job_of(self.pipelines.get(&pid)?)?;
        let is_peer = |pipeline: &&Pipeline| {
            pipeline.process().pid != pid
                && self.job_of(pipeline).as_ref() == Some(&job)
                && condition(pipeline)
        };
        let peer = self.pipelines.values().find(is_peer)?;
        Some(peer.process().pid)
    }

    fn job_of(&self, pipeline: &Pipeline) -> Option<String> {
        let labels = self.labels.get(&pipeline.process().pid);
        job_name(&self.identity, labels, pipeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Call, CallKind, CommInit, Event, Labels, Op, Operation, Process, Started};
    use crate::host::Identity;

    const MILLISECOND: u64 = 1_000_000;

    fn call(pid: u32, ts_ns: u64, kind: CallKind) -> Event {
        Event::Call(Call {
            ts_ns,
            dur_ns: 10_000,
            pid,
            tid: pid,
            kind,
        })
    }

    /// Job of two ranks, of the processes 10 and 11, and one of another job.
    fn host() -> Host {
        let mut host = Host::new(Identity::without_job(), u64::MAX);
        for (pid, rank, job) in [(10, 0, "train"), (11, 1, "train"), (12, 1, "other")] {
            host.on_event(&Event::Started(Box::new(Started {
                ts_ns: 1,
                process: Process {
                    pid,
                    rank,
                    world_size: 2,
                },
                labels: Labels {
                    job: Some(job.to_owned()),
                    ..Labels::default()
                },
            })));
            let init = CommInit {
                nranks: 2,
                rank,
                unique_id: 7,
                comm: Some(0x10),
            };
            host.on_event(&call(pid, 2, CallKind::CommInit(init)));
            for step in 1..200 {
                let operation = Operation {
                    op: Op::AllReduce,
                    count: 1024,
                    datatype: 7,
                    comm: 0x10,
                    seq: None,
                    peer: None,
                };
                let ts_ns = step * 20 * MILLISECOND;
                host.on_event(&call(pid, ts_ns, CallKind::Operation(operation)));
                host.on_event(&call(pid, ts_ns + MILLISECOND, CallKind::Synchronize));
            }
        }
        host
    }

    /// Policy of the whole job.
    fn policy(outlier_ranks: &[u32]) -> PolicySet {
        let cohort = CohortPolicy {
            cohort: "train/0000000000000000".to_owned(),
            outlier_ranks: outlier_ranks.to_vec(),
            ..CohortPolicy::default()
        };
        PolicySet {
            cohorts: vec![cohort],
            ..PolicySet::default()
        }
    }

    #[test]
    fn a_late_rank_comes_with_a_rank_of_its_job_that_is_not_late() {
        let host = host();
        let late = |ranks: &[u32]| host.late_processes(&policy(ranks));
        let (pid, peer) = (11, Some(10));
        assert_eq!(late(&[1]), [LateProcess { pid, peer }]);
        assert_eq!(late(&[]), []);
        assert_eq!(late(&[5]), []);
        let peer = None;
        let both = [10, 11].map(|pid| LateProcess { pid, peer });
        assert_eq!(late(&[0, 1]), both);
        let mut examined = policy(&[]);
        examined.cohorts[0].examined_ranks = vec![1];
        assert_eq!(host.late_processes(&examined), [both[1]]);
    }

    #[test]
    fn late_ranks_and_their_peers_do_nothing_while_their_job_hangs() {
        let host = host();
        let late = host.late_processes(&policy(&[1]));
        let still = |after_s: u64| {
            let still = host.still_processes(&late, after_s * 1_000 * MILLISECOND);
            let ranks = still.iter().map(|resource| (resource.pid, resource.rank));
            ranks.collect::<Vec<_>>()
        };
        assert_eq!(still(4), []);
        assert_eq!(still(15), [(11, Some(1)), (10, Some(0))]);
        assert_eq!(still(500), still(15));
    }

    #[test]
    fn a_rank_alone_in_its_job_has_no_peer() {
        let host = host();
        assert_eq!(host.late_process(12).peer, None);
        assert_eq!(host.late_process(10).peer, Some(11));
    }
}
