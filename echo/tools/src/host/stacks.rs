//! Stacks in which threads of processes were sampled.

use echo_store::process_reports::StackTotals;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filter::{Examined, HostFilter, cut};
use super::process::ProcessIdentity;
use crate::ToolError;
use crate::scope::{Scope, ScopeRequest};
use crate::time::AnswerWindow;
use crate::tool::Tool;

/// Prefix of the lines of Python programs in stacks.
pub(crate) const PYTHON: &str = "[Python] ";

/// Stacks of processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct GetStacks(pub HostFilter);

/// Stacks of processes.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Stacks {
    /// Requested cluster; null for all clusters.
    pub cluster: Option<String>,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Stacks, most samples first.
    pub stacks: Vec<SampledStack>,
    /// True when there are more; raise `limit` or use a filter.
    pub truncated: bool,
    /// Reports that the answer is based on.
    pub examined: Examined,
    /// Caveats about the answer and what to do about them; null when there are none.
    pub note: Option<String>,
}

/// Stack of a process.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct SampledStack {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Function of a GPU library in which the samples were taken; null outside of such calls.
    pub function: Option<String>,
    /// Number of samples.
    pub samples: u64,
    /// Share of all samples of the process, 0 to 1.
    pub share: f64,
    /// Frames, innermost first.
    pub stack: Vec<String>,
}

impl Tool for GetStacks {
    const NAME: &'static str = "fleet.host.get_stacks";
    const TITLE: &'static str = "Stacks";
    const DESCRIPTION: &'static str =
        "Stack samples per process, native and Python frames: where its threads spend time.";
    type Answer = Stacks;

    fn scope_request(&self) -> ScopeRequest {
        self.0.scope_request()
    }

    async fn call(self, scope: &Scope<'_>) -> Result<Stacks, ToolError> {
        let selection = self.0.select(scope).await?;
        let query = selection.query.clone();
        let mut totals = scope.context.store.stack_totals(query).await?;
        let truncated = cut(&mut totals, self.0.limit());
        let no_samples = totals.is_empty() && selection.note.is_none();
        let advice = "no stacks were sampled: agents sample ranks that are late, and processes that are being traced";
        Ok(Stacks {
            cluster: scope.cluster.as_ref().map(ToString::to_string),
            window: scope.window.into(),
            stacks: totals.into_iter().map(SampledStack::from).collect(),
            truncated,
            examined: selection.examined(),
            note: no_samples.then(|| advice.to_owned()).or(selection.note),
        })
    }
}

impl From<StackTotals> for SampledStack {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the number of samples is far below 2^53"
    )]
    fn from(totals: StackTotals) -> Self {
        Self {
            process: totals.process.into(),
            function: totals.function,
            samples: totals.samples,
            share: totals.samples as f64 / totals.process_samples.max(1) as f64,
            stack: lines(&totals.stack),
        }
    }
}

/// Splits a text into its lines, without empty ones.
pub(super) fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(str::to_owned).collect()
}
