//! The body of a request over HTTP, until it is the protobuf that the core takes.

use axum::body::Body;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use axum::http::{HeaderMap, HeaderValue};
use bytes::{Bytes, BytesMut};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_stream::StreamExt;

use crate::accept::{Ingest, IngestError, MAX_INLINE_BYTES};
use crate::admit::{Arriving, Unpacking};
use crate::decode::Payload;
use crate::decode::json::{MOST_GROWTH, Untranslatable, memory, to_protobuf};
use crate::otlp::unpack::Compression;
use crate::sender::Sender;

/// The language of a body, and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Media {
    Protobuf,
    Json,
}

impl Media {
    /// Its type, in requests and in answers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Protobuf => "application/x-protobuf",
            Self::Json => "application/json",
        }
    }

    /// What the request declares, whatever its parameters.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, IngestError> {
        let declared = text(headers, CONTENT_TYPE);
        let kind = declared.split(';').next().unwrap_or_default().trim();
        let known = [Self::Protobuf, Self::Json];
        let found = known.into_iter().find(|media| media.name() == kind);
        found.ok_or_else(|| {
            let [protobuf, json] = known.map(Self::name);
            IngestError::Unsupported(format!(
                "bodies of type {kind:?} are not read: send Content-Type: {protobuf} \
                 (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf) or {json} (http/json)"
            ))
        })
    }
}

/// How a body says what it says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    pub(super) payload: Payload,
    pub(super) media: Media,
    pub(super) compression: Option<Compression>,
}

impl From<Untranslatable> for IngestError {
    fn from(error: Untranslatable) -> Self {
        match error {
            Untranslatable::TooLarge { limit } => Self::TooLarge { limit },
            Untranslatable::Malformed { .. } => Self::Unreadable(error.to_string()),
        }
    }
}

/// How the body is compressed, if it is in a way that this listener reads.
pub(super) fn compression(headers: &HeaderMap) -> Result<Option<Compression>, IngestError> {
    match text(headers, CONTENT_ENCODING).trim() {
        "" | "identity" => Ok(None),
        "gzip" => Ok(Some(Compression::Gzip)),
        "zstd" => Ok(Some(Compression::Zstd)),
        other => Err(IngestError::Unsupported(format!(
            "bodies compressed with {other:?} are not read: send them with gzip, zstd or as they are"
        ))),
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> String {
    let value = headers.get(name).map(HeaderValue::as_bytes);
    String::from_utf8_lossy(value.unwrap_or_default()).to_ascii_lowercase()
}

impl Form {
    /// The request in protobuf, with the memory that was set aside while its size was not known.
    pub(super) async fn read(
        self,
        (ingest, sender): (&Ingest, &Sender),
        body: Body,
    ) -> Result<(Bytes, Option<Unpacking>), IngestError> {
        let limit = ingest.max_message_bytes();
        if let Some(compression) = self.compression {
            // Before the body is looked at: what it unpacks to is known only when it is in memory.
            let translated = match self.media {
                Media::Protobuf => 0,
                Media::Json => limit,
            };
            let most = compression.memory(limit).saturating_add(translated);
            let unpacking = ingest.unpacking(sender, most).await?;
            let (packed, _room) = arrived((ingest, sender), body).await?;
            let ingest = ingest.clone();
            let body = aside(move || self.plain(&ingest, packed)).await?;
            return Ok((body, Some(unpacking)));
        }
        let (body, room) = arrived((ingest, sender), body).await?;
        if self.media == Media::Protobuf {
            return Ok((body, None));
        }
        let most = body.len().saturating_mul(MOST_GROWTH).min(limit);
        let unpacking = ingest.unpacking(sender, most).await?;
        let body = if body.len() <= MAX_INLINE_BYTES {
            self.plain(ingest, body)?
        } else {
            let ingest = ingest.clone();
            aside(move || self.plain(&ingest, body)).await?
        };
        drop(room);
        Ok((body, Some(unpacking)))
    }

    /// The request in protobuf, if it is no larger than the largest message.
    fn plain(self, ingest: &Ingest, body: Bytes) -> Result<Bytes, IngestError> {
        let limit = ingest.max_message_bytes();
        let body = match self.compression {
            Some(compression) => compression.unpack(&body, limit)?,
            None => body,
        };
        match self.media {
            Media::Protobuf => Ok(body),
            Media::Json => {
                let _memory = ingest.unfolded(memory(&body))?;
                Ok(to_protobuf(self.payload, &body, limit)?.into())
            }
        }
    }
}

/// Does what takes long where it holds up nobody.
async fn aside(
    work: impl FnOnce() -> Result<Bytes, IngestError> + Send + 'static,
) -> Result<Bytes, IngestError> {
    let done = spawn_blocking(work).await;
    done.map_err(|_panicked| IngestError::Aborted)?
}

/// The body once it has arrived as a whole, with the room that it takes up; cut off when there is no room for more
/// of it or when it takes too long.
async fn arrived(
    (ingest, sender): (&Ingest, &Sender),
    body: Body,
) -> Result<(Bytes, Arriving), IngestError> {
    let limit = ingest.max_message_bytes();
    let mut room = ingest.arriving(sender);
    let mut pieces = body.into_data_stream();
    let collect = async {
        let mut whole = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| IngestError::Unreadable(error.to_string()))?;
            if whole.len() + piece.len() > limit {
                return Err(IngestError::TooLarge { limit });
            }
            room.add(piece.len())?;
            whole.extend_from_slice(&piece);
        }
        Ok(whole.freeze())
    };
    let after = ingest.arrival_deadline();
    let whole = timeout(after, collect).await;
    let whole = whole.map_err(|_elapsed| IngestError::Slow { after })??;
    Ok((whole, room))
}
