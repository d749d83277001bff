//! Lists stored events, filtered and paged.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use echo_core::ids::{Rank, RankInJob};
use echo_core::model::event::{Reading, SeqRange, StoredEvent};
use echo_core::units::{Nanos, Window};
use echo_store::{Cursor, EventQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::rounding::Precision;
use crate::schemas::{ClusterName, Name};
use crate::scope::{Scope, ScopeRequest};
use crate::time::{AnswerWindow, TimeArg, TimeRange, WindowArg};
use crate::tool::Tool;
use crate::{ToolError, names, operations};

/// A language model reads all of an answer that it did not limit.
const DEFAULT_LIMIT: usize = 20;

/// Budget per event, bytes of JSON; where attributes take more, a page has fewer events.
const BYTES_PER_EVENT: usize = 960;

/// Filters; an absent filter matches every event.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EventHistory {
    /// Cluster name. Default: all clusters.
    #[schemars(with = "Option<ClusterName>")]
    pub cluster: Option<String>,
    /// Node name.
    #[schemars(with = "Option<Name>")]
    pub node: Option<String>,
    /// Rank within its job.
    #[schemars(range(max = 4_294_967_295_u32))]
    pub rank: Option<u32>,
    /// Collective operation, such as `AllReduce`.
    #[schemars(with = "Option<Name>")]
    pub op: Option<String>,
    /// Metric name, such as `nccl.collective.wait_ms`.
    #[schemars(with = "Option<Name>")]
    pub metric: Option<String>,
    /// Start: RFC 3339, date, Unix ms, or `now-15m`. Default: 1h before `to`.
    pub from: Option<TimeArg>,
    /// End, exclusive. Default: now.
    pub to: Option<TimeArg>,
    /// Instead of `from`, `to`: `all`, or a duration like `15m`.
    pub window: Option<WindowArg>,
    /// Maximum number of events. Default: 20.
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<usize>,
    /// `next_cursor` of the previous page; omit the window.
    #[schemars(with = "Option<String>")]
    pub cursor: Option<PageCursor>,
}

/// One page of events.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct History {
    /// Window of event time that the answer covers.
    pub window: AnswerWindow,
    /// Events, newest first.
    pub events: Vec<HistoryEvent>,
    /// True when there are more events.
    pub truncated: bool,
    /// Pass as `cursor` to get the next page; null on the last page.
    pub next_cursor: Option<String>,
}

/// One OTLP data point. Fields that the point does not have are null.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct HistoryEvent {
    /// Event id; increases with every commit.
    pub event_id: u64,
    /// Event time on the sender's clock, RFC 3339.
    pub timestamp: String,
    /// Event time, Unix nanoseconds.
    pub timestamp_ns: i64,
    /// Time of arrival on the clock of Echo, Unix nanoseconds.
    pub received_ns: i64,
    /// Cluster of the sender.
    pub cluster_id: String,
    /// Node of the sender.
    pub node_id: String,
    /// Rank within the job.
    pub rank: Option<u32>,
    /// World size of the job.
    pub nranks: Option<u32>,
    /// Name of the metric.
    pub metric_name: String,
    /// Value, when it is a floating-point number.
    pub value_double: Option<f64>,
    /// Value, when it is an integer.
    pub value_int: Option<i64>,
    /// Attributes that have no field of their own.
    pub attrs: Value,
    /// `double`, `int` or `histogram`.
    pub kind: &'static str,
    /// Communicator id, 16 hexadecimal digits.
    pub comm_id: Option<String>,
    /// Collective operation.
    pub op: Option<String>,
    /// Source of the measurement of a block of collectives: `host` or `device`.
    pub source: Option<&'static str>,
    /// First sequence number that the data point covers.
    pub seq_first: Option<u64>,
    /// Last sequence number that the data point covers.
    pub seq_last: Option<u64>,
    /// Number of samples of a histogram.
    pub count: Option<u64>,
    /// Sum of the samples, in `unit`.
    pub sum: Option<f64>,
    /// Smallest sample, in `unit`.
    pub min: Option<f64>,
    /// Largest sample, in `unit`.
    pub max: Option<f64>,
    /// Unit as the sender wrote it.
    pub unit: String,
    /// GPU model of the rank.
    pub gpu_model: Option<String>,
    /// Kubernetes namespace.
    pub namespace: Option<String>,
    /// Kubernetes pod.
    pub pod: Option<String>,
    /// Job name.
    pub job: Option<String>,
}

/// Position of the next page and the window of the list: relative windows move between two pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCursor {
    window: Window,
    end: Cursor,
}

impl fmt::Display for PageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.window.from().value(), self.window.to().value());
        write!(
            f,
            "{from:x}-{to:x}-{:x}-{:x}",
            self.end.timestamp.value(),
            self.end.id
        )
    }
}

impl FromStr for PageCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let mut parts = text.split('-');
            let mut instant = || Some(Nanos::new(i64::from_str_radix(parts.next()?, 16).ok()?));
            let (from, to, timestamp) = (instant()?, instant()?, instant()?);
            let id = u64::from_str_radix(parts.next()?, 16).ok()?;
            let window = Window::new(from, to)?;
            parts.next().is_none().then_some(Self {
                window,
                end: Cursor { timestamp, id },
            })
        };
        parse().ok_or_else(|| "is not a next_cursor of an earlier answer".to_owned())
    }
}

impl<'de> Deserialize<'de> for PageCursor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl Tool for EventHistory {
    const NAME: &'static str = "fleet.cluster.event_history";
    const TITLE: &'static str = "Event history";
    const DESCRIPTION: &'static str = "Lists stored measurements (OTLP data points), newest first, one page at a time: the \
        raw data behind an outlier.";
    const PRECISION: Precision = Precision::Exact;
    type Answer = History;

    fn scope_request(&self) -> ScopeRequest {
        ScopeRequest {
            cluster: self.cluster.clone(),
            time: TimeRange {
                from: self.from,
                to: self.to,
                window: self.window,
            },
            page_window: self.cursor.map(|cursor| cursor.window),
        }
    }

    async fn call(self, scope: &Scope<'_>) -> Result<History, ToolError> {
        let window = scope.window;
        let store = &scope.context.store;
        let query = self.query(scope)?;
        let mut page = store.events(query.clone()).await?;
        // Other senders spell operations in their own way, so the text is looked for first.
        let stored = self.op.as_deref().and_then(operations::stored);
        if page.events.is_empty() && stored.is_some() {
            let op = names::optional("op", stored)?;
            page = store.events(EventQuery { op, ..query }).await?;
        }
        let events = take_within_size(&page.events, self.limit() * BYTES_PER_EVENT)?;
        let end = match page.events.get(events.len()) {
            Some(_) => page.events.get(events.len() - 1).map(Cursor::after),
            None => page.next,
        };
        Ok(History {
            window: window.into(),
            truncated: end.is_some(),
            next_cursor: end.map(|end| PageCursor { window, end }.to_string()),
            events,
        })
    }
}

impl EventHistory {
    fn limit(&self) -> usize {
        self.limit.unwrap_or(DEFAULT_LIMIT)
    }

    fn query(&self, scope: &Scope<'_>) -> Result<EventQuery, ToolError> {
        Ok(EventQuery {
            window: scope.window,
            cluster: scope.cluster.clone(),
            node: names::optional("node", self.node.as_deref())?,
            rank: self.rank.map(Rank::new),
            op: names::optional("op", self.op.as_deref())?,
            metric: names::optional("metric", self.metric.as_deref())?,
            limit: self.limit(),
            cursor: self.cursor.map(|cursor| cursor.end),
        })
    }
}

/// Returns the first events that fit into `bytes` of JSON, at least one.
fn take_within_size(events: &[StoredEvent], bytes: usize) -> Result<Vec<HistoryEvent>, ToolError> {
    let mut taken = Vec::new();
    let mut remaining = bytes;
    for event in events.iter().map(HistoryEvent::from) {
        let size = serde_json::to_vec(&event).map_err(ToolError::Json)?.len();
        if size > remaining && !taken.is_empty() {
            break;
        }
        remaining = remaining.saturating_sub(size);
        taken.push(event);
    }
    Ok(taken)
}

impl From<&StoredEvent> for HistoryEvent {
    fn from(stored: &StoredEvent) -> Self {
        let (event, origin) = (&stored.event, &stored.event.origin);
        let owned = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        let block = event.block.as_ref();
        let seqs = block.and_then(|block| block.seqs);
        let summary = match event.reading {
            Reading::Histogram(summary) => Some(summary),
            Reading::Double(_) | Reading::Int(_) => None,
        };
        let (kind, value_double, value_int) = match event.reading {
            Reading::Double(value) => ("double", Some(value), None),
            Reading::Int(value) => ("int", None, Some(value)),
            Reading::Histogram(_) => ("histogram", None, None),
        };
        Self {
            event_id: stored.id,
            timestamp: event.timestamp.to_string(),
            timestamp_ns: event.timestamp.value(),
            received_ns: stored.received.value(),
            cluster_id: origin.cluster.to_string(),
            node_id: origin.node.to_string(),
            rank: origin.rank.map(|rank| rank.rank().value()),
            nranks: origin.rank.and_then(RankInJob::world_size),
            metric_name: event.metric.to_string(),
            value_double,
            value_int,
            attrs: serde_json::from_str(&event.attrs).unwrap_or_default(),
            kind,
            comm_id: block.map(|block| block.comm.to_string()),
            op: block
                .and_then(|block| block.op.as_ref())
                .map(ToString::to_string),
            source: block.map(|block| block.source.name()),
            seq_first: seqs.map(SeqRange::first),
            seq_last: seqs.map(SeqRange::last),
            count: summary.map(|summary| summary.count),
            sum: summary.map(|summary| summary.sum),
            min: summary.and_then(|summary| summary.min),
            max: summary.and_then(|summary| summary.max),
            unit: event.unit.as_ref().to_owned(),
            gpu_model: owned(&origin.gpu_model),
            namespace: owned(&origin.namespace),
            pod: owned(&origin.pod),
            job: origin.job.as_ref().map(ToString::to_string),
        }
    }
}

#[cfg(test)]
mod tests;
