//! Rounds the numbers of answers to the precision that they have.
//!
//! Numbers are rounded once, when the answer is written as JSON, by the name of their field. Money
//! is rounded earlier, together with its sums. GPU-hours keep ten decimals, less than the
//! microseconds in which GPU time is counted, so that rows still add up to their total.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// Precision of the numbers in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Computed values, rounded by the name of their field.
    Rounded,
    /// Measurements and results of SQL, as they are.
    Exact,
}

/// Writes an answer as JSON.
pub(super) fn to_json<T: Serialize>(
    answer: &T,
    precision: Precision,
) -> Result<String, serde_json::Error> {
    let mut json = Vec::new();
    let formatter = RoundingFormatter {
        precision,
        field: String::new(),
        is_in_name: false,
    };
    answer.serialize(&mut Serializer::with_formatter(&mut json, formatter))?;
    String::from_utf8(json).map_err(serde::ser::Error::custom)
}

/// Formatter that knows the field of a number.
struct RoundingFormatter {
    precision: Precision,
    /// Name of the latest field.
    field: String,
    is_in_name: bool,
}

impl Formatter for RoundingFormatter {
    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.is_in_name = true;
        self.field.clear();
        CompactFormatter.begin_object_key(writer, first)
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.is_in_name = false;
        CompactFormatter.end_object_key(writer)
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if self.is_in_name {
            self.field.push_str(fragment);
        }
        CompactFormatter.write_string_fragment(writer, fragment)
    }

    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let decimals = match self.precision {
            Precision::Rounded => decimals(&self.field),
            Precision::Exact => None,
        };
        let rounded = decimals.map_or(value, |decimals| round(value, decimals));
        // Adding zero turns a negative zero into a positive one.
        CompactFormatter.write_f64(writer, rounded + 0.0)
    }
}

/// Decimals of the field; `None` when its values are written as they are.
fn decimals(field: &str) -> Option<i32> {
    if field.contains("gpu_hours") {
        return Some(10);
    }
    if field.ends_with("_ms") || field.ends_with("_s") {
        return Some(3);
    }
    match field {
        "seconds" | "iterations" | "z" | "critical_z" | "first_iteration" | "raised_iteration"
        | "cleared_iteration" => Some(3),
        "effect_ratio" | "confidence" | "stability" | "effect_gate" | "share" | "max_share"
        | "median_share" => Some(4),
        // Limits are compared with the first two; the others are host evidence, in the unit of its
        // metric.
        "coverage" | "lost_ratio" | "own" | "peers" => Some(6),
        _ => None,
    }
}

fn round(value: f64, decimals: i32) -> f64 {
    let scale = 10_f64.powi(decimals);
    // The order of the parts of a sum changes its last bits, which must not decide a tie.
    let tie = if decimals <= 6 { 1.0 + 1e-12 } else { 1.0 };
    let rounded = (value * scale * tie).round() / scale;
    // A number too large to scale has no decimals.
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Precision, to_json};

    #[test]
    fn numbers_are_rounded_by_the_name_of_their_field() {
        let answer = json!({
            "confidence": 0.899_999_999,
            "lags": [{ "lag_ms": 0.049_999_999_999_999_82, "rank": 3 }],
            "lost_gpu_hours": 0.034_444_444_444_444_444,
            "lost_ratio": 0.000_004_4,
            "period_ms": [607.123_456, -0.000_1],
            "window_total": 0.130_889,
        });
        assert_eq!(
            to_json(&answer, Precision::Rounded).unwrap(),
            r#"{"confidence":0.9,"lags":[{"lag_ms":0.05,"rank":3}],"lost_gpu_hours":0.0344444444,"lost_ratio":4e-6,"period_ms":[607.123,0.0],"window_total":0.130889}"#
        );
    }

    #[test]
    fn the_last_bits_of_a_sum_do_not_decide_a_tie() {
        for own in [974.758_437_5, 974.758_437_499_999_9] {
            let text = to_json(&json!({ "own": own }), Precision::Rounded).unwrap();
            assert_eq!(text, r#"{"own":974.758438}"#);
        }
    }

    #[test]
    fn microseconds_of_gpu_time_survive_rounding() {
        for micros in [1.0, 123_456_789.0, 3_600_000_000_001.0] {
            let answer = json!({ "lost_gpu_hours": micros / 3.6e9 });
            let text = to_json(&answer, Precision::Rounded).unwrap();
            let read: serde_json::Value = serde_json::from_str(&text).unwrap();
            let hours = read["lost_gpu_hours"].as_f64().unwrap();
            assert!(
                hours.mul_add(3.6e9, -micros).abs() < 0.5,
                "{micros}: {text}"
            );
        }
    }

    #[test]
    fn measurements_keep_their_digits_and_zero_has_no_sign() {
        let answer = json!({ "value_ms": 0.049_999_999_999_999_82, "sum": -0.0, "max": 1e300 });
        assert_eq!(
            to_json(&answer, Precision::Exact).unwrap(),
            r#"{"max":1e+300,"sum":0.0,"value_ms":0.04999999999999982}"#
        );
        let huge = json!({ "lag_ms": 1e306 });
        assert_eq!(
            to_json(&huge, Precision::Rounded).unwrap(),
            r#"{"lag_ms":1e+306}"#
        );
    }
}
