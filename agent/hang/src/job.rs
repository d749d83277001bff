//! Input of the analysis: the observed progress of the ranks of a job.

use std::collections::{BTreeMap, BTreeSet};

/// A rank that was last observed at most this long before its group last advanced has stopped together
/// with it, nanoseconds. Agents report every four seconds, and reports may arrive late.
const TOGETHER_NS: u64 = 10_000_000_000;

/// Observed progress of a job. Parts that an input does not show stay empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// Groups of ranks. A name alone does not identify a group: several groups may have one name,
    /// and differ by their ranks.
    pub groups: Vec<Group>,
    /// Sends and receives of which the peer has not enqueued the other half.
    pub transfers: Vec<Transfer>,
    /// Last operation that the host of each rank enqueued in any group.
    pub last: BTreeMap<u32, LastOperation>,
    /// State of the processes that do not simply run.
    pub processes: BTreeMap<u32, Process>,
}

/// Group of ranks that run collective operations together, in one order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    /// Name.
    pub name: String,
    /// Purpose, such as `DATA_PARALLEL_GROUP`; may be empty.
    pub purpose: String,
    /// Ranks of the job that belong to it.
    pub members: BTreeSet<u32>,
    /// Progress of the members that were observed.
    pub progress: BTreeMap<u32, Progress>,
}

/// Progress of one rank in one group. Operations are numbered in the order of the group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// Highest operation that the host has enqueued; `None` if no operation is known.
    pub enqueued: Option<u64>,
    /// Highest operation that has ended; `None` if that is not known.
    pub completed: Option<u64>,
    /// Operations of which more is known than their number.
    pub operations: BTreeMap<u64, Operation>,
    /// Time of the observation, by a clock that all ranks share.
    pub observed_ns: Option<u64>,
    /// Time at which the last operation was enqueued, by the same clock.
    pub advanced_ns: Option<u64>,
}

/// Operation of one rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Operation {
    /// Name, such as `all_reduce`.
    pub name: String,
    /// Number of elements of its inputs, if that has to be equal on all ranks.
    pub elements: Option<u64>,
    /// Data type, if known.
    pub dtype: Option<String>,
    /// State.
    pub state: State,
    /// Position among all operations that the host of the rank enqueued; `None` if unknown.
    pub position: Option<u64>,
}

/// State of an operation on one rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum State {
    /// Enqueued by the host.
    #[default]
    Scheduled,
    /// Begun by the GPU.
    Started,
    /// Ended.
    Completed,
}

/// Send or receive of which the peer has not enqueued the other half.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    /// Name of the group.
    pub group: String,
    /// Purpose of the group.
    pub purpose: String,
    /// `send` or `recv`.
    pub op: String,
    /// Number among the transfers of the rank that waits.
    pub seq: u64,
    /// Rank that waits.
    pub rank: u32,
    /// Rank that has not enqueued the other half.
    pub peer: u32,
    /// Whether the peer was observed.
    pub is_peer_observed: bool,
    /// Whether it is, or is in the batch of, the last operation that the rank enqueued.
    pub is_last: bool,
}

/// Last operation that the host of a rank enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastOperation {
    /// Index of its group in [`Job::groups`]; `None` for a transfer.
    pub group: Option<usize>,
    /// Whether it has not ended. A host waits for no operation if the last one has.
    pub is_pending: bool,
}

/// State of the process of a rank, as far as it differs from running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Process {
    /// Its host is blocked in a synchronisation with the GPU, so that it waits for others.
    Waits,
    /// Stopped by a signal or a debugger.
    Stopped,
    /// Does not answer, and is considered dead.
    Dead,
    /// Ended by a signal or an error, which the text names.
    Crashed(String),
}

impl Operation {
    /// Returns whether a rank can end it before all ranks have joined: a root or a source does not
    /// wait for the others.
    fn is_rooted(&self) -> bool {
        matches!(
            self.name.as_str(),
            "broadcast" | "reduce" | "scatter" | "gather" | "_broadcast_oop" | "_reduce_oop"
        )
    }
}

impl Progress {
    /// Returns the highest completed operation that cannot end before all ranks have joined it.
    pub(crate) fn joined_by_all(&self) -> Option<u64> {
        let completed = self.completed?;
        let is_rooted = |number| {
            let operation: Option<&Operation> = self.operations.get(number);
            operation.is_some_and(Operation::is_rooted)
        };
        if !is_rooted(&completed) {
            return Some(completed);
        }
        let mut earlier = self.operations.range(..completed).rev();
        let found = earlier
            .find(|(_, operation)| operation.state == State::Completed && !operation.is_rooted());
        found.map(|(number, _)| *number)
    }

    /// Returns the lowest operation above `floor` that is known not to have ended.
    pub(crate) fn first_pending(&self, floor: Option<u64>) -> Option<u64> {
        let above = self
            .operations
            .range(floor.map_or(0, |floor| floor.saturating_add(1))..);
        let mut pending = above.filter(|(_, operation)| operation.state != State::Completed);
        pending.next().map(|(number, _)| *number)
    }
}

impl Group {
    /// Returns the time at which the group last advanced, if observations have times.
    fn advanced_ns(&self) -> Option<u64> {
        self.progress
            .values()
            .filter_map(|own| own.advanced_ns)
            .max()
    }

    /// Divides the observed ranks by the age of their observations.
    pub(crate) fn by_age(&self) -> ByAge {
        let advanced_ns = self.advanced_ns();
        let mut ranks = ByAge::default();
        for (rank, own) in &self.progress {
            let age_ns = advanced_ns.zip(own.observed_ns);
            let age_ns = age_ns.map_or(0, |(advanced, observed)| advanced.saturating_sub(observed));
            let of_age = match age_ns {
                0 => &mut ranks.fresh,
                1..=TOGETHER_NS => &mut ranks.late,
                _ => &mut ranks.outdated,
            };
            of_age.insert(*rank);
        }
        ranks
    }
}

/// Observed ranks of a group, by the age of their observations.
#[derive(Debug, Default)]
pub(crate) struct ByAge {
    /// Observed after the last advance of the group.
    pub(crate) fresh: BTreeSet<u32>,
    /// Not observed since shortly before that: they fell silent when the group stopped. Their
    /// numbers of operations are too low.
    pub(crate) late: BTreeSet<u32>,
    /// Observed so long before that they may have advanced as well.
    pub(crate) outdated: BTreeSet<u32>,
}
