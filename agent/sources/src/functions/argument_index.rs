//! Which arguments of the probed functions have which meaning, by the order in which the headers list them.

use fleet_agent_bpf::layout::{Places, flag};

const fn at(comm: u8, handle: u8, count: u8, datatype: u8) -> Places {
    Places {
        comm,
        handle,
        count,
        datatype,
        ..Places::NONE
    }
}

/// `(send, recv, count, datatype, comm, stream)`.
pub(super) const GATHERING: Places = at(4, 5, 2, 3);
/// `(send, recv, count, datatype, reduction, comm, stream)`.
pub(super) const REDUCING: Places = Places {
    reduce: 4,
    ..at(5, 6, 2, 3)
};
/// `(send, recv, count, datatype, root, comm, stream)`.
pub(super) const ROOTED: Places = Places {
    peer: 4,
    ..at(5, 6, 2, 3)
};
/// `(buffer, count, datatype, peer, comm, stream)`.
pub(super) const PAIRED: Places = Places {
    peer: 3,
    ..at(4, 5, 1, 2)
};
/// `(send, recv, count, datatype, reduction, root, comm, stream)`.
pub(super) const REDUCING_TO_ONE: Places = Places {
    reduce: 4,
    peer: 5,
    ..at(6, 7, 2, 3)
};
/// `(comm)`.
pub(super) const COMM_ONLY: Places = Places {
    comm: 0,
    ..Places::NONE
};
/// `(destination, source, bytes, direction)`.
pub(super) const COPYING: Places = Places {
    count: 2,
    kind: 3,
    ..Places::NONE
};

/// `(where to, ranks, unique id by value, rank)`.
#[cfg(target_arch = "x86_64")]
pub(super) const INIT: (u16, Places) = (
    flag::MAKES_COMM | flag::ID_ON_STACK,
    Places {
        comm: 0,
        nranks: 1,
        peer: 2,
        ..Places::NONE
    },
);
/// The same where what is too large for registers is passed as a pointer to a copy.
#[cfg(not(target_arch = "x86_64"))]
pub(super) const INIT: (u16, Places) = (
    flag::MAKES_COMM | flag::ID_BEHIND,
    Places {
        comm: 0,
        nranks: 1,
        handle: 2,
        peer: 3,
        ..Places::NONE
    },
);
/// `(where to, ranks, rank, number of ids, ids)`. All ranks pass the same ids, so the first one is enough.
pub(super) const INIT_SCALABLE: (u16, Places) = (
    flag::MAKES_COMM | flag::ID_BEHIND,
    Places {
        comm: 0,
        nranks: 1,
        peer: 2,
        handle: 4,
        ..Places::NONE
    },
);
/// `(parent, color, key, where to)`.
pub(super) const SPLIT: (u16, Places) = (
    flag::MAKES_COMM | flag::SPLITS,
    Places {
        comm: 3,
        handle: 0,
        peer: 1,
        datatype: 2,
        ..Places::NONE
    },
);
