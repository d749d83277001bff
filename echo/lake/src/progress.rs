//! Progress of the copy in the lake, as metrics.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use echo_core::clock::Clock;
use echo_core::units::Nanos;
use echo_store::timings::seconds;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;

/// Value for no time.
const NONE: i64 = i64::MIN;

/// Progress of the copy. Clones share it.
#[derive(Debug, Clone)]
pub struct LakeProgress {
    clock: Arc<dyn Clock>,
    /// Received time of the oldest event that the lake does not have.
    oldest: Arc<AtomicI64>,
    behind: Arc<AtomicU64>,
    slices: Counter,
    events: Counter,
    failures: Counter,
    lost: Counter,
    commits: Histogram,
    maintenance: MaintenanceCounters,
}

/// Counters of the maintenance by this instance.
#[derive(Debug, Clone, Default)]
struct MaintenanceCounters {
    runs: Counter,
    failures: Counter,
    merged_files: Counter,
    deleted_files: Counter,
    deleted_events: Counter,
}

impl LakeProgress {
    /// Nothing is copied yet; `lost` counts events that were deleted before they were copied.
    pub(crate) fn new(clock: Arc<dyn Clock>, lost: Counter) -> Self {
        Self {
            clock,
            oldest: Arc::new(AtomicI64::new(NONE)),
            behind: Arc::default(),
            slices: Counter::default(),
            events: Counter::default(),
            failures: Counter::default(),
            lost,
            commits: seconds(),
            maintenance: MaintenanceCounters::default(),
        }
    }

    /// Records what the lake does not have yet.
    pub(crate) fn set_behind(&self, events: u64, oldest: Option<Nanos>) {
        self.behind.store(events, Ordering::Relaxed);
        let oldest = oldest.map_or(NONE, Nanos::value);
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    /// Counts a slice.
    pub(crate) fn count_slice(&self, events: u64) {
        self.slices.inc();
        self.events.inc_by(events);
    }

    /// Counts a failed attempt.
    pub(crate) fn count_failure(&self) {
        self.failures.inc();
    }

    /// Counts a finished run of the maintenance.
    pub(crate) fn count_maintenance(&self) {
        self.maintenance.runs.inc();
    }

    /// Counts a failed run of the maintenance.
    pub(crate) fn count_maintenance_failure(&self) {
        self.maintenance.failures.inc();
    }

    /// Counts files that are not there any more because their rows were merged.
    pub(crate) fn count_merged_files(&self, files: u64) {
        self.maintenance.merged_files.inc_by(files);
    }

    /// Counts files without rows in use that were deleted.
    pub(crate) fn count_deleted_files(&self, files: u64) {
        self.maintenance.deleted_files.inc_by(files);
    }

    /// Counts events that were deleted because of their age.
    pub(crate) fn count_deleted_events(&self, events: u64) {
        self.maintenance.deleted_events.inc_by(events);
    }

    /// Durations of commits, seconds.
    pub(crate) const fn commits(&self) -> &Histogram {
        &self.commits
    }

    /// Number of committed slices.
    pub fn slices(&self) -> u64 {
        self.slices.get()
    }

    /// Number of failed attempts.
    pub fn failures(&self) -> u64 {
        self.failures.get()
    }

    /// Age of the oldest event that the lake does not have, seconds; 0 if it has all.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge is compared with minutes"
    )]
    pub fn behind_seconds(&self) -> f64 {
        match self.oldest.load(Ordering::Relaxed) {
            NONE => 0.0,
            oldest => {
                let age = self.clock.now().value().saturating_sub(oldest);
                age.max(0) as f64 / 1e9
            }
        }
    }
}

impl MaintenanceCounters {
    /// Names, descriptions and values.
    const fn described(&self) -> [(&'static str, &'static str, &Counter); 5] {
        [
            (
                "lake_maintenance_runs",
                "Finished runs of the maintenance of the lake by this instance",
                &self.runs,
            ),
            (
                "lake_maintenance_failures",
                "Failed runs of the maintenance of the lake by this instance",
                &self.failures,
            ),
            (
                "lake_merged_files",
                "Files of the lake replaced by larger ones, less those",
                &self.merged_files,
            ),
            (
                "lake_deleted_files",
                "Files of the lake deleted because no snapshot uses them",
                &self.deleted_files,
            ),
            (
                "lake_deleted_events",
                "Events deleted from the lake because of their age",
                &self.deleted_events,
            ),
        ]
    }
}

impl Collector for LakeProgress {
    #[expect(clippy::cast_precision_loss, reason = "a gauge is read by eye")]
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauges = [
            (
                "lake_behind_seconds",
                "Age of the oldest event that the lake does not have",
                self.behind_seconds(),
            ),
            (
                "lake_behind_events",
                "Events that the lake does not have",
                self.behind.load(Ordering::Relaxed) as f64,
            ),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let counters = [
            ("lake_slices", "Slices committed to the lake", &self.slices),
            ("lake_events", "Events committed to the lake", &self.events),
            (
                "lake_failures",
                "Failed attempts to connect to the lake or to commit",
                &self.failures,
            ),
            (
                "lake_lost_events",
                "Events deleted because the volume was full before the lake had them",
                &self.lost,
            ),
        ];
        let counters = counters.into_iter().chain(self.maintenance.described());
        for (name, help, counter) in counters {
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        let help = "Duration of a commit to the lake";
        let unit = prometheus_client::registry::Unit::Seconds;
        let kind = self.commits.metric_type();
        let metric = encoder.encode_descriptor("lake_commit", help, Some(&unit), kind)?;
        self.commits.encode(metric)
    }
}
