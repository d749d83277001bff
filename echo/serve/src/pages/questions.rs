//! Asks the tools in the name of whoever looks at a page.

use echo_core::shard::Shard;
use echo_core::units::Nanos;
use echo_tools::explain_rank::ExplainRank;
use echo_tools::find_outlier_nodes::FindOutlierNodes;
use echo_tools::get_cost::GetCost;
use echo_tools::lag_map::{LagMap, RankKey};
use echo_tools::quality::visible_clusters;
use echo_tools::registry::Registry;
use echo_tools::tool::Tool;
use echo_tools::{ToolContext, ToolError, time};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Pages;
use super::answers::{Cost, Outliers};
use crate::asking::Asking;

/// Most culprits and conditions of one page.
const MAX_INCIDENTS: u32 = 100;

/// Most single incidents whose cost is told.
const MAX_CONTRIBUTORS: u32 = 100;

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

    fn input(&self, cluster: &str) -> Map<String, Value> {
        let said = self.said();
        let mut input: Map<String, Value> = said
            .map(|(name, value)| (name.to_owned(), json!(value)))
            .collect();
        input.insert("cluster".to_owned(), json!(cluster));
        input
    }

    /// The same as tools read it.
    fn read(&self) -> Result<time::Asked, ToolError> {
        let mut read = time::Asked::default();
        for (name, value) in self.said() {
            let wrong = |message| ToolError::invalid(name, message);
            match name {
                "window" => read.window = Some(value.parse().map_err(wrong)?),
                "from" => read.from = Some(value.parse().map_err(wrong)?),
                _ => read.to = Some(value.parse().map_err(wrong)?),
            }
        }
        Ok(read)
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
            .bounded(visible_clusters(&self.context))
            .await?;
        Ok(visible.iter().map(ToString::to_string).collect())
    }

    /// Who holds back a cluster; nothing when that may not be asked.
    pub(super) async fn outliers(
        &self,
        cluster: &str,
        asked: &Asked,
    ) -> Result<Option<Outliers>, ToolError> {
        let mut input = asked.input(cluster);
        input.insert("limit".to_owned(), json!(MAX_INCIDENTS));
        self.ask(FindOutlierNodes::NAME, input).await
    }

    /// What it costs; nothing when that may not be asked.
    pub(super) async fn cost(
        &self,
        cluster: &str,
        asked: &Asked,
    ) -> Result<Option<Cost>, ToolError> {
        let mut input = asked.input(cluster);
        input.insert("limit".to_owned(), json!(MAX_CONTRIBUTORS));
        self.ask(GetCost::NAME, input).await
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
        let map = LagMap::of(&self.context, cluster, (asked.read()?, named));
        self.context.bounded(map).await.map(Some)
    }

    /// Whether ranks may be explained.
    pub(super) fn may_explain(&self) -> bool {
        self.registry
            .find_for(&self.context.caller, ExplainRank::NAME)
            .is_ok()
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        tool: &str,
        input: Map<String, Value>,
    ) -> Result<Option<T>, ToolError> {
        let input = Value::Object(input);
        let answer = self.registry.dispatch(&self.context, tool, input).await;
        match answer {
            Ok(answer) => serde_json::from_str(&answer.text)
                .map(Some)
                .map_err(ToolError::Unwritable),
            Err(ToolError::UnknownTool { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
