//! Where NCCL keeps rank and size of a communicator in its own memory.
//!
//! A split says neither how many ranks its parts get nor which rank the caller becomes, and the layout of a communicator changes
//! with every release. But `ncclCommCount` and `ncclCommUserRank` do nothing else than to load these two numbers, so their code
//! says where they lie (seen alike in NCCL 2.21, 2.23, 2.26 and 2.28 for x86-64). What is read there is believed only as long as
//! it agrees with the communicators whose rank and size were seen being passed.

/// `mov r32, r/m32`.
const LOAD: u8 = 0x8b;
/// Counters of collectives that a communicator has: one for each function that NCCL does not make of transfers.
pub const COUNTERS: usize = 5;
/// Where releases keep these counters, by where they keep the rank. From 2.26 on they are counted whether or not a profiler is
/// loaded. Compared with the code of the released libraries: 2.26.2, 2.27.5, 2.28.9, 2.29.2.
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

/// Offsets in a communicator of some releases, bytes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    rank: u64,
    counters: u64,
}

/// A communicator is not larger, bytes.
const MAX_OFFSET: u32 = 64 << 20;

/// Where a communicator says which one it is and how far it has come, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateFields {
    /// Of NCCL's own hash of it, a 64-bit number that is equal on all its ranks.
    pub hash: u64,
    /// Of the [`COUNTERS`], 64-bit numbers.
    pub counters: u64,
}

/// Offsets in a communicator, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommFields {
    /// Of the caller's rank, an `int`.
    pub rank: u64,
    /// Of the number of ranks, an `int`.
    pub nranks: u64,
}

impl CommFields {
    /// Reads the offsets from the code of `ncclCommUserRank` and `ncclCommCount`.
    pub fn from_code(user_rank: &[u8], count: &[u8]) -> Option<Self> {
        Some(Self {
            rank: loaded_offset(user_rank)?,
            nranks: loaded_offset(count)?,
        })
    }

    /// Where hash and counters lie, in a release whose layout is known.
    ///
    /// The offset of the rank differs between all releases with different layouts, so the code that was read names the release.
    pub fn state_fields(&self) -> Option<StateFields> {
        let layout = LAYOUTS.iter().find(|layout| layout.rank == self.rank)?;
        // The hash lies before the rank, and the number of ranks behind it.
        (self.nranks == self.rank + 4).then_some(StateFields {
            hash: self.rank - 8,
            counters: layout.counters,
        })
    }
}

/// The one offset of 32 bits at which a function loads something into `eax` that a pointer points to.
fn loaded_offset(code: &[u8]) -> Option<u64> {
    if cfg!(not(target_arch = "x86_64")) {
        return None;
    }
    let mut offsets = (0..code.len()).filter_map(|at| load_offset(code.get(at..)?));
    let first = offsets.next()?;
    offsets.all(|other| other == first).then_some(first)
}

/// The offset, if these bytes are such a load: `8b /0` with a base register and a displacement of 32 bits.
fn load_offset(code: &[u8]) -> Option<u64> {
    let (&[LOAD, operand], rest) = code.split_first_chunk()? else {
        return None;
    };
    let (mode, target, base) = (operand >> 6, operand >> 3 & 7, operand & 7);
    if (mode, target) != (2, 0) {
        return None;
    }
    // Base 4 stands for one more byte; without an index it says 4 in its middle.
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
    fn hash_and_counters_are_known_of_releases_with_that_rank_and_size() {
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
    fn a_function_that_loads_two_things_or_none_says_nothing() {
        let one = [0x8b, 0x87, 0x00, 0x10, 0x00, 0x00];
        let other = [0x8b, 0x87, 0x04, 0x10, 0x00, 0x00];
        assert_eq!(loaded_offset(&function(&[one, other].concat())), None);
        assert_eq!(loaded_offset(&function(&[])), None);
        assert_eq!(loaded_offset(&function(&one)), Some(0x1000));
    }

    proptest! {
        #[test]
        fn no_code_breaks_it(code in prop::collection::vec(any::<u8>(), 0..64)) {
            let _offset = loaded_offset(&code);
        }
    }
}
