//! Metrics of the store: its size, its limits and its queue.

use std::fmt;

use echo_store::Vitals;
use prometheus_client::encoding::DescriptorEncoder;

use crate::http::metrics::{Sources, gauges};

/// Writes the metrics.
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is read by eye and by thresholds"
)]
pub(super) fn encode(
    sources: &Sources,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), fmt::Error> {
    let vitals = sources.store.vitals();
    let measured = [
        (
            "store_oldest_wait_seconds",
            "Longest current wait for the writer",
            vitals.oldest_wait.unwrap_or_default().as_secs_f64(),
        ),
        (
            "store_queued_events",
            "Events waiting to be committed",
            vitals.queued_events as f64,
        ),
        (
            "store_queued_events_limit",
            "Limit of waiting events; more are refused",
            vitals.queue_limit as f64,
        ),
        (
            "store_database_bytes",
            "Size of the database file",
            vitals.database_bytes as f64,
        ),
        (
            "store_log_bytes",
            "Size of the log beside the database file",
            vitals.log_bytes as f64,
        ),
    ];
    gauges(encoder, &measured)?;
    gauges(encoder, &entries(&vitals))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is read by eye and by thresholds"
)]
fn entries(vitals: &Vitals) -> [(&'static str, &'static str, f64); 6] {
    [
        (
            "store_series",
            "Distinct series (metric, unit, communicator, operation, role)",
            vitals.series as f64,
        ),
        (
            "store_series_limit",
            "Limit of series; points of further ones are rejected",
            vitals.series_limit as f64,
        ),
        ("store_senders", "Distinct senders", vitals.origins as f64),
        (
            "store_senders_limit",
            "Limit of senders; points of further ones are rejected",
            vitals.origins_limit as f64,
        ),
        (
            "store_clusters",
            "Distinct clusters",
            vitals.clusters as f64,
        ),
        (
            "store_clusters_limit",
            "Limit of clusters; points of further ones are rejected",
            vitals.clusters_limit as f64,
        ),
    ]
}
