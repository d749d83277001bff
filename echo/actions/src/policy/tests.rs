//! Tests of the policy file.

use std::path::Path;
use std::time::Duration;

use echo_core::model::detector_output::Severity;

use super::{Destination, Mode, Policy};
use crate::notice::Blame;

fn mistakes(text: &str) -> String {
    let parsed = Policy::parse(text, Path::new("/etc/fleet-echo"));
    parsed.unwrap_err().mistakes.join("\n")
}

#[test]
fn without_further_keys_a_consumer_is_in_shadow_mode_and_limits_are_strict() {
    let text = "
consumers:
  nodes: { kubernetes: {} }
  pager: { mode: act, max_nodes: 20, webhook: { url: 'https://x/', secret_file: key } }
rules:
  - { consumers: [nodes] }
  - { consumers: [pager], clusters: ['prod-*'], classes: [device], min_severity: critical, open_for: 30s }
";
    let policy = Policy::parse(text, Path::new("/etc/fleet-echo")).unwrap();
    assert!(!policy.kill_switch);
    let nodes = &policy.consumers["nodes"];
    assert_eq!(nodes.mode, Mode::Shadow);
    assert_eq!(nodes.nodes.max_nodes, 1);
    assert!((4.9..5.1).contains(&nodes.nodes.max_percent));
    assert!((0.79..0.81).contains(&policy.limits.min_confidence));
    let Destination::Kubernetes(kubernetes) = &nodes.destination else {
        panic!("{nodes:?}");
    };
    assert!(kubernetes.events && !kubernetes.taint);
    let pager = &policy.consumers["pager"];
    assert_eq!((pager.mode, pager.nodes.max_nodes), (Mode::Act, 20));
    let Destination::Webhook(webhook) = &pager.destination else {
        panic!("{pager:?}");
    };
    assert_eq!(webhook.secret_file, Path::new("/etc/fleet-echo/key"));
    let [usual, own] = policy.rules.as_slice() else {
        panic!("{:?}", policy.rules);
    };
    assert_eq!(usual.classes, Blame::USUAL);
    assert_eq!(own.classes, [Blame::Device]);
    assert_eq!(usual.open_for, Duration::from_mins(5));
    assert_eq!(own.min_severity, Severity::Critical);
    assert_eq!(own.open_for, Duration::from_secs(30));
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_known_one() {
    for (text, known) in [
        ("kill_switch: true\nlimit: {}", "limits"),
        ("limits:\n  max_node: 3", "max_nodes"),
        ("consumers:\n  a: { modes: act }", "mode"),
        ("consumers:\n  a: { slurm: { scontroll: x } }", "scontrol"),
        ("rules:\n  - { consumer: [a] }", "consumers"),
    ] {
        let mistakes = mistakes(text);
        assert!(mistakes.contains("line 2"), "{mistakes}");
        let hint = format!("did you mean `{known}`?");
        assert!(mistakes.contains(&hint), "{mistakes}");
    }
}

#[test]
fn all_wrong_values_are_reported_together() {
    let text = "
limits: { max_percent: 101, min_coverage: 2, min_confidence: 0.1 }
consumers:
  Pager: { webhook: { url: 'ftp://x', secret_file: key } }
  both: { slurm: {}, kubernetes: {} }
  chat: { slack: { url_file: f, page_url: echo.example } }
rules:
  - { consumers: [undefined], classes: [network], min_severity: high, open_for: 3d }
  - { consumers: [] }
";
    let mistakes = mistakes(text);
    for wrong in [
        "limits.max_percent",
        "limits.min_coverage",
        "limits.min_confidence",
        "consumers.Pager: a name has",
        "consumers.Pager.webhook.url",
        "consumers.both: needs exactly one",
        "consumers.chat.slack.page_url",
        "rules[0].consumers: \"undefined\"",
        "rules[0].classes: \"network\"",
        "rules[0].min_severity",
        "rules[0].open_for",
        "rules[1].consumers: is empty",
    ] {
        assert!(mistakes.contains(wrong), "no {wrong} in {mistakes}");
    }
}

#[test]
fn classes_without_a_host_to_blame_cannot_be_selected() {
    let text = "consumers: { s: { slurm: {} } }\nrules: [{ consumers: [s], classes: [network] }]";
    assert!(mistakes(text).contains("no host to blame"));
}
