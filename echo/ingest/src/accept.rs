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
use echo_store::{Appended, EventStore, ExceededLimit, StoreError};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{Instrument, Span, trace_span};

use super::batch_key::{BatchKeyError, of_content};
use super::budget::{Budget, Held, OverBudget};
use super::counters::IngestStats;
use super::decode::memory_estimate::{kept_bytes, unfolded_bytes};
use super::decode::reject::{RejectReason, Rejections};
use super::decode::{Decoded, Malformed, Payload, decode_body};
use super::misrouted::Strays;
use super::sender_auth::{Foreign, Writer};

/// Longest body that is translated or decoded on the spot, in bytes: longer ones would hold up the other requests of the thread.
pub(super) const MAX_INLINE_BYTES: usize = 64 * 1024;

/// Settings of the ingest path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IngestConfig {
    /// Most memory that requests take up between their first byte and their acknowledgement, bytes. The requests of one
    /// sender may take half.
    pub max_bytes: usize,
    /// Largest request after decompression, in bytes.
    pub max_message_bytes: usize,
    /// Longest time for a body to arrive as a whole: whoever does not end it holds on to memory.
    pub arrival_deadline: Duration,
    /// Longest wait for the store to make a batch durable.
    pub append_deadline: Duration,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            max_bytes: 512 * 1024 * 1024,
            max_message_bytes: 16 * 1024 * 1024,
            arrival_deadline: Duration::from_secs(10),
            append_deadline: Duration::from_secs(10),
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
    /// There is no memory for it.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The store took too long; the batch may or may not be stored, and is stored once when sent again.
    #[error("the batch was not durable after {} ms, send it again", .after.as_millis())]
    NotDurable {
        /// The deadline.
        after: Duration,
    },
    /// The engine failed, as it does on a full disk. The batch itself is sound, so it has to be kept and sent again.
    #[error("the collector cannot store at the moment, send it again")]
    CannotStore(#[source] StoreError),
    /// The store refused.
    #[error(transparent)]
    Store(StoreError),
    /// The decoder did not come back.
    #[error("decoding was aborted")]
    Aborted,
}

impl IngestError {
    /// Whether it is the collector that is at fault, so that the error belongs into its log.
    pub const fn is_ours(&self) -> bool {
        matches!(self, Self::Aborted | Self::CannotStore(_))
    }
}

impl From<StoreError> for IngestError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Engine { .. } | StoreError::Fatal { .. } => Self::CannotStore(error),
            _ => Self::Store(error),
        }
    }
}

impl Coded for IngestError {
    fn code(&self) -> Code {
        match self {
            Self::Unreadable(_) | Self::Malformed(_) | Self::Unsupported(_) => Code::Invalid,
            Self::BatchKey(error) => error.code(),
            Self::TooLarge { .. } => Code::TooLarge,
            Self::Slow { .. } | Self::NotDurable { .. } => Code::Timeout,
            Self::Foreign(error) => error.code(),
            Self::OverBudget(error) => error.code(),
            Self::CannotStore(_) => Code::Busy,
            Self::Store(error) => error.code(),
            Self::Aborted => Code::Internal,
        }
    }
}

/// A request as it arrived.
#[derive(Debug)]
pub struct Sent {
    /// What it carries.
    pub payload: Payload,
    /// Its message.
    pub body: Bytes,
    /// The memory that it takes up.
    pub held: Held,
    /// The number of the batch, if it has one.
    pub key: Option<BatchKey>,
    /// For whom it may send.
    pub writer: Writer,
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
    config: IngestConfig,
    budget: Budget,
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
            config,
            budget: Budget::new(config.max_bytes),
            store,
            clock,
            policies,
            stats: Arc::default(),
            strays,
        }))
    }

    /// The settings.
    pub fn config(&self) -> &IngestConfig {
        &self.0.config
    }

    /// The memory that requests may take up, and do.
    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// What the path has done since the start.
    pub fn stats(&self) -> &Arc<IngestStats> {
        &self.0.stats
    }

    /// What was stored of clusters that belong to another Echo.
    pub fn strays(&self) -> &Strays {
        &self.0.strays
    }

    /// Stores the points or records of a request and returns once they are durable. Without a key the batch is known
    /// by its content.
    pub async fn accept(&self, sent: Sent) -> Result<Accepted, IngestError> {
        let span = match sent.payload {
            Payload::Traces => Span::none(),
            Payload::Metrics | Payload::Logs => {
                trace_span!(target: spans::TARGET, spans::INGEST, bytes = sent.body.len())
            }
        };
        self.accept_one(sent).instrument(span).await
    }

    async fn accept_one(&self, sent: Sent) -> Result<Accepted, IngestError> {
        let Parts { stats, strays, .. } = &*self.0;
        stats.saw_bytes(sent.body.len());
        let received = self.0.clock.now();
        let arrived = Stopwatch::start();
        let Sent {
            payload,
            body,
            held,
            key,
            writer,
        } = sent;
        let decoding = trace_span!(target: spans::TARGET, spans::DECODE);
        let read = read((payload, body), held, (key, received));
        let Read {
            mut decoded,
            key,
            held: _held,
        } = read.instrument(decoding).await?;
        writer.check(&decoded.events)?;
        self.refuse_unnameable(&mut decoded, &writer);
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
            match self.append(batch).instrument(waiting).await? {
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

    /// Stores the batch, or gives up at the deadline.
    async fn append(&self, batch: EventBatch) -> Result<Appended, IngestError> {
        let after = self.0.config.append_deadline;
        let appended = timeout(after, self.0.store.append(batch)).await;
        Ok(appended.map_err(|_elapsed| IngestError::NotDurable { after })??)
    }

    /// Turns away what brings more names and senders than are kept.
    fn refuse_unnameable(&self, decoded: &mut Decoded, writer: &Writer) {
        let over_limits = self
            .0
            .store
            .over_entry_limits(&decoded.events, writer.token());
        decoded.refuse(over_limits.into_iter().map(|(place, why)| {
            let reason = match why {
                ExceededLimit::Series => RejectReason::TooManySeries,
                ExceededLimit::Origin => RejectReason::TooManySenders,
                ExceededLimit::Cluster => RejectReason::TooManyClusters,
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

/// A request that was decoded.
struct Read {
    decoded: Decoded,
    key: BatchKey,
    held: Held,
}

/// Decodes a body. It is known what it unfolds to before it is, unless it is small.
async fn read(
    (payload, body): (Payload, Bytes),
    mut held: Held,
    (key, received): (Option<BatchKey>, Nanos),
) -> Result<Read, IngestError> {
    let is_small = body.len() <= MAX_INLINE_BYTES;
    let read = move || {
        if !is_small {
            held.resize(unfolded_bytes(payload, &body))?;
        }
        let key = key.unwrap_or_else(|| of_content(&body));
        let decoded = decode_body(payload, &body, received)?;
        held.resize(kept_bytes(&decoded, body.len()))?;
        Ok(Read { decoded, key, held })
    };
    if is_small {
        return read();
    }
    let aside = spawn_blocking(read);
    aside.await.map_err(|_panicked| IngestError::Aborted)?
}

#[cfg(test)]
mod tests {
    use echo_store::duckdb::DuckDbConfig;

    use super::IngestConfig;
    use crate::decode::memory_estimate::EVENT_BYTES;

    #[test]
    fn one_sender_cannot_fill_the_queue_of_the_store() {
        let share = IngestConfig::default().max_bytes / 2;
        let queue = DuckDbConfig::new("echo.duckdb").queue_events;
        assert!(share / EVENT_BYTES < usize::try_from(queue).unwrap());
    }
}
