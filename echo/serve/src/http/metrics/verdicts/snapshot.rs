//! Data that one scrape reads from the store, for all clusters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use echo_core::ids::ClusterId;
use echo_core::model::detector_output::Incident;
use echo_core::units::{Nanos, Window};
use echo_store::Coverage;
use echo_tools::find_outlier_nodes::incidents;
use echo_tools::get_cost::by_cluster::{ClusterLoss, losses_by_cluster};
use echo_tools::recurrence::History;
use echo_tools::{ToolContext, ToolError};

use super::counters::Intervals;

/// Window for outliers, conditions and coverage: the default window of the tools.
const LOOK_BACK: Duration = Duration::from_hours(1);

type Losses = BTreeMap<ClusterId, ClusterLoss>;

/// Result of a read.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Time of the read.
    pub(super) at: Nanos,
    /// Clusters that ever sent events.
    pub(super) clusters: BTreeSet<ClusterId>,
    /// Coverage within the last hour.
    pub(super) reporting: Vec<Coverage>,
    /// Incidents of the last hour, most severe first.
    pub(super) incidents: Vec<Incident>,
    /// History of their GPUs and nodes.
    pub(super) history: History,
    /// Intervals of the losses.
    pub(super) intervals: Intervals,
    /// Losses of each closed interval.
    pub(super) closing: Vec<Losses>,
    /// Losses of the open interval.
    pub(super) open: Losses,
}

impl Snapshot {
    /// Reads the current data. `open_from` is the start of the open interval of the previous
    /// snapshot.
    pub(super) async fn read(
        context: &ToolContext,
        open_from: Option<Nanos>,
        now: Nanos,
    ) -> Result<Self, ToolError> {
        let intervals = Intervals::new(open_from, now);
        let mut closing = Vec::new();
        for interval in &intervals.closing {
            closing.push(losses_by_cluster(context, *interval).await?);
        }
        let open = match intervals.open {
            Some(open) => losses_by_cluster(context, open).await?,
            None => Losses::new(),
        };
        let (reporting, incidents) = match Window::new(now.before(LOOK_BACK), now) {
            Some(window) => (
                context.store.coverage(None, window).await?,
                incidents(context, None, window).await?,
            ),
            None => (Vec::new(), Vec::new()),
        };
        let raised: Vec<Nanos> = incidents.iter().map(|one| one.raised_at).collect();
        Ok(Self {
            at: now,
            clusters: context.store.clusters().await?,
            reporting,
            incidents,
            history: History::load(context, &raised).await?,
            intervals,
            closing,
            open,
        })
    }
}
