//! The OTLP services: metrics, log records and spans, on gRPC (`grpc`) and on plain HTTP (`http`).
//!
//! Both collect the body as it arrives, unpack it (`body`) and hand it to [`Ingest`].

use axum::http::{Extensions, HeaderMap, HeaderValue};
use echo_core::error::{Code, Coded, chain};
use echo_core::model::event::BatchKey;
use fleet_proto::metadata;

use super::accept::{Ingest, IngestError};
use super::batch_key::{BatchKeyError, numbered};
use super::memory_account::{Peer, Sender};
use super::sender_auth::Writer;

mod body;
mod decompress;
pub mod grpc;
pub mod http;
#[cfg(test)]
pub(super) mod tests;

/// Who sends, and the key of the batch if it is numbered.
fn sender(
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<(Sender, Option<BatchKey>), BatchKeyError> {
    let header = |name| headers.get(name).map(HeaderValue::as_bytes);
    let key = numbered(
        header(metadata::AGENT_INSTANCE),
        header(metadata::BATCH_NUMBER),
    )?;
    let sender = Sender::of(key.as_ref(), extensions.get::<Peer>());
    Ok((sender, key))
}

/// For whom the sender may send, as the listener put it among the extensions.
fn writer(extensions: &Extensions) -> Writer {
    Writer::new(extensions.get().cloned(), extensions.get().cloned())
}

/// Counts the error, and logs it if it is the collector's.
fn note(ingest: &Ingest, error: &IngestError, number: u64) {
    let code = error.code();
    ingest.stats().saw_failure(code);
    if code == Code::Internal || error.is_ours() {
        tracing::error!(
            request.number = number,
            error = chain(error),
            "could not store a request"
        );
    }
}
