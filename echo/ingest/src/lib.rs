//! Ingest path: OTLP requests are decoded, admitted, stored, and only then acknowledged. `otlp`
//! receives a request over gRPC or HTTP and decompresses its body; `accept` decodes it (`decode`,
//! pure) and appends it to the store; `respond` builds the response with the rejections. Success
//! means durable: acknowledged points survive a crash, and a batch that is sent twice is stored
//! once (`batch_key`). The response carries the current policy of the sender's cluster, without
//! waiting for it. Invariant: an invalid or huge request of one sender does not affect others. An
//! invalid point is counted and dropped; an invalid request gets a status that OTLP clients do not
//! retry, and an overloaded collector returns one that they do. From its first byte to its
//! acknowledgement, a request reserves its memory from one budget (`budget`), of which a sender may
//! hold at most as much as remains free.

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
