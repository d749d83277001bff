//! Types that a value may be cast to.

use serde_json::Value;

use crate::fields::Fields;
use crate::refusal::Refusal;

/// Types without parameters, except for the width of a number. Other types refer to the catalog
/// (enums, user-defined types) or are converted incorrectly: Arrow has no integer as large as
/// UHUGEINT.
const PLAIN_TYPES: [&str; 23] = [
    "BIGINT",
    "BOOLEAN",
    "DATE",
    "DECIMAL",
    "DOUBLE",
    "FLOAT",
    "HUGEINT",
    "INTEGER",
    "INTERVAL",
    "SMALLINT",
    "TIME",
    "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP_MS",
    "TIMESTAMP_NS",
    "TIMESTAMP_S",
    "TINYINT",
    "UBIGINT",
    "UINTEGER",
    "USMALLINT",
    "UTINYINT",
    "UUID",
    "VARCHAR",
];

/// Checks the target type of a cast.
pub(super) fn check(value: &Value) -> Result<(), Refusal> {
    let mut fields = Fields::new(value, "a type")?;
    let name = fields.text("id")?;
    let info = fields.optional("type_info")?;
    fields.finish()?;
    match (name, info) {
        ("UNBOUND", Some(info)) => named(info),
        ("LIST", Some(info)) => {
            let mut info = type_info(info, "LIST_TYPE_INFO")?;
            check(info.take("child_type")?)?;
            info.finish()
        }
        ("DECIMAL", Some(info)) => {
            let mut info = type_info(info, "DECIMAL_TYPE_INFO")?;
            info.ignore(&["width", "scale"])?;
            info.finish()
        }
        (name, None) if PLAIN_TYPES.contains(&name) => Ok(()),
        (name, _) => Err(unknown(name)),
    }
}

/// Checks a type that the parser represents by its name.
fn named(info: &Value) -> Result<(), Refusal> {
    let mut info = type_info(info, "UNBOUND_TYPE_INFO")?;
    info.empty(&["catalog", "schema", "user_type_modifiers"])?;
    let name = info.text("name")?;
    info.finish()?;
    if name.eq_ignore_ascii_case("json") {
        Ok(())
    } else {
        Err(unknown(name))
    }
}

/// Fields of an unnamed type of this kind.
fn type_info<'a>(info: &'a Value, kind: &str) -> Result<Fields<'a>, Refusal> {
    let mut info = Fields::new(info, "a type")?;
    info.one_of("type", &[kind])?;
    info.empty(&["alias", "extension_info"])?;
    Ok(info)
}

fn unknown(name: &str) -> Refusal {
    Refusal::new(
        format!("a cast to {} is not allowed", name.to_lowercase()),
        "numbers, VARCHAR, DATE, TIME, TIMESTAMP, INTERVAL, UUID, JSON and lists of these are allowed",
    )
}
