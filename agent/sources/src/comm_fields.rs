//! Offsets of rank and size within NCCL's communicators.
//!
//! The arguments of a split contain neither the number of ranks of its parts nor the caller's new
//! rank, and the layout of a communicator changes with every release. But `ncclCommCount` and
//! `ncclCommUserRank` do nothing except load these two numbers, so their code contains the offsets
//! (verified for NCCL 2.21, 2.23, 2.26 and 2.28 on x86-64). Values read this way are trusted only
//! as long as they agree with communicators whose rank and size were passed as arguments.

/// `mov r32, r/m32`.
const LOAD: u8 = 0x8b;
/// Number of collective counters of a communicator: one for each function that NCCL does not build
/// from transfers.
pub const COUNTERS: usize = 5;
/// Offsets of these counters by the offset of the rank. From 2.26 on they are counted whether or
/// not a profiler is loaded. Checked against the code of the released libraries: 2.26.2, 2.27.5,
/// 2.28.9, 2.29.2.
const LAYOUTS: [Layout; 5] = [
    // 2.26.
    Layout {
        rank: 492_728,
        counters: 501_008,
    },
    // 2.27.
    Layout {
        rank: 1_066_168,
        counters: 1_074_512,
    },
    // 2.28.3.
    Layout {
        rank: 1_066_184,
        counters: 1_075_720,
    },
    // 2.28.7 and 2.28.9.
    Layout {
        rank: 1_066_192,
        counters: 1_075_728,
    },
    // 2.29.2.
    Layout {
        rank: 1_066_712,
        counters: 1_076_856,
    },
];

/// Offsets within a communicator of some releases, bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    rank: u64,
    counters: u64,
}

/// Maximum plausible size of a communicator, bytes.
const MAX_OFFSET: u32 = 64 << 20;

/// Offsets of identity and progress within a communicator, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateFields {
    /// Offset of NCCL's hash, a 64-bit number that is equal on all ranks.
    pub hash: u64,
    /// Offset of the [`COUNTERS`], 64-bit numbers.
    pub counters: u64,
}

/// Offsets within a communicator, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommFields {
    /// Offset of the caller's rank, an `int`.
    pub rank: u64,
    /// Offset of the number of ranks, an `int`.
    pub nranks: u64,
}

/// Rank and size of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankAndSize {
    /// Rank of the process in the communicator.
    pub rank: u32,
    /// Number of ranks.
    pub nranks: u32,
}

impl CommFields {
    /// Extracts the offsets from the code of `ncclCommUserRank` and `ncclCommCount`.
    pub fn from_code(user_rank: &[u8], count: &[u8]) -> Option<Self> {
        Some(Self {
            rank: loaded_offset(user_rank)?,
            nranks: loaded_offset(count)?,
        })
    }

    /// Returns the offsets of hash and counters in a release with a known layout.
    ///
    /// The offset of the rank differs between all releases with different layouts, so it identifies
    /// the release.
    pub fn state_fields(&self) -> Option<StateFields> {
        let layout = LAYOUTS.iter().find(|layout| layout.rank == self.rank)?;
        // The hash precedes the rank, and the number of ranks follows it.
        (self.nranks == self.rank + 4).then_some(StateFields {
            hash: self.rank - 8,
            counters: layout.counters,
        })
    }
}

/// Returns the only 32-bit offset at which a function loads a value into `eax` through a pointer.
fn loaded_offset(code: &[u8]) -> Option<u64> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    let mut offsets = (0..code.len()).filter_map(|at| load_offset(code.get(at..)?));
    let first = offsets.next()?;
    offsets.all(|other| other == first).then_some(first)
}

/// Returns the offset if these bytes are such a load: `8b /0` with a base register and a 32-bit
/// displacement.
fn load_offset(code: &[u8]) -> Option<u64> {
    let (&[LOAD, operand], rest) = code.split_first_chunk()? else {
        return None;
    };
    let (mode, target, base) = (operand >> 6, operand >> 3 & 7, operand & 7);
    if (mode, target) != (2, 0) {
        return None;
    }
    // Base 4 denotes a SIB byte, whose middle bits are 4 without an index.
    let rest = match base {
        4 => {
            rest.split_first()
                .filter(|(scaled, _)| *scaled >> 3 & 7 == 4)?
                .1
        }
        _ => rest,
    };
    let (displacement, _) = rest.split_first_chunk()?;
    let offset = u32::from_le_bytes(*displacement);
    (0x80..MAX_OFFSET)
        .contains(&offset)
        .then_some(offset.into())
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use super::*;

    /// `push %rbp; mov %rsp,%rbp`, the load, `mov %eax,(%r14); ret`.
    fn function(load: &[u8]) -> Vec<u8> {
        [&[0x55, 0x48, 0x89, 0xe5], load, &[0x41, 0x89, 0x06, 0xc3]].concat()
    }

    #[test]
    fn the_loads_of_four_releases_are_read() {
        // 2.28: `mov 0x1044d4(%r13),%eax`; 2.21: `mov 0x34e4(%r12),%eax`.
        let later = function(&[0x41, 0x8b, 0x85, 0xd4, 0x44, 0x10, 0x00]);
        let earlier = function(&[0x41, 0x8b, 0x84, 0x24, 0xe4, 0x34, 0x00, 0x00]);
        assert_eq!(
            CommFields::from_code(&earlier, &later),
            Some(CommFields {
                rank: 0x34e4,
                nranks: 0x0010_44d4
            })
        );
    }

    #[test]
    fn hash_and_counters_are_known_for_releases_with_that_rank_and_size() {
        let fields = |rank, nranks| CommFields { rank, nranks };
        let state = fields(0x0010_44d0, 0x0010_44d4).state_fields();
        let expected = StateFields {
            hash: 0x0010_44c8,
            counters: 0x0010_6a10,
        };
        assert_eq!(state, Some(expected));
        assert_eq!(fields(0x0010_44d0, 0x0010_44d8).state_fields(), None);
        assert_eq!(fields(0x34e0, 0x34e4).state_fields(), None);
    }

    #[test]
    fn a_function_with_two_loads_or_none_is_rejected() {
        let one = [0x8b, 0x87, 0x00, 0x10, 0x00, 0x00];
        let other = [0x8b, 0x87, 0x04, 0x10, 0x00, 0x00];
        assert_eq!(loaded_offset(&function(&[one, other].concat())), None);
        assert_eq!(loaded_offset(&function(&[])), None);
        assert_eq!(loaded_offset(&function(&one)), Some(0x1000));
    }

    proptest! {
        #[test]
        fn arbitrary_code_does_not_panic(code in prop::collection::vec(any::<u8>(), 0..64)) {
            let _offset = loaded_offset(&code);
        }
    }
}
