//! Literals.

use serde_json::Value;

use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::size::Size;

/// Types that the parser gives to literals.
const TYPES: [&str; 8] = [
    "BIGINT", "BOOLEAN", "DECIMAL", "DOUBLE", "HUGEINT", "INTEGER", "NULL", "VARCHAR",
];

/// Checks a literal.
pub(super) fn check(fields: &mut Fields<'_>) -> Result<Size, Refusal> {
    fields.one_of("type", &["VALUE_CONSTANT"])?;
    let mut literal = Fields::new(fields.take("value")?, "a constant")?;
    let mut kind = Fields::new(literal.take("type")?, "a constant")?;
    kind.one_of("id", &TYPES)?;
    if let Some(info) = kind.optional("type_info")? {
        let mut info = Fields::new(info, "a constant")?;
        info.one_of("type", &["DECIMAL_TYPE_INFO"])?;
        info.empty(&["alias", "extension_info"])?;
        info.ignore(&["width", "scale"])?;
        info.finish()?;
    }
    kind.finish()?;
    literal.flag("is_null")?;
    // NULL has no value.
    let bytes = literal.take("value").map_or(0, length);
    literal.finish()?;
    Ok(Size::value(bytes))
}

fn length(value: &Value) -> u64 {
    let length = value
        .as_str()
        .map_or_else(|| value.to_string().len(), str::len);
    length as u64
}

/// Text of a string literal; `None` for any other expression.
pub(super) fn text(expression: &Value) -> Option<&str> {
    value_of_type(expression, &["VARCHAR"])?.as_str()
}

/// Value of an integer literal; `None` for any other expression, and for integers of more than 64
/// bits.
pub(super) fn whole(expression: &Value) -> Option<i64> {
    value_of_type(expression, &["BIGINT", "INTEGER"])?.as_i64()
}

fn value_of_type<'a>(expression: &'a Value, types: &[&str]) -> Option<&'a Value> {
    let id = expression.pointer("/value/type/id")?.as_str()?;
    let value = expression.pointer("/value/value")?;
    types.contains(&id).then_some(value)
}
