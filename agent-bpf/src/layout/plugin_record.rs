//! Records of the NCCL profiler plugin.

use crate::layout::Fields;

/// Size of the plugin's record, bytes.
pub const RECORD_BYTES: usize = 104;

/// Supported version of the record.
const VERSION: u32 = 1;

/// Size of a `struct ran_event`, bytes, which distinguishes it from a `struct call_event`.
pub(crate) const EVENT_BYTES: usize = 16 + RECORD_BYTES;

/// Operation on a GPU, or a communicator: counterpart of the plugin's `Record`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PluginRecord {
    /// Time at which the plugin passed it on, nanoseconds of `CLOCK_MONOTONIC`.
    pub seen_ns: u64,
    /// Process id in the agent's pid namespace.
    pub tgid: u32,
    /// Kind: 1 for a created communicator, 2 for a collective, 3 for one half of a transfer, 4 for
    /// a destroyed communicator, 5 for the slots of the operations in flight.
    pub what: u32,
    /// NCCL's hash of the communicator.
    pub comm_id: u64,
    /// Sequence number among the communicator's collectives, or its transfers.
    pub seq: u64,
    /// NCCL's sequence number among operations of the same function.
    pub nccl_seq: u64,
    /// Elements.
    pub count: u64,
    /// Time at which the host enqueued it, nanoseconds of `CLOCK_MONOTONIC`.
    pub host_ns: u64,
    /// Start of its first channel, nanoseconds of the GPU's timer; 0 without times.
    pub gpu_start_ns: u64,
    /// Stop of its last channel, nanoseconds of the GPU's timer; 0 without times.
    pub gpu_stop_ns: u64,
    /// Rank in the communicator.
    pub rank: u32,
    /// Number of ranks of the communicator.
    pub nranks: u32,
    /// Function, in the order of the plugin's numbers.
    pub function: u32,
    /// Element type.
    pub datatype: u32,
    /// Peer or root.
    pub peer: i32,
    /// Number of channels.
    pub channels: u32,
    /// Number of communicators with this rank and size that the process had joined before.
    pub nth: u32,
    /// Number of operations that the plugin has dropped since it was loaded; wraps around.
    pub lost: u32,
}

impl PluginRecord {
    /// Parses a `struct ran_event`.
    pub(crate) fn from_event(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (_, tgid, _) = (fields.u64()?, fields.u32()?, fields.u32()?);
        Self::from_bytes(tgid, fields.0)
    }

    /// Parses the plugin's own struct, sent by this process; `None` for another version.
    pub fn from_bytes(tgid: u32, bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        if fields.u32()? != VERSION {
            return None;
        }
        let what = fields.u32()?;
        let (comm_id, seq, nccl_seq, count) =
            (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
        let (host_ns, gpu_start_ns, gpu_stop_ns, seen_ns) =
            (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
        let record = Self {
            seen_ns,
            tgid,
            what,
            comm_id,
            seq,
            nccl_seq,
            count,
            host_ns,
            gpu_start_ns,
            gpu_stop_ns,
            rank: fields.u32()?,
            nranks: fields.u32()?,
            function: fields.u32()?,
            datatype: fields.u32()?,
            peer: fields.u32()?.cast_signed(),
            channels: fields.u32()?,
            nth: fields.u32()?,
            lost: fields.u32()?,
        };
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_record_or_one_of_another_version_is_none() {
        let mut bytes = [0_u8; EVENT_BYTES];
        assert_eq!(PluginRecord::from_event(&bytes), None);
        bytes[16] = 1;
        bytes[8] = 9;
        bytes[EVENT_BYTES - 4] = 3;
        let record = PluginRecord::from_event(&bytes).unwrap();
        assert_eq!((record.tgid, record.lost), (9, 3));
        assert_eq!(PluginRecord::from_event(&bytes[..EVENT_BYTES - 1]), None);
    }
}
