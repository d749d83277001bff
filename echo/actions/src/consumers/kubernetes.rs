//! Kubernetes: a condition of the node, an event for each change, and a taint if asked for.
//!
//! The condition is patched by strategic merge, which keeps the others. Taints are a list that is
//! replaced as a whole, so the node is read first and the patch names the version that was read:
//! the API server refuses it if the node has changed since.

use echo_core::units::Nanos;
use serde_json::{Value, json};

use super::http::{self, Answer};
use super::time::{microseconds, seconds};
use crate::consumer::{Consumer, DeliveryError};
use crate::notice::Phase;
use crate::policy::Kubernetes;
use crate::state::Delivery;

/// Type of the condition.
const CONDITION: &str = "GpuStraggler";

/// Key of the taint.
const TAINT: &str = "fleet-echo/gpu-straggler";

/// Component that reports.
const COMPONENT: &str = "fleet-echo";

/// Longest note of an event, in characters; the API server refuses 1 KiB.
const MAX_NOTE: usize = 900;

const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

/// Sender to the API server of Kubernetes.
#[derive(Debug)]
pub(super) struct KubernetesSender(Kubernetes);

impl KubernetesSender {
    pub(super) const fn new(kubernetes: Kubernetes) -> Self {
        Self(kubernetes)
    }

    fn call(
        &self,
        (method, path): (&str, &str),
        content_type: &str,
        body: &Value,
    ) -> Result<Answer, DeliveryError> {
        let token = http::secret(&self.0.token_file)?;
        let authorization = format!("Bearer {token}");
        let url = format!("{}{path}", self.0.server.trim_end_matches('/'));
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", content_type),
        ];
        let body = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let request = http::request((method, &url), &headers, body)?;
        http::send(request, Some(&self.0.ca_file))
    }

    /// Sets the condition. Returns the node.
    fn set_condition(&self, delivery: &Delivery, now: Nanos) -> Result<Value, DeliveryError> {
        let path = format!("{}/status", node_path(delivery));
        let patch = json!({ "status": { "conditions": [condition(delivery, now)] } });
        let node = json_of(self.call(("PATCH", &path), STRATEGIC_MERGE, &patch)?)?;
        let wanted = status(delivery.phase);
        let has_it = list(&node, "/status/conditions")
            .any(|one| is(one, "type", CONDITION) && is(one, "status", wanted));
        if !has_it {
            let message = format!("the answer does not show the condition {CONDITION}={wanted}");
            return Err(DeliveryError::transient(message));
        }
        Ok(node)
    }

    /// Adds or removes the taint. Returns whether it was necessary.
    fn set_taint(&self, delivery: &Delivery) -> Result<bool, DeliveryError> {
        let path = node_path(delivery);
        let node = json_of(self.call(("GET", &path), "application/json", &Value::Null)?)?;
        let Some(patch) = taint_patch(&node, delivery.phase != Phase::Cleared) else {
            return Ok(false);
        };
        self.call(("PATCH", &path), STRATEGIC_MERGE, &patch)?
            .check()?;
        Ok(true)
    }

    /// Creates an event. Its name comes from the key, so that a second attempt finds it.
    fn create_event(
        &self,
        delivery: &Delivery,
        node: &Value,
        now: Nanos,
    ) -> Result<(), DeliveryError> {
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        let event = event(delivery, node, now);
        let answer = self.call(("POST", path), "application/json", &event)?;
        if answer.status == 409 {
            return Ok(());
        }
        answer.check().map(drop)
    }
}

impl Consumer for KubernetesSender {
    fn describe(&self, delivery: &Delivery) -> String {
        let taint = if self.0.taint { ", and the taint" } else { "" };
        format!(
            "PATCH {}{}/status {CONDITION}={}{taint}",
            self.0.server,
            node_path(delivery),
            status(delivery.phase)
        )
    }

    fn deliver(&self, delivery: &Delivery, now: Nanos) -> Result<String, DeliveryError> {
        let node = self.set_condition(delivery, now)?;
        let is_refresh = delivery.phase == Phase::Refreshed;
        // Also removes a taint of the time before the flag was removed.
        let is_cleared = delivery.phase == Phase::Cleared && has_taint(&node);
        if (self.0.taint && !is_refresh) || is_cleared {
            self.set_taint(delivery)?;
        }
        if self.0.events && !is_refresh {
            self.create_event(delivery, &node, now)?;
        }
        Ok(format!("{CONDITION}={}", status(delivery.phase)))
    }
}

fn json_of(answer: Answer) -> Result<Value, DeliveryError> {
    let answer = answer.check()?;
    serde_json::from_slice(&answer.body)
        .map_err(|error| DeliveryError::transient(format!("the answer is no JSON: {error}")))
}

/// Path of the node, whose name the planner has checked.
fn node_path(delivery: &Delivery) -> String {
    format!("/api/v1/nodes/{}", delivery.notice.node)
}

const fn status(phase: Phase) -> &'static str {
    match phase {
        Phase::Raised | Phase::Changed | Phase::Refreshed => "True",
        Phase::Cleared => "False",
    }
}

fn condition(delivery: &Delivery, now: Nanos) -> Value {
    let now = seconds(now);
    let mut condition = json!({
        "type": CONDITION,
        "status": status(delivery.phase),
        "reason": reason(delivery.phase),
        "message": message(delivery),
        "lastHeartbeatTime": now,
    });
    // The API server keeps the time of the last transition where it is absent.
    let is_transition = matches!(delivery.phase, Phase::Raised | Phase::Cleared);
    if let Some(fields) = condition.as_object_mut().filter(|_| is_transition) {
        fields.insert("lastTransitionTime".to_owned(), json!(now));
    }
    condition
}

const fn reason(phase: Phase) -> &'static str {
    match phase {
        Phase::Raised | Phase::Changed | Phase::Refreshed => "StragglerOpen",
        Phase::Cleared => "StragglerCleared",
    }
}

fn message(delivery: &Delivery) -> String {
    let notice = &delivery.notice;
    let text = match delivery.phase {
        Phase::Cleared => format!("cleared: {}", notice.summary()),
        _ => format!("{}: {}", notice.summary(), notice.reason),
    };
    text.chars().take(MAX_NOTE).collect()
}

fn event(delivery: &Delivery, node: &Value, now: Nanos) -> Value {
    let kind = match delivery.phase {
        Phase::Cleared => "Normal",
        _ => "Warning",
    };
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "name": format!("fleet-echo.{}", delivery.key), "namespace": "default" },
        "eventTime": microseconds(now),
        "reportingController": COMPONENT,
        "reportingInstance": COMPONENT,
        "action": "Report",
        "reason": reason(delivery.phase),
        "type": kind,
        "note": message(delivery),
        "regarding": {
            "apiVersion": "v1",
            "kind": "Node",
            "name": delivery.notice.node,
            "uid": node.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default(),
        },
    })
}

fn has_taint(node: &Value) -> bool {
    list(node, "/spec/taints").any(|taint| is(taint, "key", TAINT))
}

/// Entries of a list of an object; none if it is absent.
fn list<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> {
    let found = object.pointer(path).and_then(Value::as_array);
    found.into_iter().flatten()
}

fn is(entry: &Value, field: &str, wanted: &str) -> bool {
    entry.get(field).and_then(Value::as_str) == Some(wanted)
}

/// Patch that gives the node the taint, or takes it; `None` if nothing has to change.
fn taint_patch(node: &Value, is_wanted: bool) -> Option<Value> {
    if has_taint(node) == is_wanted {
        return None;
    }
    let others = list(node, "/spec/taints").filter(|taint| !is(taint, "key", TAINT));
    let mut taints: Vec<Value> = others.cloned().collect();
    if is_wanted {
        taints.push(json!({ "key": TAINT, "value": "true", "effect": "PreferNoSchedule" }));
    }
    Some(json!({
        "metadata": { "resourceVersion": node.pointer("/metadata/resourceVersion") },
        "spec": { "taints": taints },
    }))
}
