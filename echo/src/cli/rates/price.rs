//! Prices in answers for scripts.

use rust_decimal::Decimal;

/// A price as a JSON number, the double next to it.
pub(super) fn number(price: Decimal) -> f64 {
    // A decimal prints as digits only, which always parse.
    price.normalize().to_string().parse().unwrap_or(f64::NAN)
}
