//! `fleet-echo report`: the costs of a day, from a real instance.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::testbed::{ECHO, Echo, recording, replay_all, wait_for};

/// The day on which recordings are replayed.
const DAY: &str = "2026-11-01";

/// Runs `fleet-echo report` with these arguments.
fn report(echo: &Echo, arguments: &str) -> Output {
    Command::new(ECHO)
        .args(["report", "--server", &format!("http://{}", echo.http)])
        .args(arguments.split_whitespace())
        .output()
        .unwrap()
}

/// Returns the output of `fleet-echo report`, which must succeed.
pub(crate) fn printed(echo: &Echo, arguments: &str) -> String {
    let output = report(echo, arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until every hour of the day is closed and no revision is due.
pub(crate) fn wait_until_closed(echo: &Echo) {
    wait_for("the day to be closed", || {
        let output = report(echo, &format!("--day {DAY} --format json"));
        let answer: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        answer.is_some_and(|answer| {
            let metadata = &answer["metadata"];
            metadata["is_closed"] == true
                && metadata["hours_revised_soon"]
                    .as_array()
                    .unwrap()
                    .is_empty()
                && metadata["n_rows"] != 0
        })
    });
}

/// Starts an instance in whose database rank 2 was late on that day.
pub(crate) fn with_a_closed_day(db: &Path, flags: &[&str]) -> Echo {
    let echo = Echo::serve_with(db, &[&["--cost-grace", "0s"], flags].concat());
    replay_all(&recording("host-sleep-rank2"), &echo, "lab", "50");
    echo.caught_up();
    wait_until_closed(&echo);
    echo
}

/// Returns the sum of a CSV column.
fn sum(csv: &str, column: &str) -> f64 {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let place = reader
        .headers()
        .unwrap()
        .iter()
        .position(|name| name == column);
    let cells = reader
        .records()
        .map(|record| record.unwrap()[place.unwrap()].to_owned());
    cells
        .filter(|cell| !cell.is_empty())
        .map(|cell| cell.parse::<f64>().unwrap())
        .sum()
}

#[test]
fn the_report_of_a_closed_day_is_identical_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("fleet.duckdb");
    let csv = format!("--day {DAY} --format focus-csv");
    let echo = with_a_closed_day(&db, &[]);
    let before = printed(&echo, &csv);
    // Four nodes; with a clock error a node may also have a row in the hour before.
    let rows = before.lines().count() - 1;
    assert!(rows >= 4, "{before}");
    let bare = printed(&echo, &format!("{csv} --no-headers"));
    assert_eq!(before.split_once('\n').unwrap().1, bare);
    assert_eq!(printed(&echo, &csv), before);
    echo.kill();
    let echo = Echo::serve(&db);
    echo.caught_up();
    assert_eq!(printed(&echo, &csv), before);
    let out = folder.path().join("costs.csv");
    let metadata = folder.path().join("costs.json");
    let files = format!(
        "{csv} --out {} --metadata {}",
        out.display(),
        metadata.display()
    );
    assert_eq!(printed(&echo, &files), "");
    assert_eq!(std::fs::read_to_string(out).unwrap(), before);
    let metadata: Value =
        serde_json::from_str(&std::fs::read_to_string(metadata).unwrap()).unwrap();
    assert_eq!(metadata["focus_version"], "1.2");
    assert_eq!(metadata["n_rows"], rows);
}

#[test]
fn the_report_and_the_tool_return_the_same_cost_for_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let echo = with_a_closed_day(&folder.path().join("fleet.duckdb"), &[]);
    let csv = printed(
        &echo,
        &format!("--day {DAY} --format focus-csv --cluster lab"),
    );
    let day = serde_json::json!({ "cluster": "lab", "from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z" });
    let (status, tool) = echo.post("fleet.cluster.get_cost", &day);
    assert_eq!(status, 200, "{tool}");
    for (column, field) in [
        ("x_EchoStragglerCost", "window_total"),
        ("x_EchoStragglerGpuHours", "lost_gpu_hours"),
        ("ConsumedQuantity", "allocated_gpu_hours"),
    ] {
        let expected = tool[field].as_f64().unwrap();
        assert!(expected > 0.0, "{field}: {tool}");
        assert!(
            (sum(&csv, column) - expected).abs() < 1e-6,
            "{column}: {expected}\n{csv}"
        );
    }
    let short = printed(&echo, &format!("--day {DAY} --format csv --cluster lab"));
    let header =
        "hour,cluster,node,gpu_model,rate_class,gpu_hours,cost,lost_gpu_hours,lost_cost,currency";
    assert_eq!(short.lines().next(), Some(header));
    for (column, of_focus) in [
        ("gpu_hours", "ConsumedQuantity"),
        ("cost", "EffectiveCost"),
        ("lost_cost", "x_EchoStragglerCost"),
    ] {
        assert!(
            (sum(&short, column) - sum(&csv, of_focus)).abs() < 1e-9,
            "{short}"
        );
    }
    let rows = printed(
        &echo,
        &format!("--day {DAY} --format csv --cluster lab --no-headers"),
    );
    assert_eq!(
        Some(rows.as_str()),
        short.split_once('\n').map(|(_, rows)| rows)
    );
    let table = printed(&echo, &format!("--day {DAY}"));
    assert!(table.contains("on_demand"), "{table}");
    let command = Command::new(ECHO)
        .args(["cost", "-c", "lab", "--from", DAY, "--to", "2026-11-02"])
        .args(["--server", &format!("http://{}", echo.http)])
        .output()
        .unwrap();
    let cost = String::from_utf8(command.stdout).unwrap();
    let lost = cost
        .lines()
        .find(|line| line.starts_with("lost in the window"));
    let digits = lost.unwrap().split_whitespace().nth(4).unwrap();
    assert!(digits.starts_with("0.0"), "{cost}");
    assert!(table.contains(&format!(" {digits} ")), "{digits}\n{table}");
}

#[test]
fn an_open_day_is_refused_without_allow_open() {
    let folder = tempfile::tempdir().unwrap();
    let echo = Echo::serve(&folder.path().join("fleet.duckdb"));
    let refused = report(&echo, "--day today --format focus-csv");
    let stderr = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(64));
    assert!(
        stderr.contains("not closed yet") && stderr.contains("--allow-open"),
        "{stderr}"
    );
    assert!(refused.stdout.is_empty());
    let table = printed(&echo, "--day today --allow-open");
    assert!(table.contains("no GPU reported"), "{table}");
    let wrong = report(&echo, "--day someday");
    assert_eq!(wrong.status.code(), Some(64));
}
