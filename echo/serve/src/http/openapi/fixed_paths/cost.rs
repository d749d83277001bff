//! Paths of the cost report.

use echo_core::error::Code;
use serde_json::{Value, json};

use crate::http::openapi::fixed_paths::{get, object};
use crate::http::openapi::in_json;

const ERRORS: [Code; 5] = [
    Code::Invalid,
    Code::NotFound,
    Code::Refused,
    Code::Busy,
    Code::Timeout,
];

/// A whole hour as RFC 3339.
const WHOLE_HOUR: &str =
    "^20[2-9][0-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):00:00Z$";

/// A date, `yesterday` or `today`.
const DAY: &str = "^(20[2-9][0-9]-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|yesterday|today)$";

/// Returns the paths with their operations.
pub(super) fn paths() -> [(String, Value); 2] {
    let csv = json!({
        "description": "One row per hour, cluster, node and GPU model, in the columns of FOCUS 1.2.",
        "content": { "text/csv": { "schema": { "type": "string" } } },
    });
    let rows = object(
        &["metadata", "summary"],
        json!({
            "metadata": { "type": "object", "description": "Version of FOCUS, window, and hours that are not closed." },
            "summary": { "type": "array", "items": { "type": "object" }, "description": "Sums by cluster, rate class and currency." },
            "rows": { "type": "array", "items": { "type": "object" }, "description": "The rows of the CSV." },
        }),
    );
    let rows = in_json("The rows of the CSV, with sums.", rows);
    let params = parameters();
    [
        ("/api/v1/cost.csv", "cost_csv", "GPU costs as CSV", csv),
        ("/api/v1/cost.json", "cost_json", "GPU costs as JSON", rows),
    ]
    .map(|(path, id, summary, answer)| {
        let mut operation = get(id, summary, answer, &ERRORS);
        if let Some(operation) = operation.get_mut("get").and_then(Value::as_object_mut) {
            operation.insert("parameters".to_owned(), Value::Array(params.clone()));
        }
        (path.to_owned(), operation)
    })
}

/// Returns the query parameters.
fn parameters() -> Vec<Value> {
    vec![
        parameter(
            "day",
            "Day in UTC; required unless from and to are given.",
            json!({ "type": "string", "pattern": DAY }),
        ),
        parameter(
            "from",
            "Start, a whole hour; instead of a day.",
            json!({ "type": "string", "pattern": WHOLE_HOUR }),
        ),
        parameter(
            "to",
            "End, a whole hour.",
            json!({ "type": "string", "pattern": WHOLE_HOUR }),
        ),
        parameter(
            "cluster",
            "Cluster; all permitted ones if absent.",
            json!({ "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]+$" }),
        ),
        parameter(
            "open",
            "Include hours that are not closed yet, as far as they are known.",
            json!({ "type": "boolean" }),
        ),
        parameter(
            "rows",
            "Include rows besides the sums; ignored for CSV.",
            json!({ "type": "boolean" }),
        ),
    ]
}

fn parameter(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "in": "query", "description": description, "schema": schema })
}
