//! Authorization of senders: the clusters of the token, and the node of the token or certificate.

use std::sync::Arc;

use echo_access::{Kind, Principal, WritePermission};
use echo_core::error::{Code, Coded};
use echo_core::ids::{ClusterId, NodeId};
use echo_core::model::event::{Event, Origin};

use crate::memory_account::ClientCertificate;

/// Credentials of a sender.
#[derive(Debug, Clone, Default)]
pub struct SenderAuth {
    principal: Option<Arc<Principal>>,
    certificate: Option<ClientCertificate>,
}

/// Error for events that the sender may not send.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// The token is for other clusters.
    #[error("this token may not send for cluster {0}; the request was not stored")]
    Cluster(ClusterId),
    /// The token is bound to another node.
    #[error("this token may not send for node {0}; the request was not stored")]
    Node(NodeId),
    /// The certificate does not name the node.
    #[error("the client certificate does not name node {0}; the request was not stored")]
    Certificate(NodeId),
}

impl Coded for Forbidden {
    fn code(&self) -> Code {
        Code::Forbidden
    }
}

impl SenderAuth {
    /// Creates the credentials from the token and the client certificate, if any.
    pub const fn new(
        principal: Option<Arc<Principal>>,
        certificate: Option<ClientCertificate>,
    ) -> Self {
        Self {
            principal,
            certificate,
        }
    }

    /// Returns the name of the token; `None` without authentication.
    pub fn token(&self) -> Option<&str> {
        let principal = self.principal.as_ref()?;
        (principal.kind != Kind::Local).then_some(&*principal.id)
    }

    /// Checks all events of a request, which is stored as a whole or not at all.
    pub fn check(&self, events: &[Event]) -> Result<(), Forbidden> {
        let mut checked: Option<&Arc<Origin>> = None;
        for event in events {
            // Events of one sender share their origin.
            if checked.is_some_and(|checked| Arc::ptr_eq(checked, &event.origin)) {
                continue;
            }
            self.check_one(&event.origin)?;
            checked = Some(&event.origin);
        }
        Ok(())
    }

    fn check_one(&self, origin: &Origin) -> Result<(), Forbidden> {
        let write = self
            .principal
            .as_ref()
            .and_then(|principal| principal.write.as_ref());
        if let Some(WritePermission { clusters, node }) = write {
            if !clusters.allows(&origin.cluster) {
                return Err(Forbidden::Cluster(origin.cluster.clone()));
            }
            if node.as_ref().is_some_and(|node| *node != origin.node) {
                return Err(Forbidden::Node(origin.node.clone()));
            }
        }
        let node = origin.node.as_str();
        match &self.certificate {
            Some(certificate) if !certificate.is_for(node) => {
                Err(Forbidden::Certificate(origin.node.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
