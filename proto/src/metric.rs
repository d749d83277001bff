//! Metric names. All durations are milliseconds on the rank's own clock.
//!
//! The `Histogram` signals are delta points without buckets: count, sum, min and max of one *block*.
//! A block is 2^k consecutive collectives of one communicator, so that every rank's record covers the
//! same operations ([`crate::attribute::SEQ_FIRST`] to [`crate::attribute::SEQ_LAST`], both inclusive).

/// Histogram: time a rank was blocked in or for the collectives of one block of one communicator and operation.
/// With the host as source a blocking synchronisation is counted for the last collective issued before it.
pub const WAIT: &str = "nccl.collective.wait_ms";

/// Histogram: from the return of a rank's own blocking synchronisation to its next collective, one sample per
/// synchronisation, in blocks of the rank's busiest communicator.
pub const HOST_GAP: &str = "fleet.rank.host_gap_ms";

/// Histogram: time blocked in synchronisation per iteration, a union over threads, streams and communicators,
/// in blocks of the rank's busiest communicator.
pub const BLOCKED: &str = "fleet.rank.blocked_ms";

/// Histogram: entry times of the block's operations relative to the block's first operation, in blocks of the
/// rank's busiest communicator. [`crate::attribute::ANCHOR_SEQ`] and [`crate::attribute::ANCHOR_OFFSET_MS`] tie the
/// block to the last completion that all ranks share, which aligns the clocks.
pub const ARRIVAL: &str = "nccl.collective.arrival_ms";

/// Gauge: duration of one iteration, measured between two completions; the point's sequence range is what lies
/// between them and [`crate::attribute::ITERATIONS`] says over how many iterations the value is the mean.
pub const PERIOD: &str = "fleet.rank.period_ms";
