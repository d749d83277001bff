// What a library that knows NCCL's profiler interface (version 5) does with a plugin: names each collective when it is enqueued, and says
// when it ran on each channel. The GPU here is a model: an operation begins on a rank when it was enqueued, the one before is done and the GPU has done
// `fake_gpu_extra_us` of other work, and ends on all ranks together, 50 us after the last has begun.
#pragma once
#include <dlfcn.h>
#include <stdbool.h>

#define CHANNELS 2
#define MAX_QUEUED 256
#define GPU_AHEAD_NS 1000000000000000ull
#define TRANSFER_NS 50000

struct fake_event {
	uint64_t type;
	void *parent;
	int rank;
	union {
		struct {
			uint64_t seq;
			const char *func;
			const void *send;
			void *recv;
			size_t count;
			int root;
			const char *datatype;
			uint8_t channels, warps;
			const char *algo, *proto;
			void *group;
		} coll;
		struct {
			uint8_t channel;
			uint64_t timer_ns;
		} kernel;
		char room[128];
	};
};

struct fake_profiler {
	const char *name;
	int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
	int (*start)(void *, void **, struct fake_event *);
	int (*stop)(void *);
	int (*record)(void *, int, uint64_t *);
	int (*finalize)(void *);
};

// Of one communicator.
struct fake_queue {
	void *context;
	void *handles[MAX_QUEUED], *parts[CHANNELS];
	uint64_t enqueued_ns[MAX_QUEUED];
	uint64_t n, done_ns, next_seq;
};

static struct fake_profiler *profiler;
static int profiler_mask;
long fake_gpu_extra_us;

static uint64_t mono_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void profiler_join(struct fake_queue *queue, uint64_t id, int nranks, int rank)
{
	const char *path = getenv("NCCL_PROFILER_PLUGIN");
	void *plugin = path && !profiler ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (plugin)
		profiler = dlsym(plugin, "ncclProfiler_v5");
	// NCCL names a communicator by a hash of its own.
	if (profiler && profiler->init(&queue->context, ~id, &profiler_mask, "", 1, nranks, rank, NULL))
		queue->context = NULL;
}

static void profiler_issue(struct fake_queue *queue, const char *func, size_t count)
{
	// In a job without CUDA graphs NCCL's number advances with each operation.
	struct fake_event event = {.type = 1 << 1, .coll = {.seq = queue->next_seq, .func = func, .count = count, .datatype = "ncclFloat32", .channels = CHANNELS}};
	if (!queue->context || queue->n == MAX_QUEUED)
		return;
	queue->next_seq++;
	queue->enqueued_ns[queue->n] = mono_ns();
	profiler->start(queue->context, &queue->handles[queue->n], &event);
	profiler->stop(queue->handles[queue->n++]);
}

static void profiler_begins(struct fake_queue *queue, uint64_t op, uint64_t start_ns)
{
	for (int channel = 0; channel < CHANNELS; channel++) {
		struct fake_event event = {.type = 1 << 6, .parent = queue->handles[op]};
		event.kernel.channel = channel;
		event.kernel.timer_ns = start_ns + GPU_AHEAD_NS;
		profiler->start(queue->context, &queue->parts[channel], &event);
	}
}

static void profiler_ends(struct fake_queue *queue, uint64_t stop_ns)
{
	for (int channel = 0; channel < CHANNELS; channel++) {
		uint64_t stop = stop_ns + GPU_AHEAD_NS;
		profiler->record(queue->parts[channel], 22, &stop);
		profiler->stop(queue->parts[channel]);
	}
}
