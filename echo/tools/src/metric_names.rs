//! Metric names for store queries.

use echo_core::ids::{IdError, MetricName};

use crate::ToolError;

/// Parses metric names.
pub(crate) fn metrics(names: &[&str]) -> Result<Vec<MetricName>, ToolError> {
    let names = names.iter().map(|name| name.parse());
    names
        .collect::<Result<_, IdError>>()
        .map_err(|error| ToolError::invalid("metric", error.to_string()))
}
