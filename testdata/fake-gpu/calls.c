// Calls the stand-ins for NCCL and CUDA in three ways, for the benchmark of what probes and agent cost.
//
//   calls time STATE CORE BURSTS CALLS        pinned to a core; prints `NAME NS NS ...`, nanoseconds per call of each burst
//   calls pace STATE RANK WORLD SECONDS US OPS  a step every so many microseconds: OPS collectives and a wait for 3 ms
//   calls storm STATE RANK WORLD SECONDS      collectives as fast as it can
//
// The last two print how many collectives they have issued. STATE is `probed` or `plain`: nothing begins before the
// functions are so and standard input has ended, and a measurement in which they did not stay so is none (exit code 4).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000L
#define WARM_UP 100
// The agent looks every 50 ms: what one burst has put into its ring is gone before the next one begins.
#define TOLD_PAUSE_NS 60000000L
#define PAUSE_NS 1000000L
#define COMPUTE_NS 3000000L

typedef struct {
	char internal[128];
} ncclUniqueId;

extern int ncclCommInitRankConfig(void **, int, ncclUniqueId, int, void *);
extern int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);
extern int ncclGroupEnd(void);
extern int cudaStreamSynchronize(void *);
extern int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
extern int cudaLaunchKernel(const void *);
extern void fake_cuda_gpu(void (*)(void));

static void *comm;

static void pause_ns(long ns)
{
	struct timespec pause = {.tv_sec = ns / NS, .tv_nsec = ns % NS};
	nanosleep(&pause, NULL);
}

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * NS + now.tv_nsec;
}

// Whether a breakpoint stands at the beginning of a function, seen as the processor sees it.
static int is_probed(const char *name)
{
	const unsigned char *code = dlsym(RTLD_DEFAULT, name);
#if defined(__x86_64__)
	static const unsigned char endbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
	return code[memcmp(code, endbr64, 4) ? 0 : 4] == 0xcc;
#else
	return *(const uint32_t *)code == 0xd42000a0;
#endif
}

static int with_launches;

static int all_are(int probed)
{
	return is_probed("ncclAllReduce") == probed && is_probed("ncclGroupEnd") == probed &&
	       is_probed("cudaStreamSynchronize") == probed &&
	       // Launches are counted only by an agent that was asked to.
	       (is_probed("cudaLaunchKernel") == probed || !with_launches);
}

static void wait_until(int probed)
{
	int64_t end = now_ns() + 20 * NS;
	while (!all_are(probed)) {
		if (now_ns() > end) {
			fprintf(stderr, "the functions are %s\n", probed ? "not probed" : "probed by another agent");
			exit(4);
		}
		pause_ns(PAUSE_NS);
	}
}

static int join(int rank, int world)
{
	ncclUniqueId id;
	memset(&id, 7, sizeof(id));
	memcpy(id.internal + 64, &world, sizeof(world));
	return ncclCommInitRankConfig(&comm, world, id, rank, NULL);
}

// As many arguments as a collective has, and no probe.
static __attribute__((noinline)) int unprobed(const void *in, void *out, size_t count, int type, int op, void *of, void *stream)
{
	(void)in, (void)out, (void)count, (void)type, (void)op, (void)of, (void)stream;
	return 0;
}

static void collectives(long n)
{
	while (n--)
		ncclAllReduce(NULL, NULL, 1000, 7, 0, comm, (void *)0x99);
}

static void groups(long n)
{
	while (n--)
		ncclGroupEnd();
}

static void waits(long n)
{
	while (n--)
		cudaStreamSynchronize((void *)0x99);
}

static void launches(long n)
{
	while (n--)
		cudaLaunchKernel(NULL);
}

static void others(long n)
{
	while (n--)
		unprobed(NULL, NULL, 1000, 7, 0, comm, (void *)0x99);
}

static void system_calls(long n)
{
	while (n--)
		syscall(SYS_getppid);
}

static void measure(const char *name, void (*call)(long), int bursts, long calls, long pause)
{
	printf("%s", name);
	while (bursts--) {
		pause_ns(pause);
		call(WARM_UP);
		int64_t begin = now_ns();
		call(calls);
		printf(" %.2f", (double)(now_ns() - begin) / calls);
	}
	printf("\n");
}

static int time_calls(int core, int bursts, long calls)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		return 1;
	// Before the process has called NCCL for the first time.
	measure("foreign", waits, bursts, calls, PAUSE_NS);
	if (join(0, 1))
		return 3;
	measure("ncclAllReduce", collectives, bursts, calls, TOLD_PAUSE_NS);
	measure("ncclGroupEnd", groups, bursts, calls, PAUSE_NS);
	measure("cudaStreamSynchronize", waits, bursts, calls, PAUSE_NS);
	measure("cudaLaunchKernel", launches, bursts, calls, PAUSE_NS);
	measure("unprobed", others, bursts, calls, PAUSE_NS);
	measure("getppid", system_calls, bursts, calls, PAUSE_NS);
	return 0;
}

static void compute(void)
{
	pause_ns(COMPUTE_NS);
}

static int pace(int rank, int world, int seconds, long us, int ops)
{
	int64_t next, end;
	long issued = 0;

	fake_cuda_gpu(compute);
	if (join(rank, world))
		return 3;
	next = now_ns();
	end = next + seconds * NS;
	while (next < end) {
		struct timespec due = {.tv_sec = next / NS, .tv_nsec = next % NS};
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
		cudaMemcpyAsync(NULL, NULL, 4096, 1, NULL);
		for (int op = 0; op < ops; op++, issued++) {
			cudaLaunchKernel(NULL);
			ncclAllReduce(NULL, NULL, 1000 + op, 7, 0, comm, (void *)0x99);
		}
		cudaStreamSynchronize(NULL);
		next += us * 1000;
	}
	printf("%ld\n", issued);
	return 0;
}

static int storm(int rank, int world, int seconds)
{
	long issued = 0;
	int64_t end;

	if (join(rank, world))
		return 3;
	for (end = now_ns() + seconds * NS; now_ns() < end; issued += 1000)
		collectives(1000);
	printf("%ld\n", issued);
	return 0;
}

int main(int argc, char **argv)
{
	int probed = argc > 2 && !strcmp(argv[2], "probed"), failed = 2;

	if (argc < 6)
		return 2;
	with_launches = !strcmp(argv[1], "time");
	wait_until(probed);
	while (getchar() != EOF)
		;
	if (!strcmp(argv[1], "time"))
		failed = time_calls(atoi(argv[3]), atoi(argv[4]), atol(argv[5]));
	else if (!strcmp(argv[1], "storm"))
		failed = storm(atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
	else if (!strcmp(argv[1], "pace") && argc > 7)
		failed = pace(atoi(argv[3]), atoi(argv[4]), atoi(argv[5]), atol(argv[6]), atoi(argv[7]));
	if (!failed && !all_are(probed)) {
		fprintf(stderr, "another agent came or went\n");
		return 4;
	}
	return failed;
}
