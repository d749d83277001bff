//! Identity of the processes of a host in what is sent, and reports about them.

use std::time::Duration;

use crate::batch::{Resource, ResourceReport};
use crate::captured_file::CapturedFile;
use crate::event::{Labels, Process};
use crate::explain::{Explainer, Observation, ProcessReport};
use crate::host::{Host, Identity};
use crate::pipeline::Pipeline;

/// Default period of the reports about what processes lose time to.
pub(super) const REPORT_PERIOD: Duration = Duration::from_secs(10);

impl Host {
    /// Sets the period of the reports about what processes lose time to.
    #[must_use]
    pub fn with_report_period(mut self, period: Duration) -> Self {
        self.explainer = Explainer::new(period);
        self
    }

    /// Returns whether a process uses a GPU, with or without a rank.
    pub fn has_processes(&self) -> bool {
        !self.explainer.is_empty()
    }

    /// Adds the reports of a period that is over to the next batch.
    pub(super) fn explain(&mut self, now_ns: u64) {
        let reports = self.explainer.reports(now_ns).into_iter();
        for mut report in reports.filter(|report| report.n_points() > 0) {
            let resource = match self.pipelines.get(&report.pid) {
                Some(pipeline) => self.resource(pipeline),
                None => self.resource_without_rank(report.pid),
            };
            report.map_times(|ns| self.clock.unix_ns(ns));
            self.report(resource, report);
        }
    }

    /// Adds files about a process to the next batch. It may have ended since.
    pub fn report_files(&mut self, resource: Resource, files: Vec<CapturedFile>) {
        let now_ns = self.clock.unix_ns(self.now_ns);
        let report = ProcessReport {
            pid: resource.pid,
            process: None,
            from_ns: now_ns,
            to_ns: now_ns,
            seen: Observation::default(),
            chains: Vec::new(),
            files,
        };
        self.report(resource, report);
    }

    fn report(&mut self, resource: Resource, report: ProcessReport) {
        self.reports.push(ResourceReport {
            resource,
            program: None,
            report,
        });
    }

    /// Adds the points of a process to the next batch, once its job is certain: points of one job
    /// under two names would be two jobs.
    pub(super) fn collect(&mut self, pid: u32) {
        let now_ns = self.now_ns;
        let labels = self.labels.get(&pid);
        let is_named = self.identity.job.is_some() || labels.is_some_and(|of| of.job.is_some());
        let pipeline = self.pipelines.get_mut(&pid);
        if pipeline.is_some_and(|pipeline| is_named || pipeline.is_job_settled(now_ns)) {
            self.collect_all(pid);
        }
    }

    /// Adds the points of a process to the next batch under the name that its job has now.
    pub(super) fn collect_all(&mut self, pid: u32) {
        let Some(pipeline) = self.pipelines.get_mut(&pid) else {
            return;
        };
        let mut points = pipeline.take_points();
        if points.is_empty() {
            return;
        }
        for point in &mut points {
            self.clock.to_wall_time(point);
        }
        let job = job_name(&self.identity, self.labels.get(&pid), pipeline);
        self.self_verdicts.observe(pid, job.as_deref(), &points);
        self.pending.entry(pid).or_default().extend(points);
    }

    pub(super) fn resource(&self, pipeline: &Pipeline) -> Resource {
        let Process {
            pid,
            rank,
            world_size,
        } = pipeline.process();
        Resource {
            job: job_name(&self.identity, self.labels.get(&pid), pipeline),
            rank: Some(rank),
            world_size: Some(world_size),
            ..self.resource_without_rank(pid)
        }
    }

    fn resource_without_rank(&self, pid: u32) -> Resource {
        let identity = &self.identity;
        let labels = self.labels.get(&pid).cloned().unwrap_or_default();
        Resource {
            cluster: identity.cluster.clone(),
            node: identity.node.clone(),
            job: identity.job.clone().or(labels.job),
            gpu_model: labels.gpu_model.or_else(|| identity.gpu_model.clone()),
            gpu_uuid: labels.gpu_uuid,
            pod: labels.pod,
            namespace: labels.namespace,
            rank: None,
            world_size: None,
            pid,
        }
    }
}

/// Returns the job name: configured, else from the launcher's labels, else the id of the
/// communicator that spans the job.
pub(super) fn job_name(
    identity: &Identity,
    labels: Option<&Labels>,
    pipeline: &Pipeline,
) -> Option<String> {
    let configured = identity.job.clone();
    let from_labels = || labels.and_then(|labels| labels.job.clone());
    configured
        .or_else(from_labels)
        .or_else(|| pipeline.job().map(|comm| comm.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Activity, ActivitySample, Event, OffCpuTime};
    use crate::explain::Cause;
    use crate::host::WallClock;
    use crate::pipeline::BlockRule;

    fn preempted(preempted_ns: u64) -> Activity {
        Activity {
            threads: Some(OffCpuTime {
                preempted_ns,
                ..OffCpuTime::default()
            }),
            ..Activity::default()
        }
    }

    #[test]
    fn a_batch_delivers_what_processes_with_and_without_a_rank_lose_time_to() {
        let identity = Identity {
            job: Some("j".to_owned()),
            ..Identity::without_job()
        };
        let period_ns = 10_000_000_000;
        let host = Host::new(identity, period_ns);
        let mut host = host.with_report_period(Duration::from_nanos(period_ns));
        let ranks = [0, 1].map(|rank| Process {
            pid: rank + 10,
            rank,
            world_size: 2,
        });
        let clock = WallClock {
            origin_ns: 0,
            unix_ns: 1_000_000_000_000_000,
        };
        host.trace(&ranks, clock, BlockRule::default());
        host.tick(0);
        let mut last = None;
        for period in 1..=3 {
            let ts_ns = period * period_ns;
            for (pid, preempted_ns) in [(10, 0), (11, 4_000_000_000), (12, 4_000_000_000)] {
                host.on_event(&Event::Activity(ActivitySample {
                    from_ns: ts_ns - period_ns,
                    ts_ns,
                    pid,
                    activity: preempted(preempted_ns),
                }));
            }
            last = host.tick(ts_ns).or(last);
        }
        let batch = last.unwrap();
        let rows: Vec<_> = batch
            .reports
            .iter()
            .map(|own| {
                let causes = own.report.chains.iter().map(|chain| chain.cause);
                (
                    own.resource.pid,
                    own.resource.rank,
                    own.report.to_ns,
                    causes.collect::<Vec<_>>(),
                )
            })
            .collect();
        let to_ns = 1_000_030_000_000_000;
        assert_eq!(
            rows,
            [
                (11, Some(1), to_ns, vec![Cause::CpuContention]),
                (12, None, to_ns, vec![Cause::CpuContention]),
            ]
        );
        assert_eq!(batch.n_points(), 2);
    }
}
