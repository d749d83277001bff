//! Points that the agent reports about blocks of operations. Times are nanoseconds of the source's
//! clock until they leave the agent.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::{ExitStatus, Op, Operation};

/// Identity of a communicator: a hash of its unique id, equal on all its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(u64);

impl CommId {
    /// Wraps the hash of a unique id.
    pub fn new(hash: u64) -> Self {
        Self(hash)
    }

    /// The hash.
    pub fn to_bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Role signature: hash of the operations of a rank in one iteration. Ranks with equal roles are
/// comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role(u64);

impl Role {
    /// Role of all processes without iterations, such as inference servers.
    pub const WITHOUT_ITERATIONS: Self = Self(u64::MAX);

    /// Wraps the hash.
    pub fn new(hash: u64) -> Self {
        Self(hash)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Data point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Name of the metric, from `fleet_proto::metric`.
    pub metric: &'static str,
    /// Start of the covered period, nanoseconds.
    pub start_ns: u64,
    /// End of the covered period, nanoseconds.
    pub time_ns: u64,
    /// Operations covered.
    pub block: Block,
    /// Measured value.
    pub value: Value,
}

/// Consecutive operations of one communicator.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The communicator.
    pub comm: CommId,
    /// Reporting rank within the communicator.
    pub comm_rank: u32,
    /// Number of ranks of the communicator.
    pub comm_nranks: u32,
    /// Origin of the measurement.
    pub source: Source,
    /// Operation of the point, or the most frequent one.
    pub op: Op,
    /// First sequence number, inclusive.
    pub seq_first: u64,
    /// Last sequence number, inclusive.
    pub seq_last: u64,
    /// Number of iterations that the operations amount to, if known.
    pub iterations: Option<f64>,
    /// Role of the reporting rank, if known.
    pub role: Option<Role>,
}

/// Origin of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Library calls seen on the host.
    Host,
    /// Timers of the GPU.
    Device,
    /// Answers of NCCL's RAS subsystem about the whole job.
    Ras,
    /// Dumps of `PyTorch`'s Flight Recorder.
    FlightRecorder,
}

/// Value of a point.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Single value, milliseconds.
    Gauge(f64),
    /// Time that operations took from one completion to the next.
    Elapsed {
        /// Milliseconds.
        ms: f64,
        /// Classes of the operations.
        mix: Mix,
    },
    /// Increase during the block, in the unit given by the metric's name.
    Increase(f64),
    /// Time for which a task ran in the place of the process during the block, or beside it on its
    /// GPU.
    TaskTime {
        /// Milliseconds.
        ms: f64,
        /// Name of the task.
        task: String,
        /// CPU on which it ran last; `None` on a GPU.
        cpu: Option<u32>,
    },
    /// Progress of a process on a communicator.
    Issued {
        /// Operations since the communicator was created.
        total: u64,
        /// Time since the last of them was issued, milliseconds; `None` if that is unknown.
        age_ms: Option<f64>,
        /// Time for which a thread has been blocked in its current synchronization with the GPU,
        /// milliseconds.
        waiting_ms: f64,
        /// Set while the process is stopped by a signal or a debugger.
        is_stopped: bool,
        /// Operations that its GPU has begun and not ended, while nothing happens; `None` where that is unknown.
        running: Option<u64>,
        /// How the process ended; `None` while it lives, or if that was not seen.
        exit: Option<ExitStatus>,
    },
    /// Summary of samples, with selected samples.
    Summary {
        /// Count, sum, minimum and maximum.
        summary: Summary,
        /// Selected samples.
        exemplars: Vec<Exemplar>,
        /// Completion to which the samples are relative.
        anchor: Option<Anchor>,
    },
    /// Durations of operations on the GPU, or waits of the host for them.
    Durations {
        /// Count, sum, minimum and maximum.
        summary: Summary,
        /// Leads of the same operations.
        lead: Option<Lead>,
    },
}

/// Leads of operations: the time from the enqueue on the host to the start on the GPU, on the two
/// clocks of one process, so that it has an unknown constant offset. Where GPUs are not timed, the time
/// from the enqueue to the end of the block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lead {
    /// Sum, milliseconds.
    pub sum_ms: f64,
    /// Minimum, milliseconds.
    pub min_ms: f64,
}

impl From<Summary> for Value {
    fn from(summary: Summary) -> Self {
        Self::Summary {
            summary,
            exemplars: Vec::new(),
            anchor: None,
        }
    }
}

/// Class of operations, coarse enough that a job has few of them: operations of one class take
/// about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpClass {
    op: Op,
    datatype: u32,
    /// Base-2 logarithm of the number of elements, rounded down.
    size: u32,
}

impl OpClass {
    /// The class of an operation.
    pub fn from_operation(operation: Operation) -> Self {
        Self {
            op: operation.op,
            datatype: operation.datatype,
            size: operation.count.checked_ilog2().unwrap_or(0),
        }
    }
}

impl fmt::Display for OpClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.op.name(), self.datatype, self.size)
    }
}

/// Number of operations of each class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mix(BTreeMap<OpClass, u64>);

impl Mix {
    /// Maximum number of named classes; rarer ones are counted as `other`.
    const MAX_NAMED: usize = 12;

    /// Adds an operation.
    pub fn add(&mut self, class: OpClass) {
        *self.0.entry(class).or_default() += 1;
    }
}

/// Formats as `AllReduce.7.21=90 AllGather.4.0=2`, the most frequent class first.
impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut classes: Vec<(&OpClass, &u64)> = self.0.iter().collect();
        classes.sort_by_key(|(class, n)| (std::cmp::Reverse(**n), **class));
        let rest: u64 = classes.iter().skip(Self::MAX_NAMED).map(|(_, n)| **n).sum();
        for (at, (class, n)) in classes.iter().take(Self::MAX_NAMED).enumerate() {
            let space = if at == 0 { "" } else { " " };
            write!(f, "{space}{class}={n}")?;
        }
        if rest > 0 {
            write!(f, " other={rest}")?;
        }
        Ok(())
    }
}

/// Count, sum, minimum and maximum of samples in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// Sum, milliseconds.
    pub sum_ms: f64,
    /// Minimum, milliseconds; 0 without samples.
    pub min_ms: f64,
    /// Maximum, milliseconds; 0 without samples.
    pub max_ms: f64,
}

impl Summary {
    /// Adds one sample.
    pub fn add(&mut self, sample_ms: f64) {
        if self.count == 0 {
            (self.min_ms, self.max_ms) = (sample_ms, sample_ms);
        }
        self.count += 1;
        self.sum_ms += sample_ms;
        self.min_ms = self.min_ms.min(sample_ms);
        self.max_ms = self.max_ms.max(sample_ms);
    }

    /// Adds the samples of another summary.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            (self.min_ms, self.max_ms) = (other.min_ms, other.max_ms);
        }
        self.count += other.count;
        self.sum_ms += other.sum_ms;
        self.min_ms = self.min_ms.min(other.min_ms);
        self.max_ms = self.max_ms.max(other.max_ms);
    }
}

/// Sampled operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// Sequence number.
    pub seq: u64,
    /// End of its wait, nanoseconds.
    pub time_ns: u64,
    /// Time for which the rank was blocked by it, milliseconds.
    pub wait_ms: f64,
}

/// Reference of a block's arrival times: a completion that all ranks share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Anchor {
    /// Sequence number of the last operation known to be complete.
    pub seq: u64,
    /// Time from the completion to the block's first operation, milliseconds.
    pub offset_ms: f64,
}

/// Converts nanoseconds to milliseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days, far above any duration here"
)]
pub fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}
