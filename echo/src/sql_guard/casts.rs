//! The types that a value may be cast to.

use serde_json::Value;

use crate::sql_guard::expression::{SHORT, constant};
use crate::sql_guard::fields::Fields;
use crate::sql_guard::from::path;
use crate::sql_guard::refusal::Refusal;

/// Types without parts. Others could be of any size (arrays), things of the catalogue (enums, what somebody made), or
/// come out wrong: Arrow has no whole number as large as UHUGEINT.
const PLAIN: &str = "bigint bool boolean bpchar char date datetime dec decimal double float float4 float8 hugeint int \
                     int1 int2 int4 int8 int16 int32 int64 int128 integer interval json long numeric real short signed \
                     smallint string text time timestamp timestamp_ms timestamp_ns timestamp_s timestamp_us timestamptz \
                     tinyint ubigint uint8 uint16 uint32 uint64 uinteger usmallint utinyint uuid \
                     varchar";

/// Types whose values are as long as what they were made of.
const TEXTS: &str = "bpchar char json string text varchar";

/// How often a value can be as long as the one that was cast: a list as text has quotes and commas, and of `[,,]` as text
/// every two bytes make an item of sixteen.
const AS_TEXT: u64 = 2;
const AS_LIST: u64 = 8;

/// Checks a type that something is cast to. Returns how long a value of so many bytes becomes.
pub(super) fn check(value: &Value, bytes: u64) -> Result<u64, Refusal> {
    let mut fields = Fields::of(value, "a type")?;
    fields.one_of("class", &["TYPE"])?;
    fields.one_of("type", &["TYPE"])?;
    fields.empty(&["catalog", "schema"])?;
    fields.ignore(&["alias"])?;
    let name = fields.text("type_name")?;
    if path(fields.take("qualified_name")?)?.as_slice() != [name] {
        return Err(Refusal::unknown(format!("the type {name}")));
    }
    let name = name.to_ascii_lowercase();
    let parts = fields.list("children")?;
    fields.finish()?;
    let is_plain =
        PLAIN.split_whitespace().any(|known| known == name) || name == "timestamp with time zone";
    if is_plain {
        parts.iter().try_for_each(width)?;
        let is_text = TEXTS.split_whitespace().any(|text| text == name);
        let times = if is_text { AS_TEXT } else { 0 };
        Ok(bytes.saturating_mul(times).max(SHORT))
    } else if name == "list" {
        for part in parts {
            check(part, bytes)?;
        }
        Ok(bytes.saturating_mul(AS_LIST).max(SHORT))
    } else {
        Err(Refusal::new(
            format!("a cast to {name} is not among what may be asked"),
            "numbers, VARCHAR, DATE, TIME, TIMESTAMP, INTERVAL, UUID, JSON and lists of these are allowed",
        ))
    }
}

/// The width of a number or text.
fn width(value: &Value) -> Result<(), Refusal> {
    let mut fields = Fields::of(value, "the width of a type")?;
    fields.one_of("class", &["CONSTANT"])?;
    fields.ignore(&["alias"])?;
    constant(&mut fields)?;
    fields.finish()
}
