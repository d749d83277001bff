//! The agent's own metrics as text for Prometheus. Disabled by default.

mod measurements;
mod server;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use fleet_agent_core::measurement::Measurement;
use fleet_agent_core::vitals::Vitals;
use fleet_agent_export::token::{Token, TokenError};
use fleet_metrics_text::TextFormat;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::net::TcpListener;

use crate::metrics::measurements::MeasurementCollector;

/// Prefix of every metric name.
const PREFIX: &str = "fleet_agent";

/// Error of the metrics endpoint.
#[derive(Debug, Error)]
pub enum MetricsError {
    /// The address cannot be bound.
    #[error("cannot listen on {address} for --metrics-listen: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address is reachable from other hosts and needs no token.
    #[error(
        "--metrics-listen {0} is reachable from other hosts: require a bearer token with \
         --metrics-token-file FILE, or listen on 127.0.0.1"
    )]
    TokenRequired(SocketAddr),
}

/// Metrics endpoint, bound and not yet served.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    token: Option<Token>,
}

impl MetricsServer {
    /// Binds the address; port 0 selects a free one. Scrapers must send the token in `token_file`;
    /// without a token file only loopback addresses are allowed.
    pub async fn bind(
        address: SocketAddr,
        token_file: Option<&Path>,
    ) -> Result<Self, MetricsError> {
        let token = token_file.map(|path| Token::open("--metrics-token-file", path));
        let token = token.transpose()?;
        if token.is_none() && !address.ip().is_loopback() {
            return Err(MetricsError::TokenRequired(address));
        }
        let bound = TcpListener::bind(address).await;
        bound
            .map(|listener| Self { listener, token })
            .map_err(|source| MetricsError::Bind { address, source })
    }

    /// Returns the bound address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves `/metrics` and `/healthz` until `stop` resolves. `vitals` and `measurements` are
    /// called for each scrape.
    pub async fn serve<V, M>(
        self,
        vitals: V,
        measurements: M,
        stop: impl Future<Output = ()> + Send,
    ) where
        V: Fn() -> Vitals + Send + Sync + 'static,
        M: Fn() -> Vec<Measurement> + Send + Sync + 'static,
    {
        let router = router(vitals, measurements, self.token);
        server::serve(self.listener, router, stop).await;
    }
}

fn router(
    vitals: impl Fn() -> Vitals + Send + Sync + 'static,
    measurements: impl Fn() -> Vec<Measurement> + Send + Sync + 'static,
    token: Option<Token>,
) -> Router {
    let mut host = Registry::default();
    host.register_collector(Box::new(MeasurementCollector(Box::new(measurements))));
    let mut registry = Registry::with_prefix(PREFIX);
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "Version of the agent", Info::new(version));
    registry.register_collector(Box::new(VitalsCollector(Box::new(vitals))));
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async || "ok\n"))
        .with_state(Arc::new(AppState {
            registry,
            host,
            token,
        }))
}

/// State of the request handlers.
#[derive(Debug)]
struct AppState {
    /// The agent's own metrics.
    registry: Registry,
    /// Measurements of the host.
    host: Registry,
    token: Option<Token>,
}

impl AppState {
    fn is_authorized(&self, headers: &HeaderMap) -> bool {
        self.token.as_ref().is_none_or(|token| {
            let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
            // Constant time for tokens of equal length.
            sent.is_some_and(|sent| {
                verify_slices_are_equal(sent, token.header().as_encoded_bytes()).is_ok()
            })
        })
    }
}

async fn metrics(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    if !state.is_authorized(&headers) {
        return (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")]).into_response();
    }
    let accept = headers.get_all(ACCEPT).iter();
    let format = TextFormat::accepted(accept.filter_map(|value| value.to_str().ok()));
    let Ok(text) = format.encode([&state.registry, &state.host]) else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let headers = [
        (CONTENT_TYPE, format.content_type()),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, text).into_response()
}

/// Reads the vitals on each scrape; costs nothing in between.
struct VitalsCollector(Box<dyn Fn() -> Vitals + Send + Sync>);

impl fmt::Debug for VitalsCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VitalsCollector")
    }
}

impl Collector for VitalsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let vitals = (self.0)();
        events(&mut encoder, &vitals)?;
        counters(&mut encoder, &vitals)?;
        gauges(&mut encoder, &vitals)
    }
}

fn events(encoder: &mut DescriptorEncoder<'_>, vitals: &Vitals) -> Result<(), fmt::Error> {
    let help = "Events captured, by source";
    let seen = vitals
        .events
        .iter()
        .map(|(source, count)| (*source, *count));
    family(encoder, "events", help, "source", seen)?;
    let help = "Events, or data that explains them, that were lost, by the table that was full or the read that failed";
    let lost = [
        ("ring", vitals.lost.ring),
        ("in_flight", vitals.lost.in_flight),
        ("communicators", vitals.lost.comms),
        ("processes", vitals.lost.traced),
        ("threads", vitals.lost.threads),
        ("sums", vitals.lost.sums),
        ("kernel_sums", vitals.lost.host_sums),
        ("unreadable", vitals.lost.unreadable),
        ("files", vitals.lost.files),
    ];
    family(encoder, "events_lost", help, "reason", lost)?;
    let help = "GPU operations whose times are not used, by reason: lost by the profiler plugin, those of another operation, or on an unknown communicator";
    let lost = [
        ("plugin", vitals.gpu_lost.plugin),
        ("implausible", vitals.gpu_lost.implausible),
        ("overwritten", vitals.gpu_lost.overwritten),
        ("counter_lost", vitals.gpu_lost.counter_lost),
        ("unknown_communicator", vitals.gpu_lost.unknown_comm),
        ("not_summed", vitals.gpu_lost.not_summed),
    ];
    family(encoder, "gpu_operations_lost", help, "reason", lost)?;
    let help = "Samples of the stacks of late ranks, by what could be read";
    let samples = [
        ("read", vitals.stacks.samples),
        ("torn", vitals.stacks.torn),
        ("dropped", vitals.stacks.dropped),
    ];
    family(encoder, "stack_samples", help, "outcome", samples)
}

fn family(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    counts: impl IntoIterator<Item = (&'static str, u64)>,
) -> Result<(), fmt::Error> {
    let kind = ConstCounter::new(0_u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (value, count) in counts {
        let label = [(label, value)];
        ConstCounter::new(count).encode(family.encode_family(&label)?)?;
    }
    Ok(())
}

fn counters(encoder: &mut DescriptorEncoder<'_>, vitals: &Vitals) -> Result<(), fmt::Error> {
    let counters = [
        (
            "unknown_comm_ops",
            "Operations on communicators created before tracing began, without transfers that the profiler plugin records",
            vitals.unknown_comm_ops,
        ),
        (
            "broken_blocks",
            "Blocks of operations left out because some of their events are missing",
            vitals.broken_blocks,
        ),
        ("points_created", "Points created", vitals.points.made),
        (
            "points_sent",
            "Points acknowledged by the collector",
            vitals.points.sent,
        ),
        (
            "points_dropped",
            "Points dropped or rejected, which the collector does not have",
            vitals.points.dropped,
        ),
        (
            "implausible_policies",
            "Policy sets ignored in part because their sampling rate is implausible",
            vitals.implausible_policies,
        ),
        (
            "stack_samplings_over_budget",
            "Times that sampling of stacks ended early because its CPU time was spent",
            vitals.stacks.over_budget,
        ),
        (
            "hook_clients_dropped",
            "Hook socket clients disconnected because they fell behind",
            vitals.hook_clients_dropped,
        ),
        (
            "nvsentinel_events",
            "Events that NVSentinel accepted",
            vitals.sentinel_events,
        ),
        (
            "nvsentinel_failures",
            "Attempts to send events to NVSentinel that failed and are repeated",
            vitals.sentinel_failures,
        ),
    ];
    for (name, help, count) in counters {
        counter(encoder, name, help, ConstCounter::new(count))?;
    }
    let cpu = ConstCounter::new(vitals.cpu.as_secs_f64());
    let help = "CPU time of the agent, user and system";
    counter(encoder, "cpu_seconds", help, cpu)
}

fn counter(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counter: impl EncodeMetric,
) -> Result<(), fmt::Error> {
    let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
    counter.encode(metric)
}

fn gauges(encoder: &mut DescriptorEncoder<'_>, vitals: &Vitals) -> Result<(), fmt::Error> {
    let gauges = [
        ("processes", "Processes traced now", Some(vitals.processes)),
        (
            "spool_bytes",
            "Size of the spool on disk, in bytes",
            Some(vitals.spool_bytes),
        ),
        (
            "policy_version",
            "Version of the policy set in use, absent before the first one",
            vitals.policy_version,
        ),
        (
            "hook_clients",
            "Hook socket clients connected now",
            Some(vitals.hook_clients),
        ),
        (
            "resident_memory_bytes",
            "Resident memory of the agent, in bytes",
            Some(vitals.rss_bytes),
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
