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
        let server = self.0.page_url.as_deref();
        let links = notice.page(server).zip(notice.runbook(server));
        lines.extend(links.map(|(page, runbook)| {
            format!("<{page}|Open the incident in Echo> or the <{runbook}|runbook>")
        }));
        let text = lines.join("\n");
        json!({ "text": text, "unfurl_links": false, "unfurl_media": false }).to_string()
    }
}

impl Consumer for SlackSender {
    fn describe(&self, delivery: &Delivery) -> String {
        let file = self.0.url_file.display();
        format!("POST (the address in {file}) {}", self.body(delivery))
    }

    fn deliver(&self, delivery: &Delivery, _now: Nanos) -> Result<String, DeliveryError> {
        let url = http::secret(&self.0.url_file)?;
        let file = self.0.url_file.display();
        let Some((_, path)) = url.split_once("://") else {
            let message = format!("{file} has no address such as https://host/path");
            return Err(DeliveryError::transient(message));
        };
        let send = || {
            let headers = [("content-type", "application/json")];
            let body = self.body(delivery).into_bytes();
            let request = http::request(("POST", &url), &headers, body)?;
            http::send(request, self.0.ca_file.as_deref())?.check_credentials()
        };
        let answer = send().map_err(|error| DeliveryError {
            message: without_path(&error.message, path),
            ..error
        })?;
        Ok(format!("status {}", answer.status))
    }
}

/// A message without the path of an address, which is its secret part.
fn without_path(message: &str, address: &str) -> String {
    match address.split_once('/') {
        Some((_, path)) if !path.is_empty() => message.replace(path, "..."),
        _ => message.to_owned(),
    }
}

/// Text without the characters that Slack takes for links and mentions.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
