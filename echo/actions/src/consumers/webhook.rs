//! Webhook: signed JSON by POST.
//!
//! The signature is `v1=` and the HMAC-SHA256, in hexadecimal digits, of the timestamp, a dot and
//! the body. The timestamp lets a receiver refuse old requests that are sent again by others.

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use echo_core::units::Nanos;
use serde_json::json;

use super::http;
use super::time::unix_seconds;
use crate::consumer::{Consumer, DeliveryError};
use crate::policy::Webhook;
use crate::state::Delivery;

/// Sender to a URL.
#[derive(Debug)]
pub(super) struct WebhookSender(Webhook);

impl WebhookSender {
    pub(super) const fn new(webhook: Webhook) -> Self {
        Self(webhook)
    }
}

impl Consumer for WebhookSender {
    fn describe(&self, delivery: &Delivery) -> String {
        format!("POST {} {}", self.0.url, body(delivery))
    }

    fn deliver(&self, delivery: &Delivery, now: Nanos) -> Result<String, DeliveryError> {
        let secret = http::secret(&self.0.secret_file)?;
        let body = body(delivery);
        let timestamp = unix_seconds(now).to_string();
        let signature = signature(&secret, &timestamp, &body);
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", delivery.key.as_str()),
            ("echo-timestamp", &timestamp),
            ("echo-signature", &signature),
        ];
        let request = http::request(("POST", &self.0.url), &headers, body.into_bytes())?;
        let answer = http::send(request, self.0.ca_file.as_deref())?.check()?;
        Ok(format!("status {}", answer.status))
    }
}

fn body(delivery: &Delivery) -> String {
    json!({
        "event": delivery.phase.name(),
        "key": delivery.key,
        "incident": delivery.notice,
        "previous": delivery.previous,
    })
    .to_string()
}

/// Returns the signature of a body.
pub(super) fn signature(secret: &str, timestamp: &str, body: &str) -> String {
    let key = Key::new(HMAC_SHA256, secret.as_bytes());
    let tag = sign(&key, format!("{timestamp}.{body}").as_bytes());
    let digits = tag.as_ref().iter().map(|byte| format!("{byte:02x}"));
    format!("v1={}", digits.collect::<String>())
}
