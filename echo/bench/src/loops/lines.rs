//! A loop as the lines of a recording.

use std::io::Write as _;

use super::step::{Function, Operation};
use super::timeline::Observation;
use crate::delivery::nanos;

/// Host clock at the start of the loop, nanoseconds.
const HOST_START: i64 = 100_000_000_000;

/// Clock of the first GPU at the start of the loop, nanoseconds.
const GPU_START: i64 = 1_795_000_000_000_000_000;

/// Delay from the end of an operation on the GPU to its row, milliseconds.
const REPORT_DELAY_MS: f64 = 0.2;

/// Time from the entry of a call to the enqueued operation, nanoseconds.
const ENQUEUE_NS: i64 = 20_000;

/// Time at which the agent attaches, and its knowledge of the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// Before the job starts.
    FromStart,
    /// During the job, with a communicator handed over: its creation is the first line.
    TakenOver,
    /// During the job, without having seen the creation of the communicator.
    Late,
}

/// Times of an operation, milliseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    /// Entry of the call that enqueued it.
    called: f64,
    /// Start and end on the GPU.
    gpu: (f64, f64),
}

/// Collects the lines of a recording.
#[derive(Debug)]
pub struct Lines {
    /// Rank number reported for each simulated rank.
    labels: Vec<u32>,
    attach: Attach,
    is_graph: bool,
    /// Operations of each rank before the agent attached.
    skipped: Vec<u64>,
    lines: Vec<(i64, String)>,
}

impl Lines {
    /// Creates a recording of ranks with these labels.
    pub fn new(labels: Vec<u32>, attach: Attach, is_graph: bool) -> Self {
        let skipped = labels.iter().map(|_| 0).collect();
        Self {
            labels,
            attach,
            is_graph,
            skipped,
            lines: Vec::new(),
        }
    }

    /// Attaches the agent at `at`, when the ranks have called `seqs` operations.
    pub fn begin(&mut self, at: f64, seqs: Vec<u64>) {
        self.skipped = seqs;
        if self.attach == Attach::Late {
            return;
        }
        let n_ranks = self.labels.len();
        for rank in &self.labels {
            let ts = host_ns(at) - 6_000_000_000 + i64::from(*rank);
            let (pid, comm) = (pid(*rank), comm(*rank));
            let line = format!(
                r#"{{"kind":"call","ts":{ts},"dur":1000000,"pid":{pid},"tid":{pid},"fn":"ncclCommInitRankConfig","comm":"{comm}","nranks":{n_ranks},"rank":{rank},"unique_id_splitmix64":"31aa24bc210ab9ac"}}"#
            );
            self.lines.push((ts, line));
        }
    }

    /// Adds the observations of the simulated ranks.
    pub fn add(&mut self, seen: Vec<Vec<Observation>>) {
        let labels = self.labels.clone();
        for ((rank, seen), skipped) in labels.into_iter().zip(seen).zip(self.skipped.clone()) {
            for one in seen {
                match one {
                    Observation::Ran {
                        op,
                        seq,
                        called,
                        gpu,
                    } => self.ran(rank, op, self.numbered(seq, skipped), Times { called, gpu }),
                    Observation::Waited { host, is_event } => self.waited(rank, host, is_event),
                    Observation::Launched(at) => self.launched(rank, at),
                }
            }
        }
    }

    /// Adds the call that enqueued an operation.
    fn called(&mut self, rank: u32, op: Operation, called: f64) {
        let (pid, comm, count, at) = (pid(rank), comm(rank), op.count, host_ns(called));
        let name = op.function.name();
        let peer = usize::try_from(op.peer).unwrap_or(0);
        let peer = self.labels.get(peer).copied().unwrap_or(0);
        let detail = match op.function {
            Function::Send | Function::Recv => format!(r#""peer":{peer}"#),
            _ => r#""reduce_op":0"#.to_owned(),
        };
        let line = format!(
            r#"{{"kind":"call","ts":{at},"dur":30000,"pid":{pid},"tid":{pid},"fn":"nccl{name}","comm":"{comm}","count":{count},"datatype":7,{detail},"stream":"0x1a233440"}}"#
        );
        self.lines.push((at, line));
    }

    /// Number of an operation as the agent counts it; `None` for those before it attached.
    fn numbered(&self, seq: u64, skipped: u64) -> Option<u64> {
        match self.attach {
            Attach::TakenOver => seq.checked_sub(skipped),
            Attach::FromStart | Attach::Late => Some(seq),
        }
    }

    /// Adds the call and the row of an operation; nothing without a number.
    fn ran(&mut self, rank: u32, op: Operation, seq: Option<u64>, times: Times) {
        let Some(seq) = seq else { return };
        // The operations of a graph are enqueued by its launch.
        if !self.is_graph {
            self.called(rank, op, times.called);
        }
        self.completed(rank, op, seq, times);
    }

    /// Adds the row of an operation on the GPU.
    fn completed(&mut self, rank: u32, op: Operation, seq: u64, times: Times) {
        let (pid, n_ranks) = (pid(rank), self.labels.len());
        let name = op.function.name();
        // NCCL's own counter stands still in a graph.
        let number = if self.is_graph { 0 } else { seq };
        let count = if op.function == Function::AllGather {
            op.count * 4
        } else {
            op.count
        };
        let Times { called, gpu } = times;
        let (enqueued, ts) = (
            host_ns(called) + ENQUEUE_NS,
            host_ns(gpu.1 + REPORT_DELAY_MS),
        );
        let (start, stop) = (gpu_ns(rank, gpu.0), gpu_ns(rank, gpu.1));
        let line = format!(
            r#"{{"kind":"coll","ts":{ts},"pid":{pid},"comm":"31aa24bc210ab9ac","seq":{number},"comm_seq":{seq},"comm_nth":0,"func":"{name}","count":{count},"rank":{rank},"nranks":{n_ranks},"host_ns":{enqueued},"gpu_start_ns":{start},"gpu_stop_ns":{stop},"channels":2}}"#
        );
        self.lines.push((ts, line));
    }

    fn waited(&mut self, rank: u32, host: (f64, f64), is_event: bool) {
        let (pid, ts) = (pid(rank), host_ns(host.0));
        let dur = nanos(host.1 - host.0);
        let function = if is_event {
            "cudaEventSynchronize"
        } else {
            "cudaStreamSynchronize"
        };
        let line = format!(
            r#"{{"kind":"call","ts":{ts},"dur":{dur},"pid":{pid},"tid":{pid},"fn":"{function}","handle":"0x1a233440"}}"#
        );
        self.lines.push((ts, line));
    }

    fn launched(&mut self, rank: u32, at: f64) {
        let (pid, ts) = (pid(rank), host_ns(at));
        let line = format!(
            r#"{{"kind":"graph_launches","ts":{ts},"pid":{pid},"n":1,"window_ns":10000000}}"#
        );
        self.lines.push((ts, line));
    }

    /// Returns the recording as bytes.
    pub fn into_bytes(mut self, name: &str) -> std::io::Result<Vec<u8>> {
        self.lines.sort_by_key(|(ts, _)| *ts);
        let n_ranks = self.labels.len();
        let process = |rank: &u32| {
            format!(
                r#"{{"pid":{},"rank":{rank},"world_size":{n_ranks}}}"#,
                pid(*rank)
            )
        };
        let processes: Vec<String> = self.labels.iter().map(process).collect();
        let mut bytes = Vec::new();
        writeln!(
            bytes,
            r#"{{"clock":"CLOCK_MONOTONIC","hardware":"{n_ranks}x simulated GPU","kind":"header","name":"{name}","processes":[{}],"version":1}}"#,
            processes.join(",")
        )?;
        for (_, line) in self.lines {
            writeln!(bytes, "{line}")?;
        }
        Ok(bytes)
    }
}

/// Host clock, nanoseconds.
pub fn host_ns(at: f64) -> i64 {
    HOST_START + nanos(at)
}

/// Clock of the GPU of a rank, nanoseconds.
fn gpu_ns(rank: u32, at: f64) -> i64 {
    GPU_START + nanos(at) + i64::from(rank) * 137_000
}

fn pid(rank: u32) -> u32 {
    1_000 + rank
}

fn comm(rank: u32) -> String {
    format!("0x{:x}", 0x2c00_0000 + u64::from(rank) * 0x1000)
}
