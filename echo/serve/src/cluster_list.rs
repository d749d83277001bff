//! List of the clusters that a caller may query.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use echo_core::ids::{ClusterId, JobId, NodeId};
use echo_core::model::detector_output::IncidentState;
use echo_core::model::event::Origin;
use echo_core::units::{Nanos, Window};
use echo_store::Coverage;
use echo_tools::find_outlier_nodes::FindOutlierNodes;
use echo_tools::registry::Registry;
use echo_tools::scope::visible_clusters;
use echo_tools::tool::Tool;
use echo_tools::{ToolContext, ToolError, shard_hint};
use serde_json::{Value, json};

/// What is stored of one cluster.
#[derive(Debug, Default)]
struct Stored {
    nodes: BTreeSet<NodeId>,
    jobs: BTreeSet<JobId>,
    /// GPUs by node, and by UUID or rank.
    gpus: BTreeSet<(NodeId, String)>,
    gpu_models: BTreeSet<Arc<str>>,
    /// Times of the first and last event.
    ends: Option<(Nanos, Nanos)>,
}

/// Open incidents of one cluster.
#[derive(Debug, Default)]
struct Open {
    count: u64,
    since: Option<Nanos>,
}

/// Returns the clusters by name, at most `limit`, with two queries for all of them: what reported, and
/// the open incidents, which are null if the caller may not query them.
pub(crate) async fn cluster_list(
    registry: &Registry,
    context: &ToolContext,
    limit: usize,
) -> Result<Value, ToolError> {
    let names = visible_clusters(context).await?;
    let stored = stored(context).await?;
    let may_query_incidents = registry.find(&context.caller, FindOutlierNodes::NAME);
    // The clock of a sender may be ahead.
    let ends = stored.values().filter_map(|cluster| cluster.ends);
    let last = ends.map(|(_, last)| last).max();
    let open = match may_query_incidents {
        Ok(_) => Some(open_incidents(context, last).await?),
        Err(_) => None,
    };
    let listed = names.iter().take(limit).map(|cluster| {
        let (nothing, none) = (Stored::default(), Open::default());
        let found = stored.get(cluster).unwrap_or(&nothing);
        let open = open.as_ref().map(|open| open.get(cluster).unwrap_or(&none));
        let since = open.and_then(|open| open.since);
        json!({
            "cluster": cluster.as_str(),
            "n_nodes": found.nodes.len(),
            "n_jobs": found.jobs.len(),
            "n_gpus": found.gpus.len(),
            "gpu_models": found.gpu_models.iter().map(|model| &**model).collect::<Vec<&str>>(),
            "first_event": found.ends.map(|(first, _)| first.to_string()),
            "last_event": found.ends.map(|(_, last)| last.to_string()),
            "n_open": open.map(|open| open.count),
            "open_since": since.map(|since| since.to_string()),
        })
    });
    let mut answer = json!({
        "clusters": listed.collect::<Vec<_>>(),
        "truncated": names.len() > limit,
        "now": context.clock.now().to_string(),
    });
    shard_hint::add_shard(context, &mut answer);
    Ok(answer)
}

/// Returns what is stored of every cluster.
async fn stored(context: &ToolContext) -> Result<BTreeMap<ClusterId, Stored>, ToolError> {
    let mut found: BTreeMap<ClusterId, Stored> = BTreeMap::new();
    let ever = context.store.extent(None).await?;
    if let Some(ever) = ever.and_then(|(first, last)| Window::new(first, last.offset(1))) {
        for row in context.store.coverage(None, ever).await? {
            let cluster = row.origin.cluster.clone();
            found.entry(cluster).or_default().add(&row);
        }
    }
    Ok(found)
}

impl Stored {
    fn add(&mut self, row: &Coverage) {
        let Origin {
            node,
            job,
            rank,
            gpu_uuid,
            gpu_model,
            ..
        } = &*row.origin;
        let ends = self.ends.get_or_insert((row.first, row.last));
        *ends = (ends.0.min(row.first), ends.1.max(row.last));
        self.nodes.insert(node.clone());
        self.jobs.extend(job.clone());
        self.gpu_models.extend(gpu_model.clone());
        if let Some(rank) = rank {
            let gpu = gpu_uuid.as_deref().map(str::to_owned);
            let gpu = gpu.unwrap_or_else(|| rank.rank().to_string());
            self.gpus.insert((node.clone(), gpu));
        }
    }
}

/// Returns the open incidents of every cluster, now or at the time of the last event.
async fn open_incidents(
    context: &ToolContext,
    last: Option<Nanos>,
) -> Result<BTreeMap<ClusterId, Open>, ToolError> {
    let now = context.clock.now();
    let mut found: BTreeMap<ClusterId, Open> = BTreeMap::new();
    let end = last.map_or(now, |last| last.max(now));
    let Some(window) = Window::new(now, end.offset(1)) else {
        return Ok(found);
    };
    let incidents = context.store.incidents(None, window).await?;
    for one in incidents
        .iter()
        .filter(|one| one.state == IncidentState::Open)
    {
        let open = found.entry(one.cluster.clone()).or_default();
        open.count = open.count.saturating_add(1);
        open.since = Some(
            open.since
                .map_or(one.first_seen, |since| since.min(one.first_seen)),
        );
    }
    Ok(found)
}
