//! Decoder of data points of all kinds: times, reading and samples.

use echo_core::model::event::{OpSample, Reading, Summary};
use echo_core::units::Nanos;
use fleet_proto::metric;
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, DataPointFlags};

use super::attributes::{finite, sequence};
use super::reject::RejectReason;
use super::wire::metrics::{Data, Metric};
use super::wire::point::{Exemplar, Kind, Number, Point};

/// Interval that a sum or histogram covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Temporality {
    /// Since the previous point; also for metrics that are not accumulated.
    Delta,
    /// Since the start of the sender.
    Cumulative,
}

/// Maximum time by which the sender's clock may be ahead of the collector's: one day.
const MAX_AHEAD_NANOS: i64 = 86_400_000_000_000;

/// Maximum number of samples of a distribution: doubles are not exact beyond it.
const MAX_COUNT: u64 = 1 << 53;

/// Tolerance of the check of a sum against its bounds, as a share of the larger of both: sums in
/// single precision drift.
const SUM_TOLERANCE: f64 = 1e-6;

/// Kind of quantity, which determines the valid range of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// A duration, never negative.
    Duration,
    /// A share, from 0 to 1: the health score of an Ingero agent.
    Share,
    /// Anything else.
    Other,
}

impl Quantity {
    /// Classifies a metric. Durations are Echo's own signals, and metrics with a unit of time in
    /// their unit or name, unless the name denotes a difference or a rate, which may be negative.
    pub(super) fn from_metric(metric: &Metric<'_>) -> Self {
        const SIGNALS: [&str; 6] = [
            metric::WAIT,
            metric::HOST_GAP,
            metric::BLOCKED,
            metric::ARRIVAL,
            metric::PERIOD,
            metric::ELAPSED,
        ];
        const UNITS: [&str; 6] = ["ns", "us", "ms", "s", "min", "h"];
        const ENDINGS: [&str; 5] = ["_ns", "_us", "_ms", "_s", "_seconds"];
        const SIGNED: [&str; 5] = ["offset", "skew", "lag", "diff", "_per_"];
        let name = metric.name;
        if name == metric::INGERO_HEALTH_SCORE {
            return Self::Share;
        }
        let is_timed =
            UNITS.contains(&metric.unit) || ENDINGS.iter().any(|ending| name.ends_with(ending));
        let is_signed = || SIGNED.iter().any(|word| name.contains(word));
        if SIGNALS.contains(&name) || (is_timed && !is_signed()) {
            Self::Duration
        } else {
            Self::Other
        }
    }

    fn check(self, value: f64) -> Result<(), RejectReason> {
        match self {
            Self::Duration if value < 0.0 => Err(RejectReason::NegativeDuration),
            Self::Share if !(0.0..=1.0).contains(&value) => Err(RejectReason::ScoreOutOfRange),
            Self::Duration | Self::Share | Self::Other => Ok(()),
        }
    }
}

/// Returns the temporality of the metric's points.
pub(super) const fn temporality(data: &Data<'_>) -> Temporality {
    if data.temporality == AggregationTemporality::Cumulative as i32 {
        Temporality::Cumulative
    } else {
        Temporality::Delta
    }
}

/// Returns the start, if there is one, and the end of the interval of the point.
pub(super) fn times(
    point: &Point,
    received: Nanos,
) -> Result<(Option<Nanos>, Nanos), RejectReason> {
    let end = instant(point.end, received)?;
    if point.start == 0 {
        return Ok((None, end));
    }
    let start = Nanos::plausible(point.start).filter(|start| *start <= end);
    start
        .map(|start| (Some(start), end))
        .ok_or(RejectReason::ImplausibleTime)
}

/// Returns the measured value.
pub(super) fn reading(
    point: &Point,
    kind: Kind,
    quantity: Quantity,
) -> Result<Reading, RejectReason> {
    const NO_VALUE: u32 = DataPointFlags::NoRecordedValueMask as u32;
    if point.flags & NO_VALUE != 0 {
        return Err(RejectReason::NoValue);
    }
    if matches!(kind, Kind::Gauge | Kind::Sum) {
        return number(point.value, quantity);
    }
    let summary = summary(point)?;
    quantity.check(summary.min.unwrap_or(summary.sum))?;
    Ok(Reading::Histogram(summary))
}

/// Returns the sampled operations.
pub(super) fn samples(
    exemplars: &[Exemplar<'_>],
    quantity: Quantity,
    received: Nanos,
) -> Result<Vec<OpSample>, RejectReason> {
    let samples = exemplars.iter();
    samples
        .map(|exemplar| sample(exemplar, quantity, received))
        .collect()
}

/// Returns the instant, unless it is implausible or too far after the arrival of the request.
pub(super) fn instant(unix_nanos: u64, received: Nanos) -> Result<Nanos, RejectReason> {
    let instant = Nanos::plausible(unix_nanos).ok_or(RejectReason::ImplausibleTime)?;
    if instant > received.offset(MAX_AHEAD_NANOS) {
        return Err(RejectReason::TimeInFuture);
    }
    Ok(instant)
}

fn number(value: Option<Number>, quantity: Quantity) -> Result<Reading, RejectReason> {
    match value.ok_or(RejectReason::NoValue)? {
        Number::Double(value) => {
            quantity.check(finite(value)?)?;
            Ok(Reading::Double(value))
        }
        Number::Int(value) => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "rounding keeps a number on its side of 0 and 1"
            )]
            quantity.check(value as f64)?;
            Ok(Reading::Int(value))
        }
    }
}

/// Returns count, sum, minimum and maximum, if they are consistent. Minimum and maximum of an empty
/// distribution are dropped: some senders write infinities there.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts are at most 2^53, which doubles hold exactly"
)]
fn summary(point: &Point) -> Result<Summary, RejectReason> {
    let &Point {
        count,
        sum,
        min,
        max,
        ..
    } = point;
    if count == 0 {
        return match finite(sum.unwrap_or(0.0))? {
            0.0 => Ok(Summary {
                count: 0,
                sum: 0.0,
                min: None,
                max: None,
            }),
            _ => Err(RejectReason::InconsistentHistogram),
        };
    }
    let sum = finite(sum.ok_or(RejectReason::HistogramWithoutSum)?)?;
    let min = min.map(finite).transpose()?;
    let max = max.map(finite).transpose()?;
    let n = count as f64;
    let tolerance = |bound: f64| SUM_TOLERANCE * bound.abs().max(sum.abs());
    let ordered = !matches!((min, max), (Some(min), Some(max)) if min > max);
    let least = min.map(|min| n * min);
    let most = max.map(|max| n * max);
    let not_below = least.is_none_or(|least| sum >= least - tolerance(least));
    let not_above = most.is_none_or(|most| sum <= most + tolerance(most));
    if count > MAX_COUNT || !(ordered && not_below && not_above) {
        return Err(RejectReason::InconsistentHistogram);
    }
    Ok(Summary {
        count,
        sum,
        min,
        max,
    })
}

fn sample(
    exemplar: &Exemplar<'_>,
    quantity: Quantity,
    received: Nanos,
) -> Result<OpSample, RejectReason> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sampled duration in any unit stays far below 2^53"
    )]
    let value = match exemplar.value.ok_or(RejectReason::NoValue)? {
        Number::Double(value) => finite(value)?,
        Number::Int(value) => value as f64,
    };
    quantity.check(value)?;
    Ok(OpSample {
        seq: sequence(exemplar.seq)?,
        value,
        timestamp: instant(exemplar.time, received)?,
    })
}
