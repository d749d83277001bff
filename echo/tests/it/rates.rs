//! `fleet-echo rates check`, and reloads of the rates file.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::testbed::{ECHO, Echo, recording, replay_all, repository};

fn check(file: &Path, flags: &[&str]) -> Output {
    let mut command = Command::new(ECHO);
    command.args(["rates", "check"]).arg(file).args(flags);
    command.output().unwrap()
}

fn printed(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", output.status);
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_valid_file_is_listed_in_order_of_precedence() {
    let file = repository("testdata/rates.yaml");
    let text = printed(&check(&file, &[]));
    let (_, table) = text.split_once('\n').unwrap();
    insta::assert_snapshot!(table);
    let result: Value = serde_json::from_str(&printed(&check(&file, &["--json"]))).unwrap();
    assert_eq!(result["valid"], true);
    assert_eq!(result["rates"][0]["pricing_category"], "Committed");
    assert_eq!(result["rates"][0]["per_gpu_hour"], 2.35);
    assert_eq!(result["fleet"], Value::Null);
}

#[test]
fn rates_are_printed_in_the_formats_of_other_commands() {
    let file = repository("testdata/rates.yaml");
    let json = printed(&check(&file, &["--json"]));
    assert_eq!(printed(&check(&file, &["-o", "json"])), json);
    let result: Value = serde_json::from_str(&json).unwrap();
    let csv = printed(&check(&file, &["-o", "csv"]));
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 1 + result["rates"].as_array().unwrap().len());
    assert!(
        lines[0].starts_with("at,node,cluster,provider,region,gpu_model,per_gpu_hour,currency")
    );
    assert!(lines[1].contains(",2.35,"), "{csv}");
    let rows = printed(&check(&file, &["-o", "csv", "--no-headers"]));
    assert_eq!(rows.lines().collect::<Vec<_>>(), lines[1..]);
    assert!(!printed(&check(&file, &["-o", "wide", "--no-headers"])).contains("PRICE"));
}

#[test]
fn an_invalid_file_exits_65_with_every_problem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rates.yaml");
    let text =
        "rates:\n  - { gpu_model: H200, rate_class: cheap, rate: 1, currency: USX }\n  - 7\n";
    std::fs::write(&file, text).unwrap();
    let output = check(&file, &["--json"]);
    assert_eq!(output.status.code(), Some(65));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["valid"], false);
    for (at, place) in ["rates[0].rate_class", "rates[0].currency", "rates[1]"]
        .iter()
        .enumerate()
    {
        assert!(stderr.contains(place), "{stderr}");
        assert!(
            result["mistakes"][at].as_str().unwrap().starts_with(place),
            "{result}"
        );
    }
    assert_eq!(
        check(&folder.path().join("none.yaml"), &[]).status.code(),
        Some(64)
    );
    let unreachable = check(
        &repository("testdata/rates.yaml"),
        &["--server", "http://127.0.0.1:1"],
    );
    assert_eq!(unreachable.status.code(), Some(69));
}

#[test]
fn the_check_lists_priced_and_unpriced_gpus_of_a_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let echo = Echo::serve(&db);
    replay_all(&recording("healthy"), &echo, "lab", "max");
    let server = format!("http://{}", echo.http);
    let file = folder.path().join("rates.yaml");
    let table = |rate: &str| {
        std::fs::write(
            &file,
            format!("rates: [{{ {rate}, rate_class: owned, currency: EUR }}]"),
        )
        .unwrap();
        file.clone()
    };
    let priced = check(&table("gpu_model: H200, rate: 1.5"), &["--server", &server]);
    let text = printed(&priced);
    assert!(
        text.contains("lab      NVIDIA H200     4  rates[0]  1.5 EUR owned"),
        "{text}"
    );
    assert!(text.ends_with("\nall GPUs have a price\n"), "{text}");

    let flags = ["--json", "--server", &server];
    let one_node = check(&table("node: node-1, rate: 2"), &flags);
    let result: Value = serde_json::from_str(&printed(&one_node)).unwrap();
    assert_eq!(result["fleet"]["unpriced_nodes"], 3);
    let nodes = result["fleet"]["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 4);
    assert_eq!(
        (&nodes[1]["node_id"], &nodes[1]["per_gpu_hour"]),
        (&"node-1".into(), &2.0.into())
    );
    assert_eq!(nodes[0]["rate"], Value::Null);
    let flags = ["-o", "csv", "--server", &server];
    let csv = printed(&check(&table("node: node-1, rate: 2"), &flags));
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 5, "{csv}");
    assert_eq!(
        lines[2],
        "lab,node-1,NVIDIA H200,1,,,rates[0],2.0,EUR,owned"
    );

    let text = printed(&check(
        &table("node: node-1, rate: 2"),
        &["--server", &server],
    ));
    assert!(
        text.contains("NO PRICE") && text.contains("node-0, node-2, node-3"),
        "{text}"
    );
    assert!(
        text.contains("3 of 4 GPUs, on 3 nodes, have no price"),
        "{text}"
    );

    // The server has the database open.
    let path = db.display().to_string();
    let locked = check(&file, &["--db", &path]);
    assert_eq!(locked.status.code(), Some(75));
    assert_eq!(echo.terminate(), 0);
    let stored = check(&table("node: node-1, rate: 2"), &["--json", "--db", &path]);
    let stored: Value = serde_json::from_str(&printed(&stored)).unwrap();
    assert_eq!(stored["fleet"]["nodes"], Value::Array(nodes));
}

#[test]
fn valid_prices_are_reloaded_without_a_restart_and_invalid_ones_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rates.yaml");
    let write = |rates: &str| std::fs::write(&file, rates).unwrap();
    let at = |rate: &str| {
        format!(
            "rates: [{{ provider: here, gpu_model: H200, rate_class: owned, currency: EUR, rate: {rate} }}]\nlocations: [{{ cluster: '*', provider: here }}]"
        )
    };
    write(&at("1"));
    let path = file.display().to_string();
    let echo = Echo::serve_with(&folder.path().join("fleet.duckdb"), &["--rates", &path]);
    replay_all(&recording("host-sleep-rank2"), &echo, "lab", "max");
    echo.caught_up();
    let rate = || echo.query("get_cost", "lab")["by_rate_class"][0]["rate_per_gpu_hour"].clone();
    assert_eq!(rate(), 1.0);
    write(&at("2"));
    echo.signal("HUP");
    crate::testbed::wait_for("the new price", || rate() == 2.0);
    write(&at("cheap"));
    echo.signal("HUP");
    let url = format!("http://{}/metrics", echo.http);
    crate::testbed::wait_for("the invalid price to be reported", || {
        let metrics = ureq::get(&url)
            .call()
            .unwrap()
            .body_mut()
            .read_to_string()
            .unwrap();
        metrics.contains("echo_config_reload_failing{source=\"rates\"} 1")
    });
    assert_eq!(rate(), 2.0);
    assert_eq!(echo.terminate(), 0);
}
