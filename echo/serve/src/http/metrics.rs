//! What Echo says of itself and what it concluded, as `OpenMetrics` text for whoever scrapes it.

use std::fmt;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use echo_access::Principal;
use echo_core::error::Code;
use echo_store::EventStore;
use echo_store::timings::Timings;
use echo_tools::error_body;
use echo_tools::query_limit::Places;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::watch;

use crate::http::{HttpState, failure, health};
use crate::jwks::KeySets;
use crate::listener::Connections;
use crate::middleware::Terms;
use crate::reloads::Reloads;
use crate::request_context::Asking;
use crate::tls::Encryption;
use echo_ingest::accept::Ingest;
use echo_ingest::decode::reject::RejectReason;

mod security;
mod storage;
mod verdicts;

use verdicts::{Conclusions, Families};

/// Of the text below.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Begins the name of every metric.
const PREFIX: &str = "echo";

/// All metrics. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    of_echo: Arc<Registry>,
    conclusions: Conclusions,
}

/// Whom to ask.
#[derive(Debug)]
pub struct Sources {
    /// The ingest path.
    pub ingest: Ingest,
    /// The store.
    pub store: Arc<dyn EventStore>,
    /// How long the store takes.
    pub timings: Timings,
    /// Number of the last event that the detector has taken in.
    pub judged: watch::Receiver<u64>,
    /// What each listener has seen, by its name.
    pub listeners: [(&'static str, Connections); 3],
    /// Places for questions.
    pub places: Places,
    /// On which terms callers are let in.
    pub terms: Terms,
    /// How reading files again goes.
    pub reloads: Reloads,
    /// Keys that issuers publish.
    pub key_sets: KeySets,
    /// With which certificate.
    pub encryption: Encryption,
}

impl Metrics {
    /// Metrics of a running Echo.
    pub fn of(sources: Sources) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "The version of Echo", Info::new(version));
        let times = [
            (
                "ingest_acknowledgement",
                "Time from the arrival of a request as a whole to its acknowledgement",
                sources.ingest.stats().acknowledgements(),
            ),
            (
                "store_commit",
                "Time that a transaction takes",
                &sources.timings.commits,
            ),
            (
                "store_checkpoint",
                "Time that it takes to write the log to the database file",
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
                "Events that were refused because the volume was nearly full, as often as they were sent",
                &sources.timings.refused_events,
            ),
            (
                "store_deleted_events",
                "Events that were deleted to keep the limits of age and size",
                &sources.timings.deleted_events,
            ),
        ];
        for (name, help, counter) in counts {
            registry.register(name, help, counter.clone());
        }
        registry.register_collector(Box::new(sources));
        Self {
            of_echo: Arc::new(registry),
            conclusions: Conclusions::default(),
        }
    }

    fn text(&self, concluded: Families, has_all: bool) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(concluded));
        let mut text = String::new();
        if has_all {
            encode_registry(&mut text, &self.of_echo)?;
        }
        encode_registry(&mut text, &registry)?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

/// All metrics, as they are now, that are about clusters of the caller. How Echo fares is about all of them.
///
/// What was concluded is read on behalf of Echo and kept for all callers; each is shown what he may see of it.
pub(super) async fn metrics(State(state): State<HttpState>, asking: Asking) -> Response {
    let context = state.contexts.of(&Arc::new(Principal::local()));
    state.metrics.conclusions.refresh(&context).await;
    let is_ready = health::reasons(&state).is_empty();
    let caller = &asking.caller;
    let now = context.clock.now();
    let concluded = state.metrics.conclusions.families(caller, (now, is_ready));
    let text = state.metrics.text(concluded, caller.sees_everything());
    text.map_or_else(
        |_cannot_happen| failure(Code::Internal, error_body(Code::Internal, "no metrics")),
        |text| {
            (
                [(CONTENT_TYPE, OPEN_METRICS), (CACHE_CONTROL, "no-store")],
                text,
            )
                .into_response()
        },
    )
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.counters(&mut encoder)?;
        self.strays(&mut encoder)?;
        self.by_reason(&mut encoder)?;
        self.of_requests(&mut encoder)?;
        self.by_listener(&mut encoder)?;
        self.of_questions(&mut encoder)?;
        security::encode(self, &mut encoder)?;
        storage::encode(self, &mut encoder)
    }
}

impl Sources {
    fn counters(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.ingest.stats();
        let counters = [
            (
                "ingest_requests",
                "Requests, whatever became of them",
                stats.requests(),
            ),
            (
                "ingest_body_bytes",
                "Bytes of request bodies after decompression",
                stats.bytes(),
            ),
            (
                "ingest_stored_points",
                "Points that were stored",
                stats.points_accepted(),
            ),
            (
                "ingest_repeated_batches",
                "Batches that had been stored before",
                stats.duplicates(),
            ),
            (
                "query_refused",
                "Questions that were told to come back because others were being answered",
                self.places.refused(),
            ),
            (
                "store_events",
                "Events committed since the database was made",
                *self.store.committed().borrow(),
            ),
            (
                "detector_events",
                "Events that the detector has taken in, of those committed",
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

    /// Only where there are several Echos.
    fn strays(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(points) = self.ingest.misrouted().points() else {
            return Ok(());
        };
        let help = "Points that were stored although their cluster belongs to another shard";
        let counter = ConstCounter::new(points);
        let kind = counter.metric_type();
        counter.encode(encoder.encode_descriptor("ingest_stray_points", help, None, kind)?)
    }

    fn by_reason(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let stats = self.ingest.stats();
        let kind = ConstCounter::new(0_u64).metric_type();
        let help = "Points that were turned away one by one";
        let mut rejected = encoder.encode_descriptor("ingest_rejected_points", help, None, kind)?;
        for reason in RejectReason::ALL {
            let label = [("reason", reason.name())];
            let count = ConstCounter::new(stats.rejected(*reason));
            count.encode(rejected.encode_family(&label)?)?;
        }
        let help = "Requests that were answered with an error";
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
    fn by_listener(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = ConstGauge::new(0.0).metric_type();
        let help = "Connections that are open";
        let mut open = encoder.encode_descriptor("connections_open", help, None, kind)?;
        for (listener, seen) in &self.listeners {
            let label = [("listener", *listener)];
            ConstGauge::new(seen.open() as f64).encode(open.encode_family(&label)?)?;
        }
        type Count = fn(&Connections) -> u64;
        let counts: [(&str, &str, Count); 4] = [
            (
                "connections_accepted",
                "Connections that were let in",
                Connections::accepted,
            ),
            (
                "connections_refused",
                "Connections that were closed at once because too many were open",
                Connections::refused,
            ),
            (
                "connections_idle",
                "Connections that were closed because nothing came or went on them",
                Connections::idle,
            ),
            (
                "handshakes_failed",
                "Connections on which no encryption was agreed on",
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
    fn of_requests(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let budget = self.ingest.budget();
        let age_s = self.ingest.stats().event_age_nanos() as f64 / 1e9;
        let measured = [
            (
                "ingest_in_flight_bytes",
                "Memory of requests between their first byte and their acknowledgement",
                budget.used() as f64,
            ),
            (
                "ingest_in_flight_bytes_limit",
                "Most of that memory; more is refused",
                budget.size() as f64,
            ),
            (
                "ingest_event_age_seconds",
                "How old the newest event of the last batch was when it arrived, by the clocks of its sender and of Echo",
                age_s,
            ),
        ];
        gauges(encoder, &measured)
    }

    fn of_questions(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let measured = [
            (
                "query_in_flight",
                "Questions that are being answered",
                f64::from(self.places.taken()),
            ),
            (
                "query_in_flight_limit",
                "Most questions that are answered at the same time",
                f64::from(self.places.most()),
            ),
        ];
        gauges(encoder, &measured)
    }
}

/// Name, help and value of each.
fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    measured: &[(&str, &str, f64)],
) -> Result<(), fmt::Error> {
    for (name, help, value) in measured {
        let gauge = ConstGauge::new(*value);
        let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
        gauge.encode(metric)?;
    }
    Ok(())
}
