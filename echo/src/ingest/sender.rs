//! Who sent a request, as far as sharing the room is concerned.

use std::net::SocketAddr;

use crate::ids::AgentInstance;
use crate::model::event::BatchKey;

/// The other end of a connection. Listeners put it among the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// Whose room a request takes up.
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
