//! Samples of rows.

use serde_json::Value;

use crate::fields::Fields;
use crate::refusal::Refusal;

/// Checks a sample of rows or of percent.
pub(super) fn sample(value: &Value) -> Result<(), Refusal> {
    let mut fields = Fields::new(value, "a sample")?;
    fields.one_of("method", &["Bernoulli", "Reservoir", "System"])?;
    fields.ignore(&["seed", "is_percentage"])?;
    let mut size = Fields::new(fields.take("sample_size")?, "the size of a sample")?;
    fields.finish()?;
    let mut kind = Fields::new(size.take("type")?, "the size of a sample")?;
    kind.one_of("id", &["BIGINT", "DOUBLE"])?;
    kind.empty(&["type_info"])?;
    kind.finish()?;
    size.empty(&["is_null"])?;
    size.ignore(&["value"])?;
    size.finish()
}
