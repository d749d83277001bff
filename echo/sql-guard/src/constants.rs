//! Literals.

use serde_json::Value;

use crate::fields::Fields;
use crate::refusal::Refusal;

/// Types that the parser gives to literals.
const TYPES: [&str; 8] = [
    "BIGINT", "BOOLEAN", "DECIMAL", "DOUBLE", "HUGEINT", "INTEGER", "NULL", "VARCHAR",
];

/// Checks a literal.
pub(super) fn check(fields: &mut Fields<'_>) -> Result<(), Refusal> {
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
    let _absent_if_null = literal.take("value");
    literal.finish()
}

/// Returns whether an expression is a string literal.
pub(super) fn is_text(expression: &Value) -> bool {
    let id = expression.pointer("/value/type/id");
    id.is_some_and(|id| id == "VARCHAR")
}
