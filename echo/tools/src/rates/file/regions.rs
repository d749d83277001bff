//! Locations: provider and region of clusters and nodes.

use echo_core::fields::Fields;
use serde_norway::Value;

use crate::rates::Location;

/// Parses the list `locations`, in order.
pub(super) fn parse(value: Option<Value>, mistakes: &mut Vec<String>) -> Vec<Location> {
    let entries = match value {
        None => return Vec::new(),
        Some(Value::Sequence(entries)) => entries,
        Some(_) => {
            mistakes.push("locations: is not a list".to_owned());
            return Vec::new();
        }
    };
    let numbered = entries.into_iter().enumerate();
    numbered
        .filter_map(|(index, entry)| parse_location(index, entry, mistakes))
        .collect()
}

fn parse_location(index: usize, entry: Value, mistakes: &mut Vec<String>) -> Option<Location> {
    let mut fields = Fields::from_value(&format!("locations[{index}]"), entry, mistakes)?;
    let cluster = fields.parsed("cluster");
    let node = fields.parsed("node");
    let provider = fields.text("provider");
    let region = fields.text("region");
    fields.require("provider", provider.is_none());
    fields.require("cluster", cluster.is_none() && node.is_none());
    fields.report_unknown_fields();
    Some(Location {
        cluster,
        node,
        provider: provider?,
        region,
    })
}
