//! What the NCCL profiler plugin tells.

use crate::layout::Fields;

/// Bytes of a record as the plugin makes it.
pub const RECORD_BYTES: usize = 104;

/// Version of the record that is understood.
const VERSION: u32 = 1;

/// Bytes of a `struct ran_event`, which tell it from a `struct call_event`.
pub(crate) const EVENT_BYTES: usize = 16 + RECORD_BYTES;

/// One operation on a GPU, or a communicator: the twin of the plugin's `Record`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PluginRecord {
    /// When the plugin told it, nanoseconds of `CLOCK_MONOTONIC`.
    pub seen_ns: u64,
    /// Process, as the kernel numbers it for the agent.
    pub tgid: u32,
    /// 1 for a communicator that was made, 2 for a collective, 3 for a half of a transfer, 4 for a communicator that is gone.
    pub what: u32,
    /// NCCL's own hash of the communicator.
    pub comm_id: u64,
    /// Number among the communicator's collectives, or its transfers.
    pub seq: u64,
    /// NCCL's number among those of the same function.
    pub nccl_seq: u64,
    /// Elements.
    pub count: u64,
    /// When the host enqueued it, nanoseconds of `CLOCK_MONOTONIC`.
    pub host_ns: u64,
    /// When its first channel started, nanoseconds of the GPU's timer; 0 without times.
    pub gpu_start_ns: u64,
    /// When its last channel stopped, nanoseconds of the GPU's timer; 0 without times.
    pub gpu_stop_ns: u64,
    /// The rank in the communicator.
    pub rank: u32,
    /// Its ranks.
    pub nranks: u32,
    /// Which function, in the order of the plugin.
    pub function: u32,
    /// Element type.
    pub datatype: u32,
    /// Peer or root.
    pub peer: i32,
    /// Channels.
    pub channels: u32,
    /// How many communicators with this rank and size the process had joined before.
    pub nth: u32,
    /// Operations that the plugin could not tell since it was loaded; wraps around.
    pub lost: u32,
}

impl PluginRecord {
    /// `struct ran_event`.
    pub(crate) fn from_event(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let (_, tgid, _) = (fields.u64()?, fields.u32()?, fields.u32()?);
        Self::from_bytes(tgid, fields.0)
    }

    /// The plugin's own struct, of this process; none of another version of it.
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
    fn a_record_of_another_version_or_cut_short_is_none() {
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
