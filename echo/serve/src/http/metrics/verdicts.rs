//! Verdicts about each cluster as metrics: the figures of the tools, read for all clusters in one
//! scrape.
//!
//! The cost of a scrape does not depend on the fleet. A result is reused for [`FRESH_FOR_MS`], so
//! that a pair of Prometheus servers pays once. Reading takes one slot of the query limit and none
//! of ingest, and a scrape waits for it for at most [`SCRAPE_TIMEOUT`]; after that, the previous
//! result is repeated, up to [`STALE_AFTER_MS`]. Unknown values are omitted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use counters::{Counters, totals};
use echo_access::Principal;
use echo_core::error::chain;
use echo_core::ids::ClusterId;
use echo_core::model::detector_output::{Incident, IncidentState};
use echo_core::units::{Nanos, Window};
use echo_tools::get_cost::by_cluster::ClusterLoss;
use echo_tools::rates::{Currency, Gpu, RateClass, Rates};
use echo_tools::recurrence::History;
use echo_tools::{ToolContext, ToolError};
pub(super) use samples::Families;
use snapshot::Snapshot;
use tokio::sync::Mutex as Turn;
use tokio::time::timeout;
use tracing::warn;

mod counters;
mod samples;
mod snapshot;

/// Longest time that a scrape waits for a read. Prometheus gives up after ten seconds.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a result is reused without reading again.
const FRESH_FOR_MS: f64 = 5e3;

/// Time for which a result is repeated if it cannot be read again.
const STALE_AFTER_MS: f64 = 120e3;

/// Most clusters with metrics: those with open incidents first, then those that report, each
/// ordered by name.
const MAX_CLUSTERS: usize = 1_000;

/// Latest verdicts about all clusters. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct VerdictCache(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Lets one scrape read at a time; the others wait and reuse its result.
    turn: Turn<()>,
    state: Mutex<State>,
}

/// Latest verdicts.
#[derive(Debug, Default)]
struct State {
    read_at: Option<Nanos>,
    /// Start of the interval that is still open to corrections.
    open_from: Option<Nanos>,
    clusters: BTreeMap<ClusterId, Cluster>,
    left_out: usize,
    /// Incidents of all clusters, most severe first.
    incidents: Vec<Incident>,
    /// History of their GPUs and nodes.
    history: History,
    failed: u64,
    rates_in_force: usize,
}

/// Latest verdicts about one cluster.
#[derive(Debug, Default)]
struct Cluster {
    /// Time of its last known event.
    last_event: Option<Nanos>,
    /// Whether the cluster reported within the last hour.
    is_reporting: bool,
    /// Rate classes and currencies of its GPUs.
    classes: BTreeSet<(RateClass, Currency)>,
    counters: Counters,
    /// Losses of the last minutes; `None` if it sent nothing in them.
    latest: Option<ClusterLoss>,
}

impl VerdictCache {
    /// Reads the verdicts unless they are fresh, within the timeout.
    pub(super) async fn refresh(&self, context: &ToolContext) {
        let reason = match timeout(SCRAPE_TIMEOUT, self.read_in_turn(context)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(_elapsed) => format!("not within {} s", SCRAPE_TIMEOUT.as_secs()),
        };
        warn!(error = reason, "verdicts could not be read for a scrape");
        self.state().failed += 1;
    }

    /// Returns the metrics visible to the caller at this instant and readiness.
    pub(super) fn families(&self, caller: &Principal, state: (Nanos, bool)) -> Families {
        Families::visible_to(&self.state(), caller, state)
    }

    /// Reads the verdicts, unless another scrape just did.
    async fn read_in_turn(&self, context: &ToolContext) -> Result<(), ToolError> {
        let _turn = self.0.turn.lock().await;
        let now = context.clock.now();
        let open_from = {
            let state = self.state();
            if state.is_fresh(now) {
                return Ok(());
            }
            state.open_from
        };
        let read = Snapshot::read(context, open_from, now);
        let snapshot = context.run_limited(read).await?;
        self.state().update(snapshot, &context.rates);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_fresh(&self, now: Nanos) -> bool {
        let read_at = self.read_at;
        read_at.is_some_and(|at| now.millis_since(at).abs() < FRESH_FOR_MS)
    }

    fn update(&mut self, snapshot: Snapshot, rates: &Rates) {
        self.left_out = snapshot.clusters.len().saturating_sub(MAX_CLUSTERS);
        let mut previous = std::mem::take(&mut self.clusters);
        let shown = by_importance(&snapshot).into_iter().take(MAX_CLUSTERS);
        for name in shown {
            let before = previous.remove(&name);
            let cluster = Cluster::after(before, &snapshot, &name);
            self.clusters.insert(name, cluster);
        }
        self.update_rate_classes(&snapshot, rates);
        self.rates_in_force = rates.n_in_force(snapshot.at);
        self.open_from = snapshot.intervals.open.map(Window::from);
        self.read_at = Some(snapshot.at);
        self.incidents = snapshot.incidents;
        self.history = snapshot.history;
    }

    /// Updates the rate classes of the GPUs that report.
    fn update_rate_classes(&mut self, snapshot: &Snapshot, rates: &Rates) {
        let mut gpus = BTreeSet::new();
        for row in &snapshot.reporting {
            let origin = &row.origin;
            if let Some(cluster) = self.clusters.get_mut(&origin.cluster) {
                cluster.is_reporting = true;
                cluster.last_event = cluster.last_event.max(Some(row.last));
            }
            if origin.rank.is_some() {
                gpus.insert((&origin.cluster, &origin.node, origin.gpu_model.as_deref()));
            }
        }
        for (name, node, model) in gpus {
            let gpu = Gpu {
                cluster: name,
                node,
                model,
            };
            let rate = rates.rate(&gpu, snapshot.at);
            if let Some((cluster, rate)) = self.clusters.get_mut(name).zip(rate) {
                cluster.classes.insert((rate.class, rate.currency));
            }
        }
    }
}

impl Cluster {
    /// Updates a cluster from a snapshot, except for which ranks report.
    fn after(before: Option<Self>, snapshot: &Snapshot, name: &ClusterId) -> Self {
        let is_first = snapshot.intervals.is_first || before.is_none();
        let before = before.unwrap_or_default();
        let mut counters = before.counters;
        let latest = snapshot.open.get(name).cloned();
        let open = latest.as_ref().map(totals).unwrap_or_default();
        if is_first {
            counters.begin(&open);
        } else {
            for interval in snapshot
                .closing
                .iter()
                .filter_map(|interval| interval.get(name))
            {
                counters.close(&totals(interval));
            }
        }
        counters.report(&open);
        Self {
            last_event: before.last_event,
            is_reporting: false,
            classes: BTreeSet::new(),
            counters,
            latest: latest.filter(|loss| loss.quality.last_event_age_s.is_some()),
        }
    }
}

/// Returns all clusters, those to be shown first.
fn by_importance(snapshot: &Snapshot) -> Vec<ClusterId> {
    let open = snapshot.incidents.iter();
    let open = open.filter(|incident| incident.state == IncidentState::Open);
    let open: BTreeSet<&ClusterId> = open.map(|incident| &incident.cluster).collect();
    let rows = snapshot.reporting.iter();
    let reporting: BTreeSet<&ClusterId> = rows.map(|row| &row.origin.cluster).collect();
    let mut all: Vec<&ClusterId> = snapshot.clusters.iter().collect();
    all.sort_by_key(|cluster| (!open.contains(cluster), !reporting.contains(cluster)));
    all.into_iter().cloned().collect()
}
