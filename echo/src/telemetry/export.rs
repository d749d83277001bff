//! Export of Echo's own spans to a collector over OTLP/gRPC, batched in the background: a collector
//! that does not respond loses spans and never delays a request.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use echo_core::spans;
use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId, TraceState, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    Sampler, SamplingDecision, SamplingResult, SdkTracerProvider, ShouldSample,
};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::telemetry::{LogError, log_error, parse};

/// Timeout of one batch of spans, and of the flush at shutdown.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// Error from creating the exporter.
#[derive(Debug, thiserror::Error)]
#[error("--trace-endpoint {endpoint}: {reason}")]
pub struct ExportError {
    endpoint: String,
    reason: String,
}

/// Target and sampling of exported spans.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// Address of the collector, such as `http://127.0.0.1:14317`.
    pub endpoint: String,
    /// Sampled share of ingest requests, commits and detector steps, from 0 to 1. Queries and
    /// maintenance are always sampled.
    pub sample: f64,
    /// Cluster attribute of the spans.
    pub cluster: String,
}

/// Span exporter; runs until [`SpanExport::finish`].
#[derive(Debug)]
pub struct SpanExport(SdkTracerProvider);

impl SpanExport {
    /// Creates the exporter, which connects when it sends the first spans. Must be called within a
    /// Tokio runtime that outlives it.
    pub fn start(config: &ExportConfig) -> Result<Self, ExportError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&config.endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()
            .map_err(|error| ExportError {
                endpoint: config.endpoint.clone(),
                reason: error.to_string(),
            })?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(SpanSampler {
                ratio: Sampler::TraceIdRatioBased(config.sample),
            })
            .with_resource(resource(&config.cluster))
            .build();
        Ok(Self(provider))
    }

    /// Logs to standard error as text lines from now on, and sends spans to the collector.
    pub fn log_text(&self, filter: &str) -> Result<(), LogError> {
        let lines = fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        self.log(filter, lines.boxed())
    }

    /// Logs to standard error as JSON lines from now on, and sends spans to the collector.
    pub fn log_json(&self, filter: &str) -> Result<(), LogError> {
        let lines = fmt::layer().with_writer(std::io::stderr);
        self.log(filter, lines.json().flatten_event(true).boxed())
    }

    fn log(
        &self,
        filter: &str,
        lines: Box<dyn Layer<Registry> + Send + Sync>,
    ) -> Result<(), LogError> {
        let spans = tracing_opentelemetry::layer()
            .with_tracer(self.0.tracer("fleet-echo"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_filter(filter_fn(|metadata| metadata.target() == spans::TARGET));
        tracing_subscriber::registry()
            .with(lines.with_filter(parse(filter)?))
            .with(spans)
            .try_init()
            .map_err(|error| log_error(filter, error.to_string()))
    }

    /// Flushes the remaining spans, for a few seconds at most.
    pub fn finish(self) {
        if let Err(error) = self.0.shutdown_with_timeout(EXPORT_TIMEOUT) {
            tracing::warn!(%error, "cannot flush the last spans");
        }
    }
}

/// Resource attributes. An Echo instance that receives spans requires cluster and node.
fn resource(cluster: &str) -> Resource {
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let node = node.map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned());
    let attributes = BTreeMap::from([
        ("fleet.cluster.id", cluster.to_owned()),
        ("fleet.node.id", node),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ]);
    Resource::builder()
        .with_service_name("fleet-echo")
        .with_attributes(
            attributes
                .into_iter()
                .map(|(key, value)| KeyValue::new(key, value)),
        )
        .build()
}

/// Sampler that keeps all queries and maintenance, a share of ingest, commits and detector steps,
/// and follows the parent's decision for child spans.
#[derive(Debug, Clone)]
struct SpanSampler {
    ratio: Sampler,
}

impl ShouldSample for SpanSampler {
    fn should_sample(
        &self,
        parent_context: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        span_kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let always = |decision| SamplingResult {
            decision,
            attributes: Vec::new(),
            trace_state: TraceState::default(),
        };
        let parent = parent_context.filter(|parent| parent.span().span_context().is_valid());
        match (parent, name) {
            (Some(parent), _) if parent.span().span_context().is_sampled() => {
                always(SamplingDecision::RecordAndSample)
            }
            // A child whose parent is not sampled, or has no span on purpose.
            (Some(_), _) | (None, spans::DECODE | spans::APPEND) => always(SamplingDecision::Drop),
            (None, spans::INGEST | spans::COMMIT | spans::DETECT) => self
                .ratio
                .should_sample(None, trace_id, name, span_kind, attributes, links),
            (None, _) => always(SamplingDecision::RecordAndSample),
        }
    }
}
