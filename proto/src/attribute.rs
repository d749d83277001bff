//! Attribute names, on the resource (one per traced process) or on the data point.
//!
//! If several names are listed, the first one present wins. Resource attributes take precedence
//! over attributes of the data point.

/// Names of the cluster.
pub const CLUSTER_ID: [&str; 3] = ["fleet.cluster.id", "ingero.cluster.id", "k8s.cluster.name"];

/// Names of the node. The last two are those of the exporters of DCGM and of the NCCL Inspector.
pub const NODE_ID: [&str; 6] = [
    "fleet.node.id",
    "ingero.node.id",
    "k8s.node.name",
    "host.name",
    "Hostname",
    "node",
];

/// Names of the rank within its job. Echo's agent sends [`FLEET_RANK`] on the resource, because
/// `nccl.rank` on a point may also be read as the rank within that point's communicator.
pub const RANK: [&str; 3] = ["nccl.rank", "ingero.node.rank", FLEET_RANK];

/// Names of the job's world size.
pub const WORLD_SIZE: [&str; 3] = ["nccl.nranks", "ingero.world_size", FLEET_WORLD_SIZE];

/// Names of the GPU model.
pub const GPU_MODEL: [&str; 2] = ["gpu.model", "ingero.gpu_model"];

/// Names of the job: the scheduler's, else what the agent derives from the world communicator.
pub const JOB: [&str; 2] = ["fleet.job.id", "slurm.job.id"];

/// Rank within the job (0-based), as Echo's agent sends it.
pub const FLEET_RANK: &str = "fleet.rank";

/// Number of ranks of the job, as Echo's agent sends it.
pub const FLEET_WORLD_SIZE: &str = "fleet.world_size";

/// Unique identity of the GPU.
pub const GPU_UUID: &str = "gpu.uuid";

/// Kubernetes pod of the process.
pub const POD: &str = "k8s.pod.name";

/// Kubernetes namespace of the process.
pub const NAMESPACE: &str = "k8s.namespace.name";

/// Communicator, 16 hex digits: a hash of its NCCL unique id, equal on all its ranks.
pub const COMM_ID: &str = "nccl.comm_id_hash";

/// Collective operation in NCCL's spelling without the prefix: `AllReduce`, `AllGather`, ...
pub const OP: &str = "nccl.op_type";

/// Rank within the communicator of the point (0-based).
pub const COMM_RANK: &str = "nccl.comm_rank";

/// Number of ranks of the communicator of the point.
pub const COMM_SIZE: &str = "nccl.comm_nranks";

/// Sequence number of one operation within its communicator (exemplars).
pub const SEQ: &str = "nccl.seq";

/// First sequence number that a point covers, inclusive.
pub const SEQ_FIRST: &str = "nccl.seq_first";

/// Last sequence number that a point covers, inclusive.
pub const SEQ_LAST: &str = "nccl.seq_last";

/// Clock that measured durations: [`SOURCE_HOST`] or [`SOURCE_DEVICE`].
pub const SOURCE: &str = "fleet.source";

/// Value of [`SOURCE`]: measured on the host, at library calls.
pub const SOURCE_HOST: &str = "host";

/// Value of [`SOURCE`]: measured by the GPU.
pub const SOURCE_DEVICE: &str = "device";

/// On [`crate::metric::ISSUED`]: origin of a count that was not observed at library calls,
/// [`REPORTED_BY_RAS`] or [`REPORTED_BY_FLIGHT_RECORDER`]; absent otherwise.
pub const REPORTED_BY: &str = "fleet.reported_by";

/// Value of [`REPORTED_BY`]: NCCL's RAS subsystem.
pub const REPORTED_BY_RAS: &str = "nccl_ras";

/// Value of [`REPORTED_BY`]: a dump of `PyTorch`'s Flight Recorder.
pub const REPORTED_BY_FLIGHT_RECORDER: &str = "flight_recorder";

/// Role signature of a rank, 16 hex digits: hash of its operations in one iteration, over all its
/// communicators. Ranks with the same role in the same job are comparable.
pub const ROLE: &str = "fleet.role";

/// On [`crate::metric::ARRIVAL`]: sequence number of the last operation that had completed on every
/// rank when the rank's last blocking synchronisation before the block returned. Absent before the
/// first one.
pub const ANCHOR_SEQ: &str = "fleet.anchor_seq";

/// On [`crate::metric::ARRIVAL`]: milliseconds from the return of that synchronisation to the
/// block's first operation.
pub const ANCHOR_OFFSET_MS: &str = "fleet.anchor_offset_ms";

/// On [`crate::metric::PERIOD`] and the block signals: number of iterations that the point covers
/// (a fraction for blocks).
pub const ITERATIONS: &str = "fleet.iterations";

/// On [`crate::metric::ELAPSED`]: number of operations of each class that the point covers, the
/// most frequent class first, as `AllReduce.7.21=90 AllGather.4.0=2`. A class is the name of the
/// operation, NCCL's number of the element type, and the binary logarithm of the number of
/// elements. At most twelve classes are named; all others are counted as `other`.
pub const MIX: &str = "fleet.mix";

/// On [`crate::metric::DURATION`]: sum of the operations' leads, milliseconds. A lead is the time
/// from the enqueue on the host to the start on the GPU, with an offset that is constant for the
/// process (device source), or to the time of the point (host source).
pub const LEAD_SUM_MS: &str = "fleet.lead_sum_ms";

/// On [`crate::metric::DURATION`]: smallest lead, milliseconds.
pub const LEAD_MIN_MS: &str = "fleet.lead_min_ms";

/// On [`crate::metric::ISSUED`]: time since the process issued the last operation on the communicator,
/// milliseconds; absent if that is unknown.
pub const AGE_MS: &str = "fleet.age_ms";

/// On [`crate::metric::ISSUED`]: operations of the process, on any communicator, that its GPU has begun and not
/// ended, while it has issued nothing for some seconds and these operations stay the same. It is 0 only if others
/// are queued; absent if it is unknown, as without the NCCL profiler plugin.
pub const RUNNING: &str = "fleet.running_operations";

/// On [`crate::metric::ISSUED`]: time for which a thread of the process has been blocked in its
/// current synchronisation with the GPU, milliseconds; 0 if no thread is blocked.
pub const WAITING_MS: &str = "fleet.waiting_ms";

/// On [`crate::metric::ISSUED`]: true while the process is stopped, by a signal or a debugger;
/// absent otherwise.
pub const STOPPED: &str = "fleet.stopped";

/// On [`crate::metric::ISSUED`]: number of the signal that killed the process, at the time of the point;
/// absent otherwise.
pub const EXIT_SIGNAL: &str = "fleet.exit_signal";

/// On [`crate::metric::ISSUED`]: what the process returned when it ended at the time of the point; absent
/// otherwise.
pub const EXIT_CODE: &str = "fleet.exit_code";

/// On [`crate::metric::PREEMPTED_BY`]: name of the task, or [`OTHER_TASKS`]. On
/// [`crate::metric::GPU_SHARED_BY`]: name and id of the process, or [`OTHER_TASKS`].
pub const TASK: &str = "fleet.task";

/// Value of [`TASK`]: the sum of the tasks that are not named.
pub const OTHER_TASKS: &str = "(others)";

/// On [`crate::metric::PREEMPTED_BY`]: CPU on which the task ran last.
pub const CPU: &str = "fleet.cpu";

/// On [`crate::metric::STRAGGLER`]: new state, [`STATE_RAISED`] or [`STATE_CLEARED`].
pub const STRAGGLER_STATE: &str = "fleet.straggler.state";

/// Value of [`STRAGGLER_STATE`]: the rank classifies itself as a straggler from this block on, or
/// it still does, but in another [`STRAGGLER_MODE`].
pub const STATE_RAISED: &str = "raised";

/// Value of [`STRAGGLER_STATE`]: the rank no longer classifies itself as a straggler.
pub const STATE_CLEARED: &str = "cleared";

/// On [`crate::metric::STRAGGLER`]: reference of the comparison, [`MODE_FLEET`], [`MODE_STALE`],
/// [`MODE_LOCAL`] or [`MODE_NONE`].
pub const STRAGGLER_MODE: &str = "fleet.straggler.mode";

/// Value of [`STRAGGLER_MODE`]: the cohort of the rank, by a valid policy.
pub const MODE_FLEET: &str = "fleet";

/// Value of [`STRAGGLER_MODE`]: the cohort of the rank, by an expired policy that is younger than
/// five times its validity period.
pub const MODE_STALE: &str = "stale";

/// Value of [`STRAGGLER_MODE`]: the history of the rank, which does not distinguish a slow rank
/// from a slow cohort.
pub const MODE_LOCAL: &str = "local";

/// Value of [`STRAGGLER_MODE`]: none, because there is neither a policy nor a history.
pub const MODE_NONE: &str = "none";

/// On [`crate::metric::STRAGGLER`]: signal that was judged; agents judge [`SIGNAL_HOST_GAP`] alone.
pub const SIGNAL: &str = "fleet.signal";

/// Value of [`SIGNAL`], and of a policy's `signal`: the metric [`crate::metric::HOST_GAP`].
pub const SIGNAL_HOST_GAP: &str = "host_gap";

/// On [`crate::metric::STRAGGLER`]: lag of the rank behind the centre, milliseconds per iteration.
/// Absent, as are [`Z`] and [`EFFECT_RATIO`], if there was nothing to compare with.
pub const LAG_MS: &str = "fleet.lag_ms";

/// On [`crate::metric::STRAGGLER`]: [`LAG_MS`] in standard deviations.
pub const Z: &str = "fleet.z";

/// On [`crate::metric::STRAGGLER`]: [`LAG_MS`] as a share of one iteration (0.05 = 5 %).
pub const EFFECT_RATIO: &str = "fleet.effect_ratio";

/// On [`crate::metric::STRAGGLER`]: version of the policy set (`PolicySet.version`) used for the
/// comparison. Absent in the modes [`MODE_LOCAL`] and [`MODE_NONE`].
pub const POLICY_VERSION: &str = "fleet.policy_version";

/// Process id on its host.
pub const PID: &str = "process.pid";

/// Name of the process.
pub const PROCESS_NAME: &str = "process.executable.name";

/// On [`crate::metric::CALLS`] and [`crate::metric::STACK_SAMPLES`]: function of a GPU library, such
/// as `cudaMalloc`; absent for samples outside such a call.
pub const FUNCTION: &str = "fleet.function";

/// On [`crate::metric::CALLS`]: median duration, milliseconds.
pub const P50_MS: &str = "fleet.p50_ms";

/// On [`crate::metric::CALLS`]: 95th percentile, milliseconds.
pub const P95_MS: &str = "fleet.p95_ms";

/// On [`crate::metric::CALLS`]: 99th percentile, milliseconds.
pub const P99_MS: &str = "fleet.p99_ms";

/// On [`crate::metric::CALLS`]: durations, nanoseconds, with the number of calls that took about as long,
/// shortest first: `8700=90 1400000=2`. Each deviates from that of its calls by at most a ninth. Those of several
/// periods can be added up.
pub const DURATIONS_NS: &str = "fleet.durations_ns";

/// On [`crate::metric::CALLS`]: bytes moved or allocated; absent where the function has none.
pub const BYTES: &str = "fleet.bytes";

/// On [`crate::metric::CHAIN`]: cause, such as `cpu_contention` or `memory_allocation`.
pub const CHAIN_CAUSE: &str = "fleet.chain.cause";

/// On [`crate::metric::CHAIN`]: `low`, `medium` or `high`.
pub const CHAIN_SEVERITY: &str = "fleet.chain.severity";

/// On [`crate::metric::CHAIN`]: the chain in one sentence, with its figures.
pub const CHAIN_SUMMARY: &str = "fleet.chain.summary";

/// On [`crate::metric::CHAIN`]: links of the chain from the system to the call, one per line.
pub const CHAIN_LINKS: &str = "fleet.chain.links";

/// On [`crate::metric::CHAIN`]: where the process waited, innermost frame first, one per line;
/// absent without samples.
pub const CHAIN_STACK: &str = "fleet.chain.stack";

/// On [`crate::metric::CHAIN`]: what to do, one advice per line; absent where none is known.
pub const CHAIN_ADVICE: &str = "fleet.chain.advice";

/// On [`crate::metric::STACK_SAMPLES`]: the stack, innermost frame first, one frame per line, such as
/// `[Python] train.py:142 in forward()`.
pub const STACK: &str = "fleet.stack";

/// On [`crate::metric::FILE`]: name of the file, such as `threads.txt`.
pub const FILE_NAME: &str = "fleet.file.name";

/// On [`crate::metric::FILE`]: number of the part, from 0.
pub const FILE_PART: &str = "fleet.file.part";

/// On [`crate::metric::FILE`]: number of parts.
pub const FILE_PARTS: &str = "fleet.file.parts";

/// On [`crate::metric::FILE`]: the part, Base64 of bytes of the file after compression by gzip.
pub const FILE_CONTENT: &str = "fleet.file.content";
