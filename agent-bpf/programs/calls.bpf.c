// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Probes on library functions: one program for all entries, one for all returns. The attach
 * cookie contains the properties of the function, so a new function is a row of a table in the
 * agent and not a new program.
 *
 * Nothing in this object needs the kernel's types: it loads where BTF is hidden. A single CO-RE
 * relocation or kernel function would make the whole object fail there, which is why the host
 * programs are a separate object.
 */
#include "durations.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define RING_BYTES (1 << 20)
#define ID_WORDS 16
/* Offset of the type in a `struct ibv_async_event`: after the 8 bytes that identify the object. */
#define ASYNC_EVENT_TYPE 8
/* Results after which a new communicator can be used: ncclSuccess, and ncclInProgress of a
 * non-blocking one. */
#define NCCL_SUCCESS 0
#define NCCL_IN_PROGRESS 7

/* Set by the agent before loading. */
const volatile u64 min_wait_ns = 0;
/* One in so many launches is measured for its size; 0 measures none. */
const volatile u32 launch_sampling = 0;
const volatile bool follows_threads = false;
const volatile bool measures_all = false;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_BYTES);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct call_key);
	__type(value, struct call);
} in_flight SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct comm_key);
	__type(value, struct comm);
} comms SEC(".maps");

/* Traced processes, whose waits are reported: those that have called NCCL. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} traced SEC(".maps");

/* Processes that call CUDA or HIP and not NCCL, if they are measured: their calls are counted and
 * never reported. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, u32);
	__type(value, u32);
} measured SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

/* Functions whose entry alone is probed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct sum_key);
	__type(value, struct sum);
} sums SEC(".maps");

/* Functions whose return is probed, too. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct sum_key);
	__type(value, struct durations);
} durations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 512);
	__type(key, u32);
	__type(value, struct launch_sizes);
} launch_sizes SEC(".maps");

/* Source of new entries, which are too large for the stack. */
static const struct durations no_durations SEC(".rodata.zeros");
static const struct launch_sizes no_launches SEC(".rodata.zeros");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSSES);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* Losses that an agent has already reported: losses between two agents are reported by the later
 * one. No program uses it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOSSES);
	__type(key, u32);
	__type(value, u64);
} losses_reported SEC(".maps");

/* A wake-up per event costs the traced rank up to two microseconds. The agent polls every few dozen
 * milliseconds anyway and is woken only when that would be too late. */
#define WAKE_UP_FLAGS \
	(bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > RING_BYTES / 2 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP)

static __always_inline void count_loss(u32 why)
{
	u64 *count = bpf_map_lookup_elem(&losses, &why);
	if (count)
		*count += 1;
}

#if defined(__TARGET_ARCH_x86)
#define STACK(regs) ((regs)->sp + sizeof(u64))
#define RESULT(regs) ((regs)->ax)

static __always_inline u64 stack_argument(const struct pt_regs *regs, u32 n)
{
	u64 value = 0;
	if (bpf_probe_read_user(&value, sizeof(value), (void *)(STACK(regs) + n * sizeof(u64))))
		count_loss(LOSS_UNREADABLE);
	return value;
}

static __always_inline u64 argument(const struct pt_regs *regs, u32 index)
{
	switch (index) {
	case 0: return regs->di;
	case 1: return regs->si;
	case 2: return regs->dx;
	case 3: return regs->cx;
	case 4: return regs->r8;
	case 5: return regs->r9;
	case 6: return stack_argument(regs, 0);
	case 7: return stack_argument(regs, 1);
	default: return 0;
	}
}
#else
#define STACK(regs) ((regs)->sp)
#define RESULT(regs) ((regs)->regs[0])

static __always_inline u64 argument(const struct pt_regs *regs, u32 index)
{
	switch (index) {
	case 0: return regs->regs[0];
	case 1: return regs->regs[1];
	case 2: return regs->regs[2];
	case 3: return regs->regs[3];
	case 4: return regs->regs[4];
	case 5: return regs->regs[5];
	case 6: return regs->regs[6];
	case 7: return regs->regs[7];
	default: return 0;
	}
}
#endif

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014). */
static __always_inline u64 mix(u64 word)
{
	word += 0x9e3779b97f4a7c15ULL;
	word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ULL;
	word = (word ^ (word >> 27)) * 0x94d049bb133111ebULL;
	return word ^ (word >> 31);
}

/* Hashes all 128 bytes: the first eight of two unique ids of one host can be equal. */
static __always_inline u64 hash_unique_id(u64 address)
{
	u64 words[ID_WORDS];
	u64 hash = 0;

	if (bpf_probe_read_user(words, sizeof(words), (void *)address)) {
		count_loss(LOSS_UNREADABLE);
		return 0;
	}
#pragma unroll
	for (int i = 0; i < ID_WORDS; i++)
		hash = mix(hash ^ words[i]);
	return hash;
}

/* Counts a call of a function whose entry alone is probed. */
static __always_inline void add_to_sum(u32 tgid, u32 op, u64 bytes)
{
	struct sum_key key = {.tgid = tgid, .op = op};
	struct sum *sum = bpf_map_lookup_elem(&sums, &key);

	if (!sum) {
		struct sum zero = {};
		/* Two CPUs may both insert first, which is harmless. */
		bpf_map_update_elem(&sums, &key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&sums, &key);
		if (!sum) {
			count_loss(LOSS_SUMS);
			return;
		}
	}
	sum->calls += 1;
	sum->bytes += bytes;
}

/* Counts a call that has returned. */
static __always_inline void add_duration(u32 tgid, u32 op, u64 bytes, u64 duration_ns, bool interrupted)
{
	struct sum_key key = {.tgid = tgid, .op = op};
	struct durations *calls = bpf_map_lookup_elem(&durations, &key);

	if (!calls) {
		bpf_map_update_elem(&durations, &key, &no_durations, BPF_NOEXIST);
		calls = bpf_map_lookup_elem(&durations, &key);
		if (!calls) {
			count_loss(LOSS_SUMS);
			return;
		}
	}
	count_value(calls->buckets, BUCKETS, FIRST_BUCKET, duration_ns);
	__sync_fetch_and_add(&calls->total_ns, duration_ns);
	if (bytes)
		__sync_fetch_and_add(&calls->bytes, bytes);
	if (interrupted)
		__sync_fetch_and_add(&calls->interrupted, 1);
	/* Of two calls that return at the same time the shorter one may win, which is harmless. */
	if (duration_ns > calls->longest_ns)
		calls->longest_ns = duration_ns;
}

/* Reads the sizes of grid and block of a launch: three numbers each. */
static __always_inline bool read_launch_size(struct pt_regs *regs, u32 flags, u32 *size)
{
	u64 grid, block;

	if (flags & FLAG_SIZE_BEHIND) {
		if (!bpf_probe_read_user(size, 6 * sizeof(*size), (void *)argument(regs, 0)))
			return true;
		count_loss(LOSS_UNREADABLE);
		return false;
	}
	if (flags & FLAG_SIZE_PACKED) {
		grid = argument(regs, 1);
		block = argument(regs, 3);
		size[0] = grid;
		size[1] = grid >> 32;
		size[2] = argument(regs, 2);
		size[3] = block;
		size[4] = block >> 32;
		size[5] = argument(regs, 4);
		return true;
	}
	size[0] = argument(regs, 1);
	size[1] = argument(regs, 2);
	size[2] = argument(regs, 3);
	size[3] = argument(regs, 4);
	size[4] = argument(regs, 5);
	size[5] = argument(regs, 6);
	return true;
}

static __always_inline void sample_launch(struct pt_regs *regs, u32 tgid, u32 flags)
{
	struct launch_sizes *sizes;
	u32 size[6] = {};
	u64 blocks, threads_per_block;

	if (!launch_sampling || bpf_get_prandom_u32() % launch_sampling)
		return;
	if (!read_launch_size(regs, flags, size))
		return;
	sizes = bpf_map_lookup_elem(&launch_sizes, &tgid);
	if (!sizes) {
		bpf_map_update_elem(&launch_sizes, &tgid, &no_launches, BPF_NOEXIST);
		sizes = bpf_map_lookup_elem(&launch_sizes, &tgid);
		if (!sizes) {
			count_loss(LOSS_SUMS);
			return;
		}
	}
	blocks = (u64)size[0] * size[1] * size[2];
	threads_per_block = (u64)size[3] * size[4] * size[5];
	count_value(sizes->grid, GRID_BUCKETS, 0, blocks);
	count_value(sizes->block, BLOCK_BUCKETS, 0, threads_per_block);
	__sync_fetch_and_add(&sizes->grid_total, blocks);
	__sync_fetch_and_add(&sizes->block_total, threads_per_block);
}

/* Returns whether calls of CUDA or HIP are recorded: in processes that call NCCL, and in others if
 * all processes are measured. */
static __always_inline bool is_recorded(u32 tgid, u32 *is_foreign)
{
	u32 one = 1;

	*is_foreign = 0;
	if (bpf_map_lookup_elem(&traced, &tgid))
		return true;
	if (!measures_all)
		return false;
	*is_foreign = 1;
	if (bpf_map_lookup_elem(&measured, &tgid))
		return true;
	if (!bpf_map_update_elem(&measured, &tgid, &one, BPF_ANY))
		return true;
	count_loss(LOSS_TRACED);
	return false;
}

/* Records that a process calls NCCL. */
static __always_inline void trace(u32 tgid)
{
	u32 one = 1;

	if (bpf_map_lookup_elem(&traced, &tgid))
		return;
	if (bpf_map_update_elem(&traced, &tgid, &one, BPF_ANY))
		count_loss(LOSS_TRACED);
	if (measures_all)
		bpf_map_delete_elem(&measured, &tgid);
}

/* Records that a thread calls the libraries, and whether it waits there. */
static __always_inline void follow_thread(u64 pid_tgid, bool waits)
{
	u32 tid = pid_tgid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	/* Thread ids are reused. */
	if (thread && thread->tgid == pid_tgid >> 32) {
		thread->waits = waits;
		thread->has_called = true;
		return;
	}
	struct thread first = {.tgid = pid_tgid >> 32, .waits = waits, .has_called = true};
	if (bpf_map_update_elem(&threads, &tid, &first, BPF_ANY))
		count_loss(LOSS_THREADS);
}

/* Returns how often a thread was preempted. */
static __always_inline u32 preemptions_of(u64 pid_tgid)
{
	u32 tid = pid_tgid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	return thread ? thread->preemptions : 0;
}

static __always_inline u64 child_id(struct comm *parent, struct call *call)
{
	u32 nth = __sync_fetch_and_add(&parent->splits, 1);

	call->seq = nth;
	return mix(mix(parent->id ^ nth) ^ (u32)call->peer);
}

static __always_inline void identify(struct pt_regs *regs, u32 tgid, u32 flags, struct call *call)
{
	struct comm_key key = {.tgid = tgid};
	struct comm *comm;

	if (flags & FLAG_ID_ON_STACK) {
		call->comm_id = hash_unique_id(STACK(regs));
		return;
	}
	if (flags & FLAG_ID_BEHIND) {
		call->comm_id = hash_unique_id(call->handle);
		return;
	}
	key.pointer = flags & FLAG_SPLITS ? call->handle : call->comm;
	if (!key.pointer)
		return;
	comm = bpf_map_lookup_elem(&comms, &key);
	if (!comm)
		return;
	if (flags & FLAG_SPLITS) {
		call->comm_id = child_id(comm, call);
		return;
	}
	call->comm_id = comm->id;
	call->rank = comm->rank;
	call->nranks = comm->nranks;
	if (flags & FLAG_SEQUENCE)
		call->seq = __sync_fetch_and_add(&comm->next_seq, 1);
	if (flags & FLAG_ENDS_COMM)
		bpf_map_delete_elem(&comms, &key);
}

/* Direction of a copy or type of an event, in the libraries' own numbering. */
static __always_inline u32 read_kind(struct pt_regs *regs, u64 cookie)
{
	u64 kind = argument(regs, COOKIE_PLACE(cookie, PLACE_KIND));
	u32 type = ~0;

	if (!(COOKIE_FLAGS(cookie) & FLAG_KIND_BEHIND))
		return kind;
	if (bpf_probe_read_user(&type, sizeof(type), (void *)(kind + ASYNC_EVENT_TYPE)))
		count_loss(LOSS_UNREADABLE);
	return type;
}

/* Passes on a record of the plugin. The kernel identifies its process. */
static __always_inline int submit_plugin_record(struct pt_regs *regs, u64 pid_tgid)
{
	struct ran_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		count_loss(LOSS_RING);
		return 0;
	}
	if (bpf_probe_read_user(event->record, sizeof(event->record), (void *)argument(regs, 0))) {
		bpf_ringbuf_discard(event, 0);
		count_loss(LOSS_UNREADABLE);
		return 0;
	}
	event->seen_ns = bpf_ktime_get_ns();
	event->tgid = pid_tgid >> 32;
	event->unused = 0;
	bpf_ringbuf_submit(event, WAKE_UP_FLAGS);
	return 0;
}

static __always_inline int enter(struct pt_regs *regs)
{
	u64 cookie = bpf_get_attach_cookie(regs);
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 flags = COOKIE_FLAGS(cookie);
	u32 tgid = pid_tgid >> 32;
	struct call_key key = {.pid_tgid = pid_tgid, .class = COOKIE_CLASS(cookie)};
	struct call call = {.cookie = cookie, .seq = NO_SEQUENCE};
	struct call *outer;

	if (flags & FLAG_RECORDS)
		return submit_plugin_record(regs, pid_tgid);
	if (flags & (FLAG_WAITS | FLAG_COUNTS | FLAG_RUNTIME)) {
		if (!is_recorded(tgid, &call.is_foreign))
			return 0;
	} else {
		trace(tgid);
	}
	if (flags & FLAG_COUNTS) {
		u32 kind = read_kind(regs, cookie) & 0xff;
		add_to_sum(tgid, COOKIE_OP(cookie) | kind << 8, argument(regs, COOKIE_PLACE(cookie, PLACE_COUNT)));
		return 0;
	}
	outer = bpf_map_lookup_elem(&in_flight, &key);
	/* Another function of the class: this call is a part of that one. The same function: the entry is
	 * left from a call that never returned. */
	if (outer && outer->cookie != cookie)
		return 0;
	if (follows_threads && !(flags & FLAG_RUNTIME))
		follow_thread(pid_tgid, flags & FLAG_WAITS);
	if (flags & (FLAG_SIZE_PACKED | FLAG_SIZE_APART | FLAG_SIZE_BEHIND))
		sample_launch(regs, tgid, flags);

	if (follows_threads)
		call.preemptions = preemptions_of(pid_tgid);
	call.entered_ns = bpf_ktime_get_ns();
	call.comm = argument(regs, COOKIE_PLACE(cookie, PLACE_COMM));
	call.handle = argument(regs, COOKIE_PLACE(cookie, PLACE_HANDLE));
	call.count = argument(regs, COOKIE_PLACE(cookie, PLACE_COUNT));
	call.datatype = argument(regs, COOKIE_PLACE(cookie, PLACE_DATATYPE));
	call.reduce_op = argument(regs, COOKIE_PLACE(cookie, PLACE_REDUCE));
	call.peer = argument(regs, COOKIE_PLACE(cookie, PLACE_PEER));
	call.kind = argument(regs, COOKIE_PLACE(cookie, PLACE_KIND));
	if (flags & FLAG_MAKES_COMM) {
		/* The outcome of a split is not known yet; its key is the best guess of the rank. */
		call.rank = flags & FLAG_SPLITS ? call.datatype : (u32)call.peer;
		call.nranks = argument(regs, COOKIE_PLACE(cookie, PLACE_NRANKS));
	}
	identify(regs, tgid, flags, &call);
	if (bpf_map_update_elem(&in_flight, &key, &call, BPF_ANY))
		count_loss(LOSS_IN_FLIGHT);
	return 0;
}

/* Reads the new communicator through the caller's pointer if the call succeeded. */
static __always_inline u64 read_new_comm(u32 tgid, struct call *call, s32 result)
{
	struct comm_key key = {.tgid = tgid};
	struct comm comm = {.id = call->comm_id, .rank = call->rank, .nranks = call->nranks};

	if (result != NCCL_SUCCESS && result != NCCL_IN_PROGRESS)
		return 0;
	if (bpf_probe_read_user(&key.pointer, sizeof(key.pointer), (void *)call->comm)) {
		count_loss(LOSS_UNREADABLE);
		return 0;
	}
	if (key.pointer && comm.id && bpf_map_update_elem(&comms, &key, &comm, BPF_ANY))
		count_loss(LOSS_COMMS);
	return key.pointer;
}

static __always_inline void submit_call(const struct call *call, u64 pid_tgid, u64 comm, s32 result, u64 duration_ns)
{
	struct call_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event) {
		count_loss(LOSS_RING);
		return;
	}
	event->entered_ns = call->entered_ns;
	event->duration_ns = duration_ns;
	event->cgroup = bpf_get_current_cgroup_id();
	event->comm = comm;
	event->comm_id = call->comm_id;
	event->seq = call->seq;
	event->handle = call->handle;
	event->count = call->count;
	event->tgid = pid_tgid >> 32;
	event->tid = pid_tgid;
	event->rank = call->rank;
	event->nranks = call->nranks;
	event->datatype = call->datatype;
	event->reduce_op = call->reduce_op;
	event->peer = call->peer;
	event->result = result;
	event->op = COOKIE_OP(call->cookie);
	event->kind = call->kind;
	bpf_ringbuf_submit(event, WAKE_UP_FLAGS);
}

static __always_inline int leave(struct pt_regs *regs)
{
	u64 cookie = bpf_get_attach_cookie(regs);
	u64 pid_tgid = bpf_get_current_pid_tgid();
	u32 flags = COOKIE_FLAGS(cookie);
	struct call_key key = {.pid_tgid = pid_tgid, .class = COOKIE_CLASS(cookie)};
	struct call *call = bpf_map_lookup_elem(&in_flight, &key);
	u64 duration_ns, comm;
	bool interrupted;
	u32 kind;

	if (!call || call->cookie != cookie)
		return 0;
	duration_ns = bpf_ktime_get_ns() - call->entered_ns;
	/* Only runtime and driver have calls with a size in bytes, and a direction. */
	kind = flags & FLAG_RUNTIME ? call->kind & 0xff : 0;
	interrupted = follows_threads && preemptions_of(pid_tgid) != call->preemptions;
	add_duration(pid_tgid >> 32, COOKIE_OP(cookie) | kind << 8,
		     flags & FLAG_RUNTIME && !(u32)RESULT(regs) ? call->count : 0, duration_ns, interrupted);
	comm = call->comm;
	if (flags & FLAG_MAKES_COMM)
		comm = read_new_comm(pid_tgid >> 32, call, RESULT(regs));
	if (!(flags & FLAG_QUIET) && !call->is_foreign && !(flags & FLAG_WAITS && duration_ns < min_wait_ns))
		submit_call(call, pid_tgid, comm, RESULT(regs), duration_ns);
	if (follows_threads && flags & FLAG_WAITS)
		follow_thread(pid_tgid, false);
	/* Last, so that a call is always in this map, in the ring, or in both. */
	bpf_map_delete_elem(&in_flight, &key);
	return 0;
}

SEC("uprobe.multi")
int enter_multi(struct pt_regs *regs)
{
	return enter(regs);
}

SEC("uretprobe.multi")
int leave_multi(struct pt_regs *regs)
{
	return leave(regs);
}

SEC("uprobe")
int enter_perf(struct pt_regs *regs)
{
	return enter(regs);
}

SEC("uretprobe")
int leave_perf(struct pt_regs *regs)
{
	return leave(regs);
}
