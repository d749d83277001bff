//! Rows of a SQL result as objects, with the columns as their fields.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cli::json_output::object;
use crate::cli::view::{list, text};

/// Returns the result as a JSON document whose rows are objects.
pub(super) fn document(answer: &Value) -> Vec<u8> {
    let mut fields = answer.as_object().cloned().unwrap_or_default();
    fields.remove("rows");
    let fields = fields.iter();
    let fields = fields.map(|(name, value)| format!("{}:{value},", Value::from(name.as_str())));
    let fields: String = fields.collect();
    let rows = rows(answer).collect::<Vec<_>>().join(",");
    format!("{{{fields}\"rows\":[{rows}]}}\n").into_bytes()
}

/// Returns each row as an object, with its fields in the order of the columns.
pub(super) fn rows(answer: &Value) -> impl Iterator<Item = String> {
    let names = names(answer);
    let rows = list(answer, "rows").iter().filter_map(Value::as_array);
    rows.map(move |row| object(&names, row))
}

/// Returns a name for each column. Of equal names the second becomes `NAME_1`, and so on, because an
/// object has each field once.
fn names(answer: &Value) -> Vec<String> {
    let columns = list(answer, "columns").iter();
    let given: Vec<String> = columns.map(|column| text(column, "name")).collect();
    let mut taken = BTreeSet::new();
    let names = given.iter().map(|name| {
        let numbered = (1_usize..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone())
            .chain(numbered.filter(|numbered| !given.contains(numbered)))
            .find(|candidate| !taken.contains(candidate));
        let name = free.unwrap_or_default();
        taken.insert(name.clone());
        name
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::document;

    #[test]
    fn rows_are_objects_with_the_columns_in_their_order_and_unique_names() {
        let names = ["b", "a", "b", "b_1", "b"].map(|name| json!({ "name": name }));
        let answer = json!({ "columns": names, "rows": [[1, null, 2, 3, 4]], "truncated": false });
        let printed = String::from_utf8(document(&answer)).unwrap();
        let rows = r#""rows":[{"b":1,"a":null,"b_2":2,"b_1":3,"b_3":4}]"#;
        assert!(printed.contains(rows), "{printed}");
        let printed: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(printed["columns"], answer["columns"]);
        assert_eq!(printed["truncated"], false);
    }
}
