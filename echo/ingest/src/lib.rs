//! How measurements come in: OTLP requests are decoded, admitted, stored, and only then acknowledged.
//!
//! `otlp` takes a request over gRPC or HTTP and unpacks its body; `accept` decodes it (`decode`, pure) and appends it to the
//! store; `respond` says what was rejected. Success means durable: what was acknowledged survives a crash, and a batch
//! that is sent twice is stored once (`batch_key`). The answer carries the policy of the sender's cluster, which is
//! borrowed and never waited for.
//!
//! Invariant: one sender's bad or huge request costs the others nothing. A bad point is counted and left out, a bad
//! request gets a status that OTLP clients do not repeat, a full collector one that they do. From its first byte to its
//! acknowledgement a request takes what memory it needs from one budget (`budget`), of which a sender may hold at most
//! as much as it leaves free.

pub mod accept;
pub mod batch_key;
pub mod budget;
pub mod counters;
pub mod decode;
#[cfg(any(test, feature = "testing"))]
#[expect(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "only tests of this package and others see it"
)]
pub mod fixture;
pub mod memory_account;
pub mod misrouted;
pub mod otlp;
pub mod respond;
pub mod sender_auth;
