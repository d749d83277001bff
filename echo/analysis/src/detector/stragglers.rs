//! Jobs by the durations of their operations on the GPUs, or by the waits of their hosts: points in,
//! incidents and lost time out.
//!
//! The rule is in [`crate::straggler`], which knows neither names nor prices. Here its processes get
//! the names of their senders, and its findings become incidents.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use echo_core::ids::{ClusterId, NodeId, Op, Rank};
use echo_core::model::detector_output::{DetectorOutput, Incident};
use echo_core::model::event::{Event, Origin, Reading, Source, StoredEvent};
use echo_core::units::Nanos;
use fleet_proto::{attribute, metric};

use super::JobKey;
use super::hang::HangTracker;
use crate::assembly::CohortKey;
use crate::attributes;
use crate::iteration_clock::IterationClock;
use crate::straggler::block::{BlockSum, Lead, Membership, NodeKey, Operation, ProcessKey};
use crate::straggler::{self, JobNumber, Report};
use carried::CarriedIncidents;
use host_time::HostTime;
pub(super) use host_time::is_blocked_time;
use job_context::JobContext;
use published::PublishedJob;

mod carried;
mod host_time;
mod job_context;
mod lost_time;
mod published;
mod wording;

/// Jobs of all clusters.
#[derive(Debug, Default)]
pub(super) struct Stragglers {
    clusters: BTreeMap<ClusterId, Cluster>,
    carried: CarriedIncidents,
}

/// Jobs of one cluster.
#[derive(Debug, Default)]
struct Cluster {
    detector: straggler::Detector,
    processes: HashMap<Arc<Origin>, ProcessKey>,
    origins: BTreeMap<ProcessKey, Arc<Origin>>,
    nodes: HashMap<NodeId, NodeKey>,
    host_times: HashMap<ProcessKey, HostTime>,
    next: u64,
    published: BTreeMap<JobNumber, PublishedJob>,
}

/// Returns true for sums of durations.
pub(super) fn is_duration(event: &Event) -> bool {
    event.metric.as_str() == metric::DURATION
}

/// Returns true for reports of progress, which a process sends even when no operation ends.
pub(super) fn is_progress(event: &Event) -> bool {
    event.metric.as_str() == metric::ISSUED
}

impl Stragglers {
    /// Adds a point. One that contradicts itself is ignored.
    pub(super) fn add(&mut self, event: &Event, received: Nanos) {
        let cluster = &event.origin.cluster;
        if !self.clusters.contains_key(cluster) {
            self.clusters.insert(cluster.clone(), Cluster::default());
        }
        if let Some(cluster) = self.clusters.get_mut(cluster) {
            cluster.add(event, received);
        }
    }

    /// Notes that a process lives.
    pub(super) fn note_alive(&mut self, event: &Event, received: Nanos) {
        if let Some(cluster) = self.clusters.get_mut(&event.origin.cluster)
            && let Some(process) = cluster.processes.get(&event.origin)
        {
            let at = event.timestamp;
            cluster.detector.note_alive(*process, at, received);
        }
    }

    /// Adds the time that the host of a process whose GPU is not timed was blocked.
    pub(super) fn add_blocked(&mut self, event: &Event) {
        if let Some(cluster) = self.clusters.get_mut(&event.origin.cluster)
            && let Some(process) = cluster.processes.get(&event.origin)
            && cluster.detector.source_of(*process) == Some(Source::Host)
        {
            cluster.host_times.entry(*process).or_default().add(event);
        }
    }

    /// Evaluates what the ranks of the clusters of these points have reported.
    pub(super) fn advance(
        &mut self,
        arrived: &[StoredEvent],
        iterations: &BTreeMap<JobKey, IterationClock>,
        hangs: &HangTracker,
    ) -> DetectorOutput {
        let Some(now) = arrived.last().map(|stored| stored.received) else {
            return DetectorOutput::default();
        };
        let events = arrived.iter().map(|stored| &stored.event);
        let new = events.filter(|event| is_duration(event) || is_progress(event));
        let clusters: BTreeSet<&ClusterId> = new.map(|event| &event.origin.cluster).collect();
        let mut output = DetectorOutput::default();
        for name in clusters {
            if let Some(cluster) = self.clusters.get_mut(name) {
                let mut found = cluster.advance(name, iterations, hangs, now);
                self.carried.hand_over(|known| cluster.adopt(known));
                self.carried.remove_repeated(&mut found);
                output.append(found);
            }
        }
        output
            .incidents
            .extend(self.carried.take_recovered(iterations));
        output
    }

    /// Ranks that open incidents of a job name.
    pub(super) fn named(&self, job: &JobKey) -> Vec<Rank> {
        let cluster = self.clusters.get(&job.0).into_iter();
        let published = cluster.flat_map(|cluster| cluster.published.values());
        let of_job = published.filter(|published| published.is_of(job));
        of_job.flat_map(PublishedJob::named).collect()
    }

    /// Jobs of which open incidents name ranks, each with the time of its latest verdict.
    pub(super) fn naming(&self) -> impl Iterator<Item = (JobKey, Nanos)> {
        let clusters = self.clusters.values();
        let published = clusters.flat_map(|cluster| cluster.published.values());
        published.filter_map(PublishedJob::naming)
    }

    /// Ends the jobs of which nothing was received for `after_ms` milliseconds before `now`.
    pub(super) fn end_silent(&mut self, now: Nanos, after_ms: f64) -> DetectorOutput {
        let mut output = DetectorOutput::default();
        for cluster in self.clusters.values_mut() {
            for number in cluster.detector.silent(now, after_ms) {
                output.append(cluster.end(number));
            }
        }
        output
    }

    /// Takes over open incidents of an earlier detector, after its events were replayed: they keep
    /// their identity. Those that the replay has not found are carried on.
    pub(super) fn restore(&mut self, known: Vec<Incident>) {
        self.carried = CarriedIncidents::new(known);
        for cluster in self.clusters.values_mut() {
            self.carried.hand_over(|known| cluster.adopt(known));
        }
    }

    /// Removes and returns carried incidents of unknown jobs.
    pub(super) fn take_orphaned(&mut self, has_job: impl Fn(&JobKey) -> bool) -> Vec<Incident> {
        self.carried.take_orphaned(has_job)
    }

    /// Returns true for an incident of a job as a whole, which this module publishes.
    pub(super) fn is_own(key: &CohortKey) -> bool {
        key.is_of_job()
    }
}

impl Cluster {
    fn add(&mut self, event: &Event, received: Nanos) {
        let Some(block) = self.block_sum(event) else {
            return;
        };
        self.detector.observe(&block, received);
    }

    /// Sums of a point; `None` if it lacks something.
    fn block_sum(&mut self, event: &Event) -> Option<BlockSum> {
        let Reading::Histogram(summary) = event.reading else {
            return None;
        };
        let block = event.block.as_ref()?;
        let number = |name| attributes::number(&event.attrs, name);
        let member = Membership {
            comm: block.comm,
            size: attributes::whole(number(attribute::COMM_SIZE)?)?,
            rank: attributes::whole(number(attribute::COMM_RANK)?)?,
        };
        let is_transfer = matches!(block.op.as_ref().map(Op::as_str), Some("Send" | "Recv"));
        let operation = if is_transfer {
            // Only GPUs wait in single transfers: hosts wait for whatever comes last.
            let is_compared = member.size == 2 && block.source == Source::Device;
            let peer = 1_u32.checked_sub(member.rank);
            Operation::Transfer {
                peer: peer.filter(|_| is_compared),
            }
        } else {
            Operation::Collective
        };
        let lead = number(attribute::LEAD_SUM_MS).zip(number(attribute::LEAD_MIN_MS));
        event.origin.rank?;
        Some(BlockSum {
            process: self.process(&event.origin),
            node: self.node(&event.origin.node),
            member,
            operation,
            source: block.source,
            seqs: block.seqs?,
            count: u32::try_from(summary.count).ok()?,
            sum_ms: summary.sum,
            min_ms: summary.min.unwrap_or(0.0),
            lead: lead.map(|(sum_ms, min_ms)| Lead { sum_ms, min_ms }),
            end: event.timestamp,
        })
    }

    fn process(&mut self, origin: &Arc<Origin>) -> ProcessKey {
        if let Some(known) = self.processes.get(origin) {
            return *known;
        }
        let key = ProcessKey(self.next);
        self.next += 1;
        self.processes.insert(Arc::clone(origin), key);
        self.origins.insert(key, Arc::clone(origin));
        key
    }

    fn node(&mut self, node: &NodeId) -> NodeKey {
        if let Some(known) = self.nodes.get(node) {
            return *known;
        }
        let key = NodeKey(self.next);
        self.next += 1;
        self.nodes.insert(node.clone(), key);
        key
    }

    fn advance(
        &mut self,
        name: &ClusterId,
        iterations: &BTreeMap<JobKey, IterationClock>,
        hangs: &HangTracker,
        now: Nanos,
    ) -> DetectorOutput {
        let reports = self.detector.advance(now);
        let mut output = DetectorOutput::default();
        for report in &reports {
            output.append(self.publish(name, report, iterations, hangs));
        }
        let detector = &self.detector;
        let gone = self
            .published
            .extract_if(.., |number, _| !detector.contains(*number));
        for (_, mut joined) in gone {
            output.append(joined.end());
        }
        output
    }

    fn publish(
        &mut self,
        name: &ClusterId,
        report: &Report,
        iterations: &BTreeMap<JobKey, IterationClock>,
        hangs: &HangTracker,
    ) -> DetectorOutput {
        let processes = self.detector.living(report.job);
        let members: Vec<Arc<Origin>> = processes
            .filter_map(|process| self.origins.get(&process).cloned())
            .collect();
        let Some(first) = members.first() else {
            return DetectorOutput::default();
        };
        let job = (name.clone(), first.job.clone());
        let context = JobContext {
            key: CohortKey::of_job(name.clone(), first.job.clone()),
            origins: &self.origins,
            host_times: &self.host_times,
            source: self.detector.source(report.job).unwrap_or(Source::Host),
            iterations: iterations.get(&job),
            hung: hangs.times(&job),
            peers: self.detector.peers(report.job),
            members,
        };
        let new = || PublishedJob::new(context.key.clone());
        let published = self.published.entry(report.job).or_insert_with(new);
        published.update(&context, report)
    }

    /// Continues an incident of an earlier detector; returns false if no job has found the same.
    fn adopt(&mut self, known: &Incident) -> bool {
        self.published.values_mut().any(|job| job.adopt(known))
    }

    /// Ends and forgets a job.
    fn end(&mut self, number: JobNumber) -> DetectorOutput {
        let gone: BTreeSet<ProcessKey> = self.detector.processes(number).collect();
        self.detector.remove(number);
        self.origins.retain(|process, _| !gone.contains(process));
        self.host_times.retain(|process, _| !gone.contains(process));
        self.processes.retain(|_, process| !gone.contains(process));
        let published = self.published.remove(&number);
        published.map_or_else(DetectorOutput::default, |mut published| published.end())
    }
}
