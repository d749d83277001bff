//! The body of a request, until it is the protobuf that the decoder reads.
//!
//! It takes up memory as it arrives, as it is unpacked and as it is translated. What takes long is done where it holds up
//! nobody.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use super::decompress::Compression;
use crate::accept::{Ingest, IngestError, MAX_INLINE_BYTES};
use crate::budget::Held;
use crate::decode::Payload;
use crate::decode::json::{MOST_GROWTH, Untranslatable, memory, to_protobuf};

/// Longest compressed body that is unpacked on the spot, in bytes: most unpack to a few times as much.
const MAX_INLINE_PACKED: usize = MAX_INLINE_BYTES / 8;

/// The language of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Protobuf,
    Json,
}

/// How a body says what it says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) payload: Payload,
    pub(super) language: Language,
    pub(super) compression: Option<Compression>,
}

/// A body and the memory that it takes up.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) body: Bytes,
    pub(super) held: Held,
}

impl From<Untranslatable> for IngestError {
    fn from(error: Untranslatable) -> Self {
        match error {
            Untranslatable::TooLarge { limit } => Self::TooLarge { limit },
            Untranslatable::Malformed { .. } => Self::Unreadable(error.to_string()),
        }
    }
}

impl Form {
    /// The request in protobuf, if that is no more than `limit` bytes.
    pub(super) async fn read(self, taken: Taken, limit: usize) -> Result<Taken, IngestError> {
        let is_short = match (self.compression, self.language) {
            (None, Language::Protobuf) => return Ok(taken),
            (None, Language::Json) => taken.body.len() <= MAX_INLINE_BYTES,
            (Some(_), _) => taken.body.len() <= MAX_INLINE_PACKED,
        };
        if is_short {
            return self.plain(taken, limit);
        }
        let plain = spawn_blocking(move || self.plain(taken, limit)).await;
        plain.map_err(|_panicked| IngestError::Aborted)?
    }

    fn plain(self, taken: Taken, limit: usize) -> Result<Taken, IngestError> {
        let Taken { mut body, mut held } = taken;
        if let Some(compression) = self.compression {
            body = compression.unpack(&body, limit, &mut held)?;
        }
        if self.language == Language::Json {
            let most = body.len().saturating_mul(MOST_GROWTH).min(limit);
            held.resize(
                body.len()
                    .saturating_add(memory(&body))
                    .saturating_add(most),
            )?;
            body = to_protobuf(self.payload, &body, limit)?.into();
        }
        held.resize(body.len())?;
        Ok(Taken { body, held })
    }
}

/// The body once it has arrived as a whole; cut off when it is longer than `limit` bytes, when there is no memory for more of
/// it, or when it takes too long.
pub(super) async fn arrived(
    ingest: &Ingest,
    mut held: Held,
    (body, limit): (Body, usize),
) -> Result<Taken, IngestError> {
    let mut pieces = body.into_data_stream();
    let collect = async {
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| IngestError::Unreadable(error.to_string()))?;
            if whole.len() + piece.len() > limit {
                let limit = ingest.config().max_message_bytes;
                return Err(IngestError::TooLarge { limit });
            }
            held.grow(piece.len())?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    };
    let after = ingest.config().arrival_deadline;
    let body = timeout(after, collect).await;
    let body = body.map_err(|_elapsed| IngestError::Slow { after })??;
    Ok(Taken { body, held })
}
