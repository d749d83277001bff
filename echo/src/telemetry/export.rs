//! Sends Echo's own spans to a collector over OTLP/gRPC, in batches and aside: a collector that does not answer costs spans,
//! never a request.

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

use crate::telemetry::{LogError, parse, wrong};

/// Longest time for a batch of spans, and for those that are left at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("--trace-endpoint {endpoint}: {reason}")]
pub struct ExportError {
    endpoint: String,
    reason: String,
}

/// Where spans go, and which.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportConfig {
    /// The collector, such as `http://127.0.0.1:14317`.
    pub endpoint: String,
    /// Share of requests, commits and detector steps, from 0 to 1. Questions and upkeep are sent always.
    pub sample: f64,
    /// The cluster that the spans name as theirs.
    pub cluster: String,
}

/// Exports spans until it is finished.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

impl Exporting {
    /// Connects when the first spans are sent. Called on a runtime, which has to live until this is finished.
    pub fn start(config: &ExportConfig) -> Result<Self, ExportError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(&config.endpoint)
            .with_timeout(PATIENCE)
            .build()
            .map_err(|error| ExportError {
                endpoint: config.endpoint.clone(),
                reason: error.to_string(),
            })?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_sampler(BySpan {
                some: Sampler::TraceIdRatioBased(config.sample),
            })
            .with_resource(resource(&config.cluster))
            .build();
        Ok(Self(provider))
    }

    /// Sends log lines to standard error from here on, a line of text each, and spans to the collector.
    pub fn log_text(&self, filter: &str) -> Result<(), LogError> {
        let lines = fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr);
        self.log(filter, lines.boxed())
    }

    /// Sends log lines to standard error from here on, a JSON object each, and spans to the collector.
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
            .with_filter(filter_fn(|about| about.target() == spans::TARGET));
        tracing_subscriber::registry()
            .with(lines.with_filter(parse(filter)?))
            .with(spans)
            .try_init()
            .map_err(|error| wrong(filter, error.to_string()))
    }

    /// Sends what is left, for a few seconds at most.
    pub fn finish(self) {
        if let Err(error) = self.0.shutdown_with_timeout(PATIENCE) {
            tracing::warn!(%error, "the last spans could not be sent");
        }
    }
}

/// Who sends. An Echo that is sent spans wants to know cluster and node.
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

/// Takes every question and what upkeep does, some of what comes with every batch, and of parts what their whole says.
#[derive(Debug, Clone)]
struct BySpan {
    some: Sampler,
}

impl ShouldSample for BySpan {
    fn should_sample(
        &self,
        parent_context: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        span_kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let all = |decision| SamplingResult {
            decision,
            attributes: Vec::new(),
            trace_state: TraceState::default(),
        };
        let whole = parent_context.filter(|whole| whole.span().span_context().is_valid());
        match (whole, name) {
            (Some(whole), _) if whole.span().span_context().is_sampled() => {
                all(SamplingDecision::RecordAndSample)
            }
            // A part whose whole is not taken, or has no span on purpose.
            (Some(_), _) | (None, spans::DECODE | spans::APPEND) => all(SamplingDecision::Drop),
            (None, spans::INGEST | spans::COMMIT | spans::DETECT) => self
                .some
                .should_sample(None, trace_id, name, span_kind, attributes, links),
            (None, _) => all(SamplingDecision::RecordAndSample),
        }
    }
}
