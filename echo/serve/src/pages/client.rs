//! Calls the tools with the permissions of the visitor.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use echo_core::model::detector_output::IncidentState;
use echo_core::model::event::Origin;
use echo_core::shard::Shard;
use echo_core::units::Nanos;
use echo_tools::explain_rank::{ExplainRank, Explanation};
use echo_tools::find_outlier_nodes::{FindOutlierNodes, Outliers};
use echo_tools::get_cost::GetCost;
use echo_tools::get_cost::answer::Cost;
use echo_tools::incident_bundle::find_incident;
use echo_tools::lag_map::{LagMap, RankKey};
use echo_tools::picture::{Format, Picture};
use echo_tools::rank_trace::RankTrace;
use echo_tools::registry::{Registry, draw};
use echo_tools::scope::{self, Scope, visible_clusters};
use echo_tools::time::TimeRange;
use echo_tools::tool::Tool;
use echo_tools::{ToolContext, ToolError};
use tokio::time::{Instant, sleep, timeout_at};

use super::Pages;
use super::answer::Answer;
use super::sharing::{Shared, Sharing};
use super::window_query::WindowQuery;
use crate::request_context::RequestContext;

/// Most culprits and conditions of one page.
const MAX_INCIDENTS: usize = 100;

/// Denominator of the part of the deadline for which a page waits for its map.
const PATIENCE_FRACTION: u32 = 20;

/// Milliseconds of the window of current incidents.
const HOUR_MS: f64 = 3_600_000.0;

/// Most incidents with their cost.
const MAX_CONTRIBUTORS: usize = 100;

/// A rank of a job in a cluster.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankInCluster<'a> {
    pub(super) cluster: &'a str,
    pub(super) rank: u32,
    /// Job; `None` selects the only one that has the rank.
    pub(super) job: Option<&'a str>,
}

/// GPU models and jobs of a cluster.
#[derive(Debug, Clone, Default)]
pub(super) struct Inventory {
    pub(super) gpu_models: BTreeSet<String>,
    pub(super) jobs: BTreeSet<String>,
}

/// Times of an incident.
#[derive(Debug, Clone, Copy)]
pub(super) struct IncidentTimes {
    pub(super) first_seen: Nanos,
    /// When it was cleared or last seen.
    pub(super) end: Nanos,
    /// True if it is open and was seen in the last hour.
    pub(super) is_current: bool,
}

/// Part of a cluster that a map shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Part {
    cluster: String,
    window: WindowQuery,
}

/// Map of a part, and the ranks that it lists in any case.
#[derive(Debug)]
pub(super) struct MapOfPart {
    pub(super) map: LagMap,
    priority_ranks: Vec<RankKey>,
}

/// Maps that viewers share.
pub(super) type SharedMaps = Sharing<Part, MapOfPart>;

/// Tool calls of one visitor.
#[derive(Debug)]
pub(super) struct ToolClient {
    registry: Arc<Registry>,
    context: ToolContext,
    maps: SharedMaps,
    /// When the page was requested. Tests pause the clock of the runtime.
    began: Instant,
}

impl ToolClient {
    pub(super) fn new(pages: &Pages, request_context: &RequestContext) -> Self {
        let mut context = pages.contexts.for_caller(&request_context.caller);
        // A page makes several queries. None is refused because the others, or another page, run.
        context.query_limit = context
            .query_limit
            .waiting_up_to(context.limits.deadline / 2);
        Self {
            registry: Arc::clone(&pages.registry),
            maps: pages.maps.clone(),
            began: sleep(Duration::ZERO).deadline(),
            context,
        }
    }

    /// Runs a page with the deadline of a query.
    pub(super) async fn with_deadline<T>(
        &self,
        page: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        self.context.run_with_deadline(page).await
    }

    /// Returns the result of a query; `None` if it is not there after these tenths of the deadline.
    pub(super) async fn in_time<T>(
        &self,
        tenths: u32,
        query: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<Option<T>, ToolError> {
        let until = self.began + self.context.limits.deadline * tenths / 10;
        match timeout_at(until, query).await {
            Ok(Ok(found)) => Ok(Some(found)),
            Err(_)
            | Ok(Err(
                ToolError::Timeout { .. } | ToolError::Overloaded { .. } | ToolError::Overtaken,
            )) => Ok(None),
            Ok(Err(error)) => Err(error),
        }
    }

    /// Returns the answer of a tool, unless it is not there after these tenths of the deadline.
    pub(super) async fn section<T>(
        &self,
        tenths: u32,
        query: impl Future<Output = Result<Option<T>, ToolError>>,
    ) -> Result<Answer<T>, ToolError> {
        let found = self.in_time(tenths, query).await?;
        Ok(match found {
            Some(Some(answer)) => Answer::Known(answer),
            Some(None) => Answer::Hidden,
            None => Answer::Late,
        })
    }

    /// Time after which a page starts no further query.
    pub(super) fn soft_deadline(&self) -> Duration {
        self.context.limits.deadline / 2
    }

    /// Returns the current time.
    pub(super) fn now(&self) -> Nanos {
        self.context.clock.now()
    }

    /// Returns the shard of this instance; `None` if it is the only one.
    pub(super) fn shard(&self) -> Option<&Shard> {
        self.context.shard.as_deref()
    }

    /// Returns the visible clusters, ordered by name.
    pub(super) async fn clusters(&self) -> Result<Vec<String>, ToolError> {
        let visible = self
            .context
            .run_limited(visible_clusters(&self.context))
            .await?;
        Ok(visible.iter().map(ToString::to_string).collect())
    }

    /// Returns what reported in the last hour, by cluster; nothing for visitors that may not query outliers.
    pub(super) async fn inventories(&self) -> Result<BTreeMap<String, Inventory>, ToolError> {
        let mut inventories: BTreeMap<String, Inventory> = BTreeMap::new();
        let caller = &self.context.caller;
        if self.registry.find(caller, FindOutlierNodes::NAME).is_err() {
            return Ok(inventories);
        }
        let reported = async {
            let recent = WindowQuery::last_hour().time()?;
            let window = recent.resolve(&self.context, None).await?;
            Ok(self.context.store.coverage(None, window).await?)
        };
        let reported = self.context.run_limited(reported).await?;
        let visible = reported.iter().map(|row| &row.origin);
        for origin in visible.filter(|origin| caller.may_see(&origin.cluster)) {
            let inventory = inventories.entry(origin.cluster.to_string()).or_default();
            let gpu_model = origin.gpu_model.as_deref();
            inventory.gpu_models.extend(gpu_model.map(str::to_owned));
            let job = origin.job.as_ref();
            inventory.jobs.extend(job.map(ToString::to_string));
        }
        Ok(inventories)
    }

    /// Returns the outliers of a cluster; `None` if the visitor may not query them.
    pub(super) async fn outliers(
        &self,
        cluster: &str,
        window: &WindowQuery,
    ) -> Result<Option<Outliers>, ToolError> {
        let TimeRange { from, to, window } = window.time()?;
        let tool = FindOutlierNodes {
            cluster: Some(cluster.to_owned()),
            from,
            to,
            window,
            limit: Some(MAX_INCIDENTS),
            ..FindOutlierNodes::default()
        };
        self.registry.call(&self.context, tool).await
    }

    /// Returns the cost of a cluster; `None` if the visitor may not query it.
    pub(super) async fn cost(
        &self,
        cluster: &str,
        window: &WindowQuery,
    ) -> Result<Option<Cost>, ToolError> {
        let TimeRange { from, to, window } = window.time()?;
        let tool = GetCost {
            cluster: Some(cluster.to_owned()),
            from,
            to,
            window,
            limit: Some(MAX_CONTRIBUTORS),
            ..GetCost::default()
        };
        self.registry.call(&self.context, tool).await
    }

    /// Returns the lags of its ranks, as far as they are known in a moment; `None` if the visitor may not call
    /// `explain_rank`.
    pub(super) async fn map(
        &self,
        cluster: &str,
        window: &WindowQuery,
        priority_ranks: Vec<RankKey>,
    ) -> Result<Option<Shared<MapOfPart>>, ToolError> {
        if !self.may_explain() {
            return Ok(None);
        }
        let request = scope::ScopeRequest {
            cluster: Some(cluster.to_owned()),
            time: window.time()?,
            page_window: None,
        };
        // A visitor gets a shared map only of a cluster that is visible to them.
        let visible = Scope::resolve(&self.context, request.clone());
        self.context.run_limited(visible).await?;
        let context = self.context.clone();
        let fits = |made: &MapOfPart| made.priority_ranks == priority_ranks;
        let ranks = priority_ranks.clone();
        let make = || async move {
            let load = async {
                let scope = Scope::resolve(&context, request).await?;
                LagMap::load(&scope, &ranks).await
            };
            let map = Box::pin(context.run_limited(load)).await?;
            Ok(MapOfPart {
                priority_ranks: ranks,
                map,
            })
        };
        let part = Part {
            cluster: cluster.to_owned(),
            window: window.clone(),
        };
        let patience = self.context.limits.deadline / PATIENCE_FRACTION;
        let map = self.maps.get_within(part, fits, patience, make);
        Ok(Some(map.await))
    }

    /// Returns the times of an incident; `None` if the cluster has none with this id. An error if
    /// the visitor may not query outliers.
    pub(super) async fn incident(
        &self,
        cluster: &str,
        id: &str,
    ) -> Result<Option<IncidentTimes>, ToolError> {
        let found = find_incident(&self.registry, &self.context, Some(cluster), id).await?;
        Ok(found.map(|one| {
            let end = one.cleared_at.unwrap_or(one.last_seen);
            let is_open = one.state == IncidentState::Open;
            IncidentTimes {
                first_seen: one.first_seen,
                end,
                is_current: is_open && self.now().millis_since(end) < HOUR_MS,
            }
        }))
    }

    /// Returns the ranks of a cluster that reported in the window, for visitors that may query its
    /// outliers.
    pub(super) async fn origins(
        &self,
        cluster: &str,
        window: &WindowQuery,
    ) -> Result<Vec<Arc<Origin>>, ToolError> {
        let request = scope::ScopeRequest {
            cluster: Some(cluster.to_owned()),
            time: window.time()?,
            page_window: None,
        };
        let origins = async {
            let scope = Scope::resolve(&self.context, request).await?;
            Ok(scope.presence().await?.ranks().cloned().collect())
        };
        self.context.run_limited(origins).await
    }

    /// Returns the explanation of a rank and the plot of its lag, or an error if the visitor may not call
    /// `explain_rank`.
    pub(super) async fn explanation(
        &self,
        rank: &RankInCluster<'_>,
        window: &WindowQuery,
    ) -> Result<(Explanation, Option<Picture>), ToolError> {
        self.registry
            .find(&self.context.caller, ExplainRank::NAME)?;
        let TimeRange { from, to, window } = window.time()?;
        let tool = ExplainRank {
            cluster: rank.cluster.to_owned(),
            rank: rank.rank,
            job: rank.job.map(str::to_owned),
            from,
            to,
            window,
            plot: Some(Format::Svg),
        };
        let plot = tool.plot();
        let found = self.context.run_limited(tool.run(&self.context)).await?;
        let picture = match plot {
            Some(plot) => Some(draw((plot.layout)(&found), plot.format).await?),
            None => None,
        };
        Ok((found, picture))
    }

    /// Returns whether the visitor may call `explain_rank`.
    pub(super) fn may_explain(&self) -> bool {
        self.registry
            .find(&self.context.caller, ExplainRank::NAME)
            .is_ok()
    }

    /// Returns whether the visitor may download the trace of a rank.
    pub(super) fn may_trace(&self) -> bool {
        RankTrace::check_permission(&self.registry, &self.context).is_ok()
    }
}
