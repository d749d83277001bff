//! Kernels of GPUs from `SQLite` exports of Nsight Systems, without the database: rows in,
//! operations of each GPU out.
//!
//! An export does not contain communicators, numbers of operations and ranks. GPUs are numbered in
//! the order of their files, processes and devices. Streams of several GPUs are a group if they ran
//! the same collective operations and these ended together, as those of one communicator do. The
//! GPUs of one file share a clock; those of two files are compared after the median of the
//! differences is subtracted.
//!
//! The size of an operation is not known either. The GPU that arrives last spends little more than
//! the transfer in it, so the shortest time of its GPUs stands for the size.

use std::collections::{BTreeMap, VecDeque};

use fleet_agent_core::event::Op;

use crate::kernel::{KernelKind, name_parts, short_name};
use crate::trace::{Collective, RankTrace};

/// Difference of the ends of one operation on two GPUs that is always accepted, nanoseconds.
const END_SKEW_NS: u64 = 100_000;
/// The same, as a part of the median duration of the operations.
const DURATION_PARTS: u64 = 10;
/// Maximum number of operations of one file; hours of training have a million.
const MAX_OPS: usize = 20_000_000;

/// Kernel of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel<'a> {
    /// Process and device.
    pub gpu: Gpu,
    /// Stream.
    pub stream: i64,
    /// Name, if it has one of [`communicating_names`].
    pub name: Option<&'a str>,
    /// Start, nanoseconds since the start of the session.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// GPU that a process uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpu {
    /// Process, as the export numbers it.
    pub process: i64,
    /// Device of the process.
    pub device: i64,
}

/// Kernels of one file.
#[derive(Debug, Default)]
pub struct FileKernels {
    by_gpu: BTreeMap<Gpu, RankTrace>,
    n_ops: usize,
    /// Marked steps by process.
    steps: BTreeMap<i64, u64>,
}

impl FileKernels {
    /// Adds a kernel; returns false if the file has more operations than any export.
    #[must_use]
    pub fn add(&mut self, kernel: &Kernel<'_>) -> bool {
        let trace = self.by_gpu.entry(kernel.gpu).or_default();
        let duration_ns = kernel.end_ns.saturating_sub(kernel.start_ns);
        let name = kernel.name.unwrap_or_default();
        let op = match KernelKind::of(name) {
            KernelKind::Computation => {
                let busy_ns = trace.busy_ns.get_or_insert(0);
                *busy_ns = busy_ns.saturating_add(duration_ns);
                return true;
            }
            KernelKind::Transfer => {
                trace.n_transfers += 1;
                return true;
            }
            KernelKind::Unclear => {
                trace.add_unclear(short_name(name), duration_ns);
                return true;
            }
            KernelKind::Generic => trace.assumed_op(),
            KernelKind::Collective(op) => op,
        };
        trace.collectives.push(Collective {
            group: format!("stream {}", kernel.stream),
            seq: None,
            op,
            size: 0,
            start_ns: Some(kernel.start_ns),
            duration_ns,
        });
        self.n_ops += 1;
        self.n_ops <= MAX_OPS
    }

    /// Counts a range of NVTX if it is a step of the process.
    pub fn add_range(&mut self, process: i64, name: &str) {
        if is_step(name) {
            *self.steps.entry(process).or_default() += 1;
        }
    }

    /// Returns the operations of each GPU, on this node and model if they are known.
    pub fn finish(self, node: Option<&str>, gpu_model: Option<&str>) -> Vec<RankTrace> {
        let gpus = self.by_gpu.into_iter().map(|(gpu, mut trace)| {
            trace.n_steps = self.steps.get(&gpu.process).copied().unwrap_or(0);
            trace.node = node.map(str::to_owned);
            trace.gpu_model = gpu_model.map(str::to_owned);
            trace.collectives.sort_by_key(|op| op.start_ns);
            trace
        });
        gpus.collect()
    }
}

/// Parts of the names of kernels that communicate; small and large letters count alike. Kernels whose
/// names have none of them compute.
pub fn communicating_names() -> impl Iterator<Item = &'static str> {
    name_parts()
}

/// Returns whether the name of a range is that of a step, such as `iteration 12`, `step_12` or
/// `ProfilerStep#12`.
pub fn is_step(name: &str) -> bool {
    let number = STEPS.iter().find_map(|step| {
        let (start, number) = name.split_at_checked(step.len())?;
        start.eq_ignore_ascii_case(step).then_some(number)
    });
    let number = number.map(|number| number.trim_start_matches([' ', '_', '#', ':', '=']));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Names of steps before their numbers.
const STEPS: [&str; 4] = ["ProfilerStep", "iteration", "iter", "step"];

/// GPUs of one file, with the number in its name.
pub(crate) type FileGpus = (Option<u32>, Vec<RankTrace>);

/// Gives each GPU a rank, and the operations of each stream a group.
pub(crate) fn place(mut files: Vec<FileGpus>) -> BTreeMap<u32, RankTrace> {
    files.sort_by_key(|(number, _)| *number);
    let has_one = files.len() > 1
        && files
            .iter()
            .all(|(number, gpus)| number.is_some() && gpus.len() == 1);
    let numbers = files.iter().filter_map(|(number, _)| *number);
    let is_unique = numbers
        .clone()
        .zip(numbers.skip(1))
        .all(|(one, next)| one != next);
    let mut placed = BTreeMap::new();
    let mut next = 0;
    for (file, (number, gpus)) in files.into_iter().enumerate() {
        for trace in gpus {
            let rank = number.filter(|_| has_one && is_unique).unwrap_or(next);
            placed.insert(rank, (file, trace));
            next += 1;
        }
    }
    group(placed)
}

/// Operations of one stream.
struct Stream {
    rank: u32,
    file: usize,
    name: String,
    ops: Vec<Op>,
    ends_ns: Vec<u64>,
    durations_ns: Vec<u64>,
    median_ns: u64,
}

/// Renames the groups, which are streams, to those of all ranks.
fn group(placed: BTreeMap<u32, (usize, RankTrace)>) -> BTreeMap<u32, RankTrace> {
    let streams: Vec<Stream> = placed
        .iter()
        .flat_map(|(rank, (file, trace))| streams(*rank, *file, trace))
        .collect();
    let mut groups: Vec<Vec<&Stream>> = Vec::new();
    for stream in &streams {
        let joined = groups.iter_mut().find(|group| {
            group.first().is_some_and(|first| first.ends_with(stream))
                && group.iter().all(|other| other.rank != stream.rank)
        });
        match joined {
            Some(group) => group.push(stream),
            None => groups.push(vec![stream]),
        }
    }
    let mut joined: BTreeMap<u32, BTreeMap<String, Group>> = BTreeMap::new();
    for (number, streams) in groups.iter().enumerate() {
        let group = Group::new(number, streams);
        for stream in streams {
            let own = joined.entry(stream.rank).or_default();
            own.insert(stream.name.clone(), group.clone());
        }
    }
    let renamed = placed.into_iter().map(|(rank, (_, mut trace))| {
        let mut own = joined.remove(&rank).unwrap_or_default();
        for op in &mut trace.collectives {
            if let Some(group) = own.get_mut(op.group.as_str()) {
                op.size = group.sizes.pop_front().unwrap_or(0);
                op.group.clone_from(&group.name);
            }
        }
        trace.rank = Some(rank);
        let groups = own.into_values().map(|group| (group.name, group.ranks));
        trace.groups = groups.collect();
        (rank, trace)
    });
    renamed.collect()
}

/// Streams of several ranks with the same operations.
#[derive(Clone)]
struct Group {
    name: String,
    ranks: Vec<u32>,
    /// What stands for the sizes of the operations, in their order.
    sizes: VecDeque<u64>,
}

impl Group {
    fn new(number: usize, streams: &[&Stream]) -> Self {
        let n_ops = streams.first().map_or(0, |first| first.ops.len());
        let shortest = |at: usize| {
            let times = streams
                .iter()
                .filter_map(|stream| stream.durations_ns.get(at));
            let bits = times.min().and_then(|ns| ns.checked_ilog2());
            bits.map_or(0, |bits| 1 << bits)
        };
        Self {
            name: format!("group {number}"),
            ranks: streams.iter().map(|stream| stream.rank).collect(),
            sizes: (0..n_ops).map(shortest).collect(),
        }
    }
}

fn streams(rank: u32, file: usize, trace: &RankTrace) -> Vec<Stream> {
    let mut by_name: BTreeMap<&str, Vec<&Collective>> = BTreeMap::new();
    for op in &trace.collectives {
        by_name.entry(op.group.as_str()).or_default().push(op);
    }
    let stream = |(name, ops): (&str, Vec<&Collective>)| Stream {
        rank,
        file,
        name: name.to_owned(),
        ops: ops.iter().map(|op| op.op).collect(),
        ends_ns: ops.iter().map(|op| op.end_ns().unwrap_or(0)).collect(),
        durations_ns: ops.iter().map(|op| op.duration_ns).collect(),
        median_ns: median(ops.iter().map(|op| op.duration_ns).collect()),
    };
    by_name.into_iter().map(stream).collect()
}

impl Stream {
    /// Returns whether the operations of both streams are the same and ended together.
    fn ends_with(&self, other: &Self) -> bool {
        if self.ops != other.ops {
            return false;
        }
        let pairs = self.ends_ns.iter().zip(&other.ends_ns);
        let skews: Vec<i64> = pairs
            .map(|(own, other)| own.wrapping_sub(*other).cast_signed())
            .collect();
        let offset_ns = if self.file == other.file {
            0
        } else {
            median(skews.clone())
        };
        let apart = skews
            .iter()
            .map(|skew| skew.saturating_sub(offset_ns).unsigned_abs());
        let longest_ns = self.median_ns.max(other.median_ns);
        median(apart.collect()) <= END_SKEW_NS.max(longest_ns / DURATION_PARTS)
    }
}

/// Upper median; the default value without values.
fn median<T: Ord + Copy + Default>(mut values: Vec<T>) -> T {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// All-reduces on one GPU that end every 10 ms and last `ms`.
    fn kernels(process: i64, stream: i64, ms: u64, end_ns: u64) -> Vec<Kernel<'static>> {
        let kernel = |step: u64| Kernel {
            gpu: Gpu { process, device: 0 },
            stream,
            name: Some("ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
            start_ns: end_ns + step * 10 * MS - ms * MS,
            end_ns: end_ns + step * 10 * MS,
        };
        (1..=8).map(kernel).collect()
    }

    fn file(kernels: &[Vec<Kernel<'_>>]) -> Vec<RankTrace> {
        let mut file = FileKernels::default();
        assert!(kernels.iter().flatten().all(|kernel| file.add(kernel)));
        file.finish(Some("host"), None)
    }

    fn groups(traces: &BTreeMap<u32, RankTrace>) -> Vec<Vec<u32>> {
        let groups = traces.values().flat_map(|trace| trace.groups.clone());
        let by_name: BTreeMap<String, Vec<u32>> = groups.collect();
        by_name.into_values().collect()
    }

    #[test]
    fn streams_whose_operations_end_together_are_a_group_whatever_their_numbers() {
        let gpus = file(&[
            kernels(1, 7, 2, 0),
            kernels(2, 15, 5, 20_000),
            kernels(3, 7, 2, 4 * MS),
        ]);
        let placed = place(vec![(None, gpus)]);
        assert_eq!(groups(&placed), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn files_of_hosts_whose_clocks_are_hours_apart_are_compared_by_their_differences() {
        let hour = 3_600_000 * MS;
        let files = [(1, hour), (0, 0)].map(|(number, offset_ns)| {
            let jitter = file(&[kernels(9, 7, 2 + u64::from(number), offset_ns + 5_000)]);
            (Some(number), jitter)
        });
        let placed = place(files.into());
        assert_eq!(groups(&placed), [vec![0, 1]]);
        assert_eq!(placed[&1].collectives[0].duration_ns, 3 * MS);
    }

    #[test]
    fn ranges_with_a_number_are_steps() {
        for name in ["iteration 12", "step_3", "ProfilerStep#0", "Iter: 7"] {
            assert!(is_step(name), "{name}");
        }
        for name in ["steps", "optimizer step", "iterate", "step 1 forward", ""] {
            assert!(!is_step(name), "{name}");
        }
    }

    #[test]
    fn sends_are_counted_and_other_kernels_are_computation() {
        let gpu = Gpu {
            process: 1,
            device: 0,
        };
        let kernel = |name| Kernel {
            gpu,
            stream: 7,
            name,
            start_ns: 10,
            end_ns: 30,
        };
        let own = file(&[vec![kernel(None), kernel(Some("ncclDevKernel_SendRecv"))]]);
        assert_eq!((own[0].busy_ns, own[0].n_transfers), (Some(20), 1));
    }
}
