//! Request body: received, decompressed and transcoded to protobuf. Memory is reserved while the
//! body arrives, is decompressed and is transcoded. Long work runs on a blocking thread.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::decompress::Compression;
use crate::accept::{Ingest, IngestError, MAX_INLINE_BYTES};
use crate::budget::Reservation;
use crate::decode::Payload;
use crate::decode::json::{JsonError, MAX_GROWTH, memory_estimate, to_protobuf};

/// Maximum size of a compressed body that is decompressed on the async thread, in bytes; most
/// expand to a few times their size.
const MAX_INLINE_COMPRESSED: usize = MAX_INLINE_BYTES / 8;

/// Format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Protobuf,
    Json,
}

/// Payload, format and compression of a body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoding {
    pub(super) payload: Payload,
    pub(super) format: Format,
    pub(super) compression: Option<Compression>,
}

/// A body and its reserved memory.
#[derive(Debug)]
pub(super) struct ReceivedBody {
    pub(super) body: Bytes,
    pub(super) memory: Reservation,
}

impl From<JsonError> for IngestError {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::TooLarge { limit } => Self::TooLarge { limit },
            JsonError::Malformed { .. } => Self::Unreadable(error.to_string()),
        }
    }
}

impl Encoding {
    /// Decodes the body to protobuf of at most `limit` bytes.
    pub(super) async fn decode(
        self,
        received: ReceivedBody,
        limit: usize,
    ) -> Result<ReceivedBody, IngestError> {
        let is_short = match (self.compression, self.format) {
            (None, Format::Protobuf) => return Ok(received),
            (None, Format::Json) => received.body.len() <= MAX_INLINE_BYTES,
            (Some(_), _) => received.body.len() <= MAX_INLINE_COMPRESSED,
        };
        if is_short {
            return self.decode_now(received, limit);
        }
        let plain = spawn_blocking(move || self.decode_now(received, limit)).await;
        plain.map_err(|_panicked| IngestError::Aborted)?
    }

    fn decode_now(self, received: ReceivedBody, limit: usize) -> Result<ReceivedBody, IngestError> {
        let ReceivedBody {
            mut body,
            mut memory,
        } = received;
        if let Some(compression) = self.compression {
            body = compression.decompress(&body, limit, &mut memory)?;
        }
        if self.format == Format::Json {
            let most = body.len().saturating_mul(MAX_GROWTH).min(limit);
            memory.resize(
                body.len()
                    .saturating_add(memory_estimate(&body))
                    .saturating_add(most),
            )?;
            body = to_protobuf(self.payload, &body, limit)?.into();
        }
        memory.resize(body.len())?;
        Ok(ReceivedBody { body, memory })
    }
}

/// Receives the body. Fails if it is longer than `limit` bytes, exceeds the memory budget, or takes
/// too long.
pub(super) async fn receive(
    ingest: &Ingest,
    mut memory: Reservation,
    body: Body,
    limit: usize,
) -> Result<ReceivedBody, IngestError> {
    let mut pieces = body.into_data_stream();
    let collect = async {
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| IngestError::Unreadable(error.to_string()))?;
            if whole.len() + piece.len() > limit {
                let limit = ingest.config().max_message_bytes;
                return Err(IngestError::TooLarge { limit });
            }
            memory.grow(piece.len())?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    };
    let after = ingest.config().arrival_deadline;
    let body = timeout(after, collect).await;
    let body = body.map_err(|_elapsed| IngestError::ArrivalTimeout { after })??;
    Ok(ReceivedBody { body, memory })
}
