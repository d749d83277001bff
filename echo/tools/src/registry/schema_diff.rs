//! Comparison of JSON schemas, for tests of the transports that serve them.

use serde_json::Value;

/// Returns a schema with its references to `document` replaced by their targets, which must not be
/// recursive. A reference that leads nowhere stays.
pub fn resolved(schema: &Value, document: &Value) -> Value {
    match schema {
        Value::Array(items) => items.iter().map(|item| resolved(item, document)).collect(),
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| !is_about_references(name));
            let fields = fields.map(|(name, value)| {
                let path = value.as_str().filter(|_| name == "$ref");
                let path = path.and_then(|target| target.strip_prefix('#'));
                let target = path.and_then(|path| document.pointer(path));
                (name.clone(), resolved(target.unwrap_or(value), document))
            });
            fields.collect()
        }
        plain => plain.clone(),
    }
}

/// Returns the path and both values of the first difference.
pub fn first_difference(expected: &Value, found: &Value) -> Option<String> {
    difference(Some(expected), Some(found))
}

fn is_about_references(name: &str) -> bool {
    matches!(name, "$schema" | "$defs")
}

fn difference(expected: Option<&Value>, found: Option<&Value>) -> Option<String> {
    let text =
        |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), ToString::to_string);
    match (expected, found) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            let mut names = one.keys().chain(other.keys());
            names.find_map(|name| {
                let below = difference(one.get(name), other.get(name))?;
                Some(format!("/{name}{below}"))
            })
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            let mut indices = 0..one.len().max(other.len());
            indices.find_map(|index| {
                let below = difference(one.get(index), other.get(index))?;
                Some(format!("/{index}{below}"))
            })
        }
        _ => (expected != found)
            .then(|| format!(": {} expected, {} found", text(expected), text(found))),
    }
}
