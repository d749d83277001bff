//! One data point, whatever its kind: when it was, what it measured, what it sampled.

use fleet_proto::{attribute, metric};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, DataPointFlags, Exemplar, ExponentialHistogramDataPoint,
    HistogramDataPoint, Metric, NumberDataPoint, SummaryDataPoint, exemplar, metric::Data,
    number_data_point,
};

use super::attributes::{finite, sequence};
use super::reject::RejectReason;
use super::rest::Temporality;
use crate::model::event::{OpSample, Reading, Summary};
use crate::units::Nanos;

/// How far a sender's clock may run ahead of the collector's: one day.
const MAX_AHEAD_NANOS: i64 = 86_400_000_000_000;

/// Most samples that a distribution may claim: beyond it doubles no longer count them.
const MAX_COUNT: u64 = 1 << 53;

/// By how much a sum may miss its bounds, as a share of the larger of both: adding in single precision drifts.
const SUM_TOLERANCE: f64 = 1e-6;

/// A data point of any kind.
#[derive(Debug, Clone, Copy)]
pub(super) enum Point<'a> {
    Number(&'a NumberDataPoint),
    Histogram(&'a HistogramDataPoint),
    Exponential(&'a ExponentialHistogramDataPoint),
    Summary(&'a SummaryDataPoint),
}

/// Which values make sense.
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
    /// Durations are Echo's own signals and whatever is counted in a unit of time, by its unit or by its name. What is
    /// named a difference or a rate is left out: it has a sign.
    pub(super) fn of(metric: &Metric) -> Self {
        const SIGNALS: [&str; 5] = [
            metric::WAIT,
            metric::HOST_GAP,
            metric::BLOCKED,
            metric::ARRIVAL,
            metric::PERIOD,
        ];
        const UNITS: [&str; 6] = ["ns", "us", "ms", "s", "min", "h"];
        const ENDINGS: [&str; 5] = ["_ns", "_us", "_ms", "_s", "_seconds"];
        const SIGNED: [&str; 5] = ["offset", "skew", "lag", "diff", "_per_"];
        let name = metric.name.as_str();
        if name == metric::INGERO_HEALTH_SCORE {
            return Self::Share;
        }
        let is_timed = UNITS.contains(&metric.unit.as_str())
            || ENDINGS.iter().any(|ending| name.ends_with(ending));
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

/// Calls `each` with every point, in order.
pub(super) fn for_each<'a>(data: &'a Data, mut each: impl FnMut(Point<'a>)) {
    match data {
        Data::Gauge(gauge) => gauge.data_points.iter().map(Point::Number).for_each(each),
        Data::Sum(sum) => sum.data_points.iter().map(Point::Number).for_each(each),
        Data::Histogram(histogram) => {
            for point in &histogram.data_points {
                each(Point::Histogram(point));
            }
        }
        Data::ExponentialHistogram(histogram) => {
            for point in &histogram.data_points {
                each(Point::Exponential(point));
            }
        }
        Data::Summary(summary) => summary
            .data_points
            .iter()
            .map(Point::Summary)
            .for_each(each),
    }
}

/// The temporality of the metric's points.
pub(super) fn temporality(data: &Data) -> Temporality {
    let declared = match data {
        Data::Sum(sum) => sum.aggregation_temporality,
        Data::Histogram(histogram) => histogram.aggregation_temporality,
        Data::ExponentialHistogram(histogram) => histogram.aggregation_temporality,
        Data::Gauge(_) | Data::Summary(_) => return Temporality::Delta,
    };
    if declared == AggregationTemporality::Cumulative as i32 {
        Temporality::Cumulative
    } else {
        Temporality::Delta
    }
}

impl<'a> Point<'a> {
    pub(super) fn attributes(self) -> &'a [KeyValue] {
        match self {
            Self::Number(point) => &point.attributes,
            Self::Histogram(point) => &point.attributes,
            Self::Exponential(point) => &point.attributes,
            Self::Summary(point) => &point.attributes,
        }
    }

    /// Start, if there is one, and end of what the point is about.
    pub(super) fn times(self, received: Nanos) -> Result<(Option<Nanos>, Nanos), RejectReason> {
        let (start, end) = match self {
            Self::Number(point) => (point.start_time_unix_nano, point.time_unix_nano),
            Self::Histogram(point) => (point.start_time_unix_nano, point.time_unix_nano),
            Self::Exponential(point) => (point.start_time_unix_nano, point.time_unix_nano),
            Self::Summary(point) => (point.start_time_unix_nano, point.time_unix_nano),
        };
        let end = instant(end, received)?;
        if start == 0 {
            return Ok((None, end));
        }
        let start = Nanos::plausible(start).filter(|start| *start <= end);
        start
            .map(|start| (Some(start), end))
            .ok_or(RejectReason::ImplausibleTime)
    }

    /// What was measured.
    pub(super) fn reading(self, quantity: Quantity) -> Result<Reading, RejectReason> {
        const NO_VALUE: u32 = DataPointFlags::NoRecordedValueMask as u32;
        let flags = match self {
            Self::Number(point) => point.flags,
            Self::Histogram(point) => point.flags,
            Self::Exponential(point) => point.flags,
            Self::Summary(point) => point.flags,
        };
        if flags & NO_VALUE != 0 {
            return Err(RejectReason::NoValue);
        }
        let summary = match self {
            Self::Number(point) => return number(point, quantity),
            Self::Histogram(point) => summary(point.count, point.sum, point.min, point.max),
            Self::Exponential(point) => summary(point.count, point.sum, point.min, point.max),
            Self::Summary(point) => summary(point.count, Some(point.sum), None, None),
        }?;
        quantity.check(summary.min.unwrap_or(summary.sum))?;
        Ok(Reading::Histogram(summary))
    }

    /// The sampled operations: exemplars that carry a sequence number.
    pub(super) fn samples(
        self,
        quantity: Quantity,
        received: Nanos,
    ) -> Result<Vec<OpSample>, RejectReason> {
        let exemplars = match self {
            Self::Number(point) => &point.exemplars,
            Self::Histogram(point) => &point.exemplars,
            Self::Exponential(point) => &point.exemplars,
            Self::Summary(_) => return Ok(Vec::new()),
        };
        exemplars
            .iter()
            .filter_map(|exemplar| sample(exemplar, quantity, received).transpose())
            .collect()
    }
}

/// The instant, if it can have happened by the time the request arrived.
pub(super) fn instant(unix_nanos: u64, received: Nanos) -> Result<Nanos, RejectReason> {
    let instant = Nanos::plausible(unix_nanos).ok_or(RejectReason::ImplausibleTime)?;
    if instant > received.offset(MAX_AHEAD_NANOS) {
        return Err(RejectReason::TimeInFuture);
    }
    Ok(instant)
}

fn number(point: &NumberDataPoint, quantity: Quantity) -> Result<Reading, RejectReason> {
    match point.value.ok_or(RejectReason::NoValue)? {
        number_data_point::Value::AsDouble(value) => {
            quantity.check(finite(value)?)?;
            Ok(Reading::Double(value))
        }
        number_data_point::Value::AsInt(value) => {
            #[expect(
                clippy::cast_precision_loss,
                reason = "rounding keeps a number on its side of 0 and 1"
            )]
            quantity.check(value as f64)?;
            Ok(Reading::Int(value))
        }
    }
}

/// Count, sum and extremes, if they can be those of one distribution. Extremes of no samples mean nothing and are
/// left out: some senders write infinities there.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts are at most 2^53, which doubles hold exactly"
)]
fn summary(
    count: u64,
    sum: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
) -> Result<Summary, RejectReason> {
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
    exemplar: &Exemplar,
    quantity: Quantity,
    received: Nanos,
) -> Result<Option<OpSample>, RejectReason> {
    let seq = exemplar
        .filtered_attributes
        .iter()
        .find(|attribute| attribute.key == attribute::SEQ)
        .and_then(|attribute| attribute.value.as_ref()?.value.as_ref());
    let Some(seq) = seq else {
        return Ok(None);
    };
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sampled duration in any unit stays far below 2^53"
    )]
    let value = match exemplar.value.ok_or(RejectReason::NoValue)? {
        exemplar::Value::AsDouble(value) => finite(value)?,
        exemplar::Value::AsInt(value) => value as f64,
    };
    quantity.check(value)?;
    Ok(Some(OpSample {
        seq: sequence(seq)?,
        value,
        timestamp: instant(exemplar.time_unix_nano, received)?,
    }))
}
