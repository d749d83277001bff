//! What one scrape reads from the store, of all clusters at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use echo_core::ids::ClusterId;
use echo_core::model::detector_output::Incident;
use echo_core::units::{Nanos, Window};
use echo_store::Coverage;
use echo_tools::find_outlier_nodes::incidents;
use echo_tools::get_cost::by_cluster::{ClusterLoss, losses_by_cluster};
use echo_tools::{ToolContext, ToolError};

use super::counters::Pieces;

/// Event time that outliers, conditions and who reports are looked for in: the usual window of the tools.
const LOOK_BACK: Duration = Duration::from_hours(1);

type Losses = BTreeMap<ClusterId, ClusterLoss>;

/// What was read.
#[derive(Debug)]
pub(super) struct Reading {
    /// When.
    pub(super) at: Nanos,
    /// Clusters that ever sent anything.
    pub(super) clusters: BTreeSet<ClusterId>,
    /// Who reported within the hour.
    pub(super) reporting: Vec<Coverage>,
    /// Incidents of the hour, gravest first.
    pub(super) incidents: Vec<Incident>,
    /// Pieces of time that losses were read of.
    pub(super) pieces: Pieces,
    /// Losses of each piece that is read no more.
    pub(super) closing: Vec<Losses>,
    /// Losses of the last minutes.
    pub(super) open: Losses,
}

impl Reading {
    /// Reads what holds now. `open_from` is where the open piece of the reading before begins.
    pub(super) async fn of(
        context: &ToolContext,
        open_from: Option<Nanos>,
        now: Nanos,
    ) -> Result<Self, ToolError> {
        let pieces = Pieces::of(open_from, now);
        let mut closing = Vec::new();
        for piece in &pieces.closing {
            closing.push(losses_by_cluster(context, *piece).await?);
        }
        let open = match pieces.open {
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
        Ok(Self {
            at: now,
            clusters: context.store.clusters().await?,
            reporting,
            incidents,
            pieces,
            closing,
            open,
        })
    }
}
