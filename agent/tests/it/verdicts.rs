//! Self-verdicts, from the recording to the log record at a collector.

use std::collections::{BTreeMap, BTreeSet};

use fleet_agent::replay::summary::Summary;
use fleet_agent_core::verdict::{Mode, Tally};
use fleet_proto::policy::{CohortPolicy, PolicySet};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use crate::collect::{recording, run};
use crate::collector::{Collector, Logs, deliver};

/// Blocks short enough for twenty of them per rank before the fault begins.
const SHORT: [&str; 3] = ["--node-per-rank", "--block-ops", "16"];

fn map(attributes: &[KeyValue]) -> BTreeMap<&str, Any> {
    let value = |pair: &KeyValue| pair.value.clone().and_then(|value| value.value);
    let pairs = attributes.iter();
    pairs
        .map(|pair| (pair.key.as_str(), value(pair).unwrap()))
        .collect()
}

fn string(value: &str) -> Any {
    Any::StringValue(value.to_owned())
}

/// Returns every record with its rank, in order of time.
fn records(collector: &Collector) -> Vec<(i64, LogRecord)> {
    let mut records = Vec::new();
    let stored = collector.stored_logs.lock().unwrap().clone();
    for ExportLogsServiceRequest { resource_logs } in stored.values() {
        for own in resource_logs {
            let resource = own.resource.as_ref().unwrap();
            let resource = map(&resource.attributes);
            let Any::IntValue(rank) = resource["fleet.rank"] else {
                panic!()
            };
            assert_eq!(resource["fleet.cluster.id"], string("lab"));
            assert!(
                resource.contains_key("fleet.node.id") && resource.contains_key("fleet.job.id")
            );
            let scopes = own.scope_logs.iter();
            records.extend(
                scopes
                    .flat_map(|scope| scope.log_records.iter().cloned())
                    .map(|record| (rank, record)),
            );
        }
    }
    records.sort_by_key(|(_, record)| record.time_unix_nano);
    records
}

fn number(record: &LogRecord, key: &str) -> f64 {
    match map(&record.attributes).get(key) {
        Some(Any::DoubleValue(value)) => *value,
        other => panic!("{key}: {other:?}"),
    }
}

/// Returns the policy that a collector would send for the recorded cohort, with the given quorum.
fn policy(name: &str, quorum_met: bool) -> PolicySet {
    let replayed = run(&recording(name), &[]);
    let mut with_role = replayed.sent.iter().rev();
    let last = with_role
        .find(|sent| sent.point.block.role.is_some())
        .unwrap();
    let job = last.resource.job.clone().unwrap();
    let role = last.point.block.role.unwrap();
    let computed_unix_nano = last.point.time_ns;
    PolicySet {
        version: 5,
        computed_unix_nano,
        cohorts: vec![CohortPolicy {
            cohort: format!("{job}/{role}"),
            signal: "host_gap".to_owned(),
            center_ms: 4.5,
            sigma_ms: 0.2,
            effect_gate: 0.05,
            critical_z: 3.5,
            period_ms: 45.8,
            quorum_met,
            valid_until_unix_nano: computed_unix_nano + 60_000_000_000,
            ..CohortPolicy::default()
        }],
        ..PolicySet::default()
    }
}

fn raised_in(summary: &Summary, mode: Mode) -> u64 {
    let tally = summary.self_verdicts.get(&mode);
    tally.map_or(0, |tally| tally.raised)
}

/// A raised verdict by a policy has exactly the attributes of the contract.
fn assert_describes_itself(raised: &LogRecord) {
    let attributes = map(&raised.attributes);
    for (key, value) in [
        ("fleet.straggler.state", string("raised")),
        ("fleet.straggler.mode", string("fleet")),
        ("fleet.signal", string("host_gap")),
        ("fleet.policy_version", Any::IntValue(5)),
    ] {
        assert_eq!(attributes[key], value);
    }
    let expected = BTreeSet::from([
        "fleet.effect_ratio",
        "fleet.lag_ms",
        "fleet.policy_version",
        "fleet.role",
        "fleet.signal",
        "fleet.straggler.mode",
        "fleet.straggler.state",
        "fleet.z",
        "nccl.comm_id_hash",
        "nccl.seq_first",
        "nccl.seq_last",
    ]);
    assert_eq!(attributes.into_keys().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn a_straggler_reports_itself_by_the_policy_of_its_cohort() {
    let collector = Collector {
        policy: Some(policy("host-sleep-rank2", true)),
        ..Collector::default()
    };
    let extra = [
        "--node-per-rank",
        "--clock-skew",
        "10s",
        "--block-target",
        "200ms",
        "--speed",
        "5",
    ];
    let (collector, summary, result) = deliver(collector, "host-sleep-rank2", &extra);
    assert!(result.is_ok(), "{result:?}");
    let records = records(&collector);
    let [(2, raised), (2, cleared)] = &records[..] else {
        panic!("{records:?}")
    };
    assert_eq!(
        (raised.event_name.as_str(), raised.severity_text.as_str()),
        ("fleet.straggler", "WARN")
    );
    assert_eq!(
        (cleared.event_name.as_str(), cleared.severity_text.as_str()),
        ("fleet.straggler", "INFO")
    );
    assert_describes_itself(raised);
    // 8 ms of sleep in iterations of 45.8 ms.
    assert!(
        (5.0..10.0).contains(&number(raised, "fleet.lag_ms")),
        "{raised:?}"
    );
    assert!((0.1..0.22).contains(&number(raised, "fleet.effect_ratio")));
    assert!(number(raised, "fleet.z") > 20.0);
    assert_eq!(
        map(&cleared.attributes)["fleet.straggler.state"],
        string("cleared")
    );
    assert_eq!(summary.delivery.verdicts.sent, 2);
    assert_eq!(raised_in(&summary, Mode::Fleet), 1);
}

#[test]
fn without_a_policy_a_rank_judges_itself_by_its_history() {
    for (name, culprit) in [("host-sleep-rank2", 2), ("mesh-host-sleep-rank3", 3)] {
        let (collector, summary, _) = deliver(Collector::default(), name, &SHORT);
        let records = records(&collector);
        let ranks: BTreeSet<i64> = records.iter().map(|(rank, _)| *rank).collect();
        assert_eq!(ranks, BTreeSet::from([culprit]), "{name}: {records:?}");
        let (_, raised) = &records[0];
        let attributes = map(&raised.attributes);
        assert_eq!(attributes["fleet.straggler.mode"], string("local"));
        assert!(!attributes.contains_key("fleet.policy_version"));
        let Any::IntValue(seq_first) = attributes["nccl.seq_first"] else {
            panic!()
        };
        assert!((500..600).contains(&seq_first), "{name}: {seq_first}");
        assert_eq!(raised_in(&summary, Mode::Local), 1, "{name}");
    }
}

#[test]
fn ranks_of_a_healthy_job_raise_no_verdict() {
    for name in ["healthy", "gpu-extra-rank1", "nosync-host-sleep-rank0"] {
        let (collector, summary, _) = deliver(Collector::default(), name, &SHORT);
        assert!(records(&collector).is_empty(), "{name}");
        assert!(
            summary
                .self_verdicts
                .values()
                .all(|tally| tally.raised == 0),
            "{name}"
        );
    }
}

#[test]
fn verdicts_are_retried_under_the_same_number() {
    let collector = Collector {
        logs: Logs::RefusesAtFirst,
        ..Collector::default()
    };
    let (collector, summary, result) = deliver(collector, "host-sleep-rank2", &SHORT);
    assert!(result.is_ok(), "{result:?}");
    let n_records = records(&collector).len() as u64;
    assert!(n_records >= 2);
    let verdicts = summary.delivery.verdicts;
    assert_eq!((verdicts.sent, verdicts.dropped), (n_records, 0));
    let attempts = collector.log_attempts.lock().unwrap().clone();
    assert!(
        attempts.chunks(2).all(|pair| pair[0] == pair[1]),
        "{attempts:?}"
    );
    // Points and verdicts share one sequence, so no two batches of an agent have the same number.
    let points = collector.stored.lock().unwrap().clone();
    assert!(attempts.iter().all(|key| !points.contains_key(key)));
}

#[test]
fn a_collector_that_does_not_accept_verdicts_still_gets_all_points() {
    let (_, plain, _) = deliver(Collector::default(), "host-sleep-rank2", &SHORT);
    for logs in [Logs::Unknown, Logs::RefusesAlways] {
        let collector = Collector {
            logs,
            ..Collector::default()
        };
        let extra = [&SHORT[..], &["--give-up-after", "0s"]].concat();
        let (collector, summary, result) = deliver(collector, "host-sleep-rank2", &extra);
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(summary.delivery.points_sent, plain.delivery.points_sent);
        assert_eq!(summary.delivery.points_dropped, 0);
        assert_eq!(
            summary.delivery.verdicts.dropped,
            plain.delivery.verdicts.sent
        );
        assert!(records(&collector).is_empty());
    }
}

#[test]
fn without_a_quorum_a_rank_does_not_use_the_policy() {
    let collector = Collector {
        policy: Some(policy("healthy", false)),
        ..Collector::default()
    };
    let extra = ["--only-rank", "0", "--speed", "8"];
    let (_, summary, _) = deliver(collector, "healthy", &extra);
    let modes: Vec<(&Mode, &Tally)> = summary.self_verdicts.iter().collect();
    assert!(
        modes.iter().all(|(mode, _)| **mode == Mode::None),
        "{modes:?}"
    );
    let json = summary.to_json(None);
    let blocks = json["self_verdicts"]["none"]["blocks"].as_u64();
    assert!(blocks.is_some_and(|blocks| blocks > 3), "{json}");
}
