//! Names of metrics for questions to the store.

use echo_core::ids::{IdError, MetricName};

use crate::ToolError;

/// The names, which have to be well formed.
pub(crate) fn metrics(names: &[&str]) -> Result<Vec<MetricName>, ToolError> {
    let names = names.iter().map(|name| name.parse());
    names
        .collect::<Result<_, IdError>>()
        .map_err(|error| ToolError::invalid("metric", error.to_string()))
}
