// Stand-in for NVML with four GPUs: what processes compute is in the file $FAKE_NVML, one line per process
// with its GPU, its id and the percentage.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SUCCESS = 0, INSUFFICIENT_SIZE = 7, GPUS = 4, MAX_PROCESSES = 64 };

struct process { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
struct sample { unsigned pid; unsigned long long at_us; unsigned sm, memory, encoder, decoder; };

static int gpus[GPUS] = {0, 1, 2, 3};

// Reads the processes of a GPU and returns how many there are.
static unsigned read_processes(const int *gpu, unsigned pids[], unsigned percents[]) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    unsigned n = 0;
    int on = 0;
    while (file && n < MAX_PROCESSES && fscanf(file, "%d %u %u", &on, &pids[n], &percents[n]) == 3)
        n += on == *gpu;
    if (file)
        fclose(file);
    return n;
}

int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = GPUS;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, int **device) {
    *device = &gpus[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(const int *gpu, char *text, unsigned length) {
    snprintf(text, length, "GPU-%d", *gpu);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const int *gpu, unsigned *count, struct process *processes) {
    unsigned pids[MAX_PROCESSES], percents[MAX_PROCESSES];
    unsigned n = read_processes(gpu, pids, percents), room = *count;
    *count = n;
    if (n > room)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < n; i++)
        processes[i] = (struct process){.pid = pids[i], .bytes = 1 << 30};
    return SUCCESS;
}

int nvmlDeviceGetProcessUtilization(const int *gpu, struct sample *samples, unsigned *count, unsigned long long later_than_us) {
    unsigned pids[MAX_PROCESSES], percents[MAX_PROCESSES];
    unsigned n = read_processes(gpu, pids, percents), room = *count;
    struct timespec now;
    (void)later_than_us;
    *count = n;
    if (n > room || !samples)
        return n ? INSUFFICIENT_SIZE : SUCCESS;
    clock_gettime(CLOCK_REALTIME, &now);
    for (unsigned i = 0; i < n; i++)
        samples[i] = (struct sample){.pid = pids[i], .at_us = now.tv_sec * 1000000ULL + now.tv_nsec / 1000, .sm = percents[i]};
    return SUCCESS;
}
