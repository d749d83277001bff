//! Sharding: each of several instances stores its own clusters, loses nothing, and names the shards
//! of other clusters.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Output};

use fleet_test_harness::NETWORKS;
use serde_json::{Value, json};

use self::fleet::{Fleet, SHARDS, URL, clusters_of};
use crate::testbed::{summary, wait_for};

mod fleet;
mod network;

/// The shard that is killed.
const KILLED: u32 = 1;

/// Returns the URL of a shard.
fn url(shard: u32) -> String {
    URL.replace("{shard}", &shard.to_string())
}

/// Returns everything that a program printed.
fn printed(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|part| String::from_utf8_lossy(part)).concat()
}

/// Returns two clusters of the shard that is killed and one of each other shard, each with its
/// shard.
fn clusters() -> BTreeMap<String, u32> {
    let of = |shard| {
        let n = if shard == KILLED { 2 } else { 1 };
        clusters_of(shard, n)
            .into_iter()
            .map(move |name| (name, shard))
    };
    (0..SHARDS).flat_map(of).collect()
}

#[test]
#[needs(NETWORKS)]
fn a_killed_shard_loses_nothing_and_the_others_name_it_for_its_clusters() {
    let mut fleet = Fleet::start();
    let clusters = clusters();
    let agents: Vec<(&String, Child)> = clusters
        .keys()
        .map(|cluster| (cluster, fleet.report(cluster, SHARDS)))
        .collect();
    wait_for("both clusters of the shard to report", || {
        let stored = fleet.stored(KILLED);
        stored.len() == 2 && stored.values().all(|(copies, _)| *copies > 100)
    });
    let before = fleet.stored(KILLED);
    fleet.restart(KILLED as usize);
    let after = fleet.stored(KILLED);
    for (cluster, (copies, _)) in &before {
        assert!(after[cluster].0 >= *copies, "acknowledged and lost");
    }
    let mut sent = BTreeMap::new();
    for (cluster, agent) in agents {
        let summary = summary(&agent.wait_with_output().unwrap());
        assert_eq!(summary["points_dropped"], 0, "{summary}");
        sent.insert(cluster, summary["points_sent"].as_u64().unwrap());
    }
    for shard in 0..SHARDS {
        let own = clusters.iter().filter(|(_, home)| **home == shard);
        let own = own.map(|(cluster, _)| (cluster.clone(), (sent[cluster], sent[cluster])));
        assert_eq!(
            fleet.stored(shard),
            own.collect(),
            "shard {shard}: copies and points"
        );
        assert_eq!(fleet.misrouted_points(shard), 0);
        fleet.caught_up(shard);
    }
    for (cluster, (copies, _)) in before {
        assert!(
            sent[&cluster] > copies,
            "the shard was killed after the last point"
        );
    }
    over_http(&fleet, &clusters);
    over_mcp(&fleet);
    in_the_shell(&fleet);
}

/// Checks that each shard returns its own clusters, and names the shard of the others.
fn over_http(fleet: &Fleet, clusters: &BTreeMap<String, u32>) {
    for shard in 0..SHARDS {
        for (cluster, home) in clusters {
            let input = json!({ "cluster": cluster, "window": "all" });
            let (status, answer) = fleet.query(shard, "find_outlier_nodes", &input);
            if shard == *home {
                assert_eq!(answer["outliers"][0]["rank"], 2, "{answer}");
                continue;
            }
            let message = answer["error"]["message"].as_str().unwrap();
            assert_eq!(status, 404);
            assert!(
                message.contains(&format!("shard {home} at {}", url(*home))),
                "{message}"
            );
        }
        let (_, answer) = fleet.query(shard, "get_cost", &json!({ "window": "all" }));
        let note = answer["data_quality"]["note"].as_str().unwrap();
        assert!(
            note.contains(&format!("this is shard {shard} of 3")),
            "{note}"
        );
        let others = (0..SHARDS).filter(|other| *other != shard);
        assert!(others.map(url).all(|url| note.contains(&url)), "{note}");
        let (_, analysis) = fleet.query(shard, "run_analysis", &json!({ "sql": "SELECT 1" }));
        assert_eq!(analysis["note"], note);
    }
}

/// Checks the same through the MCP proxy.
fn over_mcp(fleet: &Fleet) {
    let arguments = json!({ "cluster": clusters_of(2, 1)[0] });
    let params = json!({ "name": "fleet.cluster.get_cost", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut proxy = fleet.proxy(&url(0));
    writeln!(proxy.stdin.take().unwrap(), "{call}").unwrap();
    let output = proxy.wait_with_output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let there = format!("shard 2 at {}", url(2));
    assert!(answer["result"].to_string().contains(&there), "{answer}");
}

/// Checks that client commands find the shard of a cluster, or report it.
fn in_the_shell(fleet: &Fleet) {
    let cluster = clusters_of(2, 1).remove(0);
    let all = ["--server", URL, "--shards", "3"];
    let one = ["--cluster", &cluster, "--window", "all"];
    let found = fleet.shell(&[["outliers"].as_slice(), &all, &one].concat());
    assert!(found.status.success(), "{}", printed(&found));
    assert!(printed(&found).contains("node-2"), "{}", printed(&found));
    let first = url(0);
    let elsewhere = fleet.shell(&[["cost", "--server", &first].as_slice(), &one].concat());
    assert_eq!(elsewhere.status.code(), Some(64));
    let there = format!("shard 2 at {}", url(2));
    assert!(
        printed(&elsewhere).contains(&there),
        "{}",
        printed(&elsewhere)
    );
    for open in [
        ["cost"].as_slice(),
        &["sql", "SELECT 1"],
        &["sql", "--views"],
    ] {
        let open = fleet.shell(&[open, &all].concat());
        assert_eq!(open.status.code(), Some(64));
        assert!(
            printed(&open).contains("replace {shard} by a shard number"),
            "{}",
            printed(&open)
        );
    }
    let report = [
        "report",
        "--day",
        "2026-11-01",
        "--allow-open",
        "--server",
        &first,
    ];
    let report = fleet.shell(&report);
    assert!(
        printed(&report).contains("note: this is shard 0 of 3"),
        "{}",
        printed(&report)
    );
    let gate = ["assert", "outliers", "--max", "1", "--allow-missing"];
    let passed = fleet.shell(&[gate.as_slice(), &all, &one].concat());
    assert_ne!(passed.status.code(), Some(2), "{}", printed(&passed));
    let at_the_wrong_shard = fleet.shell(&[gate.as_slice(), &["--server", &first], &one].concat());
    assert_eq!(
        at_the_wrong_shard.status.code(),
        Some(2),
        "{}",
        printed(&at_the_wrong_shard)
    );
}

#[test]
#[needs(NETWORKS)]
fn points_from_agents_with_a_wrong_shard_count_are_stored_counted_and_logged_once() {
    let fleet = Fleet::start();
    // With two shards, the third one does not exist.
    let cluster = clusters_of(2, 1).remove(0);
    let agent = fleet.report(&cluster, 2);
    let summary = summary(&agent.wait_with_output().unwrap());
    let sent = summary["points_sent"].as_u64().unwrap();
    let of_two = fleet_proto::shard::for_cluster(&cluster, 2.try_into().unwrap());
    let stored = fleet.stored(of_two);
    assert_eq!(stored[&cluster], (sent, sent));
    // The verdicts of the agents are also stored and counted.
    assert!(fleet.misrouted_points(of_two) >= sent);
    let warned = format!("cluster {cluster} belongs to shard 2 at {}", url(2));
    let log = fleet.log(of_two as usize);
    assert_eq!(log.matches(&warned).count(), 1, "{log}");
    let input = json!({ "cluster": cluster, "window": "all" });
    let (status, answer) = fleet.query(of_two, "get_cost", &input);
    assert_eq!(status, 200, "{answer}");
    let note = answer["data_quality"]["note"].as_str().unwrap();
    assert!(note.contains(&warned), "{note}");
}
