//! How much may be in flight at once, and how long arriving and storing may take.
//!
//! Bounds count bytes and points, never requests: a request can hold one point or a hundred thousand.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::error::{Code, Coded};
use crate::model::event::EventBatch;
use crate::store::{Appended, EventStore, StoreError};

/// Bounds of what is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Most points (sampled operations count as points) between decoding and acknowledgement.
    pub max_points: u32,
    /// Most bytes of request bodies between arrival and acknowledgement.
    pub max_bytes: u32,
    /// Most memory that compressed requests may unpack to before they have arrived as a whole, bytes. Each counts as
    /// the largest message, with zstd as two of them: how much it holds shows only when it is in memory.
    pub max_unpacking_bytes: u32,
    /// Longest wait for that memory. Agents compress everything and may all send at the same moment, so that being
    /// refused at once would be the rule.
    pub unpacking_wait: Duration,
    /// Longest time for a body to arrive as a whole: whoever does not end it holds on to memory.
    pub arrival_deadline: Duration,
    /// Most memory that bodies may take while they are decoded, bytes.
    pub max_unfolded_bytes: u32,
    /// Longest wait for the store to make a batch durable.
    pub append_deadline: Duration,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self {
            max_points: 200_000,
            max_bytes: 64 * 1024 * 1024,
            max_unpacking_bytes: 256 * 1024 * 1024,
            unpacking_wait: Duration::from_secs(5),
            arrival_deadline: Duration::from_secs(10),
            max_unfolded_bytes: 512 * 1024 * 1024,
            append_deadline: Duration::from_secs(10),
        }
    }
}

/// What is between arrival and acknowledgement, and how much of it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlight {
    /// Points, sampled operations included.
    pub points: u64,
    /// Most points.
    pub max_points: u64,
    /// Bytes of request bodies.
    pub bytes: u64,
    /// Most bytes.
    pub max_bytes: u64,
}

/// Why a request cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError {
    /// Others take up the room at the moment.
    #[error("too many {what} in flight at the moment, try again")]
    Busy {
        /// What there is too much of.
        what: &'static str,
    },
    /// The request does not fit even when it is alone.
    #[error("{amount} {what} in one request, at most {limit} are taken; send smaller requests")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        amount: usize,
        /// How much could be taken.
        limit: u32,
    },
    /// The store took too long; the batch may or may not be stored, and is stored once when sent again.
    #[error("the batch was not durable after {} ms, send it again", .after.as_millis())]
    Deadline {
        /// The deadline.
        after: Duration,
    },
    /// The engine failed, as it does on a full disk. The batch itself is sound, so it has to be kept and sent again.
    #[error("the collector cannot store at the moment, send it again")]
    CannotStore(#[source] StoreError),
    /// The store refused.
    #[error(transparent)]
    Store(StoreError),
}

impl From<StoreError> for AdmitError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Engine { .. } | StoreError::Fatal { .. } => Self::CannotStore(error),
            _ => Self::Store(error),
        }
    }
}

impl Coded for AdmitError {
    fn code(&self) -> Code {
        match self {
            Self::Busy { .. } | Self::CannotStore(_) => Code::Busy,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::Deadline { .. } => Code::Timeout,
            Self::Store(error) => error.code(),
        }
    }
}

/// Counts what is in flight.
#[derive(Debug)]
pub struct Admission {
    config: AdmissionConfig,
    bytes: Arc<Semaphore>,
    unpacking: Arc<Semaphore>,
    points: Semaphore,
    unfolded: Semaphore,
}

/// The room that a body takes up while it arrives.
#[derive(Debug)]
pub struct Arriving {
    room: Arc<Semaphore>,
    limit: u32,
    held: Option<OwnedSemaphorePermit>,
}

impl Admission {
    /// Nothing in flight yet.
    pub fn new(config: AdmissionConfig) -> Self {
        let room = |amount: u32| Semaphore::new(usize::try_from(amount).unwrap_or(usize::MAX));
        Self {
            config,
            bytes: Arc::new(room(config.max_bytes)),
            unpacking: Arc::new(room(config.max_unpacking_bytes)),
            points: room(config.max_points),
            unfolded: room(config.max_unfolded_bytes),
        }
    }

    /// What is in flight now.
    pub fn in_flight(&self) -> InFlight {
        let taken = |room: &Semaphore, limit: u32| {
            let free = u32::try_from(room.available_permits()).unwrap_or(u32::MAX);
            u64::from(limit.saturating_sub(free))
        };
        let AdmissionConfig {
            max_points,
            max_bytes,
            ..
        } = self.config;
        InFlight {
            points: taken(&self.points, max_points),
            max_points: u64::from(max_points),
            bytes: taken(&self.bytes, max_bytes),
            max_bytes: u64::from(max_bytes),
        }
    }

    /// Follows a body that arrives piece by piece.
    pub fn arriving(&self) -> Arriving {
        Arriving {
            room: Arc::clone(&self.bytes),
            limit: self.config.max_bytes,
            held: None,
        }
    }

    /// Longest time for a body to arrive as a whole.
    pub const fn arrival_deadline(&self) -> Duration {
        self.config.arrival_deadline
    }

    /// Takes up memory for a message that may unpack to `bytes` until the permit is dropped; waits for it, first come
    /// first served, when others have it all.
    pub async fn unpacking(&self, bytes: usize) -> Result<OwnedSemaphorePermit, AdmitError> {
        // A message that could be larger than all of it has all of it.
        let limit = self.config.max_unpacking_bytes;
        let permits = u32::try_from(bytes).map_or(limit, |bytes| bytes.min(limit));
        let room = Arc::clone(&self.unpacking).acquire_many_owned(permits);
        match tokio::time::timeout(self.config.unpacking_wait, room).await {
            Ok(Ok(held)) => Ok(held),
            Ok(Err(_)) | Err(_) => Err(AdmitError::Busy {
                what: "compressed requests",
            }),
        }
    }

    /// Takes up room for the body of a request until the permit is dropped.
    pub fn bytes(&self, bytes: usize) -> Result<SemaphorePermit<'_>, AdmitError> {
        enter(&self.bytes, "bytes", bytes, self.config.max_bytes)
    }

    /// Takes up room for the decoded points of a request until the permit is dropped.
    pub fn points(&self, points: usize) -> Result<SemaphorePermit<'_>, AdmitError> {
        enter(&self.points, "points", points, self.config.max_points)
    }

    /// Takes up memory for decoding until the permit is dropped.
    pub fn unfolded(&self, bytes: usize) -> Result<SemaphorePermit<'_>, AdmitError> {
        let limit = self.config.max_unfolded_bytes;
        enter(&self.unfolded, "bytes once decoded", bytes, limit)
    }

    /// Stores the batch, or gives up at the deadline.
    pub async fn append(
        &self,
        store: &dyn EventStore,
        batch: EventBatch,
    ) -> Result<Appended, AdmitError> {
        let after = self.config.append_deadline;
        match tokio::time::timeout(after, store.append(batch)).await {
            Ok(appended) => Ok(appended?),
            Err(_elapsed) => Err(AdmitError::Deadline { after }),
        }
    }
}

impl Arriving {
    /// Takes up room for another piece; all of it is given back when this is dropped.
    pub fn add(&mut self, bytes: usize) -> Result<(), AdmitError> {
        let what = "bytes";
        let permits = permits(what, bytes, self.limit)?;
        let piece = Arc::clone(&self.room)
            .try_acquire_many_owned(permits)
            .map_err(|_full| AdmitError::Busy { what })?;
        self.held = Some(match self.held.take() {
            Some(mut held) => {
                held.merge(piece);
                held
            }
            None => piece,
        });
        Ok(())
    }
}

fn enter<'s>(
    room: &'s Semaphore,
    what: &'static str,
    amount: usize,
    limit: u32,
) -> Result<SemaphorePermit<'s>, AdmitError> {
    let permits = permits(what, amount, limit)?;
    room.try_acquire_many(permits)
        .map_err(|_full| AdmitError::Busy { what })
}

fn permits(what: &'static str, amount: usize, limit: u32) -> Result<u32, AdmitError> {
    let permits = u32::try_from(amount).ok();
    permits
        .filter(|permits| *permits <= limit)
        .ok_or(AdmitError::TooLarge {
            what,
            amount,
            limit,
        })
}

#[cfg(test)]
mod tests {
    use super::{Admission, AdmissionConfig, AdmitError};

    fn admission() -> Admission {
        Admission::new(AdmissionConfig {
            max_points: 10,
            max_bytes: 100,
            ..AdmissionConfig::default()
        })
    }

    #[test]
    fn room_is_given_back_when_a_request_ends() {
        let admission = admission();
        let first = admission.points(8).unwrap();
        assert!(matches!(
            admission.points(3),
            Err(AdmitError::Busy { what: "points" })
        ));
        assert_eq!(admission.in_flight().points, 8);
        drop(first);
        assert!(admission.points(10).is_ok());
    }

    #[test]
    fn what_can_never_fit_is_not_called_busy() {
        let refused = admission().bytes(101).unwrap_err();
        assert!(matches!(
            refused,
            AdmitError::TooLarge {
                what: "bytes",
                amount: 101,
                limit: 100
            }
        ));
    }

    #[test]
    fn a_body_takes_up_room_while_it_arrives() {
        let admission = admission();
        let mut arriving = admission.arriving();
        arriving.add(60).unwrap();
        arriving.add(30).unwrap();
        let full = arriving.add(11);
        assert!(matches!(full, Err(AdmitError::Busy { what: "bytes" })));
        assert!(admission.bytes(11).is_err());
        drop(arriving);
        assert!(admission.bytes(100).is_ok());
    }

    #[test]
    fn bytes_and_points_do_not_share_their_room() {
        let admission = admission();
        let _bytes = admission.bytes(100).unwrap();
        assert!(admission.points(10).is_ok());
    }
}
