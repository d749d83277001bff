//! The dashboard as data.

use serde_json::Value;

use super::text;

/// The dashboard that ships.
pub(super) fn shipped() -> Value {
    serde_json::from_str(&text("deploy/grafana/dashboard.json")).unwrap()
}

/// The question of the alert that ships for Grafana.
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

/// Expressions for Prometheus, also those of variables.
pub(super) fn promql(dashboard: &Value) -> Vec<String> {
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let of_variables = variables.filter_map(|variable| variable["query"]["query"].as_str());
    let of_panels = targets(dashboard).filter_map(|target| target["expr"].as_str());
    of_variables.chain(of_panels).map(str::to_owned).collect()
}

/// Queries that ask Echo itself.
pub(super) fn infinity_queries(dashboard: &Value) -> Vec<Value> {
    let asks_echo = |target: &&Value| target["url"].is_string();
    targets(dashboard).filter(asks_echo).cloned().collect()
}

/// Every place that names a data source.
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

/// A body as Grafana sends it: with the cluster and the range of time that the reader has chosen.
pub(super) fn interpolated(body: &str) -> String {
    let body = body
        .replace("${cluster}", "lab")
        .replace("\"prod\"", "\"lab\"")
        .replace("${__timeFrom}", "1792000000000")
        .replace("${__timeTo}", "now");
    assert!(!body.contains('$'), "{body}");
    body
}

/// The schema of what is selected as rows.
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

/// The types of a field.
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

/// Whether a column of this type shows a field of these types.
pub(super) fn shows(column: &str, kinds: &[String]) -> bool {
    let fits = |kind: &String| match column {
        "number" => kind == "number" || kind == "integer",
        "string" | "timestamp" => kind == "string",
        _ => false,
    };
    !kinds.is_empty() && kinds.iter().all(fits)
}
