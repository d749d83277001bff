//! Argument indexes of the probed functions, by the signatures in the headers.

use fleet_agent_bpf::layout::{ArgumentIndexes, flag};

const fn at(comm: u8, handle: u8, count: u8, datatype: u8) -> ArgumentIndexes {
    ArgumentIndexes {
        comm,
        handle,
        count,
        datatype,
        ..ArgumentIndexes::NONE
    }
}

/// `(send, recv, count, datatype, comm, stream)`.
pub(super) const GATHERING: ArgumentIndexes = at(4, 5, 2, 3);
/// `(send, recv, count, datatype, reduction, comm, stream)`.
pub(super) const REDUCING: ArgumentIndexes = ArgumentIndexes {
    reduce: 4,
    ..at(5, 6, 2, 3)
};
/// `(send, recv, count, datatype, root, comm, stream)`.
pub(super) const ROOTED: ArgumentIndexes = ArgumentIndexes {
    peer: 4,
    ..at(5, 6, 2, 3)
};
/// `(buffer, count, datatype, peer, comm, stream)`.
pub(super) const PAIRED: ArgumentIndexes = ArgumentIndexes {
    peer: 3,
    ..at(4, 5, 1, 2)
};
/// `(send, recv, count, datatype, reduction, root, comm, stream)`.
pub(super) const REDUCING_TO_ONE: ArgumentIndexes = ArgumentIndexes {
    reduce: 4,
    peer: 5,
    ..at(6, 7, 2, 3)
};
/// `(comm)`.
pub(super) const COMM_ONLY: ArgumentIndexes = ArgumentIndexes {
    comm: 0,
    ..ArgumentIndexes::NONE
};
/// `(destination, source, bytes, direction)`.
pub(super) const COPYING: ArgumentIndexes = ArgumentIndexes {
    count: 2,
    kind: 3,
    ..ArgumentIndexes::NONE
};
/// `(destination, source, bytes)`: the direction is in the name of the function.
pub(super) const COPYING_ONE_WAY: ArgumentIndexes = ArgumentIndexes {
    count: 2,
    ..ArgumentIndexes::NONE
};
/// `(pointer out, bytes)`.
pub(super) const ALLOCATING: ArgumentIndexes = ArgumentIndexes {
    count: 1,
    ..ArgumentIndexes::NONE
};

/// `(comm out, ranks, unique id by value, rank)`.
#[cfg(target_arch = "x86_64")]
pub(super) const INIT: (u16, ArgumentIndexes) = (
    flag::MAKES_COMM | flag::ID_ON_STACK,
    ArgumentIndexes {
        comm: 0,
        nranks: 1,
        peer: 2,
        ..ArgumentIndexes::NONE
    },
);
/// Variant where arguments too large for registers are passed as a pointer to a copy.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const INIT: (u16, ArgumentIndexes) = (
    flag::MAKES_COMM | flag::ID_BEHIND,
    ArgumentIndexes {
        comm: 0,
        nranks: 1,
        handle: 2,
        peer: 3,
        ..ArgumentIndexes::NONE
    },
);
/// `(comm out, ranks, rank, number of ids, ids)`. All ranks pass the same ids, so the first one is
/// enough.
pub(super) const INIT_SCALABLE: (u16, ArgumentIndexes) = (
    flag::MAKES_COMM | flag::ID_BEHIND,
    ArgumentIndexes {
        comm: 0,
        nranks: 1,
        peer: 2,
        handle: 4,
        ..ArgumentIndexes::NONE
    },
);
/// `(parent, color, key, comm out)`.
pub(super) const SPLIT: (u16, ArgumentIndexes) = (
    flag::MAKES_COMM | flag::SPLITS,
    ArgumentIndexes {
        comm: 3,
        handle: 0,
        peer: 1,
        datatype: 2,
        ..ArgumentIndexes::NONE
    },
);
