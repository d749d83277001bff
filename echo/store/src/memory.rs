//! The store as plain collections: what every engine must do, and the store of tests that need no database.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use echo_core::ids::{ClusterId, IncidentId, JobId, MetricName, NodeId, RankOf};
use echo_core::model::conclusion::{Conclusions, Incident, IncidentState, LostTime, PolicyRecord};
use echo_core::model::event::{BatchKey, Event, EventBatch, Reading, SeqRange, StoredEvent};
use echo_core::units::{Nanos, Window};
use fleet_proto::metric;
use tokio::sync::watch;

use crate::course::{CoursePoint, CourseQuery};
use crate::hours::hours_of;
use crate::memory::hours::HourState;
use crate::reporting::{Count, Reporting, merged};
use crate::resume::{Resume, WarmUp};
use crate::{
    Appended, Coverage, Cursor, EventQuery, EventStore, EvidenceQuery, EvidenceSum, JobQuery, Page,
    StoreError, Tail, finite, is_idle_wait, judges_samples,
};

mod course;
mod hours;

/// Keeps everything in memory, for as long as the value lives.
#[derive(Debug, Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    committed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    keys: HashSet<BatchKey>,
    events: Vec<StoredEvent>,
    incidents: BTreeMap<IncidentId, Incident>,
    lost: BTreeMap<LostKey, LostTime>,
    policies: BTreeMap<ClusterId, PolicyRecord>,
    dropped_until: Option<Nanos>,
    judged: u64,
    hours: HourState,
}

type LostKey = (Nanos, Nanos, IncidentId, NodeId, Option<Arc<str>>);

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Deletes what was received before `until`, as retention does.
    pub fn drop_before(&self, until: Nanos) {
        self.with(|state| {
            state.events.retain(|stored| stored.received >= until);
            state.dropped_until = Some(until);
        });
    }

    /// Runs `use_state` alone. No change of the state can panic half way, so a poisoned lock still guards a whole one.
    fn with<T>(&self, use_state: impl FnOnce(&mut State) -> T) -> T {
        use_state(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl EventStore for MemoryStore {
    async fn append(&self, batch: EventBatch) -> Result<Appended, StoreError> {
        finite::check_batch(&batch)?;
        Ok(self.with(|state| {
            let appended = state.append(batch);
            self.committed.send_replace(state.last_id());
            appended
        }))
    }

    async fn events(&self, query: EventQuery) -> Result<Page, StoreError> {
        Ok(self.with(|state| state.page(&query)))
    }

    async fn tail(
        &self,
        after: u64,
        metrics: &[MetricName],
        limit: usize,
    ) -> Result<Tail, StoreError> {
        Ok(self.with(|state| state.tail(after, metrics, limit)))
    }

    async fn conclude(&self, conclusions: Conclusions) -> Result<(), StoreError> {
        finite::check_conclusions(&conclusions)?;
        self.with(|state| state.conclude(conclusions));
        Ok(())
    }

    async fn resume(&self, warm_up: WarmUp) -> Result<Resume, StoreError> {
        Ok(self.with(|state| state.resume(warm_up)))
    }

    async fn incidents(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Incident>, StoreError> {
        Ok(self.with(|state| state.incidents(cluster, window)))
    }

    async fn lost_time(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<LostTime>, StoreError> {
        let lost = |state: &mut State| {
            let lost = state.lost.values();
            lost.filter(|lost| passes(cluster, Some(&lost.cluster)))
                .filter(|lost| window.contains(lost.interval.from()))
                .cloned()
                .collect()
        };
        Ok(self.with(lost))
    }

    async fn coverage(
        &self,
        cluster: Option<&ClusterId>,
        window: Window,
    ) -> Result<Vec<Coverage>, StoreError> {
        Ok(self.with(|state| state.coverage(cluster, window)))
    }

    async fn host_evidence(&self, query: EvidenceQuery) -> Result<Vec<EvidenceSum>, StoreError> {
        Ok(self.with(|state| {
            let events = state.events.iter().map(|stored| &stored.event);
            merged(events.filter_map(|event| evidence(&query, event)))
        }))
    }

    async fn job_events(&self, query: JobQuery) -> Result<Vec<StoredEvent>, StoreError> {
        Ok(self.with(|state| {
            let matching = state.events.iter().filter(|stored| belongs(&query, stored));
            let mut events: Vec<_> = matching.rev().take(query.limit).collect();
            events.reverse();
            events.into_iter().map(without_details).collect()
        }))
    }

    async fn course(&self, query: CourseQuery) -> Result<Vec<CoursePoint>, StoreError> {
        Ok(self.with(|state| course::sums(&query, state.of_cluster(Some(&query.cluster)))))
    }

    async fn clusters(&self) -> Result<BTreeSet<ClusterId>, StoreError> {
        Ok(self.with(|state| {
            let events = state.of_cluster(None);
            events.map(|event| event.origin.cluster.clone()).collect()
        }))
    }

    async fn extent(
        &self,
        cluster: Option<&ClusterId>,
    ) -> Result<Option<(Nanos, Nanos)>, StoreError> {
        Ok(self.with(|state| {
            let times = || state.of_cluster(cluster).map(|event| event.timestamp);
            times().min().zip(times().max())
        }))
    }

    async fn dropped_until(&self) -> Result<Option<Nanos>, StoreError> {
        Ok(self.with(|state| state.dropped_until))
    }

    fn committed(&self) -> watch::Receiver<u64> {
        self.committed.subscribe()
    }
}

impl State {
    fn last_id(&self) -> u64 {
        self.events.last().map_or(0, |stored| stored.id)
    }

    fn append(&mut self, batch: EventBatch) -> Appended {
        if !self.keys.insert(batch.key) {
            return Appended::Duplicate;
        }
        let events = batch.events.len();
        let last = self.last_id() + events as u64;
        let hours = hours_of(batch.events.iter().map(|event| event.timestamp));
        self.hours.touch(hours, (batch.received, last));
        for event in batch.events {
            self.events.push(StoredEvent {
                id: self.last_id() + 1,
                received: batch.received,
                event,
            });
        }
        Appended::Stored { events }
    }

    fn page(&self, query: &EventQuery) -> Page {
        let matching = self.events.iter().filter(|stored| matches(query, stored));
        let mut events: Vec<_> = matching.collect();
        events.sort_by_key(|stored| Reverse(place(stored)));
        let more = events.len() > query.limit;
        events.truncate(query.limit);
        let last = events.last().filter(|_| more);
        Page {
            next: last.map(|stored| place(stored)),
            events: events.into_iter().cloned().collect(),
        }
    }

    fn tail(&self, after: u64, metrics: &[MetricName], limit: usize) -> Tail {
        let matching = self
            .events
            .iter()
            .filter(|stored| stored.id > after && metrics.contains(&stored.event.metric))
            .filter(|stored| !is_idle_wait(&stored.event));
        let events: Vec<_> = matching.take(limit).map(without_details).collect();
        let until = if events.len() < limit {
            self.last_id().max(after)
        } else {
            events.last().map_or(after, |last| last.id)
        };
        Tail { events, until }
    }

    fn conclude(&mut self, conclusions: Conclusions) {
        for incident in conclusions.incidents {
            self.incidents.insert(incident.id, incident);
        }
        let begins = conclusions.lost.iter().map(|lost| lost.interval.from());
        self.hours
            .touch(hours_of(begins), (Nanos::EARLIEST, self.last_id()));
        for lost in conclusions.lost {
            self.lost.insert(lost_key(&lost), lost);
        }
        let policies = conclusions.policies.into_iter();
        self.policies
            .extend(policies.map(|policy| (policy.cluster.clone(), policy)));
        self.judged = self.judged.max(conclusions.judged.unwrap_or(0));
    }

    fn resume(&self, warm_up: WarmUp) -> Resume {
        let judged = self.judged;
        let known = || self.events.iter().filter(|stored| stored.id <= judged);
        let last = known().next_back().map(|stored| stored.received);
        let is_old = |stored: &&StoredEvent| {
            last.is_some_and(|last| warm_up.begins_behind(stored.received, last))
        };
        let old = known().filter(is_old).map(|stored| stored.id).max();
        Resume {
            after: old.unwrap_or(0).max(judged.saturating_sub(warm_up.events)),
            judged,
            policies: self.policies.values().cloned().collect(),
        }
    }

    fn incidents(&self, cluster: Option<&ClusterId>, window: Window) -> Vec<Incident> {
        let incidents = self.incidents.values();
        let mut incidents: Vec<_> = incidents
            .filter(|incident| passes(cluster, Some(&incident.cluster)))
            .filter(|incident| was_open_in(incident, window))
            .cloned()
            .collect();
        incidents.sort_by_key(|incident| (incident.first_seen, incident.id));
        incidents
    }

    fn coverage(&self, cluster: Option<&ClusterId>, window: Window) -> Vec<Coverage> {
        let mut reporting = Reporting::default();
        let events = self.of_cluster(cluster);
        for event in events.filter(|event| window.contains(event.timestamp)) {
            reporting.add(Count {
                origin: Arc::clone(&event.origin),
                first: event.timestamp,
                last: event.timestamp,
                has_host_evidence: event.metric.as_str().starts_with(metric::HOST_EVIDENCE),
            });
        }
        reporting.into_rows()
    }

    fn of_cluster(&self, cluster: Option<&ClusterId>) -> impl Iterator<Item = &Event> {
        let events = self.events.iter().map(|stored| &stored.event);
        events.filter(move |event| passes(cluster, Some(&event.origin.cluster)))
    }
}

fn place(stored: &StoredEvent) -> Cursor {
    Cursor {
        timestamp: stored.event.timestamp,
        id: stored.id,
    }
}

fn matches(query: &EventQuery, stored: &StoredEvent) -> bool {
    let event = &stored.event;
    let op = event.block.as_ref().and_then(|block| block.op.as_ref());
    let rank = event.origin.rank.map(RankOf::rank);
    query.window.contains(event.timestamp)
        && query.cursor.is_none_or(|cursor| place(stored) < cursor)
        && passes(query.cluster.as_ref(), Some(&event.origin.cluster))
        && passes(query.node.as_ref(), Some(&event.origin.node))
        && passes(query.rank.as_ref(), rank.as_ref())
        && passes(query.op.as_ref(), op)
        && passes(query.metric.as_ref(), Some(&event.metric))
}

fn is_of_job(event: &Event, (cluster, job): (&ClusterId, Option<&JobId>)) -> bool {
    event.origin.cluster == *cluster && event.origin.job.as_ref() == job
}

#[expect(clippy::cast_precision_loss, reason = "evidence stays far below 2^53")]
fn evidence(query: &EvidenceQuery, event: &Event) -> Option<EvidenceSum> {
    let block = event.block.as_ref()?;
    let seqs = block.seqs?;
    let is_meant = is_of_job(event, (&query.cluster, query.job.as_ref()))
        && event.metric.as_str().starts_with(metric::HOST_EVIDENCE)
        && query.window.contains(event.timestamp)
        && block.role == Some(query.role)
        && (query.seqs.first() <= seqs.first() && seqs.last() <= query.seqs.last());
    let sum = EvidenceSum {
        rank: event.origin.rank?.rank(),
        metric: event.metric.clone(),
        sum: match event.reading {
            Reading::Double(value) => value,
            Reading::Int(value) => value as f64,
            Reading::Histogram(summary) => summary.sum,
        },
        iterations: block.iterations?,
    };
    is_meant.then_some(sum)
}

fn belongs(query: &JobQuery, stored: &StoredEvent) -> bool {
    let event = &stored.event;
    let Some(block) = event.block.as_ref() else {
        return false;
    };
    let rank = event.origin.rank.map(RankOf::rank);
    let last = block.seqs.map(SeqRange::last);
    let ends_in =
        |block: &SeqRange| last.is_some_and(|last| block.first() <= last && last <= block.last());
    let in_block = |blocks: &Vec<SeqRange>| blocks.iter().any(ends_in);
    is_of_job(event, (&query.cluster, query.job.as_ref()))
        && rank.is_some()
        && query.metrics.contains(&event.metric)
        && query.window.contains(event.timestamp)
        && passes(query.rank.as_ref(), rank.as_ref())
        && passes(query.role.as_ref(), block.role.as_ref())
        && passes(query.comm.as_ref(), Some(&block.comm))
        && passes(query.source.as_ref(), Some(&block.source))
        && query.blocks.as_ref().is_none_or(in_block)
}

fn passes<T: PartialEq>(wanted: Option<&T>, found: Option<&T>) -> bool {
    wanted.is_none() || wanted == found
}

fn without_details(stored: &StoredEvent) -> StoredEvent {
    StoredEvent {
        event: Event {
            attrs: Arc::from("{}"),
            samples: if judges_samples(&stored.event) {
                stored.event.samples.clone()
            } else {
                Vec::new()
            },
            ..stored.event.clone()
        },
        ..*stored
    }
}

fn lost_key(lost: &LostTime) -> LostKey {
    (
        lost.interval.from(),
        lost.interval.to(),
        lost.incident,
        lost.node.clone(),
        lost.gpu_model.clone(),
    )
}

fn was_open_in(incident: &Incident, window: Window) -> bool {
    let ended = match incident.state {
        IncidentState::Open => false,
        IncidentState::Cleared => incident.cleared_at.unwrap_or(incident.last_seen) < window.from(),
    };
    incident.first_seen < window.to() && !ended
}

#[cfg(test)]
mod tests;
