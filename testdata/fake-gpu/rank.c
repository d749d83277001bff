// One rank of a training job on the stand-ins for NCCL and CUDA.
//
//   rank RANK WORLD STEPS [slow=RANK:MS:FROM:TO] [gpu=RANK:MS:FROM:TO] [step=MS] [ops=N] [load=MS] [import=MS] [init=FILE] [begin=FILE] [end=FILE] [compute=US] [delay=RANK:KIND:MS] [delay_from=FILE] [file=FILE] [netns=FILE] [split] [job=N] [rdma=TYPE] [alloc=NS] [capture] [backward=MS]
//
// Each step computes for `step` milliseconds, issues `ops` collectives, and waits for them; the GPU needs `compute` microseconds more. The slow rank sleeps longer in the
// steps from FROM to TO. With `load` the libraries are opened that much later. It joins its communicator when the file
// `init` is there, begins when `begin` is there, and ends soon after `end` is, all ranks after the same step. A delay (`delay.h`) begins when `delay_from` is there. With `gpu` it is the rank's GPU that has more to do in those steps; the plugin in NCCL_PROFILER_PLUGIN is told of it. With `rdma` a device tells of an event of that type in every step. With `alloc` each step allocates for so many nanoseconds; with `capture` it records a graph, launches it and destroys it. With `backward` another thread computes for so long and issues the collectives, as that of PyTorch's backward pass does, and the first thread waits for it. Prints `RANK STEPS COLLECTIVES MEAN_STEP_US` at the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "delay.h"

typedef struct {
	char internal[128];
} ncclUniqueId;

#ifdef LINKED
extern int ncclCommInitRankConfig(void **, int, ncclUniqueId, int, void *);
extern int ncclCommSplit(void *, int, int, void **, void *);
extern int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
extern int cudaStreamSynchronize(void *);
extern int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
extern int cudaLaunchKernel(const void *);
extern int cudaMalloc(void **, size_t);
extern int cudaFree(void *);
extern int cudaStreamBeginCapture(void *, int);
extern int cudaStreamEndCapture(void *, void **);
extern int cudaGraphInstantiate(void **, void *, unsigned long long);
extern int cudaGraphLaunch(void *, void *);
extern int cudaGraphExecDestroy(void *);
extern void fake_nccl_complete(void);
extern void fake_cuda_gpu(void (*)(void));
#define FIND(name) name
#define OPEN()
static void (*acknowledge(void))(void *)
{
	return NULL;
}
#else
static void *nccl, *cuda;
static void *find(const char *name)
{
	void *symbol = dlsym(nccl, name);
	if (!symbol)
		symbol = dlsym(cuda, name);
	if (!symbol) {
		fprintf(stderr, "no %s: %s\n", name, dlerror());
		exit(1);
	}
	return symbol;
}
static void *load(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return library;
}
static void (*acknowledge(void))(void *)
{
	return (void (*)(void *))dlsym(load("libibverbs.so.1"), "ibv_ack_async_event");
}
#define NAME(name) #name
#define FIND(name) find(NAME(name))
#ifndef COLLECTIVES
#define COLLECTIVES "libnccl.so.2"
#define RUNTIME "libcudart.so.13"
#endif
#define OPEN() (cuda = load(RUNTIME), nccl = load(COLLECTIVES))
#endif

static void pause_ms(double ms)
{
	struct timespec pause = {.tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(ms * 1e6) % 1000000000L};
	nanosleep(&pause, NULL);
}

static void await(const char *file)
{
	while (file && access(file, F_OK))
		pause_ms(1);
}

// Whether this was the last step. Rank 0 says after a step that the next one is, when the file `end` is there; the others cannot
// complete that one before it has said so. If each looked for itself, one could end a step before those that wait for it.
static int is_last(const char *end, int rank, int step)
{
	char mark[4096], draft[4096];
	int last = step + 1;
	FILE *file;

	snprintf(mark, sizeof(mark), "%.4000s.last", end);
	snprintf(draft, sizeof(draft), "%.4000s.draft", end);
	if (!rank && !access(end, F_OK) && access(mark, F_OK) && (file = fopen(draft, "w"))) {
		fprintf(file, "%d", last);
		fclose(file);
		rename(draft, mark);
	}
	file = fopen(mark, "r");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &last) != 1)
		last = step;
	fclose(file);
	return last <= step;
}

static double now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static const char *option(int argc, char **argv, const char *name)
{
	size_t length = strlen(name);
	for (int i = 4; i < argc; i++)
		if (!strncmp(argv[i], name, length) && (argv[i][length] == '=' || !argv[i][length]))
			return argv[i][length] ? argv[i] + length + 1 : "";
	return NULL;
}

static double number(int argc, char **argv, const char *name, double otherwise)
{
	const char *text = option(argc, argv, name);
	return text ? atof(text) : otherwise;
}

// Collectives of a step, and the thread that issues them after it has computed.
struct backward {
	double ms;
	int ops;
	void *comm;
	int (*launch)(const void *);
	int (*reduce)(const void *, void *, size_t, int, int, void *, void *);
	sem_t begin, end;
};

static void issue(struct backward *backward)
{
	for (int op = 0; op < backward->ops; op++) {
		backward->launch(NULL);
		backward->reduce(NULL, NULL, 1000 + op, 7, 0, backward->comm, (void *)0x99);
	}
}

static void *run_backward(void *argument)
{
	struct backward *backward = argument;

	for (;;) {
		sem_wait(&backward->begin);
		double end = delay_now_ms() + backward->ms;
		while (delay_now_ms() < end)
			;
		issue(backward);
		sem_post(&backward->end);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	int rank = atoi(argv[1]), world = atoi(argv[2]), steps = atoi(argv[3]);
	int slow = -1, from = 0, to = 0, ops = number(argc, argv, "ops", 4);
	double slow_ms = 0, step_ms = number(argc, argv, "step", 5);
	const char *text = option(argc, argv, "slow");
	int late = -1, late_from = 0, late_to = 0;
	double late_ms = 0;
	long *gpu_extra_us = NULL;
	struct delay delay = {.file = option(argc, argv, "file"), .netns = option(argc, argv, "netns")};
	int delayed = -1;
	unsigned long job = number(argc, argv, "job", 1);
	ncclUniqueId id;
	void *comm = NULL, *part = NULL;
	long issued = 0;

	if (option(argc, argv, "compute"))
		setenv("FAKE_NCCL_COMPUTE_US", option(argc, argv, "compute"), 1);
	if (text)
		sscanf(text, "%d:%lf:%d:%d", &slow, &slow_ms, &from, &to);
	text = option(argc, argv, "gpu");
	if (text)
		sscanf(text, "%d:%lf:%d:%d", &late, &late_ms, &late_from, &late_to);
	text = option(argc, argv, "delay");
	if (text && sscanf(text, "%d:%15[a-z]:%lf", &delayed, delay.kind, &delay.ms) == 3) {
		delay.workers = delayed == rank ? 1 : 8;
		if (!strcmp(delay.kind, "loader"))
			delayed = rank;
		if (delayed == rank && delay_open(&delay)) {
			perror(text);
			return 4;
		}
	}
	pause_ms(number(argc, argv, "load", 0));
	OPEN();
	struct {
		uint64_t element;
		int type;
	} event = {.type = number(argc, argv, "rdma", -1)};
	void (*ack)(void *) = event.type < 0 ? NULL : acknowledge();
	// A framework has much to do between opening the libraries and its first call.
	pause_ms(number(argc, argv, "import", 300));
	// The first bytes of all ids of a host are the same, as they are with the real library.
	memset(&id, 7, sizeof(id));
	memcpy(id.internal + 64, &job, sizeof(job));
	((void (*)(void (*)(void)))FIND(fake_cuda_gpu))((void (*)(void))FIND(fake_nccl_complete));
	int (*sync)(void *) = (int (*)(void *))FIND(cudaStreamSynchronize);
	int (*reduce)(const void *, void *, size_t, int, int, void *, void *) =
		(int (*)(const void *, void *, size_t, int, int, void *, void *))FIND(ncclAllReduce);
	int (*copy)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))FIND(cudaMemcpyAsync);
	int (*launch)(const void *) = (int (*)(const void *))FIND(cudaLaunchKernel);
	int (*allocate)(void **, size_t) = (int (*)(void **, size_t))FIND(cudaMalloc);
	int (*release)(void *) = (int (*)(void *))FIND(cudaFree);
	int (*begin_capture)(void *, int) = (int (*)(void *, int))FIND(cudaStreamBeginCapture);
	int (*end_capture)(void *, void **) = (int (*)(void *, void **))FIND(cudaStreamEndCapture);
	int (*instantiate)(void **, void *, unsigned long long) =
		(int (*)(void **, void *, unsigned long long))FIND(cudaGraphInstantiate);
	int (*launch_graph)(void *, void *) = (int (*)(void *, void *))FIND(cudaGraphLaunch);
	int (*destroy_graph)(void *) = (int (*)(void *))FIND(cudaGraphExecDestroy);
	size_t alloc_ns = number(argc, argv, "alloc", 0);
	int captures = option(argc, argv, "capture") != NULL;
	void *memory = NULL, *graph = NULL, *executable = NULL;
#ifndef LINKED
	if (late == rank)
		gpu_extra_us = (long *)FIND(fake_gpu_extra_us);
#endif
	await(option(argc, argv, "init"));
	if (((int (*)(void **, int, ncclUniqueId, int, void *))FIND(ncclCommInitRankConfig))(&comm, world, id, rank, NULL)) {
		perror("ncclCommInitRankConfig");
		return 3;
	}
	if (option(argc, argv, "split") &&
	    ((int (*)(void *, int, int, void **, void *))FIND(ncclCommSplit))(comm, rank % 2, rank, &part, NULL)) {
		perror("ncclCommSplit");
		return 3;
	}
	struct backward backward = {.ms = number(argc, argv, "backward", 0), .ops = ops, .comm = comm, .launch = launch, .reduce = reduce};
	pthread_t other;
	if (backward.ms &&
	    (sem_init(&backward.begin, 0, 0) || sem_init(&backward.end, 0, 0) || pthread_create(&other, NULL, run_backward, &backward)))
		return 5;
	await(option(argc, argv, "begin"));
	double begin = now_us();
	const char *end = option(argc, argv, "end"), *delay_from = option(argc, argv, "delay_from");
	for (int step = 0; step < steps || end; step++) {
		if (gpu_extra_us)
			*gpu_extra_us = late_from <= step && step < late_to ? late_ms * 1000 : 0;
		copy(NULL, NULL, 4096, 1, NULL);
		if (alloc_ns) {
			allocate(&memory, alloc_ns);
			release(memory);
		}
		if (captures) {
			begin_capture(NULL, 0);
			end_capture(NULL, &graph);
			instantiate(&executable, graph, 0);
			launch_graph(executable, NULL);
			destroy_graph(executable);
		}
		if (delay_from && !access(delay_from, F_OK))
			delay_from = NULL;
		if (delayed == rank && !delay_from)
			delay_step(&delay);
		pause_ms(step_ms + (rank == slow && from <= step && step < to ? slow_ms : 0));
		if (backward.ms)
			sem_post(&backward.begin), sem_wait(&backward.end);
		else
			issue(&backward);
		issued += ops;
		if (part)
			reduce(NULL, NULL, 500, 7, 0, part, (void *)0x99), issued++;
		if (ack)
			ack(&event);
		sync(NULL);
		if (end && step >= steps - 1 && is_last(end, rank, step))
			break;
	}
	printf("%d %d %ld %.0f\n", rank, steps, issued, steps ? (now_us() - begin) / steps : 0.0);
	return 0;
}
