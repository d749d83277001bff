//! What Echo concluded about each cluster, for Prometheus: the numbers of the tools, read for all clusters at once when
//! somebody scrapes.
//!
//! A scrape costs little whatever the fleet. What was read is shown again for [`FRESH_MS`], so a pair of Prometheus servers
//! pays once; reading takes one place among the questions, never one of measurements; and a scrape waits for it for at most
//! [`PATIENCE`]. Where that is not enough, what was read before is repeated, up to [`KEPT_MS`]. What is not known is left out.

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
use echo_tools::{ToolContext, ToolError};
pub(super) use samples::Families;
use snapshot::Reading;
use tokio::sync::Mutex as Turn;
use tokio::time::timeout;
use tracing::warn;

mod counters;
mod samples;
mod snapshot;

/// Longest that a scrape waits for what is being read. Prometheus gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long what was read is shown again without a look.
const FRESH_MS: f64 = 5e3;

/// How long what could not be read anew is shown.
const KEPT_MS: f64 = 120e3;

/// Clusters that are shown at most: those with open incidents, then those that report, each in the order of their names.
const MAX_CLUSTERS: usize = 1_000;

/// What was read last, of all clusters. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Conclusions(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// One scrape at a time reads; the others wait and find it done.
    turn: Turn<()>,
    known: Mutex<Known>,
}

/// What is known.
#[derive(Debug, Default)]
struct Known {
    read_at: Option<Nanos>,
    /// Where the piece of time begins that is still open to corrections.
    open_from: Option<Nanos>,
    clusters: BTreeMap<ClusterId, Cluster>,
    left_out: usize,
    /// Of all clusters, gravest first.
    incidents: Vec<Incident>,
    failed: u64,
    rates_in_force: usize,
}

/// What is known of one cluster.
#[derive(Debug, Default)]
struct Cluster {
    /// The last event of which anything is known.
    last_event: Option<Nanos>,
    /// Whether the cluster reported within the last hour.
    is_reporting: bool,
    /// What its GPUs are paid for by.
    classes: BTreeSet<(RateClass, Currency)>,
    counters: Counters,
    /// Of the last minutes; nothing when it was silent in them.
    latest: Option<ClusterLoss>,
}

impl Conclusions {
    /// Reads what is not fresh any more, if there is time.
    pub(super) async fn refresh(&self, context: &ToolContext) {
        let reason = match timeout(PATIENCE, self.read_in_turn(context)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(_elapsed) => format!("not within {} s", PATIENCE.as_secs()),
        };
        warn!(error = reason, "conclusions could not be read for a scrape");
        self.known().failed += 1;
    }

    /// What this caller may see of it, at an instant at which Echo is ready or not.
    pub(super) fn families(&self, caller: &Principal, state: (Nanos, bool)) -> Families {
        Families::of(&self.known(), caller, state)
    }

    /// Reads unless another scrape just did.
    async fn read_in_turn(&self, context: &ToolContext) -> Result<(), ToolError> {
        let _turn = self.0.turn.lock().await;
        let now = context.clock.now();
        let open_from = {
            let known = self.known();
            if known.is_fresh(now) {
                return Ok(());
            }
            known.open_from
        };
        let read = Reading::of(context, open_from, now);
        let reading = context.run_limited(read).await?;
        self.known().take(reading, &context.rates);
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_fresh(&self, now: Nanos) -> bool {
        let read_at = self.read_at;
        read_at.is_some_and(|at| now.millis_since(at).abs() < FRESH_MS)
    }

    fn take(&mut self, reading: Reading, rates: &Rates) {
        self.left_out = reading.clusters.len().saturating_sub(MAX_CLUSTERS);
        let mut known = std::mem::take(&mut self.clusters);
        let shown = most_important(&reading).into_iter().take(MAX_CLUSTERS);
        for name in shown {
            let before = known.remove(&name);
            let cluster = Cluster::after(before, &reading, &name);
            self.clusters.insert(name, cluster);
        }
        self.take_classes(&reading, rates);
        self.rates_in_force = rates.n_in_force(reading.at);
        self.open_from = reading.pieces.open.map(Window::from);
        self.read_at = Some(reading.at);
        self.incidents = reading.incidents;
    }

    /// What the GPUs that report are paid for by.
    fn take_classes(&mut self, reading: &Reading, rates: &Rates) {
        let mut gpus = BTreeSet::new();
        for row in &reading.reporting {
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
            let rate = rates.rate(&gpu, reading.at);
            if let Some((cluster, rate)) = self.clusters.get_mut(name).zip(rate) {
                cluster.classes.insert((rate.class, rate.currency));
            }
        }
    }
}

impl Cluster {
    /// What is known of a cluster with this reading; who reports comes apart.
    fn after(before: Option<Self>, reading: &Reading, name: &ClusterId) -> Self {
        let is_first = reading.pieces.is_first || before.is_none();
        let before = before.unwrap_or_default();
        let mut counters = before.counters;
        let latest = reading.open.get(name).cloned();
        let open = latest.as_ref().map(totals).unwrap_or_default();
        if is_first {
            counters.begin(&open);
        } else {
            for piece in reading.closing.iter().filter_map(|piece| piece.get(name)) {
                counters.close(&totals(piece));
            }
        }
        counters.reach(&open);
        Self {
            last_event: before.last_event,
            is_reporting: false,
            classes: BTreeSet::new(),
            counters,
            latest: latest.filter(|loss| loss.quality.last_event_age_s.is_some()),
        }
    }
}

/// All clusters, those first that have to be shown.
fn most_important(reading: &Reading) -> Vec<ClusterId> {
    let open = reading.incidents.iter();
    let open = open.filter(|incident| incident.state == IncidentState::Open);
    let open: BTreeSet<&ClusterId> = open.map(|incident| &incident.cluster).collect();
    let rows = reading.reporting.iter();
    let reporting: BTreeSet<&ClusterId> = rows.map(|row| &row.origin.cluster).collect();
    let mut all: Vec<&ClusterId> = reading.clusters.iter().collect();
    all.sort_by_key(|cluster| (!open.contains(cluster), !reporting.contains(cluster)));
    all.into_iter().cloned().collect()
}
