// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Host activity of traced processes: preemption, run queue, disk and memory. Counted in the
 * kernel and read by the agent when it polls; this object emits no events. It needs BTF, and the
 * agent runs without it where BTF is missing.
 */
#include "layout.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define TASK_DEAD 0x80

struct task_struct {
	int pid;
	int tgid;
	unsigned int __state;
} __attribute__((preserve_access_index));

/* Before 5.14. */
struct task_struct___before_5_14 {
	long state;
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

/* A retransmission runs in whichever process the timer interrupts, so it is counted for the
 * host. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} tcp_retransmits SEC(".maps");

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

static __always_inline u64 state_of(struct task_struct *task)
{
	struct task_struct___before_5_14 *before = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return BPF_CORE_READ(before, state);
}

static __always_inline void switched_out(struct task_struct *prev, bool preempt, u64 now_ns)
{
	u32 tid = prev->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	u64 state;

	if (!thread)
		return;
	state = state_of(prev);
	if (state & TASK_DEAD) {
		bpf_map_delete_elem(&threads, &tid);
		return;
	}
	thread->away_ns = now_ns;
	thread->runnable_ns = 0;
	thread->preempted = preempt || state == 0;
}

static __always_inline void switched_in(struct task_struct *next, u64 now_ns)
{
	u32 tid = next->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct host_sum *sum;

	if (!thread || !thread->away_ns)
		return;
	sum = sum_of(thread->tgid);
	if (sum && thread->preempted) {
		sum->preempted_ns += now_ns - thread->away_ns;
		sum->preemptions += 1;
	} else if (sum) {
		u64 runnable_ns = thread->runnable_ns > thread->away_ns ? thread->runnable_ns : now_ns;
		sum->run_queue_ns += now_ns - runnable_ns;
		/* A thread that waits for the GPU is not delayed by its host. */
		if (!thread->waits)
			sum->off_cpu_ns += runnable_ns - thread->away_ns;
	}
	thread->away_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	u64 now_ns = bpf_ktime_get_ns();

	switched_out(prev, preempt, now_ns);
	switched_in(next, now_ns);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *task)
{
	u32 tid = task->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread && !thread->runnable_ns)
		thread->runnable_ns = bpf_ktime_get_ns();
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
