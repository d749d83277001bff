//! Several Echos, each alone on its address, share the clusters: nothing gets lost or mixed up, and each knows where the
//! clusters of the others are. It takes root and `ip`; elsewhere the tests say that they are left out.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Child, Output};

use serde_json::{Value, json};

use self::fleet::{Fleet, SHARDS, URL, clusters_of};
use crate::testbed::{summary, wait_for};

mod fleet;
mod network;

/// The shard that is killed.
const KILLED: u32 = 1;

/// Where a shard answers.
fn url(shard: u32) -> String {
    URL.replace("{shard}", &shard.to_string())
}

/// Everything that a program said.
fn said(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr];
    parts.map(|part| String::from_utf8_lossy(part)).concat()
}

/// Two clusters of the shard that is killed, and one of each other, with the shard of each.
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
fn each_cluster_is_in_its_own_shard_which_loses_nothing_when_it_is_killed_and_the_others_name_it() {
    let Some(mut fleet) = Fleet::start() else {
        return;
    };
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
        assert_eq!(fleet.strays(shard), 0);
        fleet.caught_up(shard);
    }
    for (cluster, (copies, _)) in before {
        assert!(sent[&cluster] > copies, "it was not killed in the middle");
    }
    over_http(&fleet, &clusters);
    over_mcp(&fleet);
    in_the_shell(&fleet);
}

/// Each shard answers for its clusters, and names the shard of the others.
fn over_http(fleet: &Fleet, clusters: &BTreeMap<String, u32>) {
    for shard in 0..SHARDS {
        for (cluster, home) in clusters {
            let input = json!({ "cluster": cluster, "window": "all" });
            let (status, answer) = fleet.ask(shard, "find_outlier_nodes", &input);
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
        let (_, answer) = fleet.ask(shard, "get_cost", &json!({ "window": "all" }));
        let note = answer["data_quality"]["note"].as_str().unwrap();
        assert!(
            note.contains(&format!("this is shard {shard} of 3")),
            "{note}"
        );
        let others = (0..SHARDS).filter(|other| *other != shard);
        assert!(others.map(url).all(|url| note.contains(&url)), "{note}");
        let (_, analysis) = fleet.ask(shard, "run_analysis", &json!({ "sql": "SELECT 1" }));
        assert_eq!(analysis["note"], note);
    }
}

/// The same through the proxy for models.
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

/// The shell finds the shard by itself, or is told which it is.
fn in_the_shell(fleet: &Fleet) {
    let cluster = clusters_of(2, 1).remove(0);
    let all = ["--server", URL, "--shards", "3"];
    let one = ["--cluster", &cluster, "--window", "all"];
    let found = fleet.shell(&[["outliers"].as_slice(), &all, &one].concat());
    assert!(found.status.success(), "{}", said(&found));
    assert!(said(&found).contains("node-2"), "{}", said(&found));
    let first = url(0);
    let elsewhere = fleet.shell(&[["cost", "--server", &first].as_slice(), &one].concat());
    assert_eq!(elsewhere.status.code(), Some(64));
    let there = format!("shard 2 at {}", url(2));
    assert!(said(&elsewhere).contains(&there), "{}", said(&elsewhere));
    for open in [
        ["cost"].as_slice(),
        &["sql", "SELECT 1"],
        &["sql", "--views"],
    ] {
        let open = fleet.shell(&[open, &all].concat());
        assert_eq!(open.status.code(), Some(64));
        assert!(
            said(&open).contains("replace {shard} by a shard number"),
            "{}",
            said(&open)
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
        said(&report).contains("note: this is shard 0 of 3"),
        "{}",
        said(&report)
    );
    let gate = ["assert", "outliers", "--max", "1", "--allow-missing"];
    let passed = fleet.shell(&[gate.as_slice(), &all, &one].concat());
    assert_ne!(passed.status.code(), Some(2), "{}", said(&passed));
    let at_the_wrong_one = fleet.shell(&[gate.as_slice(), &["--server", &first], &one].concat());
    assert_eq!(
        at_the_wrong_one.status.code(),
        Some(2),
        "{}",
        said(&at_the_wrong_one)
    );
}

#[test]
fn what_agents_with_another_number_of_shards_send_is_stored_counted_and_warned_of_once() {
    let Some(fleet) = Fleet::start() else {
        return;
    };
    // Of two shards none is the third.
    let cluster = clusters_of(2, 1).remove(0);
    let agent = fleet.report(&cluster, 2);
    let summary = summary(&agent.wait_with_output().unwrap());
    let sent = summary["points_sent"].as_u64().unwrap();
    let of_two = fleet_proto::shard::for_cluster(&cluster, 2.try_into().unwrap());
    let stored = fleet.stored(of_two);
    assert_eq!(stored[&cluster], (sent, sent));
    // The agents' own verdicts are stored and counted, too.
    assert!(fleet.strays(of_two) >= sent);
    let warned = format!("cluster {cluster} belongs to shard 2 at {}", url(2));
    let log = fleet.log(of_two as usize);
    assert_eq!(log.matches(&warned).count(), 1, "{log}");
    let input = json!({ "cluster": cluster, "window": "all" });
    let (status, answer) = fleet.ask(of_two, "get_cost", &input);
    assert_eq!(status, 200, "{answer}");
    let note = answer["data_quality"]["note"].as_str().unwrap();
    assert!(note.contains(&warned), "{note}");
}
