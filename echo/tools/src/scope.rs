//! Scope of a request, resolved once for every tool: the cluster, the window, and the ranks that
//! reported in it.

use std::collections::BTreeSet;

use echo_core::ids::ClusterId;
use echo_core::units::{Nanos, Window};
use tokio::sync::OnceCell;

use crate::cluster_names::listed;
use crate::quality::{DataQuality, Presence};
use crate::time::{TimeRange, WindowArg};
use crate::{ToolContext, ToolError, shard_hint};

/// What to do where no agent has sent events.
const FIRST_STEP: &str = "start an agent on each host with `fleet-agent run --cluster NAME --endpoint URL`, where URL is \
    the address of --otlp-listen";

/// Cluster and time range as given in the input of a tool.
#[derive(Debug, Clone, Default)]
pub struct ScopeRequest {
    /// Cluster; all clusters when absent.
    pub cluster: Option<String>,
    /// Time range.
    pub time: TimeRange,
    /// Window of the previous page, when a later page of the same answer is requested.
    pub page_window: Option<Window>,
}

/// Resolved scope of a request.
#[derive(Debug)]
pub struct Scope<'a> {
    /// Dependencies and settings of the tools.
    pub context: &'a ToolContext,
    /// Cluster; `None` for all clusters.
    pub cluster: Option<ClusterId>,
    /// Window of event time.
    pub window: Window,
    /// True when the caller named the cluster.
    is_named: bool,
    /// True when the window is everything that is stored.
    is_everything: bool,
    presence: OnceCell<Presence>,
}

impl<'a> Scope<'a> {
    /// Resolves a request. An unknown cluster is an error that lists the known clusters.
    pub async fn resolve(
        context: &'a ToolContext,
        request: ScopeRequest,
    ) -> Result<Self, ToolError> {
        let cluster = match request.cluster.as_deref() {
            Some(name) => Some(find_cluster(context, name).await?),
            None => default_cluster(context).await?,
        };
        let time = request.time;
        let is_everything = time.window == Some(WindowArg::All);
        let window = match request.page_window {
            Some(_) if time != TimeRange::default() => {
                let message = "already contains the window; omit from, to and window";
                return Err(ToolError::invalid("cursor", message));
            }
            Some(window) => window,
            None => time.resolve(context, cluster.as_ref()).await?,
        };
        Ok(Self {
            context,
            cluster,
            window,
            is_named: request.cluster.is_some(),
            is_everything,
            presence: OnceCell::new(),
        })
    }

    /// Returns the cluster, or an error when the request names none and the tool needs one.
    pub fn require_cluster(&self) -> Result<&ClusterId, ToolError> {
        let cluster = self.cluster.as_ref();
        cluster.ok_or_else(|| ToolError::invalid("cluster", "is missing"))
    }

    /// Returns the instant that is the present for the answer: the end of the window, or now if that is
    /// earlier or the window is everything that is stored.
    pub fn present(&self) -> Nanos {
        let now = self.context.clock.now();
        if self.is_everything {
            now
        } else {
            self.window.to().min(now)
        }
    }

    /// Returns the ranks that reported in the window. The first call queries the store.
    pub async fn presence(&self) -> Result<&Presence, ToolError> {
        let load = || Presence::load(self.context, self.cluster.as_ref(), self.window);
        self.presence.get_or_try_init(load).await
    }

    /// Returns the share of the cluster that the data covers. The note gives advice on an empty
    /// window (which is easily mistaken for a healthy cluster), and describes data that was deleted
    /// by retention or is on other shards.
    pub async fn quality(&self) -> Result<DataQuality, ToolError> {
        let Self {
            context,
            cluster,
            window,
            ..
        } = self;
        let mut quality = self.presence().await?.quality(context, *window);
        let has_events = quality.last_event_age_s.is_some();
        let note = if has_events && quality.quorum_met {
            None
        } else if has_events {
            Some("too few ranks report to compare them".to_owned())
        } else {
            Some(match context.store.extent(cluster.as_ref()).await? {
                None => format!("no events are stored yet: {FIRST_STEP}"),
                Some((first, last)) => format!(
                    "no events in this window; stored events range from {first} to {last}: use window=all"
                ),
            })
        };
        let dropped_until = context.store.dropped_until().await?;
        let is_cut = |until: &Nanos| self.is_everything || window.from() < *until;
        let retention_note = dropped_until.filter(is_cut).map(|until| {
            format!("events received before {until} were deleted by retention: the window is only partly covered")
        });
        let shard_note = shard_hint::note(context, cluster.as_ref().filter(|_| self.is_named));
        let is_incomplete = retention_note.is_some() || shard_note.is_some();
        let lake_note = is_incomplete
            .then(|| shard_hint::lake_note(context))
            .flatten();
        for note in [note, retention_note, shard_note, lake_note] {
            quality.add_note(note);
        }
        Ok(quality)
    }
}

/// Finds a visible cluster by name.
async fn find_cluster(context: &ToolContext, name: &str) -> Result<ClusterId, ToolError> {
    let cluster: ClusterId = name
        .parse()
        .map_err(|error| ToolError::invalid("cluster", format!("{error}")))?;
    if context.caller.may_see(&cluster) && context.store.has_cluster(&cluster).await? {
        return Ok(cluster);
    }
    let known = visible_clusters(context).await?;
    Err(shard_hint::unknown_cluster(context, &cluster, &known))
}

/// Returns the only cluster; an error that lists the clusters when there are several.
pub async fn only_cluster(context: &ToolContext) -> Result<ClusterId, ToolError> {
    let known = visible_clusters(context).await?;
    let mut names = known.iter();
    let message = match (names.next(), names.next()) {
        (Some(only), None) => return Ok(only.clone()),
        (None, _) => format!("is required (known: {})", listed(&known)),
        (Some(_), Some(_)) => format!("is required: one of {}", listed(&known)),
    };
    let message = shard_hint::append_note(context, message);
    Err(ToolError::invalid("cluster", message))
}

/// Returns `None` (all clusters) for callers that may see all; otherwise the only cluster that the
/// caller may see.
async fn default_cluster(context: &ToolContext) -> Result<Option<ClusterId>, ToolError> {
    if context.caller.sees_everything() {
        return Ok(None);
    }
    let known = visible_clusters(context).await?;
    let names: Vec<&str> = known.iter().map(ClusterId::as_str).collect();
    let message = match names.as_slice() {
        [_only] => return Ok(known.first().cloned()),
        [] => {
            "is required with this token; no cluster that it may see has sent events yet".to_owned()
        }
        _several => format!("is required with this token: one of {}", listed(&known)),
    };
    let message = shard_hint::append_note(context, message);
    Err(ToolError::invalid("cluster", message))
}

/// Returns the clusters that have events and that the caller may see.
pub async fn visible_clusters(context: &ToolContext) -> Result<BTreeSet<ClusterId>, ToolError> {
    let mut known = context.store.clusters().await?;
    known.retain(|cluster| context.caller.may_see(cluster));
    Ok(known)
}
