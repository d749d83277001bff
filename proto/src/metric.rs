//! Metric names. All durations are milliseconds on the rank's own clock.
//!
//! The `Histogram` signals are delta points without buckets: count, sum, min and max of one
//! *block*. A block is 2^k consecutive collectives of one communicator, so that every rank's record
//! covers the same operations ([`crate::attribute::SEQ_FIRST`] to [`crate::attribute::SEQ_LAST`],
//! both inclusive).

/// Histogram: time a rank was blocked in or for the collectives of one block of one communicator
/// and operation. With the host as source a blocking synchronisation is counted for the last
/// collective issued before it.
pub const WAIT: &str = "nccl.collective.wait_ms";

/// Histogram: from the return of a rank's own blocking synchronisation to its next collective, one
/// sample per synchronisation, in blocks of the rank's busiest communicator.
pub const HOST_GAP: &str = "fleet.rank.host_gap_ms";

/// Histogram: time blocked in synchronisation per iteration, a union over threads, streams and
/// communicators, in blocks of the rank's busiest communicator.
pub const BLOCKED: &str = "fleet.rank.blocked_ms";

/// Histogram: entry times of the block's operations relative to the block's first operation, in
/// blocks of the rank's busiest communicator. [`crate::attribute::ANCHOR_SEQ`] and
/// [`crate::attribute::ANCHOR_OFFSET_MS`] tie the block to the last completion that all ranks
/// share, which aligns the clocks.
pub const ARRIVAL: &str = "nccl.collective.arrival_ms";

/// Gauge: duration of one iteration, measured between two completions; the point's sequence range
/// is what lies between them and [`crate::attribute::ITERATIONS`] says over how many iterations the
/// value is the mean.
pub const PERIOD: &str = "fleet.rank.period_ms";

/// Gauge: how long the operations of the point's sequence range took, from the completion of the
/// one before them to the completion of the last, in blocks of the rank's busiest communicator.
/// [`crate::attribute::MIX`] says what they were, so that healthy operations of the same kinds can
/// be compared whether they make up iterations or not.
pub const ELAPSED: &str = "fleet.rank.elapsed_ms";

/// Sum, cumulative: operations that the rank has issued on one communicator so far. Sent at least
/// every few seconds while the process lives, so that a rank missing from an operation that never
/// ends can be told. The point names the last operation: [`crate::attribute::SEQ_FIRST`] and
/// [`crate::attribute::SEQ_LAST`] are both its sequence number. Sent for the communicators of the
/// rank's iteration and the one that spans the job; without a role until that is known.
pub const ISSUED: &str = "nccl.collective.issued";

/// Histogram: time that the rank's GPU computed per iteration, in blocks of the rank's busiest
/// communicator (device source). Stages of a pipeline are compared by it alone: time not spent
/// blocked may be time that nobody measured.
pub const BUSY: &str = "fleet.rank.busy_ms";

/// Histogram: time from a collective's enqueue on the host to the start of its kernel, per block
/// (device source).
pub const QUEUE: &str = "nccl.collective.queue_ms";

/// Prefix of the names of all host evidence. Evidence points are delta sums over the operations of
/// one block of the rank's busiest communicator and carry the block's attributes, so that ranks are
/// compared over the same work. They precede the block's [`ARRIVAL`]. An agent omits what it cannot
/// observe; observed zeros are sent.
pub const HOST_EVIDENCE: &str = "fleet.host.";

/// Delta sum: milliseconds that threads of the process were off the CPU, blocked, other than in a
/// synchronisation with the GPU (that is a wait). A sum over the threads that call the GPU's
/// libraries, so it may exceed the block's duration.
pub const OFF_CPU: &str = "fleet.host.off_cpu_ms";

/// Delta sum: milliseconds that threads of the process were runnable after a wake-up and had no CPU
/// yet. A sum over the threads that call the GPU's libraries.
pub const RUN_QUEUE: &str = "fleet.host.run_queue_ms";

/// Delta sum: milliseconds that threads of the process were runnable and off the CPU after a
/// preemption. A sum over the threads that call the GPU's libraries.
pub const PREEMPTED: &str = "fleet.host.preempted_ms";

/// Delta sum: number of preemptions.
pub const PREEMPTIONS: &str = "fleet.host.preemptions";

/// Delta sum: bytes of the copies between host and device that the process requested, in both
/// directions.
pub const MEMCPY: &str = "fleet.host.memcpy_bytes";

/// Delta sum: the part of [`MEMCPY`] that the calls name as going from the device to the host. The
/// rest goes to the device, or where the library finds out by itself.
pub const MEMCPY_TO_HOST: &str = "fleet.host.memcpy_to_host_bytes";

/// Delta sum: launches of CUDA graphs.
pub const GRAPH_LAUNCHES: &str = "fleet.host.graph_launches";

/// Delta sum: kernel launches.
pub const LAUNCHES: &str = "fleet.host.kernel_launches";

/// Delta sum: memory pages allocated.
pub const PAGE_ALLOCATIONS: &str = "fleet.host.page_allocations";

/// Delta sum: milliseconds of block I/O.
pub const BLOCK_IO: &str = "fleet.host.block_io_ms";

/// Delta sum: TCP segments sent again.
pub const TCP_RETRANSMITS: &str = "fleet.host.tcp_retransmits";

/// Delta sum: milliseconds that the GPU's clocks were held down.
pub const THROTTLED: &str = "fleet.host.throttled_ms";

/// Delta sum: RDMA packets lost or sent again, and errors that RDMA devices told the process of.
pub const RDMA_ERRORS: &str = "fleet.host.rdma_errors";

/// Prefix of the names of an agent's own metrics. They are delta sums over the time since the last
/// report, for the host as a whole, and sent as 0, too: what a rank's record lacks may be lost
/// rather than not have happened.
pub const AGENT: &str = "fleet.agent.";

/// Delta sum: events that the agent lost before it could take them in. Blocks of operations that
/// they may belong to are left out.
pub const EVENTS_LOST: &str = "fleet.agent.events_lost";

/// Delta sum: communicators, sums, threads, processes and arguments that exceeded the capacity of
/// the agent's BPF programs or could not be read. What rests on them is missing: whose operations
/// they were, or a part of the evidence.
pub const EVIDENCE_LOST: &str = "fleet.agent.evidence_lost";

/// Delta sum: points that the agent dropped, because they were rejected or its buffers were full.
pub const POINTS_DROPPED: &str = "fleet.agent.points_dropped";

/// Delta sum: operations on communicators that were made before the agent began to trace, so that
/// nobody knows whose they are.
pub const UNKNOWN_COMM_OPS: &str = "fleet.agent.unknown_comm_ops";

/// Delta sum: blocks of operations that the agent left out, because something of them was not seen:
/// compared with those of peers they would blame the wrong rank.
pub const BROKEN_BLOCKS: &str = "fleet.agent.broken_blocks";

/// Gauge of an Ingero agent: its own health score of the node, 0 to 1.
pub const INGERO_HEALTH_SCORE: &str = "ingero.node.health_score";

/// Log record (event name): a rank's own verdict between two policies, at severity WARN when raised
/// and INFO when cleared. The resource is that of the rank's points; the attributes begin at
/// [`crate::attribute::STRAGGLER_STATE`]. Batches of records share the count of
/// [`crate::metadata::BATCH_NUMBER`] with those of points.
pub const STRAGGLER: &str = "fleet.straggler";
