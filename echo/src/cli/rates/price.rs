//! Prices in JSON output.

use rust_decimal::Decimal;

/// Converts a price to the nearest double.
pub(super) fn number(price: Decimal) -> f64 {
    // A decimal prints as digits, which always parse.
    price.normalize().to_string().parse().unwrap_or(f64::NAN)
}
