//! Interface of a consumer.

use std::fmt;
use std::time::Duration;

use echo_core::units::Nanos;

use crate::state::Delivery;

/// A system that receives deliveries. Calls block, and end within seconds.
pub trait Consumer: Send + Sync + fmt::Debug {
    /// Describes what the delivery does, for shadow mode and logs.
    fn describe(&self, delivery: &Delivery) -> String;

    /// Makes the delivery; several times with the same key has the effect of one. Returns details
    /// for the log.
    fn deliver(&self, delivery: &Delivery, now: Nanos) -> Result<String, DeliveryError>;
}

/// Reason why a delivery was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DeliveryError {
    /// True if another attempt would fail as well.
    pub is_permanent: bool,
    /// Time to wait, if the consumer asked for one.
    pub retry_after: Option<Duration>,
    /// What failed.
    pub message: String,
}

impl DeliveryError {
    /// Error after which another attempt may succeed.
    pub fn transient(message: impl Into<String>) -> Self {
        Self {
            is_permanent: false,
            retry_after: None,
            message: message.into(),
        }
    }

    /// Error after which another attempt is useless.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            is_permanent: true,
            ..Self::transient(message)
        }
    }
}

/// Returns true if the name of a node means one node to every consumer: host lists of Slurm and
/// paths of Kubernetes have special characters.
pub fn is_safe_node_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let begins_well = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_special = name.eq_ignore_ascii_case("all") || name.eq_ignore_ascii_case("default");
    name.len() <= 253 && begins_well && name.chars().all(allowed) && !is_special
}
