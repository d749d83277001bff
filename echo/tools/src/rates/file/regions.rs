//! Where clusters and nodes stand.

use echo_core::fields::Fields;
use serde_norway::Value;

use crate::rates::Place;

/// Reads the places, in their order.
pub(super) fn read(value: Option<Value>, mistakes: &mut Vec<String>) -> Vec<Place> {
    let entries = match value {
        None => return Vec::new(),
        Some(Value::Sequence(entries)) => entries,
        Some(_) => {
            mistakes.push("places: is not a list".to_owned());
            return Vec::new();
        }
    };
    let numbered = entries.into_iter().enumerate();
    numbered
        .filter_map(|(index, entry)| read_place(index, entry, mistakes))
        .collect()
}

fn read_place(index: usize, entry: Value, mistakes: &mut Vec<String>) -> Option<Place> {
    let mut fields = Fields::from_value(&format!("places[{index}]"), entry, mistakes)?;
    let cluster = fields.parsed("cluster");
    let node = fields.parsed("node");
    let provider = fields.text("provider");
    let region = fields.text("region");
    fields.require("provider", provider.is_none());
    fields.require("cluster", cluster.is_none() && node.is_none());
    fields.report_unknown_fields();
    Some(Place {
        cluster,
        node,
        provider: provider?,
        region,
    })
}
