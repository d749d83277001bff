//! Metric names. All durations are milliseconds on the rank's own clock.
//!
//! The `Histogram` signals are delta points without buckets: count, sum, min and max of one
//! *block*. A block is 2^k consecutive collectives of one communicator, so that the records of all
//! ranks cover the same operations, from [`crate::attribute::SEQ_FIRST`] to
//! [`crate::attribute::SEQ_LAST`], both inclusive.

/// Histogram: time a rank was blocked in or for the collectives of one block of one communicator
/// and operation. If the host is the source, a blocking synchronisation counts for the last
/// collective issued before it.
pub const WAIT: &str = "nccl.collective.wait_ms";

/// Histogram: time from the return of a blocking synchronisation of the rank to its next
/// collective, one sample per synchronisation, in blocks of the rank's busiest communicator.
pub const HOST_GAP: &str = "fleet.rank.host_gap_ms";

/// Histogram: time blocked in synchronisation per iteration, a union over threads, streams and
/// communicators, in blocks of the rank's busiest communicator.
pub const BLOCKED: &str = "fleet.rank.blocked_ms";

/// Histogram: entry times of the block's operations relative to the block's first operation, in
/// blocks of the rank's busiest communicator. [`crate::attribute::ANCHOR_SEQ`] and
/// [`crate::attribute::ANCHOR_OFFSET_MS`] tie the block to the last completion that all ranks
/// share, which aligns the clocks.
pub const ARRIVAL: &str = "nccl.collective.arrival_ms";

/// Gauge: mean duration of an iteration, measured between two completions. The sequence range of
/// the point is the operations between them, and [`crate::attribute::ITERATIONS`] is the number of
/// iterations.
pub const PERIOD: &str = "fleet.rank.period_ms";

/// Gauge: duration of the operations of the point's sequence range, from the completion of the
/// operation before them to the completion of the last one, in blocks of the rank's busiest
/// communicator. [`crate::attribute::MIX`] has their classes, so that they can be compared with
/// healthy operations of the same classes, even without iterations.
pub const ELAPSED: &str = "fleet.rank.elapsed_ms";

/// Sum, cumulative: operations that the rank has issued on one communicator so far. Sent at least
/// every few seconds while the process lives, so that a rank missing from an operation that never
/// ends can be identified. [`crate::attribute::SEQ_FIRST`] and [`crate::attribute::SEQ_LAST`] are
/// both the sequence number of the last operation. Sent for the communicators of the rank's
/// iteration and the one of the whole job; without a role until it is known.
pub const ISSUED: &str = "nccl.collective.issued";

/// Histogram: time that the rank's GPU computed per iteration, in blocks of the rank's busiest
/// communicator (device source). The only signal by which stages of a pipeline are compared: time
/// in which a rank was not blocked may be unmeasured.
pub const BUSY: &str = "fleet.rank.busy_ms";

/// Histogram: time from a collective's enqueue on the host to the start of its kernel, per block
/// (device source).
pub const QUEUE: &str = "nccl.collective.queue_ms";

/// Histogram: durations on the GPU of the operations of one block of one communicator, from the
/// GPU's timers (device source), or the time for which the host was blocked for them (host source,
/// only where the GPU is not timed; the count is that of the operations, and the minimum is 0). An operation that waits for its peers ends everywhere at once, so
/// the difference to the shortest duration of all ranks is the time that a rank waited. The
/// communicator is NCCL's own hash; operations in which not all ranks wait are covered, but not
/// counted. [`crate::attribute::LEAD_SUM_MS`] and [`crate::attribute::LEAD_MIN_MS`] are the leads of
/// the same operations. The point's time is the end of the last operation as the host observed it.
pub const DURATION: &str = "nccl.operation.duration_ms";

/// Prefix of the names of all host evidence. Evidence points are delta sums over the operations of
/// one block of the rank's busiest communicator and have the block's attributes, so that ranks are
/// compared over the same work. They precede the block's [`ARRIVAL`]. An agent omits evidence
/// that it cannot observe, and sends observed zeros.
pub const HOST_EVIDENCE: &str = "fleet.host.";

/// Delta sum: milliseconds that threads of the process were off the CPU, blocked, except in a
/// synchronisation with the GPU (which is a wait). A sum over the threads that call the GPU's
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

/// Delta sum: the part of [`MEMCPY`] with the explicit direction from device to host. The rest goes
/// to the device, or the library determines the direction.
pub const MEMCPY_TO_HOST: &str = "fleet.host.memcpy_to_host_bytes";

/// Delta sum: launches of CUDA graphs.
pub const GRAPH_LAUNCHES: &str = "fleet.host.graph_launches";

/// Delta sum: kernel launches.
pub const LAUNCHES: &str = "fleet.host.kernel_launches";

/// Delta sum: memory pages allocated.
pub const PAGE_ALLOCATIONS: &str = "fleet.host.page_allocations";

/// Delta sum: milliseconds of block I/O.
pub const BLOCK_IO: &str = "fleet.host.block_io_ms";

/// Delta sum: TCP segments retransmitted.
pub const TCP_RETRANSMITS: &str = "fleet.host.tcp_retransmits";

/// Delta sum: milliseconds for which the GPU's clocks were throttled.
pub const THROTTLED: &str = "fleet.host.throttled_ms";

/// Delta sum: RDMA packets lost or retransmitted, and errors that RDMA devices reported to the
/// process.
pub const RDMA_ERRORS: &str = "fleet.host.rdma_errors";

/// Prefix of the names of what an agent found out about one process on its host, with or without a
/// rank. The points have no block: they cover a period of about ten seconds, and are kept for people
/// and models; no verdict is based on them.
pub const PROCESS: &str = "fleet.process.";

/// Histogram, delta: durations of the calls of one function, milliseconds.
/// [`crate::attribute::FUNCTION`] is the function, and [`crate::attribute::P50_MS`],
/// [`crate::attribute::P95_MS`] and [`crate::attribute::P99_MS`] are quantiles;
/// [`crate::attribute::DURATIONS_NS`] has those of several periods.
pub const CALLS: &str = "fleet.process.calls_ms";

/// Gauge: share of its time, 0 to 1, that the process lost to one cause, with the causal chain in the
/// attributes from [`crate::attribute::CHAIN_CAUSE`] on. Sent in every period in which the chain
/// holds.
pub const CHAIN: &str = "fleet.process.chain";

/// Sum, delta: samples in which a thread had one stack, [`crate::attribute::STACK`].
pub const STACK_SAMPLES: &str = "fleet.process.stack_samples";

/// Gauge: size, bytes, of a file that an agent made about a process that does nothing. Each point has
/// one part of its content in [`crate::attribute::FILE_CONTENT`].
pub const FILE: &str = "fleet.process.file_bytes";

/// Delta sum: milliseconds for which the control group of the process was throttled at its CPU
/// quota, a sum over CPUs.
pub const CGROUP_THROTTLED: &str = "fleet.host.cgroup_throttled_ms";

/// Delta sum: milliseconds for which other processes computed on the process's GPU, as the driver
/// samples it.
pub const GPU_SHARED: &str = "fleet.host.gpu_shared_ms";

/// Delta sum: the part of [`GPU_SHARED`] of the process [`crate::attribute::TASK`]. One point for
/// each of the three longest processes of a block, and one for all others.
pub const GPU_SHARED_BY: &str = "fleet.host.gpu_shared_by_ms";

/// Delta sum: milliseconds of interrupts on the CPUs of threads of the process while they ran. A
/// sum over the threads that call the GPU's libraries.
pub const INTERRUPT: &str = "fleet.host.interrupt_ms";

/// Delta sum: the part of [`OFF_CPU`] blocked on locks of the process (futexes).
pub const LOCK: &str = "fleet.host.lock_ms";

/// Delta sum: the part of [`OFF_CPU`] blocked in page faults.
pub const PAGE_FAULT: &str = "fleet.host.page_fault_ms";

/// Delta sum: the part of [`OFF_CPU`] blocked on sockets.
pub const NETWORK_WAIT: &str = "fleet.host.network_wait_ms";

/// Delta sum: milliseconds for which at least one task of the process's control group, or of the
/// host if the group is not measured, waited for a CPU.
pub const PRESSURE_CPU: &str = "fleet.host.pressure_cpu_ms";

/// Delta sum: the same for memory.
pub const PRESSURE_MEMORY: &str = "fleet.host.pressure_memory_ms";

/// Delta sum: the same for I/O.
pub const PRESSURE_IO: &str = "fleet.host.pressure_io_ms";

/// Delta sum: milliseconds for which the task [`crate::attribute::TASK`] ran on
/// [`crate::attribute::CPU`] while threads of the process were runnable on that CPU. One point for
/// each of the three longest tasks of a block, and one for all others.
pub const PREEMPTED_BY: &str = "fleet.host.preempted_by_ms";

/// Prefix of the names of an agent's own metrics. They are delta sums over the time since the last
/// report, for the whole host. Zeros are sent, too: they show that what is missing from a rank's
/// record was not lost.
pub const AGENT: &str = "fleet.agent.";

/// Delta sum: events that the agent lost before it could process them. Blocks of operations to
/// which they may belong are omitted.
pub const EVENTS_LOST: &str = "fleet.agent.events_lost";

/// Delta sum: communicators, sums, threads, processes and arguments that exceeded the capacity of
/// the agent's BPF programs or could not be read. Data based on them is missing: the origin of
/// operations, or part of the evidence.
pub const EVIDENCE_LOST: &str = "fleet.agent.evidence_lost";

/// Delta sum: points that the agent dropped, because they were rejected or its buffers were full.
pub const POINTS_DROPPED: &str = "fleet.agent.points_dropped";

/// Delta sum: operations on communicators created before the agent began to trace, so that their
/// origin is unknown, without transfers that the profiler plugin records.
pub const UNKNOWN_COMM_OPS: &str = "fleet.agent.unknown_comm_ops";

/// Delta sum: blocks of operations that the agent omitted because they were observed incompletely:
/// a comparison with the blocks of peers would report the wrong rank.
pub const BROKEN_BLOCKS: &str = "fleet.agent.broken_blocks";

/// Delta sum: operations on GPUs that are in no sum of [`DURATION`]: the profiler plugin dropped them,
/// the process has more than 1,024 communicators, or the sums of their block were sent before. Echo compares the ranks without them.
pub const GPU_OPERATIONS_LOST: &str = "fleet.agent.gpu_operations_lost";

/// Gauge of an Ingero agent: health score of the node, 0 to 1.
pub const INGERO_HEALTH_SCORE: &str = "ingero.node.health_score";

/// Log record (event name): verdict of a rank about itself between two policies, with severity WARN
/// when raised and INFO when cleared. The resource is that of the rank's points; the attributes are
/// those from [`crate::attribute::STRAGGLER_STATE`] on. Batches of records and of points share the
/// sequence of [`crate::metadata::BATCH_NUMBER`].
pub const STRAGGLER: &str = "fleet.straggler";
