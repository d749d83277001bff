/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Histograms of the calls object. Every struct here has a counterpart in src/layout/durations.rs. */
#pragma once

#include "layout.h"

/* Four linear buckets per octave, numbered as in `LogHistogram` of the agent: 28 begins at 256 ns,
 * 139 ends at 2^36 ns, 69 seconds. Other durations count in the nearest bucket. */
#define FIRST_BUCKET 28
#define BUCKETS 112
/* Thread blocks of a launch up to 2^33, and threads of a block up to 2^11. */
#define GRID_BUCKETS 128
#define BLOCK_BUCKETS 40

/* Calls of one function in one process. Shared by all CPUs: a process calls a function on one or
 * two threads, so an atomic addition costs a few nanoseconds, and a copy per CPU would cost
 * megabytes on a large host. The counts of buckets wrap. */
struct durations {
	u64 bytes;
	u64 total_ns;
	u64 longest_ns;
	u64 interrupted; /* calls in which the thread was preempted */
	u32 buckets[BUCKETS];
};

/* Sampled sizes of kernel launches of one process. */
struct launch_sizes {
	u64 grid_total;
	u64 block_total;
	u32 grid[GRID_BUCKETS];
	u32 block[BLOCK_BUCKETS];
};

/* Returns the exponent of the highest bit of a number above 0. */
static __always_inline u32 highest_bit(u64 value)
{
	u32 bit = 0;

	if (value >> 32) {
		bit += 32;
		value >>= 32;
	}
	if (value >> 16) {
		bit += 16;
		value >>= 16;
	}
	if (value >> 8) {
		bit += 8;
		value >>= 8;
	}
	if (value >> 4) {
		bit += 4;
		value >>= 4;
	}
	if (value >> 2) {
		bit += 2;
		value >>= 2;
	}
	return bit + (value >> 1);
}

/* Returns the number of the bucket of a value. */
static __always_inline u32 log_bucket(u64 value)
{
	u32 exponent;

	if (value < 4)
		return value;
	exponent = highest_bit(value);
	return 4 * (exponent - 1) + (u32)((value >> (exponent - 2)) & 3);
}

/* Counts a value in the bucket of a window of buckets that begins with number `first`. */
static __always_inline void count_value(u32 *buckets, u32 n, u32 first, u64 value)
{
	u32 bucket = log_bucket(value);

	bucket = bucket < first ? 0 : bucket - first;
	if (bucket >= n)
		bucket = n - 1;
	__sync_fetch_and_add(&buckets[bucket], 1);
}
