// Stands in for libcudart: what waits for the GPU waits for whatever the program says the GPU does.
#include <stddef.h>

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
