//! Shipped rules, dashboard and metric documentation: they name existing metrics, queries and
//! fields of answers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use self::dashboard::{infinity_queries, panels, promql, shipped};
use self::exposition::{Metric, metrics_of};
use self::lab::Lab;
use crate::testbed::repository;

mod dashboard;
mod exposition;
pub(crate) mod lab;

fn text(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}

/// A row of the table of metrics in the documentation.
struct Documented {
    kind: String,
    labels: BTreeSet<String>,
    meaning: String,
}

fn documented() -> BTreeMap<String, Documented> {
    let docs = text("echo/docs/operate/metrics.md");
    let rows = docs.lines().filter(|line| line.starts_with("| `echo_"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, kind, labels, _unit, meaning, _] = cells.as_slice() else {
            panic!("{line} does not have five cells");
        };
        assert!(meaning.len() > 10, "{line} does not say what it means");
        let plain = |cell: &str| cell.replace('`', "");
        let labels = plain(labels);
        let labels = labels.split(", ").filter(|label| !label.is_empty());
        let documented = Documented {
            kind: plain(kind),
            labels: labels.map(str::to_owned).collect(),
            meaning: (*meaning).to_owned(),
        };
        (plain(name), documented)
    };
    rows.map(row).collect()
}

/// Returns the names in expressions that start like a metric of Echo. Names with a colon are
/// excluded, since the rules record them.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !is_part(c));
    let metrics = words.filter(|word| word.starts_with("echo_") && !word.contains(':'));
    metrics.map(str::to_owned).collect()
}

/// Returns these names in the rules, without comments.
fn named_in_rules() -> BTreeSet<String> {
    let rules = text("deploy/prometheus/rules.yml");
    let code = rules.lines().filter(|line| !line.trim().starts_with('#'));
    code.flat_map(named).collect()
}

fn assert_known(names: &BTreeSet<String>, metrics: &BTreeMap<String, Metric>) {
    assert!(names.len() > 5, "{names:?}");
    for name in names {
        let known = metrics
            .iter()
            .any(|(known, metric)| metric.is_sampled_as(known, name));
        assert!(known, "{name} is not among the metrics");
    }
}

#[test]
fn documents_rules_and_dashboard_name_existing_metrics() {
    let lab = Lab::new();
    let metrics = metrics_of(&lab.metrics());
    let documented = documented();
    for (name, metric) in &metrics {
        let row = documented
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not documented"));
        assert_eq!(row.kind, metric.kind, "{name}");
        if !metric.labels.is_empty() {
            assert_eq!(row.labels, metric.labels, "{name}");
        }
    }
    for (name, row) in &documented {
        let is_there = metrics.contains_key(name) || row.meaning.contains("absent without");
        assert!(is_there, "{name} is documented but not exposed");
    }
    // Rules about optional parts never fire without them.
    let is_optional = |name: &String| {
        let row = documented.get(name);
        row.is_some_and(|row| row.meaning.contains("absent without"))
    };
    let mut in_rules = named_in_rules();
    in_rules.retain(|name| !is_optional(name));
    assert_known(&in_rules, &metrics);
    let promql: String = promql(&shipped()).join("\n");
    assert_known(&named(&promql), &metrics);
}

/// Alerts that fire when the page with the runbook may not answer.
const WITHOUT_RUNBOOK: [&str; 2] = ["EchoAbsent", "EchoDown"];

/// Returns the headings of the runbook that an alert links: one, none for the whole page, or one for
/// each kind of condition.
fn linked_headings(alert: &Value) -> Vec<&str> {
    let url = alert["annotations"]["runbook_url"].as_str();
    let url = url.unwrap_or_else(|| panic!("no runbook_url: {alert}"));
    let (address, heading) = url.split_once('#').unwrap_or((url, ""));
    assert!(address.ends_with("/runbook"), "{url}");
    match heading {
        "" => Vec::new(),
        "{{ $labels.kind }}" => {
            let expr = alert["expr"].as_str().unwrap();
            let (_, kinds) = expr.split_once("kind=~\"").unwrap();
            kinds.split('"').next().unwrap().split('|').collect()
        }
        heading => vec![heading],
    }
}

#[test]
fn alerts_link_headings_that_the_runbook_of_a_server_has() {
    let lab = Lab::new();
    let (status, page) = lab.curl("/runbook", None);
    assert_eq!(status, 200, "{page}");
    let rules: Value = serde_norway::from_str(&text("deploy/prometheus/rules.yml")).unwrap();
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let alerts = rules.filter(|rule| rule["alert"].is_string());
    let (silent, linking): (Vec<_>, Vec<_>) =
        alerts.partition(|alert| WITHOUT_RUNBOOK.contains(&alert["alert"].as_str().unwrap()));
    assert_eq!(silent.len(), WITHOUT_RUNBOOK.len());
    let headings: Vec<&str> = linking.into_iter().flat_map(linked_headings).collect();
    assert!(headings.len() > 10, "{headings:?}");
    for heading in headings {
        let id = format!("<h2 id=\"{heading}\">");
        assert!(page.contains(&id), "the runbook has no {heading}");
    }
}

#[test]
fn the_dashboard_is_one_file_for_import_and_provisioning() {
    let dashboard = shipped();
    assert_eq!(dashboard["schemaVersion"], 41);
    for absent in ["id", "__inputs", "__requires"] {
        assert!(dashboard.get(absent).is_none(), "{absent}");
    }
    let panels = panels(&dashboard);
    let ids: BTreeSet<i64> = panels
        .iter()
        .map(|panel| panel["id"].as_i64().unwrap())
        .collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let side = |name: &str| panel["gridPos"][name].as_i64().unwrap();
        assert!(side("x") + side("w") <= 24, "{panel}");
        for x in side("x")..side("x") + side("w") {
            for y in side("y")..side("y") + side("h") {
                assert!(taken.insert((x, y)), "{} lies on another", panel["title"]);
            }
        }
    }
}

#[test]
fn the_dashboard_takes_its_data_sources_from_variables() {
    let dashboard = shipped();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let sources = variables
        .iter()
        .filter(|variable| variable["type"] == "datasource");
    let sources: BTreeMap<&str, &str> = sources
        .map(|variable| {
            (
                variable["name"].as_str().unwrap(),
                variable["query"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("infinity", "yesoreyeram-infinity-datasource"),
        ("prom", "prometheus"),
    ];
    assert_eq!(sources, expected.into());
    for source in dashboard::data_sources(&dashboard) {
        let (kind, uid) = (
            source["type"].as_str().unwrap(),
            source["uid"].as_str().unwrap(),
        );
        let name = uid.strip_prefix("${").and_then(|uid| uid.strip_suffix('}'));
        let variable = name.unwrap_or_else(|| panic!("{uid} is a data source of one Grafana only"));
        assert_eq!(sources[variable], kind);
    }
}

#[test]
fn every_query_of_the_dashboard_returns_the_fields_that_it_shows() {
    let lab = Lab::new();
    let (_, tools) = lab.curl("/api/v1/tools/list", None);
    let tools: Value = serde_json::from_str(&tools).unwrap();
    let alert = dashboard::shipped_alert();
    let queries: Vec<Value> = infinity_queries(&shipped())
        .into_iter()
        .chain([alert])
        .collect();
    assert!(queries.len() > 4, "{queries:?}");
    for query in queries {
        assert_eq!(query["parser"], "backend", "{query}");
        let path = query["url"].as_str().unwrap();
        let body = dashboard::interpolated(query["url_options"]["data"].as_str().unwrap());
        let (status, answer) = lab.curl(path, Some(&body));
        assert_eq!(status, 200, "{body}: {answer}");
        let tool = tools["tools"].as_array().unwrap().iter();
        let mut tool = tool.filter(|tool| path.ends_with(tool["name"].as_str().unwrap()));
        let schema = &tool.next().unwrap()["output_schema"];
        let rows = dashboard::rows_schema(schema, query["root_selector"].as_str().unwrap());
        for column in query["columns"].as_array().unwrap() {
            let selector = column["selector"].as_str().unwrap();
            let kinds = dashboard::kinds(&rows, selector);
            let kind = column["type"].as_str().unwrap();
            assert!(
                dashboard::shows(kind, &kinds),
                "{path} {selector}: {kind}, but it is {kinds:?}"
            );
        }
    }
}
