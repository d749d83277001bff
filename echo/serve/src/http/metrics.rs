//! Metrics of Echo and its verdicts, as text for Prometheus.

use std::fmt;
use std::mem;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use echo_access::Principal;
use echo_core::error::Code;
use echo_store::EventStore;
use echo_store::timings::Timings;
use echo_tools::query_limit::QueryLimit;
use echo_tools::{ToolContext, error_body};
use fleet_metrics_text::TextFormat;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::watch;

use crate::http::{HttpState, failure, health};
use crate::jwks::JwksCache;
use crate::listener::Connections;
use crate::middleware::Middleware;
use crate::reloads::Reloads;
use crate::request_context::RequestContext;
use crate::tls::Encryption;
use echo_ingest::accept::Ingest;
use echo_ingest::decode::reject::RejectReason;

mod security;
mod storage;
mod verdicts;

use verdicts::{Families, VerdictCache};

/// Prefix of every metric name.
const PREFIX: &str = "echo";

/// All metrics. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    process_families: Arc<Registry>,
    /// Store of this instance; that of the tools if absent.
    store: Option<Arc<dyn EventStore>>,
    verdicts: VerdictCache,
}

/// Sources that are read on each scrape.
#[derive(Debug)]
pub struct Sources {
    /// The ingest path.
    pub ingest: Ingest,
    /// The store.
    pub store: Arc<dyn EventStore>,
    /// Durations of store operations.
    pub timings: Timings,
    /// Number of the last event that the detector has processed.
    pub judged: watch::Receiver<u64>,
    /// Connection counts by listener name.
    pub listeners: [(&'static str, Connections); 3],
    /// Limit of concurrent queries.
    pub query_limit: QueryLimit,
    /// Middleware of the API.
    pub middleware: Middleware,
    /// Counts of file reloads.
    pub reloads: Reloads,
    /// Keys that issuers publish.
    pub jwks: JwksCache,
    /// TLS with its current certificate.
    pub encryption: Encryption,
    /// Metrics of optional parts.
    pub collectors: Vec<Box<dyn Collector>>,
}

impl Metrics {
    /// Registers the metrics of a running instance.
    pub fn new(mut sources: Sources) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The version of Echo", Info::new(version));
        let times = [
            (
                "ingest_acknowledgement",
                "Time from the complete arrival of a request to its acknowledgement",
                sources.ingest.stats().acknowledgements(),
            ),
            (
                "store_commit",
                "Duration of a transaction",
                &sources.timings.commits,
            ),
            (
                "store_checkpoint",
                "Duration of a checkpoint, which writes the log to the database file",
                &sources.timings.checkpoints,
            ),
        ];
        for (name, help, histogram) in times {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
        let counts = [
            (
                "store_failed_checkpoints",
                "Checkpoints that failed",
                &sources.timings.failed_checkpoints,
            ),
            (
                "store_refused_events",
                "Events refused because the volume was nearly full, counted on every attempt",
                &sources.timings.refused_events,
            ),
            (
                "store_deleted_events",
                "Events deleted by the limits on age and size",
                &sources.timings.deleted_events,
            ),
            (
                "store_lost_events",
                "Acknowledged events that are missing, as accepted by repairs",
                &sources.timings.lost_events,
            ),
        ];
        for (name, help, counter) in counts {
            registry.register(name, help, counter.clone());
        }
        for collector in mem::take(&mut sources.collectors) {
            registry.register_collector(collector);
        }
        let store = Arc::clone(&sources.store);
        registry.register_collector(Box::new(sources));
        Self {
            process_families: Arc::new(registry),
            store: Some(store),
            verdicts: VerdictCache::default(),
        }
    }

    fn text(
        &self,
        format: TextFormat,
        concluded: Families,
        has_all: bool,
    ) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(concluded));
        let process = has_all.then_some(&*self.process_families);
        format.encode(process.into_iter().chain([&registry]))
    }
}

/// Returns the current metrics of the caller's clusters, and the metrics of the process for callers
/// that may query all clusters.
///
/// Verdicts are read once for all callers; each caller gets those of its clusters.
pub(super) async fn metrics(
    State(state): State<HttpState>,
    headers: HeaderMap,
    request_context: RequestContext,
) -> Response {
    let accept = headers.get_all(ACCEPT).iter();
    let format = TextFormat::accepted(accept.filter_map(|value| value.to_str().ok()));
    let context = state.contexts.for_caller(&Arc::new(Principal::local()));
    // Each instance has the metrics of what it receives, whatever it shares with others.
    let own = state.metrics.store.clone();
    let context = ToolContext {
        store: own.unwrap_or_else(|| Arc::clone(&context.store)),
        ..context
    };
    state.metrics.verdicts.refresh(&context).await;
    let is_ready = health::reasons(&state).is_empty();
    let caller = &request_context.caller;
    let now = context.clock.now();
    let concluded = state.metrics.verdicts.families(caller, (now, is_ready));
    let has_all = caller.sees_everything();
    let text = state.metrics.text(format, concluded, has_all);
    text.map_or_else(
        |_cannot_happen| failure(Code::Internal, error_body(Code::Internal, "no metrics")),
        |text| {
            (
                [
                    (CONTENT_TYPE, format.content_type()),
                    (CACHE_CONTROL, "no-store"),
                ],
                text,
            )
                .into_response()
        },
    )
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.encode_counters(&mut encoder)?;
        self.encode_misrouted(&mut encoder)?;
        self.encode_rejections(&mut encoder)?;
        self.encode_requests(&mut encoder)?;
        self.encode_listeners(&mut encoder)?;
        self.encode_queries(&mut encoder)?;
        security::encode(self, &mut encoder)?;
        storage::encode(self, &mut encoder)
    }
}

impl Sources {
    fn encode_counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.ingest.stats();
        let counters = [
            (
                "ingest_requests",
                "Ingest requests, with any outcome",
                stats.requests(),
            ),
            (
                "ingest_body_bytes",
                "Bytes of request bodies after decompression",
                stats.bytes(),
            ),
            (
                "ingest_stored_points",
                "Stored points",
                stats.points_accepted(),
            ),
            (
                "ingest_repeated_batches",
                "Batches that were already stored",
                stats.duplicates(),
            ),
            (
                "query_refused",
                "Queries rejected by the limit on concurrent queries",
                self.query_limit.rejected(),
            ),
            (
                "store_events",
                "Events committed since the database was made",
                *self.store.committed().borrow(),
            ),
            (
                "detector_events",
                "Committed events that the detector has processed",
                *self.judged.borrow(),
            ),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }

    /// Writes the metric of misrouted points; only with several shards.
    fn encode_misrouted(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(points) = self.ingest.misrouted().points() else {
            return Ok(());
        };
        let help = "Points that were stored although their cluster belongs to another shard";
        let counter = ConstCounter::new(points);
        let kind = counter.metric_type();
        counter.encode(encoder.encode_descriptor("ingest_misrouted_points", help, None, kind)?)
    }

    fn encode_rejections(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.ingest.stats();
        let kind = ConstCounter::new(0_u64).metric_type();
        let help = "Points rejected individually";
        let mut rejected = encoder.encode_descriptor("ingest_rejected_points", help, None, kind)?;
        for reason in RejectReason::ALL {
            let label = [("reason", reason.name())];
            let count = ConstCounter::new(stats.rejected(*reason));
            count.encode(rejected.encode_family(&label)?)?;
        }
        let help = "Requests that failed";
        let mut failed = encoder.encode_descriptor("ingest_failed_requests", help, None, kind)?;
        for code in Code::ALL {
            let label = [("code", code.name())];
            let count = ConstCounter::new(stats.failed(code));
            count.encode(failed.encode_family(&label)?)?;
        }
        Ok(())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a count of connections is small"
    )]
    fn encode_listeners(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = ConstGauge::new(0.0).metric_type();
        let help = "Open connections";
        let mut open = encoder.encode_descriptor("connections_open", help, None, kind)?;
        for (listener, seen) in &self.listeners {
            let label = [("listener", *listener)];
            ConstGauge::new(seen.open() as f64).encode(open.encode_family(&label)?)?;
        }
        type Count = fn(&Connections) -> u64;
        let counts: [(&str, &str, Count); 4] = [
            (
                "connections_accepted",
                "Accepted connections",
                Connections::accepted,
            ),
            (
                "connections_refused",
                "Connections closed at once because too many were open",
                Connections::refused,
            ),
            (
                "connections_idle",
                "Connections closed because they were idle",
                Connections::idle,
            ),
            (
                "handshakes_failed",
                "Failed TLS handshakes",
                Connections::failed_handshakes,
            ),
        ];
        let kind = ConstCounter::new(0_u64).metric_type();
        for (name, help, count) in counts {
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (listener, seen) in &self.listeners {
                let label = [("listener", *listener)];
                ConstCounter::new(count(seen)).encode(family.encode_family(&label)?)?;
            }
        }
        Ok(())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge is read by eye and by thresholds"
    )]
    fn encode_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let budget = self.ingest.budget();
        let age_s = self.ingest.stats().event_age_nanos() as f64 / 1e9;
        let values = [
            (
                "ingest_in_flight_bytes",
                "Memory of requests between their first byte and their acknowledgement",
                budget.used() as f64,
            ),
            (
                "ingest_in_flight_bytes_limit",
                "Limit of that memory; requests over it are refused",
                budget.size() as f64,
            ),
            (
                "ingest_event_age_seconds",
                "Age of the newest event of the last batch on arrival, by the clocks of its sender and of Echo",
                age_s,
            ),
        ];
        gauges(encoder, &values)
    }

    fn encode_queries(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let values = [
            (
                "query_in_flight",
                "Queries in flight",
                f64::from(self.query_limit.in_flight()),
            ),
            (
                "query_in_flight_limit",
                "Limit of concurrent queries",
                f64::from(self.query_limit.limit()),
            ),
        ];
        gauges(encoder, &values)
    }
}

/// Writes gauges, each with name, help and value.
fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    values: &[(&str, &str, f64)],
) -> Result<(), fmt::Error> {
    for (name, help, value) in values {
        let gauge = ConstGauge::new(*value);
        let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)?;
    }
    Ok(())
}
