//! What the agent reports: points about blocks of operations. Times are nanoseconds on the clock of
//! the source until they leave the agent.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::{Op, Operation};

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

/// Role signature: hash of what a rank does in one iteration. Ranks with equal roles are comparable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Role(u64);

impl Role {
    /// The role of all processes that repeat nothing, such as those that answer requests.
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

/// One data point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Name of the metric, from `fleet_proto::metric`.
    pub metric: &'static str,
    /// Start of what it covers, nanoseconds.
    pub start_ns: u64,
    /// End of what it covers, nanoseconds.
    pub time_ns: u64,
    /// The operations that it covers.
    pub block: Block,
    /// What was measured.
    pub value: Value,
}

/// Consecutive operations of one communicator.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The communicator.
    pub comm: CommId,
    /// The reporting rank within it.
    pub comm_rank: u32,
    /// Its ranks.
    pub comm_nranks: u32,
    /// Who measured.
    pub source: Source,
    /// The operation that the point is about, or the most frequent one.
    pub op: Op,
    /// First sequence number, inclusive.
    pub seq_first: u64,
    /// Last sequence number, inclusive.
    pub seq_last: u64,
    /// Iterations that the operations make up, when known.
    pub iterations: Option<f64>,
    /// The reporting rank's role, when known.
    pub role: Option<Role>,
}

/// Who measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The host saw calls.
    Host,
    /// The GPU took times.
    Device,
}

/// What a point measures.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// One value, milliseconds.
    Gauge(f64),
    /// How long operations took from one completion to the next.
    Elapsed {
        /// Milliseconds.
        ms: f64,
        /// What they were.
        mix: Mix,
    },
    /// What the block added, in the unit that the metric's name ends with.
    Increase(f64),
    /// How far a process has come on a communicator.
    Issued {
        /// Operations since the communicator was made.
        total: u64,
        /// How long a thread has been blocked in its present synchronisation with the GPU, milliseconds.
        waiting_ms: f64,
        /// Whether the process is stopped, by a signal or a debugger.
        is_stopped: bool,
    },
    /// A summary of samples, with some of the samples themselves.
    Summary {
        /// Count, sum and extremes.
        summary: Summary,
        /// Selected samples.
        exemplars: Vec<Exemplar>,
        /// The completion that the samples are relative to.
        anchor: Option<Anchor>,
    },
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

/// What an operation does, coarse enough that there are few of them in a job: those of one class take about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpClass {
    op: Op,
    datatype: u32,
    /// Binary logarithm of the elements, rounded down.
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

/// How many operations of each class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mix(BTreeMap<OpClass, u64>);

impl Mix {
    /// Classes that are named; what is rarer goes by one name.
    const MAX_NAMED: usize = 12;

    /// Adds an operation.
    pub fn add(&mut self, class: OpClass) {
        *self.0.entry(class).or_default() += 1;
    }
}

/// `AllReduce.7.21=90 AllGather.4.0=2`, the most frequent first.
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

/// Count, sum and extremes of samples in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Summary {
    /// Number of samples.
    pub count: u64,
    /// Their sum, milliseconds.
    pub sum_ms: f64,
    /// The smallest, milliseconds; 0 without samples.
    pub min_ms: f64,
    /// The largest, milliseconds; 0 without samples.
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
}

/// One sampled operation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    /// Its sequence number.
    pub seq: u64,
    /// When its wait ended, nanoseconds.
    pub time_ns: u64,
    /// How long the rank was blocked for it, milliseconds.
    pub wait_ms: f64,
}

/// Ties the arrival times of a block to a completion that all ranks share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Anchor {
    /// Sequence number of the last operation known to be complete.
    pub seq: u64,
    /// From the completion to the block's first operation, milliseconds.
    pub offset_ms: f64,
}

/// Nanoseconds as milliseconds.
#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 ns are 104 days, far above any duration here"
)]
pub fn millis(ns: u64) -> f64 {
    ns as f64 / 1e6
}
