//! OTLP services for metrics, log records and spans, over gRPC (`grpc`) and HTTP (`http`).
//! Both receive the body, decompress and transcode it (`body`), and pass it to [`Ingest`].

use axum::http::{Extensions, HeaderMap, HeaderValue};
use echo_core::error::{Code, Coded, chain};
use echo_core::model::event::BatchKey;
use fleet_proto::metadata;

use super::accept::{Ingest, IngestError};
use super::batch_key::{BatchKeyError, key_from_headers};
use super::memory_account::{MemoryAccount, Peer};
use super::sender_auth::SenderAuth;

mod body;
mod decompress;
pub mod grpc;
pub mod http;
#[cfg(test)]
pub(super) mod tests;

/// Returns the memory account of the sender, and the key of the batch if it is numbered.
fn account_and_key(
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<(MemoryAccount, Option<BatchKey>), BatchKeyError> {
    let header = |name| headers.get(name).map(HeaderValue::as_bytes);
    let key = key_from_headers(
        header(metadata::AGENT_INSTANCE),
        header(metadata::BATCH_NUMBER),
    )?;
    let account = MemoryAccount::from_request(key.as_ref(), extensions.get::<Peer>());
    Ok((account, key))
}

/// Returns the permissions of the sender, from the request extensions.
fn sender_auth(extensions: &Extensions) -> SenderAuth {
    SenderAuth::new(extensions.get().cloned(), extensions.get().cloned())
}

/// Counts the error, and logs it if the collector is at fault.
fn record_failure(ingest: &Ingest, error: &IngestError, number: u64) {
    let code = error.code();
    ingest.stats().count_failure(code);
    if code == Code::Internal || error.is_internal() {
        tracing::error!(
            request.number = number,
            error = chain(error),
            "cannot store a request"
        );
    }
}
