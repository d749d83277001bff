//! Slack: a message to an incoming webhook, whose address is a secret.

use echo_core::units::Nanos;
use serde_json::json;

use super::http;
use crate::consumer::{Consumer, DeliveryError};
use crate::notice::Phase;
use crate::policy::Slack;
use crate::state::Delivery;

/// Sender to a channel.
#[derive(Debug)]
pub(super) struct SlackSender(Slack);

impl SlackSender {
    pub(super) const fn new(slack: Slack) -> Self {
        Self(slack)
    }

    fn body(&self, delivery: &Delivery) -> String {
        let notice = &delivery.notice;
        let state = match delivery.phase {
            Phase::Cleared => "cleared",
            Phase::Raised | Phase::Changed | Phase::Refreshed => &notice.severity,
        };
        let job = notice.job.as_ref();
        let job = job.map_or_else(String::new, |job| format!(", job {job}"));
        let head = format!(
            "{} on {}, cluster {}{job}",
            notice.summary(),
            notice.node,
            notice.cluster
        );
        let mut lines = vec![
            format!("*{state}*: {}", escaped(&head)),
            escaped(&notice.reason),
        ];
        if delivery.phase != Phase::Cleared && !notice.advice.is_empty() {
            lines.push(format!("*Next*: {}", escaped(&notice.advice.join("; "))));
        }
        let page = notice.page(self.0.page_url.as_deref());
        lines.extend(page.map(|page| format!("<{page}|What is known of it>")));
        json!({ "text": lines.join("\n") }).to_string()
    }
}

impl Consumer for SlackSender {
    fn describe(&self, delivery: &Delivery) -> String {
        let file = self.0.url_file.display();
        format!("POST (the address in {file}) {}", self.body(delivery))
    }

    fn deliver(&self, delivery: &Delivery, _now: Nanos) -> Result<String, DeliveryError> {
        let url = http::secret(&self.0.url_file)?;
        let headers = [("content-type", "application/json")];
        let request = http::request(("POST", &url), &headers, self.body(delivery).into_bytes())?;
        let answer = http::send(request, self.0.ca_file.as_deref())?.check()?;
        Ok(format!("status {}", answer.status))
    }
}

/// Text without the characters that Slack takes for links and mentions.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
