/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Data shared by programs and agent: every struct here has a counterpart in src/layout.rs, and a
 * test compares their sizes. */
#pragma once

#include "types.h"

/* Attach cookie with the properties of a probed function: op (8 bits), class (8), flags (16),
 * then eight argument indexes of four bits each, one per meaning. NO_ARGUMENT marks a missing
 * argument. */
#define NO_ARGUMENT 15

#define FLAG_SEQUENCE (1 << 0)	  /* takes a sequence number of its communicator */
#define FLAG_MAKES_COMM (1 << 1)  /* writes a new communicator through its argument `comm` */
#define FLAG_ID_ON_STACK (1 << 2) /* takes the 128 bytes of the unique id by value */
#define FLAG_ID_BEHIND (1 << 3)	  /* takes a pointer to the unique id as its argument `handle` */
#define FLAG_SPLITS (1 << 4)	  /* creates the communicator out of the one in `handle` */
#define FLAG_ENDS_COMM (1 << 5)	  /* destroys the communicator */
#define FLAG_WAITS (1 << 6)	  /* waits for the GPU: reported in traced processes, and only long waits */
#define FLAG_COUNTS (1 << 7)	  /* entry only: one more call, `count` more bytes */
#define FLAG_QUIET (1 << 8)	  /* counted, never an event of its own */
#define FLAG_KIND_BEHIND (1 << 9) /* its argument `kind` is a pointer to a `struct ibv_async_event` */

#define FLAG_RECORDS (1 << 10)	  /* entry only: its first argument points to a record of the NCCL profiler plugin */
#define FLAG_RUNTIME (1 << 11)	  /* neither issues nor waits: counted in traced processes, with `count` as bytes */
#define FLAG_SIZE_PACKED (1 << 12) /* launches: its arguments 1 to 4 are the sizes of grid and block as structs */
#define FLAG_SIZE_APART (1 << 13)  /* launches: its arguments 1 to 6 are the sizes of grid and block */
#define FLAG_SIZE_BEHIND (1 << 14) /* launches: its first argument points to the sizes of grid and block */

enum place { PLACE_COMM, PLACE_HANDLE, PLACE_COUNT, PLACE_DATATYPE, PLACE_REDUCE, PLACE_PEER, PLACE_NRANKS, PLACE_KIND };

#define COOKIE_OP(cookie) ((u32)(cookie) & 0xff)
#define COOKIE_CLASS(cookie) (((u32)(cookie) >> 8) & 0xff)
#define COOKIE_FLAGS(cookie) (((u32)(cookie) >> 16) & 0xffff)
#define COOKIE_PLACE(cookie, place) ((u32)((cookie) >> (32 + 4 * (place))) & 0xf)

#define NO_SEQUENCE (~0ULL)

/* Call that has returned. */
struct call_event {
	u64 entered_ns;
	u64 duration_ns;
	u64 cgroup;
	u64 comm;
	u64 comm_id;
	u64 seq;
	u64 handle;
	u64 count;
	u32 tgid;
	u32 tid;
	u32 rank;
	u32 nranks;
	u32 datatype;
	u32 reduce_op;
	s32 peer;
	s32 result;
	u32 op;
	u32 kind;
};

/* Record of the NCCL profiler plugin about one operation on a GPU: its own struct, copied as it
 * is. */
#define RAN_BYTES 104
struct ran_event {
	u64 seen_ns;
	u32 tgid;
	u32 unused;
	u8 record[RAN_BYTES];
};

/* A thread is in one call of a class at a time; calls inside it are part of it. */
struct call_key {
	u64 pid_tgid;
	u64 class;
};

/* Call in flight. */
struct call {
	u64 entered_ns;
	u64 cookie;
	u64 comm;
	u64 comm_id;
	u64 seq;
	u64 handle;
	u64 count;
	u32 datatype;
	u32 reduce_op;
	s32 peer;
	u32 rank;
	u32 nranks;
	u32 kind;
	u32 is_foreign; /* of a process without NCCL: never an event */
	u32 preemptions; /* of its thread before it */
};

struct comm_key {
	u64 tgid;
	u64 pointer;
};

struct comm {
	u64 id;
	u64 next_seq;
	u32 rank;
	u32 nranks;
	u32 splits;
	u32 unused;
};

struct sum_key {
	u32 tgid;
	u32 op;
};

/* How a process ended: its wait status, as of wait(2). */
struct exit_status {
	u64 at_ns;
	u32 status;
	u32 unused;
};

/* Counters of one function in one process, on one CPU. */
struct sum {
	u64 calls;
	u64 bytes;
	u64 total_ns;
	u64 longest_ns;
};

/* Thread that calls the libraries. */
struct thread {
	u32 tgid;
	u32 waits;
	u64 away_ns;
	u64 runnable_ns;
	u32 preempted;
	u32 reason;	/* why it blocked, enum delay_kind */
	u32 queue;	/* CPU in whose queue it waits, plus one */
	u16 has_called; /* since it was last blocked */
	u16 counted;	/* in its process, enum thread_state */
	u32 preemptions;
	u32 unused;
};

enum thread_state { THREAD_NEW, THREAD_AWAKE, THREAD_BLOCKED };

/* Host activity of one process, on one CPU. */
struct host_sum {
	u64 off_cpu_ns;
	u64 run_queue_ns;
	u64 preempted_ns;
	u64 preemptions;
	u64 page_allocations;
	u64 block_io_ns;
};

/* Kinds of delays of a thread. The first ones are reasons of blocking, in the order of the agent's
 * BlockReason. */
enum delay_kind {
	DELAY_LOCK,
	DELAY_BLOCK_IO,
	DELAY_PAGE_FAULT,
	DELAY_NETWORK,
	DELAY_PIPE,
	DELAY_SLEEP,
	DELAY_OTHER,
	DELAY_TASK,	 /* another task had the CPU */
	DELAY_INTERRUPT, /* an interrupt had the CPU */
	DELAY_PREEMPTION, /* a thread had no CPU until it was switched in again */
};

#define TASK_NAME_BYTES 16
struct delay_key {
	u32 tgid;
	u32 kind;
	char task[TASK_NAME_BYTES]; /* of DELAY_TASK, else zeros */
};

struct delay_sum {
	u64 ns;
	u64 count;
	u64 longest_ns; /* since the reading with the number below */
	u32 cpu;	/* the last one */
	u32 reading;
};

/* Causes of losses. */
enum loss {
	LOSS_RING,
	LOSS_IN_FLIGHT,
	LOSS_COMMS,
	LOSS_SUMS,
	LOSS_THREADS,
	LOSS_UNREADABLE,
	LOSS_TRACED,
	LOSS_HOST_SUMS,
	LOSSES
};
