// Stands for NCCL: opens the plugin and drives its tables as NCCL does, and as it should not.
//
//   host PLUGIN fields VERSION     one communicator with a collective, a transfer and one without times; interface VERSION
//   host PLUGIN job VERSION RANK RANKS STEPS LATE_US     rank of a job whose GPU comes late; a step is four all-reduces
//   host PLUGIN stress VERSION     threads, 64 channels, what never stops, handles that are none, forks, ends in any order
//   host PLUGIN refused VERSION    prints what the plugin says and whether it goes on
//
// The release that this NCCL claims to be is in the environment, as FAKE_NCCL_VERSION.
#ifdef NCCL_HEADERS
#include <sys/types.h>
typedef pid_t ncclPid_t;
#include "err.h"
#include "profiler.h"
#else
#include "interface.h"
#endif
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <functional>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" int ncclGetVersion(int *version)
{
	const char *claimed = getenv("FAKE_NCCL_VERSION");
	*version = claimed ? atoi(claimed) : 22907;
	return 0;
}

static void log_line(ncclDebugLogLevel, unsigned long, const char *, int, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
}

static void check(bool holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "%s\n", what);
		exit(1);
	}
}

static uint64_t now_ns()
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

// One version of the interface.
template <typename Table, typename Descr, typename Args> struct Interface {
	Table *table;
	int mask = 0;

	explicit Interface(void *plugin, const char *symbol) : table((Table *)dlsym(plugin, symbol))
	{
		check(table && !strcmp(table->name, "fleet"), "no table");
	}
	ncclResult_t start(void *context, void **handle, Descr &event) { return table->startEvent(context, handle, &event); }
	void *coll(void *context, uint64_t seq, const char *func, size_t count, int root, uint8_t channels)
	{
		Descr event = {};
		void *handle = (void *)1;
		event.type = ncclProfileColl;
		event.coll.seqNumber = seq;
		event.coll.func = func;
		event.coll.count = count;
		event.coll.root = root;
		event.coll.datatype = "ncclBfloat16";
		event.coll.nChannels = channels;
		check(start(context, &handle, event) == ncclSuccess, "coll");
		// It is enqueued, no more.
		table->stopEvent(handle);
		return handle;
	}
	void *p2p(void *context, const char *func, size_t count, int peer, uint8_t channels)
	{
		Descr event = {};
		void *handle = nullptr;
		event.type = ncclProfileP2p;
		event.p2p.func = func;
		event.p2p.count = count;
		event.p2p.peer = peer;
		event.p2p.datatype = "ncclFloat32";
		event.p2p.nChannels = channels;
		check(start(context, &handle, event) == ncclSuccess, "p2p");
		table->stopEvent(handle);
		return handle;
	}
	void *channel(void *context, void *parent, uint8_t channel, uint64_t ns)
	{
		Descr event = {};
		void *handle = nullptr;
		event.type = ncclProfileKernelCh;
		event.parentObj = parent;
		event.kernelCh.channelId = channel;
		event.kernelCh.pTimer = ns;
		check(start(context, &handle, event) == ncclSuccess, "channel");
		return handle;
	}
	void stop(void *handle, uint64_t ns)
	{
		Args args = {};
		args.kernelCh.pTimer = ns;
		check(table->recordEventState(handle, ncclProfilerKernelChStop, &args) == ncclSuccess, "stop");
		table->stopEvent(handle);
	}
	void run(void *context, void *parent, uint8_t channels, uint64_t from, uint64_t to)
	{
		for (uint8_t ch = 0; ch < channels; ch++)
			stop(channel(context, parent, ch, from + ch), to - ch);
	}
};

template <typename I> static ncclResult_t init(I &i, void **context, uint64_t id, int nranks, int rank)
{
	return i.table->init(context, id, &i.mask, "name", 1, nranks, rank, log_line);
}

typedef Interface<ncclProfiler_v4_t, ncclProfilerEventDescr_v4_t, ncclProfilerEventStateArgs_v4_t> V4;
static ncclResult_t init(V4 &i, void **context, uint64_t id, int nranks, int rank)
{
	return i.table->init(context, &i.mask, "name", id, 1, nranks, rank, log_line);
}

template <typename I> static void fields(I &i)
{
	void *context = nullptr;
	check(init(i, &context, 0xabcdef0123456789, 8, 3) == ncclSuccess && context, "init");
	check(i.mask == (ncclProfileColl | ncclProfileP2p | ncclProfileKernelCh), "mask");
	void *coll = i.coll(context, 41, "ReduceScatter", 1000, -1, 24);
	void *late = i.coll(context, 42, "Broadcast", 7, 5, 2);
	check(i.coll(context, 43, "AllGather", 8, 0, 0) == nullptr, "one without channels has no times");
	void *send = i.p2p(context, "Send", 64, 6, 2);
	i.run(context, send, 2, 3000, 3500);
	i.run(context, coll, 24, 1000, 2000);
	i.run(context, late, 2, 5000, 4000);
	check(i.table->finalize(context) == ncclSuccess, "finalize");
}

template <typename I> static void job(I &i, int rank, int ranks, int steps, long late_us)
{
	void *context = nullptr;
	check(init(i, &context, 0x77, ranks, rank) == ncclSuccess && context, "init");
	for (int step = 0; step < steps; step++) {
		for (int op = 0; op < 4; op++) {
			uint64_t enqueued = now_ns();
			void *coll = i.coll(context, step * 4 + op, "AllReduce", 1 << 20, 0, 4);
			// All end together; who comes late stays for a shorter time.
			usleep(2000);
			i.run(context, coll, 4, enqueued + 100000 + late_us * 1000, enqueued + 1900000);
		}
	}
	i.table->finalize(context);
}

template <typename I> static void one_of_many(I &i, unsigned seed)
{
	for (int round = 0; round < 20; round++) {
		void *context = nullptr;
		check(init(i, &context, seed, 64, 1) == ncclSuccess, "init");
		std::vector<void *> parts;
		void *last = nullptr;
		for (int op = 0; op < 30; op++) {
			void *coll = i.coll(context, op, "AllReduce", 1, 0, 64);
			for (uint8_t ch = 0; ch < 64; ch++)
				parts.push_back(i.channel(context, coll, ch, 100 + ch));
			last = coll;
		}
		// An aborted communicator: some never stop, and others after its end.
		bool aborted = (seed + round) % 3 == 0;
		if (aborted)
			i.table->finalize(context);
		for (size_t n = 0; n < parts.size(); n++)
			if (!aborted || n % 2)
				i.stop(parts[n], 1000 + n);
		// Handles of what is over, of nobody, and none at all.
		void *wrong[] = {last, parts[0], nullptr, (void *)1, (void *)&round, (void *)~0ull, context};
		for (void *handle : wrong) {
			i.stop(handle, 5);
			i.stop(i.channel(context, handle, 200, 7), 9);
			i.coll(handle, 1, "AllReduce", 1, 0, 1);
			i.table->recordEventState(handle, ncclProfilerProxyStepSendWait, nullptr);
			i.table->recordEventState(handle, ncclProfilerKernelChStop, nullptr);
		}
		typename std::remove_reference<decltype(*i.table)>::type *table = i.table;
		table->startEvent(context, nullptr, nullptr);
		void *handle = (void *)1;
		table->startEvent(context, &handle, nullptr);
		check(handle == nullptr, "no event, no handle");
		if (!aborted)
			table->finalize(context);
		table->finalize(context);
	}
}

template <typename I> static void stress(I &i)
{
	std::vector<std::thread> threads;
	for (unsigned n = 0; n < 4; n++)
		threads.emplace_back([&i, n] { one_of_many(i, n); });
	for (auto &thread : threads)
		thread.join();
	// A child has the parent's handles, and may use them or its own.
	void *context = nullptr;
	init(i, &context, 9, 2, 0);
	void *coll = i.coll(context, 0, "AllReduce", 1, 0, 2);
	void *part = i.channel(context, coll, 0, 10);
	pid_t child = fork();
	if (child == 0) {
		i.run(context, coll, 2, 10, 20);
		one_of_many(i, 77);
		i.table->finalize(context);
		_exit(0);
	}
	int status = 0;
	waitpid(child, &status, 0);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child");
	i.stop(part, 30);
	i.stop(i.channel(context, coll, 1, 12), 40);
	i.table->finalize(context);
	// More communicators than there is room for.
	std::vector<void *> contexts(1100);
	for (auto &one : contexts)
		init(i, &one, 1, 2, 0);
	check(contexts.back() == nullptr, "no room, no context");
	for (auto &one : contexts)
		i.table->finalize(one);
	for (int round = 0; round < 3; round++) {
		// More operations than the pool holds, none of which ends.
		init(i, &context, 1, 2, 0);
		for (int op = 0; op < 6000; op++)
			i.p2p(context, op % 2 ? "Send" : "Recv", 1, 1, 1);
		i.table->finalize(context);
	}
}

template <typename I> static int main_of(void *plugin, const char *symbol, int argc, char **argv)
{
	I i(plugin, symbol);
	if (!strcmp(argv[2], "fields"))
		fields(i);
	else if (!strcmp(argv[2], "stress"))
		stress(i);
	else if (!strcmp(argv[2], "job") && argc > 7)
		job(i, atoi(argv[4]), atoi(argv[5]), atoi(argv[6]), atol(argv[7]));
	else if (!strcmp(argv[2], "refused")) {
		void *context = (void *)1;
		i.mask = 0;
		int result = init(i, &context, 1, 2, 0);
		printf("result %d mask %d context %d\n", result, i.mask, context != nullptr);
		i.table->finalize(context);
	} else
		return 2;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	void *plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	check(plugin, "cannot open the plugin");
	int result = 2;
	switch (atoi(argv[3])) {
	case 4: result = main_of<V4>(plugin, "ncclProfiler_v4", argc, argv); break;
	case 5: result = main_of<Interface<ncclProfiler_v5_t, ncclProfilerEventDescr_v5_t, ncclProfilerEventStateArgs_v5_t>>(plugin, "ncclProfiler_v5", argc, argv); break;
	case 6: result = main_of<Interface<ncclProfiler_v6_t, ncclProfilerEventDescr_v6_t, ncclProfilerEventStateArgs_v6_t>>(plugin, "ncclProfiler_v6", argc, argv); break;
	case 7: result = main_of<Interface<ncclProfiler_v7_t, ncclProfilerEventDescr_v7_t, ncclProfilerEventStateArgs_v7_t>>(plugin, "ncclProfiler_v7", argc, argv); break;
	}
	dlclose(plugin);
	return result;
}
