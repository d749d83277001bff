// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Host activity of traced processes: preemption, run queue, disk and memory. Counted in the
 * kernel and read by the agent when it polls; this object emits no events. It needs BTF, and the
 * agent runs without it where BTF is missing.
 */
#include "layout.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#if defined(__TARGET_ARCH_x86)
#include <asm/unistd_64.h>
#else
#include <asm-generic/unistd.h>
#endif

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TASK_STOPPED (0x4 | 0x8)
#define TASK_DEAD 0x80

struct inode {
	unsigned short i_mode;
} __attribute__((preserve_access_index));

struct file {
	struct inode *f_inode;
	void *private_data;
} __attribute__((preserve_access_index));

struct sock_common {
	unsigned short skc_family;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

struct socket {
	struct sock *sk;
} __attribute__((preserve_access_index));

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct thread_info {
	u32 cpu;
} __attribute__((preserve_access_index));

struct cfs_rq {
	int throttle_count;
} __attribute__((preserve_access_index));

struct sched_entity {
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));

struct task_struct {
	struct thread_info thread_info;
	int pid;
	int tgid;
	unsigned int __state;
	unsigned int in_iowait : 1;
	int exit_code;
	char comm[TASK_NAME_BYTES];
	struct files_struct *files;
	struct sched_entity se;
} __attribute__((preserve_access_index));

/* From 6.18 on, each task of a throttled group is taken off its queue by itself. */
struct task_struct___from_6_18 {
	bool throttled;
} __attribute__((preserve_access_index));

#if defined(__TARGET_ARCH_arm64)
struct pt_regs___syscall {
	int syscallno;
} __attribute__((preserve_access_index));
#endif

/* Before 5.14. */
struct task_struct___before_5_14 {
	long state;
} __attribute__((preserve_access_index));

/* Before 5.16, on x86-64. */
struct task_struct___before_5_16 {
	unsigned int cpu;
} __attribute__((preserve_access_index));

struct request;

/* These three are shared with the calls object; the agent substitutes its maps before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u32);
} traced SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSSES);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct host_sum);
} host_sums SEC(".maps");

struct started {
	u64 at_ns;
	u64 tgid;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct started);
} block_requests SEC(".maps");

/* Delays by process and kind; read as totals, and deleted by the agent when they stand still. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct delay_key);
	__type(value, struct delay_sum);
} delays SEC(".maps");

/* Number of the agent's next reading of the delays: the longest one is that since the last. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} reading SEC(".maps");

#define QUEUED 4

/* Traced threads that are runnable on one CPU while another task has it. */
struct cpu_state {
	struct {
		u64 since_ns;
		u32 tid;
		u32 tgid;
	} queued[QUEUED];
	char running[TASK_NAME_BYTES]; /* task that has the CPU, if known; valid while a thread is queued */
	u64 interrupted_ns;	       /* beginning of the outermost interrupt, 0 outside of one */
	u32 interrupts;		       /* nested in it */
	u32 traced_tgid;	       /* process of the traced thread that has the CPU */
};

/* Indexed by CPU; the agent sets the number of entries. Threads are added by other CPUs without a
 * lock: a lost race loses the names of one wait, and a stale entry is removed at the next switch. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

/* Threads of one process that call the libraries. Two that change at the same moment on two CPUs can
 * lose or count one wait twice. */
struct process {
	s32 awake;	/* runnable, or waiting for the GPU */
	u32 last_caller;
	u64 since_ns;	/* when the last one was blocked, 0 while one is awake */
	u32 reason;
	u32 last_outside; /* that was blocked last for another reason than a lock */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct process);
} processes SEC(".maps");

/* A retransmission runs in whichever process the timer interrupts, so it is counted for the
 * host. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} tcp_retransmits SEC(".maps");

/* The agent removes what it has read. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct exit_status);
} exits SEC(".maps");

static __always_inline struct host_sum *sum_of(u32 tgid)
{
	struct host_sum *sum = bpf_map_lookup_elem(&host_sums, &tgid);

	if (!sum) {
		struct host_sum zero = {};
		bpf_map_update_elem(&host_sums, &tgid, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&host_sums, &tgid);
	}
	if (!sum) {
		u32 why = LOSS_HOST_SUMS;
		u64 *count = bpf_map_lookup_elem(&losses, &why);
		if (count)
			*count += 1;
	}
	return sum;
}

static __always_inline void add_delay(struct delay_key *key, u64 ns)
{
	struct delay_sum *sum = bpf_map_lookup_elem(&delays, key);
	u32 zero = 0, *now = bpf_map_lookup_elem(&reading, &zero);

	if (!sum) {
		struct delay_sum zero = {};
		bpf_map_update_elem(&delays, key, &zero, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&delays, key);
	}
	if (!sum) {
		u32 why = LOSS_HOST_SUMS;
		u64 *count = bpf_map_lookup_elem(&losses, &why);
		if (count)
			*count += 1;
		return;
	}
	__sync_fetch_and_add(&sum->ns, ns);
	__sync_fetch_and_add(&sum->count, 1);
	sum->cpu = bpf_get_smp_processor_id();
	/* Of two delays that end at the same time the shorter one may win, which is harmless. */
	if (now && (sum->reading != *now || sum->longest_ns < ns)) {
		sum->reading = *now;
		sum->longest_ns = ns;
	}
}

static __always_inline struct process *process_of(u32 tgid)
{
	struct process *process = bpf_map_lookup_elem(&processes, &tgid);

	if (!process) {
		struct process none = {};
		bpf_map_update_elem(&processes, &tgid, &none, BPF_NOEXIST);
		process = bpf_map_lookup_elem(&processes, &tgid);
	}
	return process;
}

/* Returns a blocked thread of a process; 0 if it is not blocked any more. */
static __always_inline struct thread *blocked_thread(u32 tid, u32 tgid)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	return thread && thread->tgid == tgid && thread->counted == THREAD_BLOCKED ? thread : 0;
}

/* A process waits while all of its threads that call the libraries are blocked: one that waits for
 * another one of them loses no time. The reason is that of the thread that called last, which the
 * others wait for. If that one waits for a lock or a condition, it may wait for another one of these
 * threads, which then is blocked for the reason that counts: the thread of the backward pass waits for
 * work while the first thread sleeps. */
static __always_inline void count_blocked(u32 tid, struct thread *thread, u64 now_ns)
{
	struct process *process = process_of(thread->tgid);
	struct thread *caller, *outside;

	if (!process)
		return;
	if (thread->counted == THREAD_AWAKE)
		__sync_fetch_and_add(&process->awake, -1);
	thread->counted = THREAD_BLOCKED;
	if (thread->has_called)
		process->last_caller = tid;
	thread->has_called = false;
	if (thread->reason != DELAY_LOCK)
		process->last_outside = tid;
	if (process->awake > 0)
		return;
	caller = blocked_thread(process->last_caller, thread->tgid);
	process->reason = caller ? caller->reason : thread->reason;
	outside = blocked_thread(process->last_outside, thread->tgid);
	if (process->reason == DELAY_LOCK && outside)
		process->reason = outside->reason;
	process->since_ns = now_ns;
}

static __always_inline void count_awake(struct thread *thread, u64 now_ns)
{
	struct process *process;
	u64 since_ns;

	if (thread->counted == THREAD_AWAKE)
		return;
	process = process_of(thread->tgid);
	if (!process)
		return;
	since_ns = process->since_ns;
	process->since_ns = 0;
	if (since_ns && now_ns > since_ns) {
		struct delay_key key = {.tgid = thread->tgid, .kind = process->reason};
		add_delay(&key, now_ns - since_ns);
	}
	__sync_fetch_and_add(&process->awake, 1);
	thread->counted = THREAD_AWAKE;
}

static __always_inline void count_ended(struct thread *thread)
{
	u32 tgid = thread->tgid;
	struct process *process = bpf_map_lookup_elem(&processes, &tgid);

	if (process && thread->counted == THREAD_AWAKE)
		__sync_fetch_and_add(&process->awake, -1);
}

static __always_inline u64 state_of(struct task_struct *task)
{
	struct task_struct___before_5_14 *before = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ(before, state);
}

static __always_inline u32 cpu_of(struct task_struct *task)
{
	struct task_struct___before_5_16 *before = (void *)task;

	if (bpf_core_field_exists(task->thread_info.cpu))
		return task->thread_info.cpu;
	return BPF_CORE_READ(before, cpu);
}

static __always_inline bool has_queue(struct cpu_state *state)
{
	return state->queued[0].tid || state->queued[1].tid || state->queued[2].tid || state->queued[3].tid;
}

/* Adds a runnable thread to the queue of a CPU. Without a free entry its wait has no names. */
static __always_inline void queue_on(u32 cpu, u32 tid, struct thread *thread, u64 now_ns)
{
	struct cpu_state *state = bpf_map_lookup_elem(&cpus, &cpu);

	if (!state)
		return;
	if (!has_queue(state))
		state->running[0] = 0;
	for (int i = 0; i < QUEUED; i++) {
		if (state->queued[i].tid)
			continue;
		thread->queue = cpu + 1;
		state->queued[i].tgid = thread->tgid;
		state->queued[i].since_ns = now_ns;
		state->queued[i].tid = tid;
		return;
	}
}

/* Charges a task with the wait of a process. A CPU that idles is no task. */
static __always_inline void charge(u32 tgid, const char *task, u64 ns)
{
	struct delay_key key = {.tgid = tgid, .kind = DELAY_TASK};

	if (!task[0])
		return;
	__builtin_memcpy(key.task, task, TASK_NAME_BYTES);
	add_delay(&key, ns);
}

/* Charges the task that leaves the CPU with the waits of the threads in its queue. */
static __always_inline void charge_waits(struct cpu_state *state, u32 cpu, struct task_struct *prev, u64 now_ns)
{
	char task[TASK_NAME_BYTES] = {};
	bool is_read = false;

	for (int i = 0; i < QUEUED; i++) {
		u32 tid = state->queued[i].tid;
		struct thread *thread;

		if (!tid)
			continue;
		thread = bpf_map_lookup_elem(&threads, &tid);
		if (!thread || thread->queue != cpu + 1) {
			state->queued[i].tid = 0;
			continue;
		}
		if (prev->pid && !is_read) {
			bpf_probe_read_kernel(task, sizeof(task), prev->comm);
			is_read = true;
		}
		if (now_ns > state->queued[i].since_ns)
			charge(state->queued[i].tgid, task, now_ns - state->queued[i].since_ns);
		state->queued[i].since_ns = now_ns;
	}
}

/* Removes a thread that runs again from the queue that it waited in. On another CPU than this one,
 * the task that still has that CPU is charged as far as its name is known. */
static __always_inline void dequeue(u32 tid, struct thread *thread, u32 cpu, u64 now_ns)
{
	u32 queue = thread->queue - 1;
	struct cpu_state *state;

	if (!thread->queue)
		return;
	thread->queue = 0;
	state = bpf_map_lookup_elem(&cpus, &queue);
	if (!state)
		return;
	for (int i = 0; i < QUEUED; i++) {
		if (state->queued[i].tid != tid)
			continue;
		if (queue != cpu && now_ns > state->queued[i].since_ns)
			charge(thread->tgid, state->running, now_ns - state->queued[i].since_ns);
		state->queued[i].tid = 0;
		return;
	}
}

/* Keeps the name of the task that gets the CPU, for threads that are moved to another one before it
 * leaves. */
static __always_inline void name_running(struct cpu_state *state, struct task_struct *next)
{
	if (!has_queue(state))
		return;
	if (next->pid)
		bpf_probe_read_kernel(state->running, sizeof(state->running), next->comm);
	else
		state->running[0] = 0;
}

#define FILE_TYPE 0170000
#define FILE_FIFO 0010000
#define FILE_BLOCK 0060000
#define FILE_REGULAR 0100000
#define FILE_SOCKET 0140000
#define FAMILY_LOCAL 1 /* AF_UNIX */

/* Both ends of a local socket are on this host, as those of a pipe are. */
static __always_inline u32 socket_reason(struct file *file)
{
	struct socket *socket = BPF_CORE_READ(file, private_data);

	return BPF_CORE_READ(socket, sk, __sk_common.skc_family) == FAMILY_LOCAL ? DELAY_PIPE : DELAY_NETWORK;
}

static __always_inline u32 file_reason(struct task_struct *task, u32 fd)
{
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	struct file **files = BPF_CORE_READ(table, fd);
	struct file *file = 0;

	if (fd >= BPF_CORE_READ(table, max_fds) || bpf_probe_read_kernel(&file, sizeof(file), &files[fd]))
		return DELAY_OTHER;
	switch (BPF_CORE_READ(file, f_inode, i_mode) & FILE_TYPE) {
	case FILE_FIFO:
		return DELAY_PIPE;
	case FILE_SOCKET:
		return socket_reason(file);
	case FILE_BLOCK:
	case FILE_REGULAR:
		return DELAY_BLOCK_IO;
	default:
		return DELAY_OTHER;
	}
}

/* Reason of a poll, by its first file. Without files it sleeps. */
static __always_inline u32 poll_reason(struct task_struct *task, u64 fds, u64 n)
{
	u32 fd;

	if (!n)
		return DELAY_SLEEP;
	if (bpf_probe_read_user(&fd, sizeof(fd), (void *)fds))
		return DELAY_NETWORK;
	return file_reason(task, fd);
}

static __always_inline u32 syscall_reason(struct task_struct *task, int syscall, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	u64 first = regs->di, second = regs->si;
#else
	u64 first = regs->regs[0], second = regs->regs[1];
#endif

	switch (syscall) {
	case __NR_futex:
#ifdef __NR_futex_waitv
	case __NR_futex_waitv:
#endif
#ifdef __NR_futex_wait
	case __NR_futex_wait:
#endif
		return DELAY_LOCK;
	case __NR_nanosleep:
	case __NR_clock_nanosleep:
		return DELAY_SLEEP;
	case __NR_read:
	case __NR_write:
	case __NR_readv:
	case __NR_writev:
		return file_reason(task, first);
	case __NR_ppoll:
#ifdef __NR_poll
	case __NR_poll:
#endif
		return poll_reason(task, first, second);
	case __NR_pselect6:
#ifdef __NR_select
	case __NR_select:
#endif
		return first ? DELAY_NETWORK : DELAY_SLEEP;
	case __NR_epoll_pwait:
#ifdef __NR_epoll_wait
	case __NR_epoll_wait:
#endif
		return DELAY_NETWORK;
	case __NR_connect:
	case __NR_accept:
	case __NR_accept4:
	case __NR_sendto:
	case __NR_recvfrom:
	case __NR_sendmsg:
	case __NR_recvmsg:
	case __NR_sendmmsg:
	case __NR_recvmmsg:
		return file_reason(task, first);
	case __NR_pread64:
	case __NR_pwrite64:
	case __NR_preadv:
	case __NR_pwritev:
	case __NR_preadv2:
	case __NR_pwritev2:
	case __NR_fsync:
	case __NR_fdatasync:
	case __NR_io_getevents:
		return DELAY_BLOCK_IO;
	default:
		return DELAY_OTHER;
	}
}

/* Returns why the current task blocks: by the system call that it is in, which costs one load, and
 * for files by their type. Outside of a system call it is in a page fault. */
static __always_inline u32 block_reason(struct task_struct *task, u64 state)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_x86)
	int syscall = regs->orig_ax;
#else
	int syscall = ((struct pt_regs___syscall *)regs)->syscallno;
#endif

	if (state & TASK_STOPPED)
		return DELAY_OTHER;
	if (syscall < 0)
		return DELAY_PAGE_FAULT;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return DELAY_BLOCK_IO;
	return syscall_reason(task, syscall, regs);
}

/* Returns whether a task is off its CPU because its group has used up its quota. */
static __always_inline bool is_throttled(struct task_struct *task)
{
	struct task_struct___from_6_18 *new = (void *)task;

	if (bpf_core_field_exists(new->throttled))
		return BPF_CORE_READ(new, throttled);
	if (bpf_core_field_exists(task->se.cfs_rq->throttle_count))
		return BPF_CORE_READ(task, se.cfs_rq, throttle_count) > 0;
	return false;
}

static __always_inline void switched_out(struct task_struct *prev, bool preempt, u64 now_ns, u32 cpu)
{
	u32 tid = prev->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	u64 state;

	if (!thread)
		return;
	state = state_of(prev);
	if (state & TASK_DEAD) {
		count_ended(thread);
		bpf_map_delete_elem(&threads, &tid);
		return;
	}
	thread->away_ns = now_ns;
	thread->runnable_ns = 0;
	thread->preempted = preempt || state == 0;
	/* What runs in the place of a throttled thread does not hold it up. */
	if (thread->preempted && !is_throttled(prev))
		queue_on(cpu, tid, thread, now_ns);
	if (thread->preempted || thread->waits) {
		/* A thread that waits for the GPU is not delayed by its host. */
		count_awake(thread, now_ns);
	} else {
		thread->reason = block_reason(prev, state);
		count_blocked(tid, thread, now_ns);
	}
}

static __always_inline void switched_in(u32 tid, struct thread *thread, u64 now_ns, u32 cpu)
{
	struct host_sum *sum;

	dequeue(tid, thread, cpu, now_ns);
	count_awake(thread, now_ns);
	if (!thread->away_ns)
		return;
	sum = sum_of(thread->tgid);
	if (thread->preempted) {
		struct delay_key key = {.tgid = thread->tgid, .kind = DELAY_PREEMPTION};

		thread->preemptions += 1;
		add_delay(&key, now_ns - thread->away_ns);
	}
	if (sum && thread->preempted) {
		sum->preempted_ns += now_ns - thread->away_ns;
		sum->preemptions += 1;
	} else if (sum) {
		u64 runnable_ns = thread->runnable_ns > thread->away_ns ? thread->runnable_ns : now_ns;
		sum->run_queue_ns += now_ns - runnable_ns;
		if (!thread->waits)
			sum->off_cpu_ns += runnable_ns - thread->away_ns;
	}
	thread->away_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now_ns = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	u32 tid = next->pid;
	struct cpu_state *state = bpf_map_lookup_elem(&cpus, &cpu);
	struct thread *thread;

	if (!state)
		return 0;
	state->interrupted_ns = 0;
	state->interrupts = 0;
	charge_waits(state, cpu, prev, now_ns);
	switched_out(prev, preempt, now_ns, cpu);
	thread = bpf_map_lookup_elem(&threads, &tid);
	state->traced_tgid = thread ? thread->tgid : 0;
	if (thread)
		switched_in(tid, thread, now_ns, cpu);
	name_running(state, next);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	u32 tid = task->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread && thread->away_ns && !thread->runnable_ns) {
		u64 now_ns = bpf_ktime_get_ns();
		thread->runnable_ns = now_ns;
		count_awake(thread, now_ns);
		queue_on(cpu_of(task), tid, thread, now_ns);
	}
	return 0;
}

/* Interrupts count while a traced thread has the CPU; on other CPUs they cost one look. */
static __always_inline int interrupt_begins(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = bpf_map_lookup_elem(&cpus, &cpu);

	if (!state || !state->traced_tgid)
		return 0;
	if (state->interrupted_ns)
		state->interrupts += 1;
	else
		state->interrupted_ns = bpf_ktime_get_ns();
	return 0;
}

static __always_inline int interrupt_ends(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct cpu_state *state = bpf_map_lookup_elem(&cpus, &cpu);
	struct delay_key key = {.kind = DELAY_INTERRUPT};

	if (!state || !state->interrupted_ns)
		return 0;
	if (state->interrupts) {
		state->interrupts -= 1;
		return 0;
	}
	key.tgid = state->traced_tgid;
	add_delay(&key, bpf_ktime_get_ns() - state->interrupted_ns);
	state->interrupted_ns = 0;
	return 0;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq_entry)
{
	return interrupt_begins();
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_exit)
{
	return interrupt_ends();
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq_entry)
{
	return interrupt_begins();
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_exit)
{
	return interrupt_ends();
}

/* The first thread of a process has its status, whichever thread ended it; unless it has ended before
 * the others (pthread_exit), then the status is 0. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	u32 tgid = task->tgid;
	struct exit_status exit = {};

	if (task->pid != task->tgid || !bpf_map_lookup_elem(&traced, &tgid))
		return 0;
	exit.at_ns = bpf_ktime_get_ns();
	exit.status = task->exit_code;
	bpf_map_update_elem(&exits, &tgid, &exit, BPF_ANY);
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(on_page_alloc, void *page, unsigned int order)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	struct host_sum *sum;

	if (!bpf_map_lookup_elem(&traced, &tgid))
		return 0;
	sum = sum_of(tgid);
	if (sum)
		sum->page_allocations += 1ULL << (order & 31);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_block_issue, struct request *request)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u64 key = (u64)request;
	struct started started = {.tgid = tgid};

	if (!bpf_map_lookup_elem(&traced, &tgid))
		return 0;
	started.at_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&block_requests, &key, &started, BPF_ANY);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_block_complete, struct request *request)
{
	u64 key = (u64)request;
	struct started *started = bpf_map_lookup_elem(&block_requests, &key);
	struct host_sum *sum;

	if (!started)
		return 0;
	sum = sum_of(started->tgid);
	if (sum)
		sum->block_io_ns += bpf_ktime_get_ns() - started->at_ns;
	bpf_map_delete_elem(&block_requests, &key);
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(on_tcp_retransmit)
{
	u32 zero = 0;
	u64 *count = bpf_map_lookup_elem(&tcp_retransmits, &zero);

	if (count)
		*count += 1;
	return 0;
}
