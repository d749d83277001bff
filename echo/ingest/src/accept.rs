//! One request's way from its bytes to the acknowledgement, whatever transport it came on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use echo_core::clock::Clock;
use echo_core::error::{Code, Coded};
use echo_core::model::event::{BatchKey, EventBatch};
use echo_core::policy_table::{ClusterPolicy, PolicyTable};
use echo_core::spans;
use echo_core::units::Nanos;
use echo_store::timings::Stopwatch;
use echo_store::{Appended, EventStore, Unnameable};
use tokio::sync::{SemaphorePermit, watch};
use tokio::task::spawn_blocking;
use tracing::{Instrument, Span, trace_span};

use super::admit::{Admission, AdmissionConfig, AdmitError, Arriving, InFlight, Unpacking};
use super::batch_key::{BatchKeyError, of_content};
use super::counters::IngestStats;
use super::decode::reject::{RejectReason, Rejections};
use super::decode::unfold::unfolded_bytes;
use super::decode::{Decoded, Malformed, Payload, decode_body};
use super::sender::Sender;
use super::strays::Strays;
use super::writer::{Foreign, Writer};

/// Longest body that is translated or decoded on the spot, in bytes: longer ones would hold up the other requests of the thread.
pub(super) const MAX_INLINE_BYTES: usize = 64 * 1024;

/// Settings of the ingest path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestConfig {
    /// What may be in flight.
    pub admission: AdmissionConfig,
    /// Largest request after decompression, in bytes.
    pub max_message_bytes: usize,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            admission: AdmissionConfig::default(),
            max_message_bytes: 16 * 1024 * 1024,
        }
    }
}

/// Why a request as a whole is answered with an error.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The transport or the body cannot be understood.
    #[error("cannot read the request: {0}")]
    Unreadable(String),
    /// The body is no OTLP request.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The metadata number the batch in a way that cannot be understood.
    #[error(transparent)]
    BatchKey(#[from] BatchKeyError),
    /// The body is of a type or compressed in a way that this listener does not read.
    #[error("{0}")]
    Unsupported(String),
    /// The message is larger than the service takes.
    #[error("the request is larger than {limit} bytes; send smaller requests")]
    TooLarge {
        /// The largest message, after decompression.
        limit: usize,
    },
    /// The sender took too long.
    #[error("the request had not arrived as a whole after {} ms, send it again", .after.as_millis())]
    Slow {
        /// How long it may take.
        after: Duration,
    },
    /// It is sent for somebody else.
    #[error(transparent)]
    Foreign(#[from] Foreign),
    /// There is no room for it, or it could not be stored.
    #[error(transparent)]
    Admit(#[from] AdmitError),
    /// The decoder did not come back.
    #[error("decoding was aborted")]
    Aborted,
}

impl IngestError {
    /// Whether it is the collector that is at fault, so that the error belongs into its log.
    pub const fn is_ours(&self) -> bool {
        matches!(
            self,
            Self::Aborted | Self::Admit(AdmitError::CannotStore(_))
        )
    }
}

impl Coded for IngestError {
    fn code(&self) -> Code {
        match self {
            Self::Unreadable(_) | Self::Malformed(_) | Self::Unsupported(_) => Code::Invalid,
            Self::BatchKey(error) => error.code(),
            Self::TooLarge { .. } => Code::TooLarge,
            Self::Slow { .. } => Code::Timeout,
            Self::Foreign(error) => error.code(),
            Self::Admit(error) => error.code(),
            Self::Aborted => Code::Internal,
        }
    }
}

/// Where a request comes from.
#[derive(Debug, Clone)]
pub struct Sent<'a> {
    /// Whose room it takes up.
    pub sender: &'a Sender,
    /// The number of the batch, if it has one.
    pub key: Option<BatchKey>,
    /// For whom it may send.
    pub writer: &'a Writer,
}

/// What the sender of a request that was taken gets to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// The points that were not stored. All others are, durably.
    pub rejections: Rejections,
    /// The policy of the first cluster named in the request.
    pub policy: Option<ClusterPolicy>,
}

/// The ingest path. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Ingest(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    max_message_bytes: usize,
    admission: Admission,
    store: Arc<dyn EventStore>,
    clock: Arc<dyn Clock>,
    policies: watch::Receiver<Arc<PolicyTable>>,
    stats: Arc<IngestStats>,
    strays: Strays,
}

impl Ingest {
    /// Puts the path together.
    pub fn new(
        config: IngestConfig,
        (store, clock): (Arc<dyn EventStore>, Arc<dyn Clock>),
        policies: watch::Receiver<Arc<PolicyTable>>,
        strays: Strays,
    ) -> Self {
        Self(Arc::new(Parts {
            max_message_bytes: config.max_message_bytes,
            admission: Admission::new(config.admission),
            store,
            clock,
            policies,
            stats: Arc::default(),
            strays,
        }))
    }

    /// Largest request after decompression, in bytes.
    pub fn max_message_bytes(&self) -> usize {
        self.0.max_message_bytes
    }

    /// What the path has done since the start.
    pub fn stats(&self) -> &Arc<IngestStats> {
        &self.0.stats
    }

    /// What was stored of clusters that belong to another Echo.
    pub fn strays(&self) -> &Strays {
        &self.0.strays
    }

    /// What is in flight now, and how much of it may be.
    pub fn in_flight(&self) -> InFlight {
        self.0.admission.in_flight()
    }

    /// Follows a body that arrives piece by piece.
    pub fn arriving(&self, sender: &Sender) -> Arriving {
        self.0.admission.arriving(sender)
    }

    /// Longest time for a body to arrive as a whole.
    pub fn arrival_deadline(&self) -> Duration {
        self.0.admission.arrival_deadline()
    }

    /// Takes up memory, in bytes, until this is dropped: what a request may need that has to be unpacked or
    /// translated before its size is known.
    pub async fn unpacking(&self, sender: &Sender, bytes: usize) -> Result<Unpacking, AdmitError> {
        self.0.admission.unpacking(sender, bytes).await
    }

    /// Takes up memory for reading a body, in bytes, until the permit is dropped.
    pub fn unfolded(&self, bytes: usize) -> Result<SemaphorePermit<'_>, AdmitError> {
        self.0.admission.unfolded(bytes)
    }

    /// Stores the points or records of a request and returns once they are durable. Without a key the batch is known
    /// by its content. `unpacking` is given back when the body itself has been counted.
    pub async fn accept(
        &self,
        (payload, body): (Payload, Bytes),
        sent: Sent<'_>,
        unpacking: Option<Unpacking>,
    ) -> Result<Accepted, IngestError> {
        let span = match payload {
            Payload::Traces => Span::none(),
            Payload::Metrics | Payload::Logs => {
                trace_span!(target: spans::TARGET, spans::INGEST, bytes = body.len())
            }
        };
        let accepted = self.accept_one((payload, body), sent, unpacking);
        accepted.instrument(span).await
    }

    async fn accept_one(
        &self,
        (payload, body): (Payload, Bytes),
        Sent {
            sender,
            key,
            writer,
        }: Sent<'_>,
        unpacking: Option<Unpacking>,
    ) -> Result<Accepted, IngestError> {
        let Parts {
            admission,
            stats,
            strays,
            ..
        } = &*self.0;
        stats.saw_bytes(body.len());
        let _bytes = admission.bytes(sender, body.len())?;
        drop(unpacking);
        let received = self.0.clock.now();
        let arrived = Stopwatch::start();
        let decoding = trace_span!(target: spans::TARGET, spans::DECODE);
        let read = self.read((payload, body), key, received);
        let (mut decoded, key) = read.instrument(decoding).await?;
        writer.check(&decoded.events)?;
        self.refuse_unnameable(&mut decoded);
        let _points = trace_span!(target: spans::TARGET, spans::ADMIT)
            .in_scope(|| admission.points(sender, decoded.weight()))?;
        let policy = self.policy(&decoded);
        if !decoded.events.is_empty() {
            stats.saw_events(&decoded.events, received);
            let stray = strays.among(&decoded.events);
            let batch = EventBatch {
                key,
                received,
                events: decoded.events,
            };
            let events = batch.events.len();
            let waiting = trace_span!(target: spans::TARGET, spans::APPEND, events);
            let appended = admission.append(&*self.0.store, batch);
            match appended.instrument(waiting).await? {
                Appended::Stored { events } => {
                    stats.saw_stored(events);
                    strays.stored(stray);
                }
                Appended::Duplicate => stats.saw_duplicate(),
            }
        }
        stats.saw_rejections(&decoded.rejections);
        arrived.stop(stats.acknowledgements());
        Ok(Accepted {
            rejections: decoded.rejections,
            policy,
        })
    }

    async fn read(
        &self,
        (payload, body): (Payload, Bytes),
        key: Option<BatchKey>,
        received: Nanos,
    ) -> Result<(Decoded, BatchKey), IngestError> {
        let read = move |body: Bytes| {
            let key = key.unwrap_or_else(|| of_content(&body));
            decode_body(payload, &body, received).map(|decoded| (decoded, key))
        };
        if body.len() <= MAX_INLINE_BYTES {
            return Ok(read(body)?);
        }
        let parts = Arc::clone(&self.0);
        let aside = spawn_blocking(move || {
            let _memory = parts.admission.unfolded(unfolded_bytes(payload, &body))?;
            Ok(read(body)?)
        });
        aside.await.map_err(|_panicked| IngestError::Aborted)?
    }

    /// Turns away what brings more names and senders than are kept.
    fn refuse_unnameable(&self, decoded: &mut Decoded) {
        let unnameable = self.0.store.unnameable(&decoded.events);
        decoded.refuse(unnameable.into_iter().map(|(place, why)| {
            let reason = match why {
                Unnameable::Name => RejectReason::TooManyNames,
                Unnameable::Origin => RejectReason::TooManySenders,
            };
            (place, reason)
        }));
    }

    fn policy(&self, decoded: &Decoded) -> Option<ClusterPolicy> {
        let cluster = &decoded.events.first()?.origin.cluster;
        let table = Arc::clone(&self.0.policies.borrow());
        table.of(cluster).cloned()
    }
}
