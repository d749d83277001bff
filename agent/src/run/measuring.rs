//! Measurements of the host: GPUs are read every ten seconds, and everything is sent to an OTLP
//! receiver if there is one.

use std::path::Path;
use std::time::Duration;

use fleet_agent_core::host::WallClock;
use fleet_agent_core::measurement::Attribute;
use fleet_agent_export::otlp::{EndpointError, Link, MeasurementExporter, Security};
use fleet_agent_sources::watch::now_ns;
use jiff::Timestamp;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::config::RunArgs;
use crate::gpu::Gpus;
use crate::measurements::Measurements;
use crate::run::FLUSH_TIMEOUT;

/// Interval of readings and exports.
const INTERVAL: Duration = Duration::from_secs(10);

/// Task that reads GPUs and sends measurements.
#[derive(Debug)]
pub(super) struct Measuring {
    measurements: Measurements,
    exporter: Option<MeasurementExporter>,
    /// Set if the last export failed, so that an outage is logged once.
    is_failing: bool,
}

impl Measuring {
    /// Creates the task; `None` if neither an address nor an endpoint for metrics is set.
    pub(super) fn new(args: &RunArgs, node: &str) -> Result<Option<Self>, EndpointError> {
        let resource = vec![
            Attribute::text("service.name", "fleet-agent"),
            Attribute::text("service.version", env!("CARGO_PKG_VERSION")),
            Attribute::text("host.name", node.to_owned()),
            Attribute::text("k8s.cluster.name", args.cluster.clone()),
        ];
        let exporter = match &args.metrics_endpoint {
            Some(endpoint) => {
                let link = Link::new(endpoint, &Security::default())?;
                Some(MeasurementExporter::new(&link, resource))
            }
            None => None,
        };
        let is_read = exporter.is_some() || args.metrics_listen.is_some();
        Ok(is_read.then(|| Self {
            measurements: Measurements::default(),
            exporter,
            is_failing: false,
        }))
    }

    /// Returns the measurements.
    pub(super) fn measurements(&self) -> Measurements {
        self.measurements.clone()
    }

    /// Runs until `stop` resolves, and sends the last measurements.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let gpus = Gpus::open(Path::new("/proc"));
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stop = Box::pin(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                _now = ticks.tick() => {}
            }
            self.measurements
                .set_devices(gpus.readings().await.unwrap_or_default());
            self.export().await;
        }
        let _timed_out = timeout(FLUSH_TIMEOUT, self.export()).await;
    }

    async fn export(&mut self) {
        let Some(exporter) = &self.exporter else {
            return;
        };
        let now_ns = now_ns();
        let clock = WallClock {
            origin_ns: now_ns,
            unix_ns: Timestamp::now().as_nanosecond(),
        };
        let measurements = self.measurements.read(Path::new("/proc"), now_ns);
        match exporter.export(measurements, clock, now_ns).await {
            Ok(()) => self.is_failing = false,
            Err(error) if !self.is_failing => {
                self.is_failing = true;
                tracing::warn!("measurements cannot be sent to --metrics-endpoint: {error}");
            }
            Err(_) => {}
        }
    }
}
