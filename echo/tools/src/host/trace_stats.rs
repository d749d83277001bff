//! Durations of the calls of GPU libraries, per process and function.

use echo_store::process_reports::CallTotals;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::filter::{Examined, HostFilter, cut};
use super::process::ProcessIdentity;
use crate::ToolError;
use crate::scope::{Scope, ScopeRequest};
use crate::time::AnswerWindow;
use crate::tool::Tool;

/// Calls of processes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct GetTraceStats(pub HostFilter);

/// Durations of calls, per process and function.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TraceStats {
    /// Requested cluster; null for all clusters.
    pub cluster: Option<String>,
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Functions of processes, most time first.
    pub functions: Vec<FunctionCalls>,
    /// True when there are more; raise `limit` or use a filter.
    pub truncated: bool,
    /// Reports that the answer is based on.
    pub examined: Examined,
    /// Caveats about the answer and what to do about them; null when there are none.
    pub note: Option<String>,
}

/// Calls of one function by one process.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct FunctionCalls {
    /// The process.
    #[serde(flatten)]
    pub process: ProcessIdentity,
    /// Function.
    pub function: String,
    /// Number of calls.
    pub n_calls: u64,
    /// Calls per second of the time for which the process reported.
    pub calls_per_s: Option<f64>,
    /// Median duration of all calls, within a ninth.
    pub p50_ms: Option<f64>,
    /// 95th percentile of all calls, within a ninth.
    pub p95_ms: Option<f64>,
    /// 99th percentile of all calls, within a ninth.
    pub p99_ms: Option<f64>,
    /// Largest 99th percentile of a period of ten seconds.
    pub worst_p99_ms: Option<f64>,
    /// Longest call.
    pub max_ms: Option<f64>,
    /// Time in these calls, over all threads.
    pub total_ms: f64,
    /// Bytes moved or allocated; null where the function has none.
    pub bytes: Option<u64>,
}

impl Tool for GetTraceStats {
    const NAME: &'static str = "fleet.host.get_trace_stats";
    const TITLE: &'static str = "Trace statistics";
    const DESCRIPTION: &'static str = "Calls of CUDA, HIP and NCCL per process and function: count, rate, p50, p95, p99, max, bytes.";
    type Answer = TraceStats;

    fn scope_request(&self) -> ScopeRequest {
        self.0.scope_request()
    }

    async fn call(self, scope: &Scope<'_>) -> Result<TraceStats, ToolError> {
        let selection = self.0.select(scope).await?;
        let query = selection.query.clone();
        let mut totals = scope.context.store.call_totals(query).await?;
        Ok(TraceStats {
            cluster: scope.cluster.as_ref().map(ToString::to_string),
            window: scope.window.into(),
            truncated: cut(&mut totals, self.0.limit()),
            functions: totals.into_iter().map(FunctionCalls::from).collect(),
            examined: selection.examined(),
            note: selection.note,
        })
    }
}

impl From<CallTotals> for FunctionCalls {
    fn from(totals: CallTotals) -> Self {
        Self {
            calls_per_s: per_second(totals.n_calls, totals.covered_nanos),
            process: totals.process.into(),
            function: totals.function,
            n_calls: totals.n_calls,
            p50_ms: totals.p50_ms,
            p95_ms: totals.p95_ms,
            p99_ms: totals.p99_ms,
            worst_p99_ms: totals.worst_p99_ms,
            max_ms: totals.max_ms,
            total_ms: totals.total_ms,
            bytes: totals.bytes,
        }
    }
}

/// Rate over a time in nanoseconds; `None` if no time passed.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates are estimates, far less precise than 2^-53"
)]
pub(super) fn per_second(count: u64, nanos: i64) -> Option<f64> {
    (nanos > 0).then(|| count as f64 * 1e9 / nanos as f64)
}
