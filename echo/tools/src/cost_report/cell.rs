//! Values of a report, and their serialization as CSV and JSON.

use echo_core::units::{GpuTime, Nanos};
use jiff::Timestamp;
use rust_decimal::Decimal;
use serde_json::Value;

use crate::rates::EXACT_PLACES;

/// A value of a report.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    /// Unknown, or not applicable.
    Null,
    /// A text. Names come from senders.
    Text(String),
    /// A number.
    Number(Decimal),
    /// A whole number.
    Count(u64),
    /// An instant.
    Time(Nanos),
    /// A JSON object.
    Object(Value),
    /// A boolean.
    Flag(bool),
}

impl Cell {
    /// A text; null when absent.
    pub(super) fn optional_text(text: Option<impl Into<String>>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }

    /// GPU time in hours.
    pub(super) fn hours(time: GpuTime) -> Self {
        let hours = Decimal::from(time.micros()) / Decimal::from(GpuTime::MICROS_PER_HOUR);
        Self::Number(hours.round_dp(EXACT_PLACES))
    }

    /// Serializes the value as a CSV field, before quoting.
    pub(super) fn csv(&self) -> String {
        match self {
            Self::Null => String::new(),
            Self::Text(text) => escape_formula(text),
            Self::Number(number) => decimal(*number),
            Self::Count(count) => count.to_string(),
            Self::Time(instant) => time(*instant),
            Self::Object(object) => object.to_string(),
            Self::Flag(holds) => holds.to_string(),
        }
    }

    /// Serializes the value as JSON.
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Text(text) => Value::from(text.as_str()),
            // A decimal prints as digits only, which always parse.
            Self::Number(number) => decimal(*number)
                .parse::<f64>()
                .map_or(Value::Null, Value::from),
            Self::Count(count) => Value::from(*count),
            Self::Time(instant) => Value::from(time(*instant)),
            Self::Object(object) => object.clone(),
            Self::Flag(holds) => Value::from(*holds),
        }
    }
}

/// Escapes a text that a spreadsheet would run as a formula.
fn escape_formula(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

/// Formats a decimal with a point, so that no reader takes the column for integers.
fn decimal(number: Decimal) -> String {
    let digits = number.normalize().to_string();
    if digits.contains('.') {
        digits
    } else {
        format!("{digits}.0")
    }
}

/// Formats an instant to the second, as ISO 8601 with `Z`.
fn time(instant: Nanos) -> String {
    match Timestamp::from_nanosecond(i128::from(instant.value())) {
        Ok(timestamp) => format!("{timestamp:.0}"),
        Err(_) => instant.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use echo_core::units::{GpuTime, Nanos};
    use proptest::prelude::{any, prop_assert, proptest};
    use rust_decimal::Decimal;

    use super::Cell;

    #[test]
    fn numbers_have_a_point_and_no_exponent() {
        let csv = |number: Decimal| Cell::Number(number).csv();
        assert_eq!(csv(Decimal::ZERO), "0.0");
        assert_eq!(csv(Decimal::from(1_234_567)), "1234567.0");
        assert_eq!(csv(Decimal::new(1, 12)), "0.000000000001");
        assert_eq!(csv(Decimal::new(-25_000, 4)), "-2.5");
        assert_eq!(Cell::hours(GpuTime::new(900_000_000)).csv(), "0.25");
    }

    #[test]
    fn texts_are_escaped_as_formulas_and_times_have_seconds() {
        for text in ["=1+1", "+1", "-1", "@sum", "\tx"] {
            assert_eq!(Cell::Text(text.to_owned()).csv(), format!("'{text}"));
        }
        assert_eq!(Cell::Time(Nanos::EARLIEST).csv(), "2020-01-01T00:00:00Z");
    }

    proptest! {
        #[test]
        fn no_text_becomes_a_formula(first in any::<char>(), rest in any::<char>()) {
            let csv = Cell::Text(String::from_iter([first, rest])).csv();
            prop_assert!(!csv.starts_with(['=', '+', '-', '@', '\t', '\r']));
        }
    }
}
