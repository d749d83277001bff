//! For whom a sender may send: the clusters of its token, and the node of its token or certificate.

use std::sync::Arc;

use echo_access::{Kind, Principal, Write};
use echo_core::error::{Code, Coded};
use echo_core::ids::{ClusterId, NodeId};
use echo_core::model::event::{Event, Origin};

use crate::memory_account::ClientCertificate;

/// What the listener knows of a sender.
#[derive(Debug, Clone, Default)]
pub struct Writer {
    principal: Option<Arc<Principal>>,
    certificate: Option<ClientCertificate>,
}

/// Somebody sends for somebody else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// The token is for other clusters.
    #[error("this token may not send for cluster {0}; nothing of the request was stored")]
    Cluster(ClusterId),
    /// The token is bound to another node.
    #[error("this token may not send for node {0}; nothing of the request was stored")]
    Node(NodeId),
    /// The certificate does not name the node.
    #[error(
        "the certificate does not name node {0}, which it sends for; nothing of the request was stored"
    )]
    Certificate(NodeId),
}

impl Coded for Foreign {
    fn code(&self) -> Code {
        Code::Forbidden
    }
}

impl Writer {
    /// Whoever showed this token and this certificate, each if he did.
    pub const fn new(
        principal: Option<Arc<Principal>>,
        certificate: Option<ClientCertificate>,
    ) -> Self {
        Self {
            principal,
            certificate,
        }
    }

    /// The name of its token; nothing where none is asked for.
    pub fn token(&self) -> Option<&str> {
        let principal = self.principal.as_ref()?;
        (principal.kind != Kind::Local).then_some(&*principal.id)
    }

    /// Checks all events of a request: it is stored as a whole, or not at all.
    pub fn check(&self, events: &[Event]) -> Result<(), Foreign> {
        let mut checked: Option<&Arc<Origin>> = None;
        for event in events {
            // Events of one sender share what says who it is.
            if checked.is_some_and(|checked| Arc::ptr_eq(checked, &event.origin)) {
                continue;
            }
            self.check_one(&event.origin)?;
            checked = Some(&event.origin);
        }
        Ok(())
    }

    fn check_one(&self, origin: &Origin) -> Result<(), Foreign> {
        let write = self
            .principal
            .as_ref()
            .and_then(|principal| principal.write.as_ref());
        if let Some(Write { clusters, node }) = write {
            if !clusters.allows(&origin.cluster) {
                return Err(Foreign::Cluster(origin.cluster.clone()));
            }
            if node.as_ref().is_some_and(|node| *node != origin.node) {
                return Err(Foreign::Node(origin.node.clone()));
            }
        }
        let node = origin.node.as_str();
        match &self.certificate {
            Some(certificate) if !certificate.is_for(node) => {
                Err(Foreign::Certificate(origin.node.clone()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
