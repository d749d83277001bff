//! Asks the tools in the name of whoever looks at a page.

use echo_core::shard::Shard;
use echo_core::units::Nanos;
use echo_tools::explain_rank::ExplainRank;
use echo_tools::find_outlier_nodes::{FindOutlierNodes, Outliers};
use echo_tools::get_cost::GetCost;
use echo_tools::get_cost::answer::Cost;
use echo_tools::lag_map::{LagMap, RankKey};
use echo_tools::registry::Registry;
use echo_tools::scope::{self, Scope, visible_clusters};
use echo_tools::time::TimeRange;
use echo_tools::tool::Tool;
use echo_tools::{ToolContext, ToolError};
use serde::Deserialize;

use super::Pages;
use crate::request_context::Asking;

/// Most culprits and conditions of one page.
const MAX_INCIDENTS: usize = 100;

/// Most single incidents whose cost is told.
const MAX_CONTRIBUTORS: usize = 100;

/// The window of a page, as its address says it. Empty fields of a form say nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Asked {
    /// A length up to now, or `all`.
    pub(super) window: String,
    /// Begin.
    pub(super) from: String,
    /// End.
    pub(super) to: String,
}

impl Asked {
    /// The last hour.
    pub(super) fn last_hour() -> Self {
        Self {
            window: "1h".to_owned(),
            ..Self::default()
        }
    }

    /// What was said, by the names of the tools' arguments.
    pub(super) fn said(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let fields = [
            ("window", &self.window),
            ("from", &self.from),
            ("to", &self.to),
        ];
        let fields = fields.into_iter().map(|(name, value)| (name, value.trim()));
        fields.filter(|(_, value)| !value.is_empty())
    }

    /// The same as tools read it.
    fn time(&self) -> Result<TimeRange, ToolError> {
        let mut time = TimeRange::default();
        for (name, value) in self.said() {
            let wrong = |message| ToolError::invalid(name, message);
            match name {
                "window" => time.window = Some(value.parse().map_err(wrong)?),
                "from" => time.from = Some(value.parse().map_err(wrong)?),
                _ => time.to = Some(value.parse().map_err(wrong)?),
            }
        }
        Ok(time)
    }
}

/// Asks in somebody's name.
#[derive(Debug)]
pub(super) struct Questions<'a> {
    registry: &'a Registry,
    context: ToolContext,
}

impl<'a> Questions<'a> {
    pub(super) fn new(pages: &'a Pages, asking: &Asking) -> Self {
        Self {
            registry: &pages.registry,
            context: pages.contexts.of(&asking.caller),
        }
    }

    /// Ends a page that takes longer than a question may.
    pub(super) async fn in_time<T>(
        &self,
        page: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        self.context.run_with_deadline(page).await
    }

    /// Milliseconds after which a page asks for no further part.
    pub(super) fn patience_ms(&self) -> f64 {
        self.context.limits.deadline.as_secs_f64() * 1e3 / 2.0
    }

    /// The present.
    pub(super) fn now(&self) -> Nanos {
        self.context.clock.now()
    }

    /// Which of several Echos is asked; nothing where it is the only one.
    pub(super) fn shard(&self) -> Option<&Shard> {
        self.context.shard.as_deref()
    }

    /// The clusters that may be seen, in the order of their names.
    pub(super) async fn clusters(&self) -> Result<Vec<String>, ToolError> {
        let visible = self
            .context
            .run_limited(visible_clusters(&self.context))
            .await?;
        Ok(visible.iter().map(ToString::to_string).collect())
    }

    /// Who holds back a cluster; nothing when that may not be asked.
    pub(super) async fn outliers(
        &self,
        cluster: &str,
        asked: &Asked,
    ) -> Result<Option<Outliers>, ToolError> {
        let TimeRange { from, to, window } = asked.time()?;
        let tool = FindOutlierNodes {
            cluster: Some(cluster.to_owned()),
            from,
            to,
            window,
            limit: Some(MAX_INCIDENTS),
            cursor: None,
        };
        self.registry.call(&self.context, tool).await
    }

    /// What it costs; nothing when that may not be asked.
    pub(super) async fn cost(
        &self,
        cluster: &str,
        asked: &Asked,
    ) -> Result<Option<Cost>, ToolError> {
        let TimeRange { from, to, window } = asked.time()?;
        let tool = GetCost {
            cluster: Some(cluster.to_owned()),
            from,
            to,
            window,
            limit: Some(MAX_CONTRIBUTORS),
        };
        self.registry.call(&self.context, tool).await
    }

    /// How late its ranks were; nothing to whoever may not have ranks explained.
    pub(super) async fn map(
        &self,
        cluster: &str,
        (asked, named): (&Asked, &[RankKey]),
    ) -> Result<Option<LagMap>, ToolError> {
        if !self.may_explain() {
            return Ok(None);
        }
        let asked = scope::ScopeRequest {
            cluster: Some(cluster.to_owned()),
            time: asked.time()?,
            page_window: None,
        };
        let map = async {
            let scope = Scope::resolve(&self.context, asked).await?;
            LagMap::load(&scope, named).await
        };
        self.context.run_limited(map).await.map(Some)
    }

    /// Whether ranks may be explained.
    pub(super) fn may_explain(&self) -> bool {
        self.registry
            .find(&self.context.caller, ExplainRank::NAME)
            .is_ok()
    }
}
