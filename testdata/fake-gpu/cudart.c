// Stands in for libcudart: what waits for the GPU waits for whatever the program says the GPU does. It calls the stand-in
// for libcuda if the program has loaded that before.
#include <stddef.h>
#include <stdint.h>
#include <time.h>

extern int cuMemAlloc_v2(void **, size_t) __attribute__((weak));

static void (*complete)(void);

void fake_cuda_gpu(void (*does)(void))
{
	complete = does;
}

static __attribute__((noinline)) int wait(void)
{
	if (complete)
		complete();
	return 0;
}

int cudaStreamSynchronize(void *stream)
{
	(void)stream;
	return wait();
}

int cudaEventSynchronize(void *event)
{
	(void)event;
	return wait();
}

int cudaDeviceSynchronize(void)
{
	return wait();
}

int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream)
{
	(void)to, (void)from, (void)bytes, (void)kind, (void)stream;
	return 0;
}

int cudaLaunchKernel(const void *kernel)
{
	(void)kernel;
	return 0;
}

int cudaGraphLaunch(void *graph, void *stream)
{
	(void)graph, (void)stream;
	return 0;
}

static void busy(int64_t ns)
{
	struct timespec now;
	int64_t end;

	clock_gettime(CLOCK_MONOTONIC, &now);
	end = now.tv_sec * 1000000000L + now.tv_nsec + ns;
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while (now.tv_sec * 1000000000L + now.tv_nsec < end);
}

// An allocation takes as many nanoseconds as it has bytes.
int cudaMalloc(void **memory, size_t bytes)
{
	if (cuMemAlloc_v2)
		return cuMemAlloc_v2(memory, bytes);
	busy(bytes);
	return 0;
}

int cudaFree(void *memory)
{
	(void)memory;
	return 0;
}

int cudaStreamBeginCapture(void *stream, int mode)
{
	(void)stream, (void)mode;
	return 0;
}

int cudaStreamEndCapture(void *stream, void **graph)
{
	(void)stream, (void)graph;
	return 0;
}

// It takes as many nanoseconds as its flags say.
int cudaGraphInstantiate(void **executable, void *graph, unsigned long long flags)
{
	(void)executable, (void)graph;
	busy(flags);
	return 0;
}

int cudaGraphExecDestroy(void *executable)
{
	(void)executable;
	return 0;
}
