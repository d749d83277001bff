//! Tests of the senders, against servers that answer in any way, and a program in place of
//! `scontrol`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::sender;
use super::slurm::Node;
use super::webhook::signature;
use crate::consumer::DeliveryError;
use crate::notice::Phase;
use crate::policy::{Alertmanager, Destination, Kubernetes, Slurm, Webhook};
use crate::sample::{at, notice, open_action};
use crate::stand_in::{Reply, Server};
use crate::state::Delivery;

mod messages;

fn delivery(phase: Phase) -> Delivery {
    open_action("test", &notice("node-1", 1)).next_delivery(phase, at(0))
}

fn deliver(destination: &Destination, delivery: &Delivery) -> Result<String, DeliveryError> {
    sender(destination).deliver(delivery, at(5))
}

fn webhook(server: &Server, folder: &TempDir) -> Destination {
    let secret_file = folder.path().join("key");
    std::fs::write(&secret_file, "s3cret\n").unwrap();
    Destination::Webhook(Webhook {
        url: format!("{}/hook", server.url),
        secret_file,
        ca_file: None,
    })
}

fn kubernetes(server: &Server, folder: &TempDir, taint: bool) -> Destination {
    let token_file = folder.path().join("token");
    std::fs::write(&token_file, "tok\n").unwrap();
    Destination::Kubernetes(Kubernetes {
        server: server.url.clone(),
        token_file,
        ca_file: folder.path().join("ca.crt"),
        events: true,
        taint,
    })
}

/// A node as the API server returns it.
fn node(condition: &str, taints: &Value) -> Reply {
    let node = json!({
        "metadata": { "name": "node-1", "uid": "u-1", "resourceVersion": "42" },
        "spec": { "taints": taints },
        "status": { "conditions": [{ "type": "GpuStraggler", "status": condition }] },
    });
    Reply::Status(200, node.to_string())
}

#[test]
fn a_webhook_is_signed_over_timestamp_and_body() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[Reply::ok()]);
    let raised = delivery(Phase::Raised);
    deliver(&webhook(&server, &folder), &raised).unwrap();
    let received = server.received().remove(0);
    assert_eq!(received.line, "POST /hook");
    assert_eq!(received.header("idempotency-key"), raised.key);
    let timestamp = received.header("echo-timestamp");
    assert_eq!(timestamp, "1790000005");
    let expected = signature("s3cret", timestamp, &received.body);
    assert_eq!(received.header("echo-signature"), expected);
    let body = received.json();
    assert_eq!(body["event"], "raised");
    assert_eq!(body["incident"]["node"], "node-1");
    assert_eq!(body["incident"]["advice"][0], "pin its CPUs");
}

#[test]
fn the_signature_is_the_hmac_of_rfc_2104() {
    // printf '1.{}' | openssl dgst -sha256 -hmac key
    let expected = "v1=1ba6b8171186efc613e8bcc0cbdab2748f24984d7c5a84faa2637afa0e40d224";
    assert_eq!(signature("key", "1", "{}"), expected);
}

#[test]
fn answers_decide_whether_another_attempt_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for (reply, is_permanent) in [
        (Reply::Status(400, "no".to_owned()), true),
        (Reply::Status(404, String::new()), true),
        (Reply::Status(302, String::new()), true),
        (Reply::Status(401, String::new()), false),
        (Reply::Status(429, String::new()), false),
        (Reply::Status(500, String::new()), false),
        (Reply::Status(503, String::new()), false),
        (Reply::Close, false),
        (Reply::Garbage, false),
    ] {
        let server = Server::start(std::slice::from_ref(&reply));
        let result = deliver(&webhook(&server, &folder), &delivery(Phase::Raised));
        assert_eq!(result.unwrap_err().is_permanent, is_permanent, "{reply:?}");
    }
}

#[test]
fn a_missing_secret_is_not_final() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[Reply::ok()]);
    let destination = webhook(&server, &folder);
    std::fs::write(folder.path().join("key"), " \n").unwrap();
    let error = deliver(&destination, &delivery(Phase::Raised)).unwrap_err();
    assert!(!error.is_permanent && server.received().is_empty());
}

#[test]
fn an_alert_lives_five_minutes_and_ends_at_once_when_cleared() {
    let server = Server::start(&[Reply::ok()]);
    let destination = Destination::Alertmanager(Alertmanager {
        url: format!("{}/", server.url),
        page_url: Some("https://echo.example".to_owned()),
        token_file: None,
        ca_file: None,
    });
    let mut changed = delivery(Phase::Changed);
    let mut previous = changed.notice.clone();
    "critical".clone_into(&mut previous.severity);
    changed.previous = Some(previous);
    for one in [
        &delivery(Phase::Raised),
        &changed,
        &delivery(Phase::Cleared),
    ] {
        deliver(&destination, one).unwrap();
    }
    let received = server.received();
    assert_eq!(received[0].line, "POST /api/v2/alerts");
    let alert = &received[0].json()[0];
    let page = "https://echo.example/clusters/lab/incidents/0000000000000001";
    assert_eq!(alert["generatorURL"], page);
    let runbook = "https://echo.example/runbook#host";
    assert_eq!(alert["annotations"]["runbook_url"], runbook);
    let ends: Vec<String> = received
        .iter()
        .flat_map(|one| one.json().as_array().unwrap().clone())
        .map(|alert| alert["endsAt"].as_str().unwrap().to_owned())
        .collect();
    let (now, later) = ("2026-09-21T14:13:25Z", "2026-09-21T14:18:25Z");
    // Of a change, the old alert ends in the same request.
    assert_eq!(ends, [later, later, now, now]);
}

#[test]
fn kubernetes_gets_a_condition_and_an_event_and_without_the_flag_no_taint() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[node("True", &json!([]))]);
    let raised = delivery(Phase::Raised);
    deliver(&kubernetes(&server, &folder, false), &raised).unwrap();
    let received = server.received();
    let lines: Vec<&str> = received.iter().map(|one| one.line.as_str()).collect();
    let events = "POST /apis/events.k8s.io/v1/namespaces/default/events";
    assert_eq!(lines, ["PATCH /api/v1/nodes/node-1/status", events]);
    assert_eq!(received[0].header("authorization"), "Bearer tok");
    let merge = "application/strategic-merge-patch+json";
    assert_eq!(received[0].header("content-type"), merge);
    let condition = received[0].json()["status"]["conditions"][0].clone();
    assert_eq!(condition["lastTransitionTime"], "2026-09-21T14:13:25Z");
    assert_eq!(condition["reason"], "StragglerOpen");
    let event = received[1].json();
    assert_eq!(event["eventTime"], "2026-09-21T14:13:25.000000Z");
    assert_eq!(event["regarding"]["uid"], "u-1");
    assert_eq!(
        event["metadata"]["name"],
        format!("fleet-echo.{}", raised.key)
    );
}

#[test]
fn a_refresh_of_the_condition_is_neither_a_transition_nor_an_event() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[node("True", &json!([]))]);
    let destination = kubernetes(&server, &folder, true);
    deliver(&destination, &delivery(Phase::Refreshed)).unwrap();
    let received = server.received();
    assert_eq!(received.len(), 1);
    let condition = received[0].json()["status"]["conditions"][0].clone();
    assert_eq!(condition["lastTransitionTime"], Value::Null);
}

#[test]
fn the_taint_is_added_to_the_others_and_only_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let other = json!({ "key": "x", "effect": "NoExecute" });
    let own = json!({ "key": "fleet-echo/gpu-straggler", "effect": "PreferNoSchedule" });
    for (phase, status, before, n_after) in [
        (Phase::Raised, "True", json!([other]), 2),
        (Phase::Cleared, "False", json!([other, own]), 1),
    ] {
        let server = Server::start(&[node(status, &before)]);
        deliver(&kubernetes(&server, &folder, true), &delivery(phase)).unwrap();
        let patch = server.received()[2].json();
        assert_eq!(patch["metadata"]["resourceVersion"], "42");
        let taints = patch["spec"]["taints"].as_array().unwrap();
        assert_eq!(taints.len(), n_after);
        assert_eq!(taints[0], other);
    }
}

#[test]
fn an_answer_without_the_condition_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    for reply in [
        node("False", &json!([])),
        Reply::ok(),
        Reply::Status(200, "ok".to_owned()),
    ] {
        let server = Server::start(&[reply]);
        let destination = kubernetes(&server, &folder, false);
        let error = deliver(&destination, &delivery(Phase::Raised)).unwrap_err();
        assert!(!error.is_permanent, "{error}");
        assert_eq!(server.received().len(), 1);
    }
}

#[test]
fn an_event_that_exists_already_is_a_success() {
    let folder = tempfile::tempdir().unwrap();
    let exists = Reply::Status(409, String::new());
    let server = Server::start(&[node("True", &json!([])), exists]);
    deliver(
        &kubernetes(&server, &folder, false),
        &delivery(Phase::Raised),
    )
    .unwrap();
}

/// A program in place of `scontrol` that keeps the state of one node in files.
fn scontrol(folder: &Path, update: &str) -> Destination {
    let program = folder.join("scontrol");
    let text = format!(
        "#!/bin/sh\ncd {}\nif [ \"$1\" = show ]; then\n  [ \"$3\" = node-1 ] || {{ echo \"Node $3 not found\"; exit 1; }}\n  \
         echo \"NodeName=node-1 Arch=x86_64 State=$(cat state) Cores=1 Reason=$(cat reason) [root@2026-11-24T00:00:00]\"\n\
         else\n  echo \"$@\" >> updates\n  {update}\nfi\n",
        folder.display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    set(folder, "IDLE", "");
    Destination::Slurm(Slurm { scontrol: program })
}

const FOLLOWS: &str = "case \"$3\" in State=DRAIN) echo IDLE+DRAIN > state; echo \"${4#Reason=}\" > reason;; \
                       *) echo IDLE > state; : > reason;; esac";

fn set(folder: &Path, state: &str, reason: &str) {
    std::fs::write(folder.join("state"), state).unwrap();
    std::fs::write(folder.join("reason"), reason).unwrap();
}

fn updates(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("updates")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn slurm_drains_a_node_once_and_resumes_it() {
    let folder = tempfile::tempdir().unwrap();
    let destination = scontrol(folder.path(), FOLLOWS);
    let raised = delivery(Phase::Raised);
    assert_eq!(deliver(&destination, &raised).unwrap(), "drained");
    assert_eq!(deliver(&destination, &raised).unwrap(), "drained already");
    assert_eq!(
        deliver(&destination, &delivery(Phase::Cleared)).unwrap(),
        "resumed"
    );
    let reason =
        "Reason=[node_problem] straggler: rank 17, 26.8 ms late, incident 0000000000000001";
    let expected = [
        format!("update NodeName=node-1 State=DRAIN {reason}"),
        "update NodeName=node-1 State=UNDRAIN".to_owned(),
    ];
    assert_eq!(updates(folder.path()), expected);
}

#[test]
fn slurm_leaves_nodes_alone_that_others_have_drained() {
    let folder = tempfile::tempdir().unwrap();
    let destination = scontrol(folder.path(), FOLLOWS);
    for state in ["IDLE+DRAIN", "DOWN*+DRAIN", "DRAINED"] {
        set(folder.path(), state, "[maintenance] of rack 7");
        for phase in [Phase::Raised, Phase::Cleared] {
            let details = deliver(&destination, &delivery(phase)).unwrap();
            assert!(details.contains("maintenance"), "{details}");
        }
    }
    assert!(updates(folder.path()).is_empty());
}

#[test]
fn an_exit_code_of_zero_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let destination = scontrol(folder.path(), "true");
    let error = deliver(&destination, &delivery(Phase::Raised)).unwrap_err();
    assert!(
        !error.is_permanent && error.message.contains("IDLE"),
        "{error}"
    );
}

#[test]
fn an_unknown_node_is_final_and_a_missing_program_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let destination = scontrol(folder.path(), FOLLOWS);
    let mut other = delivery(Phase::Raised);
    "node-2".clone_into(&mut other.notice.node);
    assert!(deliver(&destination, &other).unwrap_err().is_permanent);
    let missing = Destination::Slurm(Slurm {
        scontrol: folder.path().join("none"),
    });
    let error = deliver(&missing, &delivery(Phase::Raised)).unwrap_err();
    assert!(!error.is_permanent, "{error}");
}

#[test]
fn the_state_of_a_node_is_read_from_its_line() {
    let line = "NodeName=n1 Arch=x86_64 State=IDLE*+DRAIN Reason=[node_problem] straggler: rank 1 [root@2026-11-24T10:00:00]";
    assert!(Node::parse(line, "n1").is_some());
    assert_eq!(Node::parse(line, "n"), None);
}
