//! Alertmanager: alerts by POST to `/api/v2/alerts`.
//!
//! An alert ends by itself five minutes after the last report, so that a stopped Echo leaves none
//! behind. Labels are the identity of an alert: when one changes, the old alert is ended in the
//! same request.

use std::collections::BTreeMap;
use std::time::Duration;

use echo_core::units::Nanos;
use serde_json::{Value, json};

use super::http;
use super::time::seconds;
use crate::consumer::{Consumer, DeliveryError};
use crate::notice::{Notice, Phase};
use crate::policy::Alertmanager;
use crate::state::Delivery;

/// Time after which an alert that is not repeated ends.
const LIFETIME: Duration = Duration::from_mins(5);

/// Sender to Alertmanager.
#[derive(Debug)]
pub(super) struct AlertmanagerSender(Alertmanager);

impl AlertmanagerSender {
    pub(super) const fn new(alertmanager: Alertmanager) -> Self {
        Self(alertmanager)
    }

    fn url(&self) -> String {
        format!("{}/api/v2/alerts", self.0.url.trim_end_matches('/'))
    }

    fn alerts(&self, delivery: &Delivery, now: Nanos) -> Value {
        let ends_at = match delivery.phase {
            Phase::Cleared => now,
            Phase::Raised | Phase::Changed | Phase::Refreshed => now.after(LIFETIME),
        };
        let mut alerts = vec![self.alert(&delivery.notice, ends_at)];
        let is_other = |previous: &&Notice| labels(previous) != labels(&delivery.notice);
        if let Some(previous) = delivery.previous.as_ref().filter(is_other) {
            alerts.push(self.alert(previous, now));
        }
        Value::Array(alerts)
    }

    fn alert(&self, notice: &Notice, ends_at: Nanos) -> Value {
        let server = self.0.page_url.as_deref();
        let mut annotations = BTreeMap::from([
            ("summary", notice.summary()),
            ("description", notice.reason.clone()),
            ("advice", notice.advice.join("; ")),
            ("recurrence", notice.recurrence.clone().unwrap_or_default()),
        ]);
        annotations.extend(notice.runbook(server).map(|page| ("runbook_url", page)));
        let mut alert = BTreeMap::from([
            ("labels", labels(notice)),
            ("annotations", json!(annotations)),
            ("startsAt", json!(notice.raised_at)),
            ("endsAt", json!(seconds(ends_at))),
        ]);
        alert.extend(
            notice
                .page(server)
                .map(|page| ("generatorURL", json!(page))),
        );
        json!(alert)
    }
}

impl Consumer for AlertmanagerSender {
    fn describe(&self, delivery: &Delivery) -> String {
        let planned = Nanos::new(delivery.planned_at);
        format!("POST {} {}", self.url(), self.alerts(delivery, planned))
    }

    fn deliver(&self, delivery: &Delivery, now: Nanos) -> Result<String, DeliveryError> {
        let token = self.0.token_file.as_deref().map(http::secret).transpose()?;
        let authorization = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![
            ("content-type", "application/json"),
            ("idempotency-key", delivery.key.as_str()),
        ];
        if let Some(authorization) = &authorization {
            headers.push(("authorization", authorization));
        }
        let body = self.alerts(delivery, now).to_string().into_bytes();
        let request = http::request(("POST", &self.url()), &headers, body)?;
        let answer = http::send(request, self.0.ca_file.as_deref())?.check()?;
        Ok(format!("status {}", answer.status))
    }
}

fn labels(notice: &Notice) -> Value {
    json!({
        "alertname": "GpuStraggler",
        "cluster": notice.cluster,
        "node": notice.node,
        "rank": notice.rank.to_string(),
        "job": notice.job.clone().unwrap_or_default(),
        "gpu_uuid": notice.gpu_uuid.clone().unwrap_or_default(),
        "class": notice.class,
        "severity": notice.severity,
        "incident_id": notice.incident_id,
    })
}
