//! Messages for people: Slack and PagerDuty.

use serde_json::{Value, json};

use super::super::sender;
use super::{deliver, delivery};
use crate::notice::Phase;
use crate::policy::{Destination, PagerDuty, Slack};
use crate::stand_in::{Received, Reply, Server};

#[test]
fn slack_gets_a_message_with_the_reason_the_advice_and_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[Reply::ok()]);
    let url_file = folder.path().join("url");
    std::fs::write(&url_file, format!("{}/services/T0/B0/secret\n", server.url)).unwrap();
    let slack = Destination::Slack(Slack {
        url_file,
        page_url: Some("https://echo.example/".to_owned()),
        ca_file: None,
    });
    let mut raised = delivery(Phase::Raised);
    "<!channel> & more".clone_into(&mut raised.notice.reason);
    assert!(!sender(&slack).describe(&raised).contains("secret"));
    deliver(&slack, &raised).unwrap();
    deliver(&slack, &delivery(Phase::Cleared)).unwrap();
    let received = server.received();
    assert_eq!(received[0].line, "POST /services/T0/B0/secret");
    let texts: Vec<Value> = received
        .iter()
        .map(|one| one.json()["text"].clone())
        .collect();
    assert_eq!(
        texts[0],
        "*warn*: straggler: rank 17, 26.8 ms late, incident 0000000000000001 on node-1, cluster lab, job job-1\n\
         &lt;!channel&gt; &amp; more\n*Next*: pin its CPUs\n\
         <https://echo.example/clusters/lab/incidents/0000000000000001|Open the incident in Echo> \
         or the <https://echo.example/runbook#host|runbook>"
    );
    assert!(
        texts[1]
            .as_str()
            .unwrap()
            .starts_with("*cleared*: straggler")
    );
}

#[test]
fn the_address_of_a_channel_is_in_no_error_and_may_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let url_file = folder.path().join("url");
    let slack = Destination::Slack(Slack {
        url_file: url_file.clone(),
        page_url: None,
        ca_file: None,
    });
    let refusal = "Cannot POST /services/T0/secret".to_owned();
    let server = Server::start(&[Reply::Status(404, refusal)]);
    let of_server = format!("{}/services/T0/secret", server.url);
    for address in [
        "/services/T0/secret",
        "https://%/services/T0/secret",
        &of_server,
    ] {
        std::fs::write(&url_file, address).unwrap();
        let error = deliver(&slack, &delivery(Phase::Raised)).unwrap_err();
        assert!(!error.message.contains("secret"), "{}", error.message);
    }
    assert_eq!(server.received().len(), 1);
    let error = deliver(&slack, &delivery(Phase::Raised)).unwrap_err();
    assert!(!error.is_permanent, "{}", error.message);
}

#[test]
fn pagerduty_finds_an_alert_again_by_the_incident() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&[Reply::Status(202, String::new())]);
    let routing_key_file = folder.path().join("key");
    std::fs::write(&routing_key_file, "r0uting\n").unwrap();
    let pager = Destination::PagerDuty(PagerDuty {
        routing_key_file,
        url: format!("{}/v2/enqueue", server.url),
        page_url: Some("https://echo.example".to_owned()),
        ca_file: None,
    });
    assert!(
        !sender(&pager)
            .describe(&delivery(Phase::Raised))
            .contains("r0uting")
    );
    for phase in [Phase::Raised, Phase::Cleared] {
        deliver(&pager, &delivery(phase)).unwrap();
    }
    let events: Vec<Value> = server.received().iter().map(Received::json).collect();
    let actions: Vec<&Value> = events.iter().map(|event| &event["event_action"]).collect();
    assert_eq!(actions, ["trigger", "resolve"]);
    for event in &events {
        assert_eq!(event["dedup_key"], "0000000000000001");
        assert_eq!(event["routing_key"], "r0uting");
    }
    let payload = &events[0]["payload"];
    assert_eq!(
        (&payload["severity"], &payload["source"]),
        (&json!("warning"), &json!("node-1"))
    );
    assert_eq!(payload["custom_details"]["advice"][0], "pin its CPUs");
    let link = "https://echo.example/clusters/lab/incidents/0000000000000001";
    assert_eq!(events[0]["links"][0]["href"], link);
    let runbook = "https://echo.example/runbook#host";
    assert_eq!(events[0]["links"][1]["href"], runbook);
}
