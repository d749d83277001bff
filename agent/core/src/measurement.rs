//! Measurements of a host and its processes under the names of OpenTelemetry, for any receiver.
//! Nothing of them is a point of Echo.

use std::borrow::Cow;

use crate::event::LogHistogram;

/// Metric with its points.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Name with dots.
    pub name: &'static str,
    /// Description, without a period at the end.
    pub description: &'static str,
    /// Unit in UCUM, such as `By` or `s`.
    pub unit: &'static str,
    /// Kind of its points.
    pub kind: Kind,
    /// Points, one for each set of attributes.
    pub points: Vec<Sample>,
}

/// Kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Sum that only grows.
    Counter,
    /// Value that rises and falls.
    Gauge,
    /// Distribution since a start.
    Histogram,
}

/// Point of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Start of counting, nanoseconds of the events' clock; 0 for gauges.
    pub since_ns: u64,
    /// Attributes by name.
    pub attributes: Vec<Attribute>,
    /// Value.
    pub value: Value,
}

/// Attribute of a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Name with dots.
    pub key: &'static str,
    /// Value.
    pub value: AttributeValue,
}

/// Value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeValue {
    /// Text.
    Text(Cow<'static, str>),
    /// Whole number.
    Number(u32),
}

/// Value of a point.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Whole number.
    Count(u64),
    /// Number.
    Number(f64),
    /// Distribution.
    Distribution(Distribution),
}

/// Distribution of values, whose unit in the metric is the value multiplied by `scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    /// The values.
    pub histogram: LogHistogram,
    /// Sum of the values.
    pub total: u64,
    /// Factor from the values to the unit of the metric.
    pub scale: f64,
    /// Powers of two between which an export divides the values.
    pub octaves: Octaves,
}

/// Range of powers of two, each the smallest value above a bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Octaves {
    /// Exponent of the first one.
    pub first: u32,
    /// Exponent of the last one.
    pub last: u32,
}

impl Attribute {
    /// Creates an attribute of text.
    pub fn text(key: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        let value = AttributeValue::Text(value.into());
        Self { key, value }
    }

    /// Creates an attribute of a number.
    pub const fn number(key: &'static str, value: u32) -> Self {
        let value = AttributeValue::Number(value);
        Self { key, value }
    }
}

impl Distribution {
    /// Returns the sum in the unit of the metric.
    pub fn sum(&self) -> f64 {
        self.scaled(self.total)
    }

    /// Converts a value to the unit of the metric.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a metric has the precision of a double"
    )]
    pub fn scaled(&self, value: u64) -> f64 {
        value as f64 * self.scale
    }

    /// Returns the bounds in values, each the largest value of its bucket, and the counts: those up
    /// to each bound, without those of earlier ones, and last those above all bounds.
    pub fn buckets(&self) -> (Vec<u64>, Vec<u64>) {
        let Octaves { first, last } = self.octaves;
        let bounds: Vec<u64> = (first..=last)
            .map(|exponent| (1 << exponent.min(63)) - 1)
            .collect();
        let mut counts = vec![0; bounds.len() + 1];
        for (bucket, times) in self.histogram.buckets() {
            let at = bounds.partition_point(|bound| *bound < LogHistogram::lower_bound(bucket));
            if let Some(count) = counts.get_mut(at) {
                *count += times;
            }
        }
        (bounds, counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_divided_at_powers_of_two() {
        let mut histogram = LogHistogram::default();
        for value in [3, 4, 7, 8, 15, 1000] {
            histogram.record(value, 1);
        }
        let distribution = Distribution {
            histogram,
            total: 1038,
            scale: 1.0,
            octaves: Octaves { first: 2, last: 4 },
        };
        let (bounds, counts) = distribution.buckets();
        assert_eq!(bounds, [3, 7, 15]);
        assert_eq!(counts, [1, 2, 2, 1]);
    }
}
