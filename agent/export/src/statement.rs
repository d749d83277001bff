//! Statement of Echo about the host, received with the acknowledgement of a batch.

use std::sync::Arc;

use fleet_proto::policy::HostCulprits;
use tokio::time::Instant;

use crate::now;

/// What Echo reports about this host.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// Culprits on this host; `None` if Echo reports none to agents.
    pub culprits: Option<Arc<HostCulprits>>,
    /// When it was received.
    pub received: Instant,
}

impl Statement {
    /// Creates a statement that is received now.
    pub fn new(culprits: Option<HostCulprits>) -> Self {
        Self {
            culprits: culprits.map(Arc::new),
            received: now(),
        }
    }
}
