//! PagerDuty: events of its API, version 2. The incident id is the key by which it finds the alert
//! again at its end.

use echo_core::units::Nanos;
use serde_json::{Value, json};

use super::http;
use crate::consumer::{Consumer, DeliveryError};
use crate::notice::Phase;
use crate::policy::PagerDuty;
use crate::state::Delivery;

/// Longest summary that the API takes, in characters.
const MAX_SUMMARY: usize = 1024;

/// Sender to a service.
#[derive(Debug)]
pub(super) struct PagerDutySender(PagerDuty);

impl PagerDutySender {
    pub(super) const fn new(pager: PagerDuty) -> Self {
        Self(pager)
    }

    fn event(&self, delivery: &Delivery, routing_key: &str) -> Value {
        let notice = &delivery.notice;
        let action = match delivery.phase {
            Phase::Cleared => "resolve",
            Phase::Raised | Phase::Changed | Phase::Refreshed => "trigger",
        };
        let severity = match notice.severity.as_str() {
            "warn" => "warning",
            other => other,
        };
        let summary = format!(
            "{} ({}): {}",
            notice.summary(),
            notice.cluster,
            notice.reason
        );
        let server = self.0.page_url.as_deref();
        let links = [
            (notice.page(server), "Open the incident in Echo"),
            (notice.runbook(server), "Runbook"),
        ];
        let links = links
            .into_iter()
            .filter_map(|(href, text)| Some((href?, text)));
        let links: Vec<Value> = links
            .map(|(href, text)| json!({ "href": href, "text": text }))
            .collect();
        json!({
            "routing_key": routing_key,
            "event_action": action,
            "dedup_key": notice.incident_id,
            "client": "Echo",
            "links": links,
            "payload": {
                "summary": summary.chars().take(MAX_SUMMARY).collect::<String>(),
                "source": notice.node,
                "severity": severity,
                "timestamp": notice.raised_at,
                "component": format!("rank {}", notice.rank),
                "group": notice.cluster,
                "class": notice.class,
                "custom_details": notice,
            },
        })
    }
}

impl Consumer for PagerDutySender {
    fn describe(&self, delivery: &Delivery) -> String {
        format!("POST {} {}", self.0.url, self.event(delivery, "..."))
    }

    fn deliver(&self, delivery: &Delivery, _now: Nanos) -> Result<String, DeliveryError> {
        let key = http::secret(&self.0.routing_key_file)?;
        let headers = [("content-type", "application/json")];
        let body = self.event(delivery, &key).to_string().into_bytes();
        let request = http::request(("POST", &self.0.url), &headers, body)?;
        let answer = http::send(request, self.0.ca_file.as_deref())?.check_credentials()?;
        Ok(format!("status {}", answer.status))
    }
}
