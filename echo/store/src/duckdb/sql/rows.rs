//! Rows of any type as JSON.

use std::fmt::Write;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, DecimalType, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use crate::sql::{SqlColumn, SqlTable, Truncation};

/// Largest integer that every JSON reader represents exactly.
const EXACT: u64 = 1 << 53;

/// Rows under construction.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Vec<Vec<Value>>,
    max_rows: usize,
    max_bytes: usize,
    bytes: usize,
    cut: Option<Truncation>,
}

impl Rows {
    /// Empty, with limits on rows and bytes.
    pub(super) const fn new(max_rows: usize, max_bytes: usize) -> Self {
        Self {
            rows: Vec::new(),
            max_rows,
            max_bytes,
            bytes: 0,
            cut: None,
        }
    }

    /// Adds rows. Returns true if the limit is reached.
    pub(super) fn add(&mut self, batch: &RecordBatch) -> bool {
        for row in 0..batch.num_rows() {
            if self.rows.len() == self.max_rows {
                self.cut = Some(Truncation::Rows);
                break;
            }
            let mut budget = ByteBudget(self.max_bytes);
            let columns = batch.columns().iter();
            let cells: Vec<Value> = columns
                .map(|column| value(column, row, &mut budget))
                .collect();
            // A comma and two brackets each.
            let length = |cell: &Value| cell.to_string().len() + 1;
            let bytes = cells.iter().map(length).sum::<usize>() + 2;
            if budget.0 == 0 || self.bytes.saturating_add(bytes) > self.max_bytes {
                self.cut = Some(Truncation::Bytes);
                break;
            }
            self.bytes += bytes;
            self.rows.push(cells);
        }
        self.cut.is_some()
    }

    /// Returns the table.
    pub(super) fn table(self, columns: Vec<SqlColumn>) -> SqlTable {
        SqlTable {
            columns,
            rows: self.rows,
            cut: self.cut,
            elapsed: std::time::Duration::ZERO,
        }
    }
}

/// Remaining bytes of a row: a list can have millions of items, and building them cannot be
/// interrupted.
struct ByteBudget(usize);

impl ByteBudget {
    /// Takes bytes from the budget; false if too few remain.
    const fn take(&mut self, bytes: usize) -> bool {
        self.0 = self.0.saturating_sub(bytes);
        self.0 > 0
    }
}

fn value(column: &ArrayRef, row: usize, budget: &mut ByteBudget) -> Value {
    if !budget.take(1) || column.is_null(row) {
        return Value::Null;
    }
    match column.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        DataType::Int8 => signed(column.as_primitive::<Int8Type>().value(row).into()),
        DataType::Int16 => signed(column.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int32 => signed(column.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => signed(column.as_primitive::<Int64Type>().value(row)),
        DataType::UInt8 => unsigned(column.as_primitive::<UInt8Type>().value(row).into()),
        DataType::UInt16 => unsigned(column.as_primitive::<UInt16Type>().value(row).into()),
        DataType::UInt32 => unsigned(column.as_primitive::<UInt32Type>().value(row).into()),
        DataType::UInt64 => unsigned(column.as_primitive::<UInt64Type>().value(row)),
        DataType::Float32 => shortest(column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => real(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => string(column.as_string::<i32>().value(row), budget),
        DataType::LargeUtf8 => string(column.as_string::<i64>().value(row), budget),
        DataType::Utf8View => string(column.as_string_view().value(row), budget),
        DataType::Decimal128(precision, scale) => {
            let number = column.as_primitive::<Decimal128Type>().value(row);
            // Arrow truncates values longer than the precision, and HUGEINT has one digit more.
            if *scale == 0 {
                number.to_string().into()
            } else {
                Decimal128Type::format_decimal(number, *precision, *scale).into()
            }
        }
        DataType::Timestamp(unit, _) => instant(column, row, *unit),
        DataType::Date32 => date(column, row),
        DataType::List(_) => list(&column.as_list::<i32>().value(row), budget),
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row), budget),
        DataType::FixedSizeList(_, _) => list(&column.as_fixed_size_list().value(row), budget),
        DataType::Struct(_) => structure(column, row, budget),
        DataType::Dictionary(_, _) => {
            let dictionary = column.as_any_dictionary();
            let key = dictionary.normalized_keys().get(row).copied();
            key.map_or(Value::Null, |key| value(dictionary.values(), key, budget))
        }
        DataType::Binary => hexadecimal(column.as_binary::<i32>().value(row), budget),
        DataType::LargeBinary => hexadecimal(column.as_binary::<i64>().value(row), budget),
        _ => text(column, row),
    }
}

fn signed(number: i64) -> Value {
    if number.unsigned_abs() > EXACT {
        Value::String(number.to_string())
    } else {
        Value::Number(number.into())
    }
}

fn unsigned(number: u64) -> Value {
    if number > EXACT {
        Value::String(number.to_string())
    } else {
        Value::Number(number.into())
    }
}

fn real(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

/// 32-bit float with the shortest exact digits.
fn shortest(number: f32) -> Value {
    let text = number.to_string();
    real(text.parse().unwrap_or_else(|_none| f64::from(number)))
}

fn string(text: &str, budget: &mut ByteBudget) -> Value {
    if budget.take(text.len()) {
        Value::String(text.to_owned())
    } else {
        Value::Null
    }
}

fn list(items: &ArrayRef, budget: &mut ByteBudget) -> Value {
    let mut values = Vec::new();
    for index in 0..items.len() {
        values.push(value(items, index, budget));
        if budget.0 == 0 {
            break;
        }
    }
    Value::Array(values)
}

fn structure(column: &ArrayRef, row: usize, budget: &mut ByteBudget) -> Value {
    let structure = column.as_struct();
    let names = structure.column_names().into_iter().map(str::to_owned);
    let cells = structure
        .columns()
        .iter()
        .map(|cell| value(cell, row, budget));
    Value::Object(names.zip(cells).collect::<Map<_, _>>())
}

/// RFC 3339; a timestamp outside of its years is the engine's text, or the number of units since
/// 1970.
fn instant(column: &ArrayRef, row: usize, unit: TimeUnit) -> Value {
    let (number, nanos) = match unit {
        TimeUnit::Second => {
            let number = column.as_primitive::<TimestampSecondType>().value(row);
            (number, 1_000_000_000)
        }
        TimeUnit::Millisecond => {
            let number = column.as_primitive::<TimestampMillisecondType>().value(row);
            (number, 1_000_000)
        }
        TimeUnit::Microsecond => {
            let number = column.as_primitive::<TimestampMicrosecondType>().value(row);
            (number, 1_000)
        }
        TimeUnit::Nanosecond => {
            let number = column.as_primitive::<TimestampNanosecondType>().value(row);
            (number, 1)
        }
    };
    if let Some(text) = infinity(number, i64::MAX) {
        return text.into();
    }
    Timestamp::from_nanosecond(i128::from(number) * nanos).map_or_else(
        |_too_far| text_or(column, row, number),
        |instant| Value::String(instant.to_string()),
    )
}

fn date(column: &ArrayRef, row: usize) -> Value {
    let days = column.as_primitive::<Date32Type>().value(row).into();
    infinity(days, i32::MAX.into()).map_or_else(|| text_or(column, row, days), Value::from)
}

/// Name of an infinite date or timestamp: the engine represents it by the largest number, with
/// either sign.
fn infinity(number: i64, last: i64) -> Option<&'static str> {
    match number {
        number if number == last => Some("infinity"),
        number if number == -last => Some("-infinity"),
        _ => None,
    }
}

fn hexadecimal(bytes: &[u8], budget: &mut ByteBudget) -> Value {
    if !budget.take(bytes.len().saturating_mul(2)) {
        return Value::Null;
    }
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        // Writing to a string never fails.
        let _written = write!(text, "{byte:02x}");
    }
    Value::String(text)
}

/// Dates, times, intervals and other types as text.
fn text(column: &ArrayRef, row: usize) -> Value {
    formatted(column, row).map_or(Value::Null, Value::String)
}

/// The same, or the underlying number if it has no text.
fn text_or(column: &ArrayRef, row: usize, number: i64) -> Value {
    Value::String(formatted(column, row).unwrap_or_else(|| number.to_string()))
}

fn formatted(column: &ArrayRef, row: usize) -> Option<String> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(column, &options).ok()?;
    formatter.value(row).try_to_string().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{real, shortest, signed, unsigned};

    #[test]
    fn numbers_that_json_would_change_are_strings() {
        assert_eq!(signed(-(1 << 53)), json!(-9_007_199_254_740_992_i64));
        assert_eq!(signed(i64::MIN), json!("-9223372036854775808"));
        assert_eq!(unsigned(u64::MAX), json!("18446744073709551615"));
        assert_eq!(real(f64::NAN), json!("NaN"));
        assert_eq!(real(f64::NEG_INFINITY), json!("-inf"));
        assert_eq!(shortest(0.1), json!(0.1));
    }
}
