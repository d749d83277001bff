//! Identifiers, validated on construction.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Longest accepted name, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

/// Error of a text or number that is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The name is empty.
    #[error("{what} is empty")]
    Empty {
        /// Kind of identifier.
        what: &'static str,
    },
    /// The name is longer than [`MAX_NAME_BYTES`].
    #[error("{what} is longer than {MAX_NAME_BYTES} bytes")]
    TooLong {
        /// Kind of identifier.
        what: &'static str,
    },
    /// The name holds a control character, which would corrupt logs and responses.
    #[error("{what} holds a control character")]
    ControlCharacter {
        /// Kind of identifier.
        what: &'static str,
    },
    /// The text is not 1 to 16 hexadecimal digits.
    #[error("{what} is not a 64-bit hexadecimal number")]
    NotHex {
        /// Kind of identifier.
        what: &'static str,
    },
    /// The rank is not below its world size, or one of them does not fit 32 bits.
    #[error("rank {rank} is not below world size {world_size}")]
    RankOutsideWorld {
        /// The rank as it was given.
        rank: i64,
        /// The world size as it was given.
        world_size: i64,
    },
}

fn checked_name(what: &'static str, name: &str) -> Result<Arc<str>, IdError> {
    if name.is_empty() {
        return Err(IdError::Empty { what });
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(IdError::TooLong { what });
    }
    if name.chars().any(char::is_control) {
        return Err(IdError::ControlCharacter { what });
    }
    Ok(Arc::from(name))
}

/// Declares a name: a short, printable, cheaply cloned text that cannot be confused with another
/// kind of name.
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = IdError;

            fn from_str(name: &str) -> Result<Self, IdError> {
                checked_name($what, name).map(Self)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// A cluster: the unit of policies, rates and reports.
    ClusterId, "cluster"
);
name!(
    /// A node: one host that holds GPUs.
    NodeId, "node"
);
name!(
    /// A job: the ranks that train or serve one model together.
    JobId, "job"
);
name!(
    /// A metric name as in OTLP.
    MetricName, "metric name"
);
name!(
    /// A collective operation in NCCL's spelling without its prefix, such as `AllReduce`.
    Op, "operation"
);
name!(
    /// One agent process; new at every start of the agent.
    AgentInstance, "agent instance"
);

/// Declares a 64-bit hash that prints as 16 hexadecimal digits.
macro_rules! hash_id {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(u64);

        impl $type {
            /// Creates the hash from a number.
            pub const fn new(hash: u64) -> Self {
                Self(hash)
            }

            /// The hash as a number.
            pub const fn value(self) -> u64 {
                self.0
            }
        }

        impl FromStr for $type {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let digits = text.strip_prefix("0x").unwrap_or(text);
                let plain = (1..=16).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
                if !plain {
                    return Err(IdError::NotHex { what: $what });
                }
                u64::from_str_radix(digits, 16).map(Self).map_err(|_not_hex| IdError::NotHex { what: $what })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:016x}", self.0)
            }
        }
    };
}

hash_id!(
    /// A communicator: a hash of its NCCL unique id, equal on all its ranks.
    CommId, "communicator"
);
hash_id!(
    /// A role: hash of the operations of a rank in one iteration. Ranks of one job with the same
    /// role are comparable.
    RoleId, "role"
);
hash_id!(
    /// An incident: one cause with one beginning.
    IncidentId, "incident"
);

impl IncidentId {
    /// Derives the id from a description: the first eight bytes of its SHA-256, big-endian. The
    /// description contains names chosen by senders, and the hash prevents a sender from giving its
    /// incident the id of another one.
    pub fn from_description(description: &str) -> Self {
        let hash = Sha256::digest(description);
        let first = hash.iter().take(8);
        Self(first.fold(0, |id, byte| id << 8 | u64::from(*byte)))
    }
}

/// A rank of a job (0-based).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(u32);

impl Rank {
    /// Creates a rank from its number. [`RankInJob`] checks it against the world size.
    pub const fn new(rank: u32) -> Self {
        Self(rank)
    }

    /// The rank as a number.
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A rank together with its world size, when that is known; the rank is below it by construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankInJob {
    rank: Rank,
    world_size: Option<u32>,
}

impl RankInJob {
    /// Checks that `rank` is a rank of a job with `world_size` ranks.
    pub fn new(rank: i64, world_size: Option<i64>) -> Result<Self, IdError> {
        let outside = || IdError::RankOutsideWorld {
            rank,
            world_size: world_size.unwrap_or_else(|| i64::from(u32::MAX)),
        };
        let checked = u32::try_from(rank).map_err(|_negative| outside())?;
        let world_size = world_size
            .map(|size| u32::try_from(size).map_err(|_negative| outside()))
            .transpose()?;
        if world_size.is_some_and(|size| checked >= size) {
            return Err(outside());
        }
        Ok(Self {
            rank: Rank::new(checked),
            world_size,
        })
    }

    /// The rank.
    pub const fn rank(self) -> Rank {
        self.rank
    }

    /// Number of ranks of the job, if the sender reported it.
    pub const fn world_size(self) -> Option<u32> {
        self.world_size
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterId, CommId, IdError, RankInJob};

    #[test]
    fn a_communicator_is_printed_in_the_format_that_is_parsed() {
        let comm: CommId = "36210ed1bd447fe0".parse().unwrap();
        assert_eq!(comm.to_string(), "36210ed1bd447fe0");
        assert_eq!(
            "0x1f".parse::<CommId>().unwrap().to_string(),
            "000000000000001f"
        );
    }

    #[test]
    fn a_signed_or_overlong_number_is_no_communicator() {
        for text in ["", "+1f", "-1", "12345678901234567", "xyz"] {
            assert!(text.parse::<CommId>().is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn a_rank_must_lie_below_its_world_size() {
        assert!(RankInJob::new(3, Some(4)).is_ok());
        assert!(RankInJob::new(0, None).is_ok());
        assert_eq!(
            RankInJob::new(4, Some(4)).unwrap_err(),
            IdError::RankOutsideWorld {
                rank: 4,
                world_size: 4
            }
        );
        assert!(RankInJob::new(-1, Some(4)).is_err());
        assert!(RankInJob::new(0, Some(-4)).is_err());
    }

    #[test]
    fn a_name_with_control_characters_is_refused() {
        assert!("prod\n{}".parse::<ClusterId>().is_err());
        assert!("".parse::<ClusterId>().is_err());
        assert!("x".repeat(257).parse::<ClusterId>().is_err());
    }
}
