// Stands in for libnccl where there is no GPU: the same functions with the same arguments, and ranks that really wait for one
// another, by counters in a file that they share. Compiled so that functions begin with a push, as those of the real library do.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef LINKED
#include "profiler.h"
#endif

#define MAX_RANKS 64
#define MAX_COMMS 64

typedef struct {
	char internal[128];
} ncclUniqueId;

struct shared {
	_Atomic uint64_t joined;
	_Atomic uint64_t issued[MAX_RANKS];
	// For profiled jobs: when each rank's GPU comes to what was issued last.
	_Atomic uint64_t ready_ns[MAX_RANKS], told[MAX_RANKS];
};

// Hash, rank, size and counters lie where NCCL 2.28.9 has them.
typedef struct ncclComm {
	uint64_t magic;
	char channels[1066176];
	uint64_t hash;
	int rank, nRanks;
	char tasks[9528];
	uint64_t counters[5];
	uint64_t issued;
	struct shared *shared;
	uint64_t id;
	uint32_t splits;
#ifndef LINKED
	struct fake_queue queue;
#endif
} *ncclComm_t;

static ncclComm_t comms[MAX_COMMS];
static _Atomic int ncomms;

static void nap(void)
{
	struct timespec pause = {.tv_nsec = 100000};
	nanosleep(&pause, NULL);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x100000001b3ULL;
	return hash ^ (hash >> 29);
}

static int join(ncclComm_t *out, uint64_t id, int nranks, int rank)
{
	const char *folder = getenv("FAKE_NCCL_DIR");
	char path[4096];
	ncclComm_t comm = calloc(1, sizeof(*comm));
	int file;

	snprintf(path, sizeof(path), "%s/comm-%016lx", folder ? folder : "/tmp", (unsigned long)id);
	file = open(path, O_RDWR | O_CREAT, 0666);
	if (file < 0 || ftruncate(file, sizeof(struct shared)))
		return 2;
	comm->shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	comm->magic = 0x280280280280280ULL;
	comm->rank = rank;
	comm->nRanks = nranks;
	comm->id = id;
	comm->hash = ~id;
	atomic_fetch_add(&comm->shared->joined, 1);
	while (atomic_load(&comm->shared->joined) < (uint64_t)nranks)
		nap();
	comms[atomic_fetch_add(&ncomms, 1)] = comm;
#ifndef LINKED
	profiler_join(&comm->queue, id, nranks, rank);
#endif
	*out = comm;
	return 0;
}

int ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank, void *config)
{
	const uint64_t *words = (const uint64_t *)id.internal;
	uint64_t hash = 0;

	(void)config;
	for (int i = 0; i < 16; i++)
		hash = mix(hash, words[i]);
	return join(comm, hash, nranks, rank);
}

int ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
	return ncclCommInitRankConfig(comm, nranks, id, rank, NULL);
}

int ncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids, ncclUniqueId *ids, void *config)
{
	(void)nids;
	return ncclCommInitRankConfig(comm, nranks, ids[0], rank, config);
}

// Even and odd ranks, as the color says: rank and size follow from that.
int ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *comm, void *config)
{
	int nranks = (parent->nRanks + (color == 0)) / 2;

	(void)config;
	(void)key;
	return join(comm, mix(mix(parent->id, ++parent->splits), (uint32_t)color), nranks, parent->rank / 2);
}

int ncclCommCount(const ncclComm_t comm, int *count)
{
	int nranks = comm->nRanks;

	*count = nranks;
	return 0;
}

int ncclCommUserRank(const ncclComm_t comm, int *rank)
{
	int own = comm->rank;

	*rank = own;
	return 0;
}

int ncclCommDestroy(ncclComm_t comm)
{
	for (int i = 0; i < ncomms; i++)
		if (comms[i] == comm)
			comms[i] = NULL;
#ifndef LINKED
	if (comm->queue.context)
		profiler->finalize(comm->queue.context);
#endif
	free(comm);
	return 0;
}

int ncclCommAbort(ncclComm_t comm)
{
	return ncclCommDestroy(comm);
}

static __attribute__((noinline)) int issue(ncclComm_t comm, const char *func, size_t count)
{
	static const char *const counted[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};

	(void)count;
	for (int i = 0; comm && i < 5; i++)
		comm->counters[i] += !strcmp(func, counted[i]);
#ifndef LINKED
	if (comm)
		profiler_issue(&comm->queue, func, count);
#endif
	if (comm)
		atomic_store(&comm->shared->issued[comm->rank], ++comm->issued);
	return 0;
}

int ncclAllReduce(const void *in, void *out, size_t count, int type, int op, ncclComm_t comm, void *stream)
{
	(void)in, (void)out, (void)type, (void)op, (void)stream;
	return issue(comm, "AllReduce", count);
}

int ncclAllGather(const void *in, void *out, size_t count, int type, ncclComm_t comm, void *stream)
{
	(void)in, (void)out, (void)type, (void)stream;
	return issue(comm, "AllGather", count);
}

int ncclReduceScatter(const void *in, void *out, size_t count, int type, int op, ncclComm_t comm, void *stream)
{
	(void)in, (void)out, (void)type, (void)op, (void)stream;
	return issue(comm, "ReduceScatter", count);
}

int ncclBroadcast(const void *in, void *out, size_t count, int type, int root, ncclComm_t comm, void *stream)
{
	(void)in, (void)out, (void)type, (void)root, (void)stream;
	return issue(comm, "Broadcast", count);
}

int ncclReduce(const void *in, void *out, size_t count, int type, int op, int root, ncclComm_t comm, void *stream)
{
	(void)in, (void)out, (void)type, (void)op, (void)root, (void)stream;
	return issue(comm, "Reduce", count);
}

int ncclSend(const void *in, size_t count, int type, int peer, ncclComm_t comm, void *stream)
{
	(void)in, (void)count, (void)type, (void)peer, (void)comm, (void)stream;
	return 0;
}

int ncclRecv(void *out, size_t count, int type, int peer, ncclComm_t comm, void *stream)
{
	(void)out, (void)count, (void)type, (void)peer, (void)comm, (void)stream;
	return 0;
}

int ncclGroupStart(void)
{
	return 0;
}

int ncclGroupEnd(void)
{
	return 0;
}

#ifndef LINKED
// Tells the plugin how the operations ran that were issued since the last time, once all ranks know when their GPUs come to them.
static void run(ncclComm_t comm)
{
	struct fake_queue *queue = &comm->queue;
	struct shared *shared = comm->shared;
	uint64_t stop_ns = 0, own_ns;

	if (!queue->context || !queue->n)
		return;
	own_ns = queue->enqueued_ns[0] + fake_gpu_extra_us * 1000;
	atomic_store(&shared->ready_ns[comm->rank], own_ns);
	atomic_store(&shared->told[comm->rank], comm->issued);
	for (int rank = 0; rank < comm->nRanks; rank++) {
		uint64_t ready_ns;
		while (atomic_load(&shared->told[rank]) < comm->issued)
			nap();
		ready_ns = atomic_load(&shared->ready_ns[rank]);
		stop_ns = ready_ns > stop_ns ? ready_ns : stop_ns;
	}
	for (uint64_t op = 0; op < queue->n; op++) {
		uint64_t start_ns = op ? stop_ns : own_ns;
		stop_ns += TRANSFER_NS;
		while (mono_ns() < start_ns)
			nap();
		profiler_begins(queue, op, start_ns);
		while (mono_ns() < stop_ns)
			nap();
		profiler_ends(queue, stop_ns);
	}
	queue->n = 0;
}
#endif

// What the GPU does: an operation is complete when every rank of its communicator has issued it and it has been computed.
void fake_nccl_complete(void)
{
	const char *us = getenv("FAKE_NCCL_COMPUTE_US");
	struct timespec compute = {.tv_nsec = us ? atol(us) * 1000 : 3000000};

	for (int i = 0; i < ncomms; i++) {
		ncclComm_t comm = comms[i];
		if (!comm)
			continue;
		for (int rank = 0; rank < comm->nRanks; rank++)
			while (atomic_load(&comm->shared->issued[rank]) < comm->issued)
				nap();
#ifndef LINKED
		run(comm);
#endif
	}
	nanosleep(&compute, NULL);
}
