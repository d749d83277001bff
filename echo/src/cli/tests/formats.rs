//! JSON for people and programs: indented on a terminal, compact in a pipe, and objects on lines.

use serde_json::Value;

use super::Server;
use super::terminal::straggler_and_hang;

fn parsed(printed: &str) -> Value {
    serde_json::from_str(printed).unwrap()
}

#[test]
fn json_is_indented_on_a_terminal_only() {
    let server = Server::with_context(straggler_and_hang);
    for command in ["outliers", "clusters", "status", "sql FROM/**/ranks"] {
        let line = format!("{command} -o json");
        let compact = server.output(&line).unwrap();
        assert_eq!(compact.lines().count(), 1, "{compact}");
        let (indented, outcome) = server.run_on(&line, Some(80), true);
        outcome.unwrap();
        assert!(indented.starts_with("{\n  \""), "{indented}");
        let fields = |answer: &Value| answer.as_object().unwrap().keys().cloned().collect();
        let fields: [Vec<String>; 2] = [&compact, &indented].map(|text| fields(&parsed(text)));
        assert_eq!(fields[0], fields[1], "{command}");
    }
}

#[test]
fn rows_of_json_are_objects_and_name_the_cluster_alike() {
    let server = Server::with_context(straggler_and_hang);
    let clusters = parsed(&server.output("clusters --json").unwrap());
    assert_eq!(clusters["clusters"][0]["cluster"], "prod");
    assert_eq!(clusters["clusters"][0]["n_gpus"], 4);
    assert_eq!(clusters["clusters"][0]["gpu_models"][0], "NVIDIA H200");
    let outliers = parsed(&server.output("outliers --from now-10m --json").unwrap());
    assert_eq!(outliers["outliers"][0]["cluster"], "prod");
    let rows = server.output("sql SELECT/**/2/**/AS/**/b,1/**/AS/**/a --json");
    let rows = rows.unwrap();
    assert!(rows.contains(r#""rows":[{"b":2,"a":1}]"#), "{rows}");
}

#[test]
fn lines_of_json_are_the_rows_of_the_table() {
    let server = Server::with_context(straggler_and_hang);
    for (command, n_rows, field) in [
        ("history --limit 3", 3, "timestamp"),
        ("outliers --from now-10m", 3, "incident_id"),
        ("status --from now-10m", 2, "run_rate_per_hour"),
        ("cost --from now-10m", 3, "lost_gpu_hours"),
        ("clusters", 2, "cluster"),
        ("sql VALUES(1),(2)", 2, "col0"),
        ("sql --views", 1, "comment"),
        ("host check", 2, "findings"),
    ] {
        let printed = server.output(&format!("{command} -o jsonl")).unwrap();
        let rows: Vec<Value> = printed.lines().map(parsed).collect();
        assert!(rows.len() >= n_rows, "{command}: {printed}");
        assert!(rows.iter().all(|row| row.get(field).is_some()), "{printed}");
    }
}

#[test]
fn the_last_of_two_formats_is_printed() {
    let server = Server::start();
    let printed = server.output("cost -o csv --json").unwrap();
    assert!(parsed(&printed)["contributors"].is_array(), "{printed}");
    let printed = server.output("cost --json -o csv").unwrap();
    assert!(printed.starts_with("cost,"), "{printed}");
}

#[test]
fn limits_of_rows_do_not_apply_to_the_list_of_views() {
    let line = ["sql", "--views", "--max-rows", "5"];
    let parsed = <super::Program as clap::Parser>::try_parse_from([&["x"][..], &line].concat());
    let refused = parsed.unwrap_err().to_string();
    assert!(refused.contains("cannot be used with"), "{refused}");
}
