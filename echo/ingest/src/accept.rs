//! Processing of a request, from its bytes to the acknowledgement, for all transports.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use echo_core::clock::Clock;
use echo_core::error::{Code, Coded};
use echo_core::ids::ClusterId;
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

use super::batch_key::{BatchKeyError, key_from_content};
use super::budget::{Budget, OverBudget, Reservation};
use super::counters::IngestStats;
use super::decode::memory_estimate::{decoded_bytes, estimate_decoded_bytes};
use super::decode::reject::{RejectReason, Rejections};
use super::decode::{Decoded, Malformed, Payload, decode_body};
use super::misrouted::Misrouted;
use super::sender_auth::{Forbidden, SenderAuth};

/// Maximum size of a body that is decoded on the async thread, in bytes; longer bodies would delay
/// other requests of the thread.
pub(super) const MAX_INLINE_BYTES: usize = 64 * 1024;

/// Settings of the ingest path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IngestConfig {
    /// Memory budget of all requests between their first byte and their acknowledgement, bytes. The
    /// requests of one sender may use half.
    pub max_bytes: usize,
    /// Maximum request size after decompression, in bytes.
    pub max_message_bytes: usize,
    /// Timeout for a body to arrive completely; an incomplete body holds memory.
    pub arrival_deadline: Duration,
    /// Timeout for the store to make a batch durable.
    pub append_deadline: Duration,
    /// Cluster of points, records and spans that name none; without it they are rejected.
    pub default_cluster: Option<ClusterId>,
}

impl Default for IngestConfig {
    fn default() -> Self {
        Self {
            max_bytes: 512 * 1024 * 1024,
            max_message_bytes: 16 * 1024 * 1024,
            arrival_deadline: Duration::from_secs(10),
            append_deadline: Duration::from_secs(10),
            default_cluster: None,
        }
    }
}

/// Error that fails a request as a whole.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The transport framing or the body is invalid.
    #[error("cannot read the request: {0}")]
    Unreadable(String),
    /// The body is not an OTLP request.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The batch number in the metadata is invalid.
    #[error(transparent)]
    BatchKey(#[from] BatchKeyError),
    /// The content type or compression is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// The message exceeds the size limit.
    #[error("the request is larger than {limit} bytes; send smaller requests")]
    TooLarge {
        /// Maximum size after decompression, bytes.
        limit: usize,
    },
    /// The body did not arrive in time.
    #[error("the request body was incomplete after {} ms; retry", .after.as_millis())]
    ArrivalTimeout {
        /// Timeout.
        after: Duration,
    },
    /// The sender may not send for this cluster or node.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// The memory budget is exhausted.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    /// The store took too long; the batch may or may not be stored, and a retry stores it once.
    #[error("the batch was not durable after {} ms; retry", .after.as_millis())]
    NotDurable {
        /// The deadline.
        after: Duration,
    },
    /// The engine failed, for example on a full disk. The batch itself is valid and must be
    /// retried.
    #[error("the collector cannot store at the moment; retry")]
    CannotStore(#[source] StoreError),
    /// The store rejected the batch.
    #[error(transparent)]
    Store(StoreError),
    /// The decoder panicked.
    #[error("decoding was aborted")]
    Aborted,
}

impl IngestError {
    /// Returns whether the collector is at fault, so that the error must be logged.
    pub const fn is_internal(&self) -> bool {
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
            Self::ArrivalTimeout { .. } | Self::NotDurable { .. } => Code::Timeout,
            Self::Forbidden(error) => error.code(),
            Self::OverBudget(error) => error.code(),
            Self::CannotStore(_) => Code::Busy,
            Self::Store(error) => error.code(),
            Self::Aborted => Code::Internal,
        }
    }
}

/// A received request.
#[derive(Debug)]
pub struct IngestRequest {
    /// Kind of payload.
    pub payload: Payload,
    /// Protobuf message.
    pub body: Bytes,
    /// Memory reserved for the request.
    pub memory: Reservation,
    /// Key of the batch, if it is numbered.
    pub key: Option<BatchKey>,
    /// Permissions of the sender.
    pub auth: SenderAuth,
}

/// Result of an accepted request.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// Rejected points. All others are stored durably.
    pub rejections: Rejections,
    /// The policy of the first cluster named in the request.
    pub policy: Option<ClusterPolicy>,
    /// Encoded culprits of the node of the first point; `None` without a statement.
    pub culprits: Option<Bytes>,
}

/// Ingest path. Cheap to clone.
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
    misrouted: Misrouted,
}

impl Ingest {
    /// Creates the ingest path.
    pub fn new(
        config: IngestConfig,
        (store, clock): (Arc<dyn EventStore>, Arc<dyn Clock>),
        policies: watch::Receiver<Arc<PolicyTable>>,
        misrouted: Misrouted,
    ) -> Self {
        Self(Arc::new(Parts {
            budget: Budget::new(config.max_bytes),
            config,
            store,
            clock,
            policies,
            stats: Arc::default(),
            misrouted,
        }))
    }

    /// Returns the settings.
    pub fn config(&self) -> &IngestConfig {
        &self.0.config
    }

    /// Returns the memory budget.
    pub fn budget(&self) -> &Budget {
        &self.0.budget
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<IngestStats> {
        &self.0.stats
    }

    /// Returns the counter of misrouted points.
    pub fn misrouted(&self) -> &Misrouted {
        &self.0.misrouted
    }

    /// Stores the points, records or spans of a request and returns once they are durable. A batch
    /// without a key is identified by its content.
    pub async fn accept(&self, request: IngestRequest) -> Result<Accepted, IngestError> {
        let span = match request.payload {
            Payload::Traces => Span::none(),
            Payload::Metrics | Payload::Logs => {
                trace_span!(target: spans::TARGET, spans::INGEST, bytes = request.body.len())
            }
        };
        self.process(request).instrument(span).await
    }

    async fn process(&self, request: IngestRequest) -> Result<Accepted, IngestError> {
        let Parts {
            stats, misrouted, ..
        } = &*self.0;
        stats.count_bytes(request.body.len());
        let received = self.0.clock.now();
        let stopwatch = Stopwatch::start();
        let span = trace_span!(target: spans::TARGET, spans::DECODE);
        let DecodedRequest {
            mut decoded,
            key,
            auth,
            memory: _reserved,
        } = self.decode(request, received).instrument(span).await?;
        auth.check(&decoded.events)?;
        self.reject_over_limit(&mut decoded, &auth);
        let (policy, culprits) = self.policy(&decoded).unwrap_or_default();
        if !decoded.events.is_empty() {
            stats.count_events(&decoded.events, received);
            let misrouted_in_batch = misrouted.find(&decoded.events);
            let batch = EventBatch {
                key,
                received,
                events: decoded.events,
            };
            let events = batch.events.len();
            let waiting = trace_span!(target: spans::TARGET, spans::APPEND, events);
            match self.append(batch).instrument(waiting).await? {
                Appended::Stored { events } => {
                    stats.count_stored(events);
                    misrouted.record(misrouted_in_batch);
                }
                Appended::Duplicate => stats.count_duplicate(),
            }
        }
        stats.count_rejections(&decoded.rejections);
        stopwatch.stop(stats.acknowledgements());
        Ok(Accepted {
            rejections: decoded.rejections,
            policy,
            culprits,
        })
    }

    /// Decodes the body of a request that arrived at `received`. Unless it is small, the memory of its
    /// events is estimated and reserved first.
    async fn decode(
        &self,
        request: IngestRequest,
        received: Nanos,
    ) -> Result<DecodedRequest, IngestError> {
        let IngestRequest {
            payload,
            body,
            mut memory,
            key,
            auth,
        } = request;
        let default_cluster = self.0.config.default_cluster.clone();
        let is_small = body.len() <= MAX_INLINE_BYTES;
        let work = move || {
            if !is_small {
                memory.resize(estimate_decoded_bytes(payload, &body))?;
            }
            let key = key.unwrap_or_else(|| key_from_content(&body));
            let decoded = decode_body(payload, &body, received, default_cluster)?;
            memory.resize(decoded_bytes(&decoded, body.len()))?;
            Ok(DecodedRequest {
                decoded,
                key,
                auth,
                memory,
            })
        };
        if is_small {
            return work();
        }
        let task = spawn_blocking(work);
        task.await.map_err(|_panicked| IngestError::Aborted)?
    }

    /// Appends the batch to the store, within the deadline.
    async fn append(&self, batch: EventBatch) -> Result<Appended, IngestError> {
        let after = self.0.config.append_deadline;
        let appended = timeout(after, self.0.store.append(batch)).await;
        Ok(appended.map_err(|_elapsed| IngestError::NotDurable { after })??)
    }

    /// Rejects events that exceed the limits of series, senders or clusters.
    fn reject_over_limit(&self, decoded: &mut Decoded, auth: &SenderAuth) {
        let over_limits = self
            .0
            .store
            .over_entry_limits(&decoded.events, auth.token());
        decoded.reject_at(over_limits.into_iter().map(|(index, why)| {
            let reason = match why {
                ExceededLimit::Series => RejectReason::TooManySeries,
                ExceededLimit::Origin => RejectReason::TooManySenders,
                ExceededLimit::Cluster => RejectReason::TooManyClusters,
            };
            (index, reason)
        }));
    }

    /// Returns the policy and the culprits for the sender of the first point.
    fn policy(&self, decoded: &Decoded) -> Option<(Option<ClusterPolicy>, Option<Bytes>)> {
        let origin = &decoded.events.first()?.origin;
        let table = Arc::clone(&self.0.policies.borrow());
        let culprits = table.culprits(&origin.cluster, &origin.node);
        Some((table.for_cluster(&origin.cluster).cloned(), culprits))
    }
}

/// A decoded request.
struct DecodedRequest {
    decoded: Decoded,
    key: BatchKey,
    auth: SenderAuth,
    memory: Reservation,
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
