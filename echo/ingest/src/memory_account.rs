//! Who sent a request, as far as sharing the memory is concerned.

use std::net::SocketAddr;
use std::sync::Arc;

use echo_core::ids::AgentInstance;
use echo_core::model::event::BatchKey;

/// The other end of a connection. Listeners put it among the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The names in the certificate that the other end showed. Listeners put it among the extensions of every request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(pub Arc<[String]>);

impl ClientCertificate {
    /// Whether it names this node: as a host, or at the end of a URI such as `spiffe://fleet/node/gpu-17`.
    pub fn is_for(&self, node: &str) -> bool {
        self.0.iter().any(|name| match name.rsplit_once('/') {
            None => name.eq_ignore_ascii_case(node),
            Some((_, last)) => last == node,
        })
    }
}

/// Whose share of the memory a request takes up.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub enum Sender {
    /// An agent that numbers its batches.
    Agent(AgentInstance),
    /// Whoever sends over this connection without numbering batches: many can share a host, or a proxy.
    Peer(SocketAddr),
    /// Nobody knows.
    #[default]
    Unknown,
}

impl Sender {
    /// The agent that numbers its batches, else the connection that it came on.
    pub fn of(key: Option<&BatchKey>, peer: Option<&Peer>) -> Self {
        match (key, peer) {
            (Some(BatchKey::Numbered { agent, .. }), _) => Self::Agent(agent.clone()),
            (_, Some(Peer(address))) => Self::Peer(*address),
            (_, None) => Self::Unknown,
        }
    }
}
