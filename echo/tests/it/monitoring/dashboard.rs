//! The shipped dashboard and alert as data.

use serde_json::Value;

use super::text;

/// Returns the shipped dashboard.
pub(super) fn shipped() -> Value {
    serde_json::from_str(&text("deploy/grafana/dashboard.json")).unwrap()
}

/// Returns the query of the shipped Grafana alert.
pub(super) fn shipped_alert() -> Value {
    let file = text("deploy/grafana/provisioning/alerting/echo.yaml");
    let file: Value = serde_norway::from_str(&file).unwrap();
    let rule = &file["groups"][0]["rules"][0];
    assert_eq!(rule["noDataState"], "NoData");
    rule["data"][0]["model"].clone()
}

pub(super) fn panels(dashboard: &Value) -> &Vec<Value> {
    dashboard["panels"].as_array().unwrap()
}

fn targets(dashboard: &Value) -> impl Iterator<Item = &Value> {
    let targets = panels(dashboard)
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    targets.flatten()
}

/// Returns the `PromQL` expressions of panels and variables.
pub(super) fn promql(dashboard: &Value) -> Vec<String> {
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let of_variables = variables.filter_map(|variable| variable["query"]["query"].as_str());
    let of_panels = targets(dashboard).filter_map(|target| target["expr"].as_str());
    of_variables.chain(of_panels).map(str::to_owned).collect()
}

/// Returns the queries that are sent to Echo itself.
pub(super) fn infinity_queries(dashboard: &Value) -> Vec<Value> {
    let is_sent_to_echo = |target: &&Value| target["url"].is_string();
    targets(dashboard)
        .filter(is_sent_to_echo)
        .cloned()
        .collect()
}

/// Returns every reference to a data source.
pub(super) fn data_sources(value: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("datasource"));
            found.extend(fields.values().flat_map(data_sources));
        }
        Value::Array(items) => found.extend(items.iter().flat_map(data_sources)),
        _ => {}
    }
    found
}

/// Returns a request body as sent by Grafana, with the selected cluster and time range.
pub(super) fn interpolated(body: &str) -> String {
    let body = body
        .replace("${cluster}", "lab")
        .replace("\"prod\"", "\"lab\"")
        .replace("${__timeFrom}", "1792000000000")
        .replace("${__timeTo}", "now");
    assert!(!body.contains('$'), "{body}");
    body
}

/// Returns the schema of the items that are selected as rows.
pub(super) fn rows_schema(schema: &Value, root: &str) -> Value {
    let rows = match root {
        "" => schema.clone(),
        list => resolved(schema, &schema["properties"][list]["items"]),
    };
    assert!(rows["properties"].is_object(), "no rows at {root:?}");
    let mut rows = rows;
    rows["$defs"] = schema["$defs"].clone();
    rows
}

fn resolved(schema: &Value, part: &Value) -> Value {
    let target = part["$ref"]
        .as_str()
        .map(|target| target.trim_start_matches('#'));
    target.map_or_else(
        || part.clone(),
        |target| schema.pointer(target).unwrap().clone(),
    )
}

/// Returns the JSON types of a field.
pub(super) fn kinds(rows: &Value, field: &str) -> Vec<String> {
    let kinds = match &resolved(rows, &rows["properties"][field])["type"] {
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    let kinds = kinds
        .iter()
        .filter_map(Value::as_str)
        .filter(|kind| *kind != "null");
    kinds.map(str::to_owned).collect()
}

/// Returns whether a column of this type can show a field of these types.
pub(super) fn shows(column: &str, kinds: &[String]) -> bool {
    let fits = |kind: &String| match column {
        "number" => kind == "number" || kind == "integer",
        "string" | "timestamp" => kind == "string",
        _ => false,
    };
    !kinds.is_empty() && kinds.iter().all(fits)
}
