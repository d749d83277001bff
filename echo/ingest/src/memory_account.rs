//! Account of the memory budget that a request uses.

use std::net::SocketAddr;
use std::sync::Arc;

use echo_core::ids::AgentInstance;
use echo_core::model::event::BatchKey;

/// Peer address of a connection. Listeners add it to the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Names in the client certificate. Listeners add it to the extensions of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(pub Arc<[String]>);

impl ClientCertificate {
    /// Returns whether a name is this node: as a host name, or as the last segment of a URI such as
    /// `spiffe://fleet/node/gpu-17`.
    pub fn is_for(&self, node: &str) -> bool {
        self.0.iter().any(|name| match name.rsplit_once('/') {
            None => name.eq_ignore_ascii_case(node),
            Some((_, last)) => last == node,
        })
    }
}

/// Sender whose share of the memory budget a request uses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum MemoryAccount {
    /// Agent that numbers its batches.
    Agent(AgentInstance),
    /// Connection without numbered batches; several senders can share a host or a proxy.
    Peer(SocketAddr),
    /// Unknown sender.
    #[default]
    Unknown,
}

impl MemoryAccount {
    /// Returns the agent of a numbered batch, else the connection.
    pub fn from_request(key: Option<&BatchKey>, peer: Option<&Peer>) -> Self {
        match (key, peer) {
            (Some(BatchKey::Numbered { agent, .. }), _) => Self::Agent(agent.clone()),
            (_, Some(Peer(address))) => Self::Peer(*address),
            (_, None) => Self::Unknown,
        }
    }
}
