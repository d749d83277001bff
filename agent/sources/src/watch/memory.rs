//! Communicator in the memory of its process.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fleet_agent_core::event::CommState;

use crate::comm_fields::{COUNTERS, CommFields, RankAndSize};
use crate::watch::now_ns;

/// Maximum plausible number of ranks of a communicator.
const MAX_RANKS: u32 = 1 << 20;

/// Reader of one communicator.
#[derive(Debug)]
pub(super) struct CommMemory {
    memory: File,
    pointer: u64,
    fields: CommFields,
}

impl CommMemory {
    /// Opens the communicator at `pointer` in the process of a folder of `/proc`.
    pub(super) fn open(process: &Path, pointer: u64, fields: CommFields) -> Option<Self> {
        Some(Self {
            memory: File::open(process.join("mem")).ok()?,
            pointer,
            fields,
        })
    }

    /// Returns its rank and its size.
    pub(super) fn rank_and_size(&self) -> Option<RankAndSize> {
        let number = |offset| self.read(offset).map(u32::from_ne_bytes);
        Some(RankAndSize {
            rank: number(self.fields.rank)?,
            nranks: number(self.fields.nranks)?,
        })
    }

    /// Returns its hash and its number of collectives, for releases with a known layout and if the
    /// values are plausible.
    pub(super) fn state(&self, pid: u32) -> Option<CommState> {
        let fields = self.fields.state_fields()?;
        let from_ns = now_ns();
        let RankAndSize { rank, nranks } = self.rank_and_size()?;
        let comm_id = u64::from_ne_bytes(self.read(fields.hash)?);
        let counters: [u8; 8 * COUNTERS] = self.read(fields.counters)?;
        let ts_ns = now_ns();
        let (counters, _) = counters.as_chunks();
        let mut counters = counters.iter().copied().map(u64::from_ne_bytes);
        let collectives = counters.try_fold(0_u64, u64::checked_add)?;
        let is_possible = comm_id != 0 && nranks > 1 && rank < nranks && nranks <= MAX_RANKS;
        is_possible.then_some(CommState {
            from_ns,
            ts_ns,
            pid,
            pointer: self.pointer,
            comm_id,
            rank,
            nranks,
            collectives,
        })
    }

    fn read<const N: usize>(&self, offset: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        let at = self.pointer.checked_add(offset)?;
        self.memory.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }
}
