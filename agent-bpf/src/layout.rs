//! Data shared by programs and agent: counterparts of the structs in `programs/layout.h`, in native
//! byte order.

mod durations;
mod host;
mod losses;
mod plugin_record;
mod slot;

pub use crate::layout::durations::{FIRST_BUCKET, FunctionHistogram, LaunchSizeCounts};
pub use crate::layout::host::{DelayKey, DelayKind, DelaySum, ExitRecord, HostSum};
pub use crate::layout::losses::Losses;
pub(crate) use crate::layout::plugin_record::EVENT_BYTES as PLUGIN_EVENT_BYTES;
pub use crate::layout::plugin_record::{PluginRecord, RECORD_BYTES};
pub use crate::layout::slot::{OperationInFlight, SlotTable, Stage};

/// Argument index of functions without such an argument.
pub const NO_ARGUMENT: u8 = 15;

/// Flags of a probed function.
pub mod flag {
    /// Takes a sequence number of its communicator.
    pub const SEQUENCE: u16 = 1 << 0;
    /// Writes a new communicator through its argument `comm`.
    pub const MAKES_COMM: u16 = 1 << 1;
    /// Takes the 128 bytes of the unique id by value, on the stack.
    pub const ID_ON_STACK: u16 = 1 << 2;
    /// Takes a pointer to the unique id as its argument `handle`.
    pub const ID_BEHIND: u16 = 1 << 3;
    /// Creates the communicator out of the one in `handle`.
    pub const SPLITS: u16 = 1 << 4;
    /// Destroys the communicator.
    pub const ENDS_COMM: u16 = 1 << 5;
    /// Waits for the GPU: reported in traced processes, and only long waits.
    pub const WAITS: u16 = 1 << 6;
    /// Entry only: one more call, `count` more bytes.
    pub const COUNTS: u16 = 1 << 7;
    /// Counted, never an event of its own.
    pub const QUIET: u16 = 1 << 8;
    /// Its argument `kind` is a pointer to a `struct ibv_async_event`, whose type is the kind.
    pub const KIND_BEHIND: u16 = 1 << 9;
    /// Entry only: its first argument points to a record of the NCCL profiler plugin.
    pub const RECORDS: u16 = 1 << 10;
    /// Neither issues nor waits: counted in traced processes, with `count` as bytes.
    pub const RUNTIME: u16 = 1 << 11;
    /// Launches: its arguments 1 to 4 are the sizes of grid and block as structs of three numbers.
    pub const SIZE_PACKED: u16 = 1 << 12;
    /// Launches: its arguments 1 to 6 are the sizes of grid and block.
    pub const SIZE_APART: u16 = 1 << 13;
    /// Launches: its first argument points to the sizes of grid and block.
    pub const SIZE_BEHIND: u16 = 1 << 14;
}

/// Argument indexes of a function by meaning, from 0; [`NO_ARGUMENT`] where it has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArgumentIndexes {
    /// Communicator, or address of the new one.
    pub comm: u8,
    /// Stream, event, unique ids or parent communicator.
    pub handle: u8,
    /// Elements or bytes.
    pub count: u8,
    /// Element type, or the key of a split.
    pub datatype: u8,
    /// Reduction.
    pub reduce: u8,
    /// Peer, root, the caller's rank, or the color of a split.
    pub peer: u8,
    /// Ranks of a new communicator.
    pub nranks: u8,
    /// Direction of a copy, or an event.
    pub kind: u8,
}

impl ArgumentIndexes {
    /// No arguments.
    pub const NONE: Self = Self {
        comm: NO_ARGUMENT,
        handle: NO_ARGUMENT,
        count: NO_ARGUMENT,
        datatype: NO_ARGUMENT,
        reduce: NO_ARGUMENT,
        peer: NO_ARGUMENT,
        nranks: NO_ARGUMENT,
        kind: NO_ARGUMENT,
    };
}

/// Attach cookie: properties of a probed function, 64 bits that are passed with every hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie(u64);

impl Cookie {
    /// Creates the cookie of function `op`. A thread is in one function of a `class` at a time:
    /// calls inside it are part of it.
    pub fn new(op: u8, class: u8, flags: u16, arguments: ArgumentIndexes) -> Self {
        let ArgumentIndexes {
            comm,
            handle,
            count,
            datatype,
            reduce,
            peer,
            nranks,
            kind,
        } = arguments;
        let in_order = [comm, handle, count, datatype, reduce, peer, nranks, kind];
        let nibbles = in_order
            .iter()
            .rev()
            .fold(0_u64, |bits, index| bits << 4 | u64::from(index & 0xf));
        Self(u64::from(op) | u64::from(class) << 8 | u64::from(flags) << 16 | nibbles << 32)
    }

    /// Returns the bits.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the class.
    pub fn class(self) -> u8 {
        self.0.to_le_bytes()[1]
    }

    /// Returns the function number.
    pub fn op(self) -> u8 {
        self.0.to_le_bytes()[0]
    }
}

/// Call that has returned, or, without duration and result, call in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallRecord {
    /// Entry, nanoseconds of `CLOCK_MONOTONIC`.
    pub entered_ns: u64,
    /// Duration until the return, nanoseconds.
    pub duration_ns: u64,
    /// Inode of the cgroup (version 2) of the caller.
    pub cgroup: u64,
    /// Pointer of the communicator.
    pub comm: u64,
    /// Hash of the communicator's unique id; 0 if its creation was not seen.
    pub comm_id: u64,
    /// Sequence number on its communicator, or the number of a split.
    pub seq: Option<u64>,
    /// Stream, event or parent communicator.
    pub handle: u64,
    /// Elements or bytes.
    pub count: u64,
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub tid: u32,
    /// The caller's rank in the communicator; the color of a split.
    pub rank: u32,
    /// Number of ranks of the communicator; 0 if unknown.
    pub nranks: u32,
    /// Element type, or the key of a split.
    pub datatype: u32,
    /// Reduction.
    pub reduce_op: u32,
    /// Peer, root or color.
    pub peer: i32,
    /// Return value of the function.
    pub result: i32,
    /// Function number, as in its cookie.
    pub op: u8,
    /// Direction of a copy.
    pub kind: u32,
}

/// Communicator of a traced process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommRecord {
    /// Process id.
    pub tgid: u32,
    /// Pointer in the process.
    pub pointer: u64,
    /// Hash of its unique id.
    pub id: u64,
    /// Sequence number of its next operation.
    pub next_seq: u64,
    /// Rank of the process in it.
    pub rank: u32,
    /// Number of ranks; 0 if unknown.
    pub nranks: u32,
}

/// Counters of one function in one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallSum {
    /// Number of calls.
    pub calls: u64,
    /// Bytes to be moved by them.
    pub bytes: u64,
    /// Total duration, nanoseconds.
    pub total_ns: u64,
    /// Longest duration, nanoseconds.
    pub longest_ns: u64,
}

/// Counters with the process and the function that they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionSum {
    /// Process id.
    pub tgid: u32,
    /// Function number; the second byte is the direction of a copy, or the type of an RDMA event.
    pub op: u32,
    /// Counters.
    pub sum: CallSum,
}

/// Reader of the fields of a struct, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*field))
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*field))
    }
}

fn sequence(bits: u64) -> Option<u64> {
    (bits != u64::MAX).then_some(bits)
}

impl CallRecord {
    /// Parses a `struct call_event`.
    pub(crate) fn from_event(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        Some(Self {
            entered_ns: fields.u64()?,
            duration_ns: fields.u64()?,
            cgroup: fields.u64()?,
            comm: fields.u64()?,
            comm_id: fields.u64()?,
            seq: sequence(fields.u64()?),
            handle: fields.u64()?,
            count: fields.u64()?,
            tgid: fields.u32()?,
            tid: fields.u32()?,
            rank: fields.u32()?,
            nranks: fields.u32()?,
            datatype: fields.u32()?,
            reduce_op: fields.u32()?,
            peer: fields.u32()?.cast_signed(),
            result: fields.u32()?.cast_signed(),
            op: fields.u32()?.to_le_bytes()[0],
            kind: fields.u32()?,
        })
    }

    /// Returns the bytes of a `struct call_key`.
    pub(crate) fn map_key(tgid: u32, tid: u32, class: u8) -> Vec<u8> {
        let pid_tgid = u64::from(tgid) << 32 | u64::from(tid);
        [pid_tgid, u64::from(class)].map(u64::to_ne_bytes).concat()
    }

    /// Parses a `struct call_key` and a `struct call`; `None` for a call that is never an event.
    pub(crate) fn from_map_entry(key: &[u8], call: &[u8]) -> Option<Self> {
        let pid_tgid = Fields(key).u64()?;
        let mut fields = Fields(call);
        let entered_ns = fields.u64()?;
        let cookie = Cookie(fields.u64()?);
        let record = Self {
            entered_ns,
            comm: fields.u64()?,
            comm_id: fields.u64()?,
            seq: sequence(fields.u64()?),
            handle: fields.u64()?,
            count: fields.u64()?,
            datatype: fields.u32()?,
            reduce_op: fields.u32()?,
            peer: fields.u32()?.cast_signed(),
            rank: fields.u32()?,
            nranks: fields.u32()?,
            kind: fields.u32()?,
            op: cookie.op(),
            tgid: high(pid_tgid),
            tid: low(pid_tgid),
            ..Self::default()
        };
        let is_foreign = fields.u32()? != 0;
        (!is_foreign).then_some(record)
    }
}

/// Parses the beginning of a `struct call`: the time of the entry, nanoseconds, and the function
/// number.
pub(crate) fn entry(call: &[u8]) -> Option<(u64, u8)> {
    let mut fields = Fields(call);
    Some((fields.u64()?, Cookie(fields.u64()?).op()))
}

impl CommRecord {
    /// Parses a `struct comm_key` and a `struct comm`.
    pub(crate) fn from_map_entry(key: &[u8], comm: &[u8]) -> Option<Self> {
        let mut key = Fields(key);
        let (tgid, pointer) = (low(key.u64()?), key.u64()?);
        let mut fields = Fields(comm);
        Some(Self {
            tgid,
            pointer,
            id: fields.u64()?,
            next_seq: fields.u64()?,
            rank: fields.u32()?,
            nranks: fields.u32()?,
        })
    }
}

impl CallSum {
    /// Adds a `struct sum` of one CPU.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Option<()> {
        let mut fields = Fields(bytes);
        self.calls += fields.u64()?;
        self.bytes += fields.u64()?;
        self.total_ns += fields.u64()?;
        self.longest_ns = self.longest_ns.max(fields.u64()?);
        Some(())
    }
}

/// Parses a `struct sum_key`: process and function.
pub(crate) fn sum_key(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut fields = Fields(bytes);
    Some((fields.u32()?, fields.u32()?))
}

/// Returns the process of a `struct thread`.
pub(crate) fn thread_tgid(bytes: &[u8]) -> Option<u32> {
    Fields(bytes).u32()
}

/// Parses a key or value that is one number.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    Fields(bytes).u64()
}

fn low(bits: u64) -> u32 {
    let [a, b, c, d, ..] = bits.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

fn high(bits: u64) -> u32 {
    low(bits >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_has_the_bit_layout_of_the_programs() {
        let arguments = ArgumentIndexes {
            comm: 5,
            handle: 6,
            kind: 3,
            ..ArgumentIndexes::NONE
        };
        let bits = Cookie::new(7, 2, flag::WAITS | flag::SEQUENCE, arguments).to_bits();
        assert_eq!(bits & 0xff, 7);
        assert_eq!(bits >> 8 & 0xff, 2);
        assert_eq!(bits >> 16 & 0xffff, 0x41);
        let argument = |n: u64| bits >> (32 + 4 * n) & 0xf;
        assert_eq!([0, 1, 2, 7].map(argument), [5, 6, 15, 3]);
    }

    #[test]
    fn a_truncated_record_is_none() {
        let bytes = [0_u8; 104];
        assert!(CallRecord::from_event(&bytes).is_some());
        assert!(CallRecord::from_event(&bytes[..103]).is_none());
        assert!(CallRecord::from_map_entry(&bytes[..16], &bytes[..88]).is_some());
        assert!(CallRecord::from_map_entry(&bytes[..7], &bytes).is_none());
    }
}
