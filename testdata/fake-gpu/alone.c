// One process that uses a GPU alone, without NCCL.
//
//   alone CALLS GATE [KIND:MS [FROM [FILE [PAUSE_US]]]]
//
// When the file GATE is there, it allocates CALLS times, each time for 20 to 1010 microseconds, copies and launches, and
// measures each allocation itself. Prints `CALLS P50 P95 P99 LONGEST`, the durations of the allocations in nanoseconds.
// With a delay (`delay.h`), it computes for 2 ms and waits 20 us for the GPU CALLS times instead, and is delayed each time, once the
// file FROM is there if it is given; before, it pauses for 1 ms, or PAUSE_US. FILE is what the delay reads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <string.h>
#include <unistd.h>
#include "delay.h"

typedef struct {
	unsigned x, y, z;
} dim3;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	int64_t difference = *(const int64_t *)a - *(const int64_t *)b;
	return difference < 0 ? -1 : difference > 0;
}

static void *find(void *library, const char *name)
{
	void *symbol = library ? dlsym(library, name) : NULL;
	if (!symbol) {
		fprintf(stderr, "no %s: %s\n", name, dlerror());
		exit(1);
	}
	return symbol;
}

// What the GPU has left to do when it is waited for: so little that it is reported and delays nothing, on a fast CPU too.
static void finish_kernel(void)
{
	int64_t end = now_ns() + 20000;
	while (now_ns() < end)
		;
}

static int run_delayed(int calls, const char *text, const char *from, const char *file, int pause_us,
		       int (*synchronize)(void *))
{
	struct delay delay = {.file = file}, computing = {.kind = "spin", .ms = 2};
	if (sscanf(text, "%15[a-z]:%lf", delay.kind, &delay.ms) != 2 || delay_open(&delay))
		return 2;
	for (int call = 0; call < calls; call++) {
		delay_step(&computing);
		synchronize(NULL);
		if (!from || !access(from, F_OK))
			delay_step(&delay);
		else
			usleep(pause_us);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	int calls = atoi(argv[1]);
	int64_t *durations = calloc(calls, sizeof(*durations));
	// In this order: the runtime calls the driver.
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	void *cudart = dlopen("libcudart.so.13", RTLD_NOW | RTLD_GLOBAL);
	int (*allocate)(void **, size_t) = (int (*)(void **, size_t))find(cudart, "cudaMalloc");
	int (*copy)(void *, const void *, size_t, int, void *) =
		(int (*)(void *, const void *, size_t, int, void *))find(cudart, "cudaMemcpyAsync");
	int (*launch)(const void *, dim3, dim3, void **, size_t, void *) =
		(int (*)(const void *, dim3, dim3, void **, size_t, void *))find(cudart, "cudaLaunchKernel");
	int (*driver_copy)(void *, uintptr_t, size_t) = (int (*)(void *, uintptr_t, size_t))find(cuda, "cuMemcpyDtoH_v2");
	int (*driver_launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
			     void **) =
		(int (*)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
			 void **))find(cuda, "cuLaunchKernel");
	void *memory;

	while (access(argv[2], F_OK))
		usleep(1000);
	if (argc > 3)
		((void (*)(void (*)(void)))find(cudart, "fake_cuda_gpu"))(finish_kernel);
	if (argc > 3)
		return run_delayed(calls, argv[3], argc > 4 ? argv[4] : NULL, argc > 5 ? argv[5] : NULL,
				   argc > 6 ? atoi(argv[6]) : 1000,
				   (int (*)(void *))find(cudart, "cudaStreamSynchronize"));
	for (int call = 0; call < calls; call++) {
		// An odd step, so that short and long calls alternate.
		size_t bytes = 20000 + call * 37 % 100 * 10000;
		int64_t begin = now_ns();
		allocate(&memory, bytes);
		durations[call] = now_ns() - begin;
		copy(NULL, NULL, 1000, 1, NULL);
		driver_copy(NULL, 0, 10);
		launch(NULL, (dim3){2, 3, 4}, (dim3){32, 4, 2}, NULL, 0, NULL);
		driver_launch(NULL, 2, 3, 4, 32, 4, 2, 0, NULL, NULL, NULL);
	}
	qsort(durations, calls, sizeof(*durations), compare);
	printf("%d", calls);
	static const int percents[] = {50, 95, 99, 100, 48, 93, 97};
	for (size_t i = 0; i < sizeof(percents) / sizeof(*percents); i++)
		printf(" %ld", (long)durations[(calls * percents[i] + 99) / 100 - 1]);
	printf("\n");
	return 0;
}
