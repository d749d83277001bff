//! How much may be in flight at once, and how long arriving and storing may take.
//!
//! Bounds count bytes and points, never requests: a request can hold one point or a hundred thousand. No sender may hold
//! more of either than it leaves free to the others.

use std::sync::Arc;
use std::time::Duration;

use echo_core::error::{Code, Coded};
use echo_core::model::event::EventBatch;
use echo_store::{Appended, EventStore, StoreError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::room::{NoRoom, Part, Room};
use super::sender::Sender;

/// Bounds of what is in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Most points (sampled operations count as points) between decoding and acknowledgement. A request may hold half.
    pub max_points: u32,
    /// Most bytes of request bodies between arrival and acknowledgement. A request may hold half.
    pub max_bytes: u32,
    /// Most memory that compressed requests may unpack to before they have arrived as a whole, bytes. Each counts as
    /// the largest message, with zstd as two of them: how much it holds shows only when it is in memory. One sender may
    /// have or wait for half, and in any case for one request.
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
    /// The sender has its share of the room, with requests that are not answered yet.
    #[error(
        "this sender has too many {what} in flight at the moment, wait for answers and try again"
    )]
    Share {
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
        limit: u64,
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
            Self::Share { .. } => Code::TooMany,
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
    bytes: Room,
    unpacking: Arc<Semaphore>,
    /// What each sender has or waits for of that.
    asked: Room,
    points: Room,
    unfolded: Semaphore,
}

/// The room that a body takes up while it arrives.
#[derive(Debug)]
pub struct Arriving(Part);

/// The memory that is set aside for a request that has to be unpacked, and its sender's part of it.
#[derive(Debug)]
pub struct Unpacking {
    _memory: OwnedSemaphorePermit,
    _asked: Part,
}

impl Admission {
    /// Nothing in flight yet.
    pub fn new(config: AdmissionConfig) -> Self {
        let memory = |amount: u32| Semaphore::new(usize::try_from(amount).unwrap_or(usize::MAX));
        Self {
            config,
            bytes: Room::new(config.max_bytes.into()),
            unpacking: Arc::new(memory(config.max_unpacking_bytes)),
            asked: Room::new(u64::MAX),
            points: Room::new(config.max_points.into()),
            unfolded: memory(config.max_unfolded_bytes),
        }
    }

    /// What is in flight now.
    pub fn in_flight(&self) -> InFlight {
        InFlight {
            points: self.points.taken(),
            max_points: u64::from(self.config.max_points),
            bytes: self.bytes.taken(),
            max_bytes: u64::from(self.config.max_bytes),
        }
    }

    /// Follows a body that arrives piece by piece.
    pub fn arriving(&self, sender: &Sender) -> Arriving {
        Arriving(self.bytes.nothing(sender))
    }

    /// Longest time for a body to arrive as a whole.
    pub const fn arrival_deadline(&self) -> Duration {
        self.config.arrival_deadline
    }

    /// Takes up memory for a message that may unpack to `bytes` until this is dropped; waits for it, first come first
    /// served, when others have it all.
    pub async fn unpacking(&self, sender: &Sender, bytes: usize) -> Result<Unpacking, AdmitError> {
        let what = "compressed requests";
        // A message that could be larger than all of it has all of it.
        let limit = self.config.max_unpacking_bytes;
        let permits = u32::try_from(bytes).map_or(limit, |bytes| bytes.min(limit));
        let (amount, most) = (u64::from(permits), u64::from(limit / 2));
        let asked = self.asked.note(sender, amount, most);
        let asked = asked.map_err(|_share| AdmitError::Share { what })?;
        let memory = Arc::clone(&self.unpacking).acquire_many_owned(permits);
        match tokio::time::timeout(self.config.unpacking_wait, memory).await {
            Ok(Ok(memory)) => Ok(Unpacking {
                _memory: memory,
                _asked: asked,
            }),
            Ok(Err(_)) | Err(_) => Err(AdmitError::Busy { what }),
        }
    }

    /// Takes up room for the body of a request until the part is dropped.
    pub fn bytes(&self, sender: &Sender, bytes: usize) -> Result<Part, AdmitError> {
        take(&self.bytes, sender, ("bytes", bytes))
    }

    /// Takes up room for the decoded points of a request until the part is dropped.
    pub fn points(&self, sender: &Sender, points: usize) -> Result<Part, AdmitError> {
        take(&self.points, sender, ("points", points))
    }

    /// Takes up memory for decoding until the permit is dropped.
    pub fn unfolded(&self, bytes: usize) -> Result<SemaphorePermit<'_>, AdmitError> {
        let (what, limit) = ("bytes once decoded", self.config.max_unfolded_bytes);
        let permits = u32::try_from(bytes).ok().filter(|bytes| *bytes <= limit);
        let permits = permits.ok_or_else(|| AdmitError::TooLarge {
            what,
            amount: bytes,
            limit: limit.into(),
        })?;
        self.unfolded
            .try_acquire_many(permits)
            .map_err(|_full| AdmitError::Busy { what })
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
        let grown = self.0.grow(bytes as u64);
        grown.map_err(|no_room| refused(no_room, ("bytes", bytes)))
    }
}

fn take(
    room: &Room,
    sender: &Sender,
    (what, amount): (&'static str, usize),
) -> Result<Part, AdmitError> {
    let taken = room.take(sender, amount as u64);
    taken.map_err(|no_room| refused(no_room, (what, amount)))
}

fn refused(no_room: NoRoom, (what, amount): (&'static str, usize)) -> AdmitError {
    match no_room {
        NoRoom::Full => AdmitError::Busy { what },
        NoRoom::Share => AdmitError::Share { what },
        NoRoom::Never { most } => AdmitError::TooLarge {
            what,
            amount,
            limit: most,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, AdmissionConfig, AdmitError};
    use crate::sender::Sender;

    fn admission() -> Admission {
        Admission::new(AdmissionConfig {
            max_points: 10,
            max_bytes: 100,
            ..AdmissionConfig::default()
        })
    }

    fn agent(name: &str) -> Sender {
        Sender::Agent(name.parse().unwrap())
    }

    #[test]
    fn room_is_given_back_when_a_request_ends() {
        let admission = admission();
        let (one, two) = (agent("one"), agent("two"));
        let first = admission.points(&one, 5).unwrap();
        let full = admission.points(&two, 3);
        assert!(matches!(full, Err(AdmitError::Busy { what: "points" })));
        assert_eq!(admission.in_flight().points, 5);
        drop(first);
        assert!(admission.points(&two, 5).is_ok());
        assert_eq!(admission.in_flight().points, 0);
    }

    #[test]
    fn a_sender_with_its_share_is_told_so_while_another_gets_in() {
        let admission = admission();
        let (greedy, modest) = (agent("greedy"), agent("modest"));
        let _held = admission.points(&greedy, 5).unwrap();
        let more = admission.points(&greedy, 1);
        assert!(matches!(more, Err(AdmitError::Share { what: "points" })));
        assert!(admission.points(&modest, 2).is_ok());
    }

    #[test]
    fn what_can_never_fit_is_not_called_busy() {
        let refused = admission().bytes(&Sender::Unknown, 51).unwrap_err();
        assert!(matches!(
            refused,
            AdmitError::TooLarge {
                what: "bytes",
                amount: 51,
                limit: 50
            }
        ));
    }

    #[test]
    fn a_body_takes_up_room_while_it_arrives() {
        let admission = admission();
        let (one, two) = (agent("one"), agent("two"));
        let mut arriving = admission.arriving(&one);
        arriving.add(30).unwrap();
        arriving.add(20).unwrap();
        assert!(matches!(
            admission.bytes(&two, 26),
            Err(AdmitError::Busy { what: "bytes" })
        ));
        drop(arriving);
        assert!(admission.bytes(&two, 50).is_ok());
    }

    #[test]
    fn bytes_and_points_do_not_share_their_room() {
        let admission = admission();
        let _bytes = admission.bytes(&Sender::Unknown, 50).unwrap();
        assert!(admission.points(&Sender::Unknown, 5).is_ok());
    }

    #[tokio::test]
    async fn memory_to_unpack_in_is_left_to_others_by_whoever_asks_for_much_of_it() {
        let admission = Admission::new(AdmissionConfig {
            max_unpacking_bytes: 100,
            ..AdmissionConfig::default()
        });
        let (greedy, modest) = (agent("greedy"), agent("modest"));
        let held = admission.unpacking(&greedy, 50).await.unwrap();
        let more = admission.unpacking(&greedy, 1).await.unwrap_err();
        assert!(matches!(more, AdmitError::Share { .. }), "{more:?}");
        assert!(admission.unpacking(&modest, 50).await.is_ok());
        drop(held);
        assert!(admission.unpacking(&greedy, 1_000).await.is_ok(), "alone");
    }
}
