//! Line fields of an operation on a GPU.

use crate::live::plugin_records;
use fleet_agent_bpf::layout::PluginRecord;
use serde::Serialize;

/// Fields after `kind`, `ts` and `pid`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct GpuOperationFields {
    comm: String,
    seq: u64,
    comm_seq: u64,
    comm_nth: u32,
    func: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<u32>,
    count: u64,
    rank: u32,
    nranks: u32,
    host_ns: u64,
    gpu_start_ns: u64,
    gpu_stop_ns: u64,
    channels: u32,
}

impl GpuOperationFields {
    /// Returns the fields of a record; `None` if it has no operation.
    pub(super) fn from_record(record: &PluginRecord) -> Option<Self> {
        let op = plugin_records::operation(record)?;
        Some(Self {
            comm: format!("{:016x}", record.comm_id),
            seq: record.nccl_seq,
            comm_seq: record.seq,
            comm_nth: record.nth,
            func: op.name(),
            root: u32::try_from(record.peer)
                .ok()
                .filter(|_| !op.waits_for_all()),
            count: record.count,
            rank: record.rank,
            nranks: record.nranks,
            host_ns: record.host_ns,
            gpu_start_ns: record.gpu_start_ns,
            gpu_stop_ns: record.gpu_stop_ns,
            channels: record.channels,
        })
    }
}
