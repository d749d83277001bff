//! Measurement of one load on one receiver: its cost, and the latency of its senders.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use crate::generator::{Generator, Load, Tally};
use crate::process::Memory;
use crate::receiver::Receiver;
use crate::wire::Target;

/// Durations of a measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// Warm-up before the measurement.
    pub(crate) warm_up: Duration,
    /// Measurement.
    pub(crate) measured: Duration,
}

/// Result of a measurement.
#[derive(Debug)]
pub(crate) struct Cost {
    /// CPU of the receiver's process per acknowledged point, nanoseconds.
    pub(crate) cpu_ns_per_point: f64,
    /// CPU of the receiver while it was measured, as a share of one core.
    pub(crate) cores: f64,
    /// Points acknowledged per second.
    pub(crate) points_per_s: f64,
    /// Bytes of a point on the wire, before compression.
    pub(crate) bytes_per_point: f64,
    /// Requests acknowledged during the measurement.
    pub(crate) tally: Tally,
    /// Memory at the end.
    pub(crate) memory: Memory,
    /// First round of a later load.
    pub(crate) next_round: u64,
}

/// Puts the load on the receiver. Its CPU time counts until it has finished all work that the points
/// cause, including work after the acknowledgement.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of points are far below 2^53"
)]
pub(crate) async fn measure(
    receiver: &Receiver,
    load: Load,
    timing: Timing,
) -> anyhow::Result<Cost> {
    let process = receiver.process();
    let generator = Generator::start(load, &Target::plain(receiver.otlp())).await?;
    sleep(timing.warm_up).await;
    let (_warm_up, cpu_before, begin) = (
        generator.take_tally()?,
        process.cpu_seconds()?,
        Instant::now(),
    );
    sleep(timing.measured).await;
    let (tally, cpu_meanwhile) = (generator.take_tally()?, process.cpu_seconds()? - cpu_before);
    let seconds = begin.elapsed().as_secs_f64();
    // Requests in flight and deferred work of the receiver also have a cost.
    let (rest, next_round) = generator.stop().await?;
    receiver.settle().await?;
    let cpu = process.cpu_seconds()? - cpu_before;
    let points = tally.points as f64;
    Ok(Cost {
        cpu_ns_per_point: cpu * 1e9 / (points + rest.points as f64),
        cores: cpu_meanwhile / seconds,
        points_per_s: points / seconds,
        bytes_per_point: tally.bytes as f64 / points,
        tally,
        memory: process.memory()?,
        next_round,
    })
}
