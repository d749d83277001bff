//! Attribute names, on the resource (one per traced process) or on the data point.
//!
//! Where several names are listed, the first that is present wins; resource attributes win over
//! attributes of the data point.

/// Names of the cluster.
pub const CLUSTER_ID: [&str; 3] = ["fleet.cluster.id", "ingero.cluster.id", "k8s.cluster.name"];

/// Names of the node.
pub const NODE_ID: [&str; 4] = [
    "fleet.node.id",
    "ingero.node.id",
    "k8s.node.name",
    "host.name",
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

/// Where durations were taken: [`SOURCE_HOST`] or [`SOURCE_DEVICE`].
pub const SOURCE: &str = "fleet.source";

/// Value of [`SOURCE`]: library calls seen on the host.
pub const SOURCE_HOST: &str = "host";

/// Value of [`SOURCE`]: timestamps taken by the GPU.
pub const SOURCE_DEVICE: &str = "device";

/// Role signature of a rank, 16 hex digits: hash of what it does in one iteration, over all its
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

/// On [`crate::metric::ELAPSED`]: how many operations of each class the point covers, the most
/// frequent first, as `AllReduce.7.21=90 AllGather.4.0=2`: name, NCCL's number of the element type,
/// and binary logarithm of the elements. At most twelve classes are named; the rest goes by
/// `other`.
pub const MIX: &str = "fleet.mix";

/// On [`crate::metric::ISSUED`]: how long a thread of the process has been blocked in its present
/// synchronisation with the GPU, milliseconds; 0 where none is.
pub const WAITING_MS: &str = "fleet.waiting_ms";

/// On [`crate::metric::ISSUED`]: true while the process is stopped, by a signal or a debugger;
/// absent otherwise.
pub const STOPPED: &str = "fleet.stopped";

/// On [`crate::metric::STRAGGLER`]: what changed, [`STATE_RAISED`] or [`STATE_CLEARED`].
pub const STRAGGLER_STATE: &str = "fleet.straggler.state";

/// Value of [`STRAGGLER_STATE`]: from this block on the rank holds itself to be a straggler, or it
/// still does, but by another [`STRAGGLER_MODE`].
pub const STATE_RAISED: &str = "raised";

/// Value of [`STRAGGLER_STATE`]: the rank no longer holds itself to be a straggler.
pub const STATE_CLEARED: &str = "cleared";

/// On [`crate::metric::STRAGGLER`]: what the rank compared itself with, [`MODE_FLEET`],
/// [`MODE_STALE`], [`MODE_LOCAL`] or [`MODE_NONE`].
pub const STRAGGLER_MODE: &str = "fleet.straggler.mode";

/// Value of [`STRAGGLER_MODE`]: its cohort, by a policy in force.
pub const MODE_FLEET: &str = "fleet";

/// Value of [`STRAGGLER_MODE`]: its cohort, by a policy that has run out and is less than five
/// times as old as it was to get.
pub const MODE_STALE: &str = "stale";

/// Value of [`STRAGGLER_MODE`]: its own past, which cannot tell a slow rank from a slow cohort.
pub const MODE_LOCAL: &str = "local";

/// Value of [`STRAGGLER_MODE`]: nothing, for want of a policy and of a past.
pub const MODE_NONE: &str = "none";

/// On [`crate::metric::STRAGGLER`]: signal that was judged; agents judge [`SIGNAL_HOST_GAP`] alone.
pub const SIGNAL: &str = "fleet.signal";

/// Value of [`SIGNAL`], and of a policy's `signal`: the metric [`crate::metric::HOST_GAP`].
pub const SIGNAL_HOST_GAP: &str = "host_gap";

/// On [`crate::metric::STRAGGLER`]: how far behind the centre the rank is, milliseconds per
/// iteration. Absent, as are [`Z`] and [`EFFECT_RATIO`], when there was nothing to compare with.
pub const LAG_MS: &str = "fleet.lag_ms";

/// On [`crate::metric::STRAGGLER`]: [`LAG_MS`] in standard deviations.
pub const Z: &str = "fleet.z";

/// On [`crate::metric::STRAGGLER`]: [`LAG_MS`] as a share of one iteration (0.05 = 5 %).
pub const EFFECT_RATIO: &str = "fleet.effect_ratio";

/// On [`crate::metric::STRAGGLER`]: version of the policy set (`PolicySet.version`) that the rank
/// compared itself by. Absent in the modes [`MODE_LOCAL`] and [`MODE_NONE`].
pub const POLICY_VERSION: &str = "fleet.policy_version";
