//! What Echo concluded about each cluster, for Prometheus: the tools' own answers, read when somebody scrapes.
//!
//! A scrape costs little whatever the fleet. What was read is kept for [`FRESH_MS`], so a pair of Prometheus servers pays once;
//! reading takes a place among the questions, never one of measurements; and a scrape waits for it for at most
//! [`PATIENCE`]. Clusters that were not reached by then are first the next time, and are told as they were, up to
//! [`KEPT_MS`]. What is not known is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use account::{Account, Piece, is_worth_a_look};
use echo_access::Principal;
use echo_core::error::chain;
use echo_core::ids::ClusterId;
use echo_core::model::conclusion::{Incident, IncidentState};
use echo_core::units::{Nanos, Window};
use echo_store::Coverage;
use echo_tools::find_outlier_nodes::incidents;
use echo_tools::get_cost::GetCost;
use echo_tools::get_cost::answer::Cost;
use echo_tools::rates::{Currency, Gpu, RateClass, Rates};
use echo_tools::time::TimeArg;
use echo_tools::tool::Tool;
use echo_tools::{ToolContext, ToolError};
pub(super) use samples::Families;
use tokio::sync::Mutex as Turn;
use tokio::time::timeout;
use tracing::warn;

mod account;
mod samples;

/// Longest that a scrape waits for what is being read. Prometheus gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long what was read is told again without a look.
const FRESH_MS: f64 = 5e3;

/// How long what could not be read anew is told.
const KEPT_MS: f64 = 120e3;

/// Event time that outliers, conditions and who reports are looked for in: the usual window of the tools.
const LOOK_BACK: Duration = Duration::from_hours(1);

/// Clusters that are told at most: those with open incidents, then those that report, each in the order of their names.
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
    /// Whether it lies within [`LOOK_BACK`].
    is_reporting: bool,
    /// What its GPUs are paid for by.
    classes: BTreeSet<(RateClass, Currency)>,
    account: Account,
}

/// Who reported lately, and what was found.
struct Overview {
    clusters: BTreeSet<ClusterId>,
    rows: Vec<Coverage>,
    incidents: Vec<Incident>,
}

impl Conclusions {
    /// Reads what is not fresh any more, as far as there is time.
    pub(super) async fn refresh(&self, context: &ToolContext) {
        let read = timeout(PATIENCE, async {
            let _turn = self.0.turn.lock().await;
            self.read(context).await
        });
        let reason = match read.await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(_elapsed) => format!("not all of it within {} s", PATIENCE.as_secs()),
        };
        warn!(error = reason, "conclusions could not be read for a scrape");
        self.known().failed += 1;
    }

    /// What this caller may see of it, at an instant at which Echo is ready or not.
    pub(super) fn families(&self, caller: &Principal, state: (Nanos, bool)) -> Families {
        Families::of(&self.known(), caller, state)
    }

    async fn read(&self, context: &ToolContext) -> Result<(), ToolError> {
        let now = context.clock.now();
        let is_fresh = |at: Nanos| now.millis_since(at).abs() < FRESH_MS;
        if !self.known().read_at.is_some_and(is_fresh) {
            let overview = context.bounded(Overview::read(context, now)).await?;
            self.known().take(overview, (&context.rates, now));
        }
        let waiting = self.known().waiting(now);
        let mut outcome = Ok(());
        for cluster in waiting {
            if let Err(error) = self.charge(context, &cluster, now).await {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Brings the account of one cluster up to now.
    async fn charge(
        &self,
        context: &ToolContext,
        cluster: &ClusterId,
        now: Nanos,
    ) -> Result<(), ToolError> {
        loop {
            let Some(piece) = self.with(cluster, |account| account.next(now)) else {
                return Ok(());
            };
            let cost = context.bounded(cost(context, cluster, piece)).await?;
            self.with(cluster, |account| account.take(piece, cost));
            if piece.is_present() {
                return Ok(());
            }
        }
    }

    fn with<T>(&self, cluster: &ClusterId, change: impl FnOnce(&mut Account) -> T) -> Option<T> {
        let mut known = self.known();
        let cluster = known.clusters.get_mut(cluster);
        let changed = cluster.map(|cluster| change(&mut cluster.account));
        drop(known);
        changed
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Overview {
    async fn read(context: &ToolContext, now: Nanos) -> Result<Self, ToolError> {
        let clusters = context.store.clusters().await?;
        let Some(window) = Window::new(now.before(LOOK_BACK), now) else {
            return Ok(Self::of(clusters));
        };
        Ok(Self {
            rows: context.store.coverage(None, window).await?,
            incidents: incidents(context, None, window).await?,
            clusters,
        })
    }

    const fn of(clusters: BTreeSet<ClusterId>) -> Self {
        Self {
            clusters,
            rows: Vec::new(),
            incidents: Vec::new(),
        }
    }
}

impl Known {
    fn take(&mut self, overview: Overview, (rates, now): (&Rates, Nanos)) {
        self.left_out = overview.clusters.len().saturating_sub(MAX_CLUSTERS);
        let told = most_important(&overview).into_iter().take(MAX_CLUSTERS);
        self.clusters = told
            .map(|cluster| {
                let known = self.clusters.remove(&cluster).unwrap_or_default();
                (cluster, known.silent())
            })
            .collect();
        let mut gpus = BTreeSet::new();
        for row in &overview.rows {
            let origin = &row.origin;
            let Some(cluster) = self.clusters.get_mut(&origin.cluster) else {
                continue;
            };
            cluster.is_reporting = true;
            cluster.last_event = cluster.last_event.max(Some(row.last));
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
            let class = rates
                .rate(&gpu, now)
                .map(|rate| (rate.class, rate.currency));
            if let Some(cluster) = self.clusters.get_mut(name) {
                cluster.classes.extend(class);
            }
        }
        self.incidents = overview.incidents;
        self.rates_in_force = rates.in_force(now);
        self.read_at = Some(now);
    }

    /// Clusters that report and whose account is not fresh, those first that were looked at longest ago. A cluster that is
    /// silent costs nothing, and to find out when it last was not would be the dearest question of all.
    fn waiting(&self, now: Nanos) -> Vec<ClusterId> {
        let mut waiting: Vec<(Option<Nanos>, ClusterId)> = Vec::new();
        for (name, cluster) in &self.clusters {
            let looked_at = cluster.account.looked_at();
            let is_fresh = looked_at.is_some_and(|at| now.millis_since(at).abs() < FRESH_MS);
            if is_worth_a_look(cluster.last_event, now) && !is_fresh {
                waiting.push((looked_at, name.clone()));
            }
        }
        waiting.sort();
        waiting.into_iter().map(|(_, name)| name).collect()
    }
}

impl Cluster {
    /// The same, as long as no report says that it goes on.
    fn silent(self) -> Self {
        Self {
            is_reporting: false,
            classes: BTreeSet::new(),
            ..self
        }
    }
}

/// All clusters, those first that have to be told.
fn most_important(overview: &Overview) -> Vec<ClusterId> {
    let open = overview.incidents.iter();
    let open = open.filter(|incident| incident.state == IncidentState::Open);
    let open: BTreeSet<&ClusterId> = open.map(|incident| &incident.cluster).collect();
    let rows = overview.rows.iter();
    let reporting: BTreeSet<&ClusterId> = rows.map(|row| &row.origin.cluster).collect();
    let mut all: Vec<&ClusterId> = overview.clusters.iter().collect();
    all.sort_by_key(|cluster| (!open.contains(cluster), !reporting.contains(cluster)));
    all.into_iter().cloned().collect()
}

/// What `get_cost` answers about a piece of time.
async fn cost(context: &ToolContext, cluster: &ClusterId, piece: Piece) -> Result<Cost, ToolError> {
    let question = GetCost {
        cluster: Some(cluster.to_string()),
        from: Some(TimeArg::At(piece.from)),
        to: Some(TimeArg::At(piece.to)),
        // Nothing of what is listed is told.
        limit: Some(1),
        ..GetCost::default()
    };
    question.answer(context).await
}
