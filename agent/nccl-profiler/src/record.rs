//! Records that the plugin emits: one of fixed size per operation, and two per communicator.

/// Size of a record in bytes.
pub const RECORD_BYTES: usize = 104;

/// Version of the layout; changes whenever a field does.
pub const RECORD_VERSION: u32 = 1;

/// Kind of a record, in [`Record::kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum RecordKind {
    /// Communicator created; times and operation are 0.
    Joined = 1,
    /// Collective that ran.
    Collective = 2,
    /// One side of a point-to-point transfer that ran.
    Transfer = 3,
    /// Communicator destroyed; times and operation are 0.
    Left = 4,
    /// Operations in flight, with another record at most once per second: `count`, `seq` and `nccl_seq` are
    /// address, number and size of their slots in the memory of the process. The address is 0 if some operations
    /// have no slot.
    Slots = 5,
}

/// One operation on one rank, or a communicator. All fields are little-endian on the machines that
/// have NVIDIA GPUs; the agent reads them by offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Record {
    /// [`RECORD_VERSION`].
    pub version: u32,
    /// [`RecordKind`].
    pub kind: u32,
    /// NCCL's hash of the communicator, equal on all its ranks.
    pub comm_id: u64,
    /// Sequence number among the communicator's collectives, or among its transfers, from 0.
    pub seq: u64,
    /// NCCL's sequence number among operations of the same function.
    pub nccl_seq: u64,
    /// Number of elements.
    pub count: u64,
    /// Time at which the host enqueued it, nanoseconds of `CLOCK_MONOTONIC`.
    pub host_ns: u64,
    /// Time at which its last channel started, nanoseconds of the GPU's timer: no operation can end
    /// before that, so its peers wait until then.
    pub gpu_start_ns: u64,
    /// Time at which its last channel stopped, nanoseconds of the GPU's timer.
    pub gpu_stop_ns: u64,
    /// Time at which NCCL reported the stop, nanoseconds of `CLOCK_MONOTONIC`.
    pub seen_ns: u64,
    /// Rank in the communicator.
    pub rank: u32,
    /// Number of ranks of the communicator.
    pub nranks: u32,
    /// Number of the function.
    pub function: u32,
    /// Element type, in NCCL's numbering.
    pub datatype: u32,
    /// Peer of a transfer, or root of a collective that has one.
    pub peer: i32,
    /// Number of channels.
    pub channels: u32,
    /// Number of communicators with this rank and size that the process joined before: the host
    /// sees them created in the same order.
    pub nth: u32,
    /// Number of operations not emitted since the library was loaded; wraps around.
    pub lost: u32,
}

const _: () = assert!(size_of::<Record>() == RECORD_BYTES);

/// Number of an unknown function or element type.
pub const UNKNOWN: u32 = 255;

/// Number of a function, by NCCL's name.
pub(crate) fn function(name: &[u8]) -> u32 {
    match name {
        b"AllReduce" => 0,
        b"AllGather" => 1,
        b"ReduceScatter" => 2,
        b"Broadcast" => 3,
        b"Reduce" => 4,
        b"AlltoAll" | b"AllToAll" => 5,
        b"Gather" => 6,
        b"Scatter" => 7,
        b"Send" => 8,
        b"Recv" => 9,
        _ => UNKNOWN,
    }
}

/// NCCL's number of an element type, by its name.
pub(crate) fn datatype(name: &[u8]) -> u32 {
    match name {
        b"ncclInt8" => 0,
        b"ncclUint8" => 1,
        b"ncclInt32" => 2,
        b"ncclUint32" => 3,
        b"ncclInt64" => 4,
        b"ncclUint64" => 5,
        b"ncclFloat16" => 6,
        b"ncclFloat32" => 7,
        b"ncclFloat64" => 8,
        b"ncclBfloat16" => 9,
        b"ncclFloat8e4m3" => 10,
        b"ncclFloat8e5m2" => 11,
        _ => UNKNOWN,
    }
}

impl Record {
    /// Returns the fields in order, as bytes.
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let Self {
            version,
            kind,
            comm_id,
            seq,
            nccl_seq,
            count,
            host_ns,
            gpu_start_ns,
            gpu_stop_ns,
            seen_ns,
            rank,
            nranks,
            function,
            datatype,
            peer,
            channels,
            nth,
            lost,
        } = *self;
        let longs = [
            comm_id,
            seq,
            nccl_seq,
            count,
            host_ns,
            gpu_start_ns,
            gpu_stop_ns,
            seen_ns,
        ];
        let ints = [
            rank,
            nranks,
            function,
            datatype,
            peer.cast_unsigned(),
            channels,
            nth,
            lost,
        ];
        let head = [version, kind].into_iter().flat_map(u32::to_ne_bytes);
        let middle = longs.into_iter().flat_map(u64::to_ne_bytes);
        let tail = ints.into_iter().flat_map(u32::to_ne_bytes);
        for (byte, value) in bytes.iter_mut().zip(head.chain(middle).chain(tail)) {
            *byte = value;
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_fields_in_order() {
        let record = Record {
            version: 1,
            kind: RecordKind::Transfer as u32,
            comm_id: 3,
            seen_ns: 10,
            rank: 11,
            peer: -1,
            lost: 18,
            ..Record::default()
        };
        let bytes = record.to_bytes();
        let long = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let int = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!([int(0), int(4)], [1, 3]);
        assert_eq!([long(8), long(64)], [3, 10]);
        assert_eq!([int(72), int(88), int(100)], [11, u32::MAX, 18]);
    }

    #[test]
    fn unknown_names_map_to_unknown() {
        assert_eq!(function(b"AllReduce"), 0);
        assert_eq!(function(b"AllReduce2"), UNKNOWN);
        assert_eq!(datatype(b"ncclBfloat16"), 9);
        assert_eq!(datatype(b""), UNKNOWN);
    }
}
