//! Agents: what they get is the actions in force, with each response ([`crate::agents`]), so that
//! there is nothing to send.

use echo_core::units::Nanos;

use crate::consumer::{Consumer, DeliveryError};
use crate::notice::Phase;
use crate::state::Delivery;

/// Sender to agents.
#[derive(Debug)]
pub(super) struct AgentsSender;

impl Consumer for AgentsSender {
    fn describe(&self, delivery: &Delivery) -> String {
        let node = &delivery.notice.node;
        let summary = delivery.notice.summary();
        match delivery.phase {
            Phase::Cleared => format!("responses to the agent of {node} end to name {summary}"),
            _ => format!("responses to the agent of {node} name {summary}"),
        }
    }

    fn deliver(&self, delivery: &Delivery, _now: Nanos) -> Result<String, DeliveryError> {
        Ok(self.describe(delivery))
    }
}
