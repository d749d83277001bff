//! Names in inputs, parsed for store queries.

use std::str::FromStr;

use echo_core::ids::{IdError, MetricName};

use crate::ToolError;

/// Parses an optional name; `field` is its field in the input.
pub(crate) fn optional<T: FromStr<Err = IdError>>(
    field: &str,
    name: Option<&str>,
) -> Result<Option<T>, ToolError> {
    name.map(str::parse)
        .transpose()
        .map_err(|error: IdError| ToolError::invalid(field, error.to_string()))
}

/// Parses metric names.
pub(crate) fn metrics(names: &[&str]) -> Result<Vec<MetricName>, ToolError> {
    let names = names.iter().map(|name| name.parse());
    names
        .collect::<Result<_, IdError>>()
        .map_err(|error| ToolError::invalid("metric", error.to_string()))
}
