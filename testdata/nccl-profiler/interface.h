// NCCL's profiler interface as far as the plugin uses it, written down for this test: versions 4 to 7, on 64 bits. The names are NCCL's, so
// that `host.cpp` compiles against NCCL's own headers as well (see README.md). Members of the unions that the plugin never reads are left out.
#pragma once
#include <cstddef>
#include <cstdint>

enum { ncclProfileColl = 1 << 1, ncclProfileP2p = 1 << 2, ncclProfileProxyOp = 1 << 3, ncclProfileKernelCh = 1 << 6 };
typedef enum { ncclSuccess = 0 } ncclResult_t;
typedef enum { ncclProfilerProxyStepSendWait = 9, ncclProfilerKernelChStop = 22 } ncclProfilerEventState_t;
typedef int ncclDebugLogLevel;
typedef void (*ncclDebugLogger_t)(ncclDebugLogLevel, unsigned long, const char *, int, const char *, ...);

template <typename Type> struct FleetDescr {
	Type type;
	void *parentObj;
	int rank;
	union {
		struct {
			uint64_t seqNumber;
			const char *func;
			void const *sendBuff;
			void *recvBuff;
			size_t count;
			int root;
			const char *datatype;
			uint8_t nChannels, nWarps;
			const char *algo, *proto;
		} coll;
		struct {
			const char *func;
			void *buff;
			const char *datatype;
			size_t count;
			int peer;
			uint8_t nChannels;
		} p2p;
		struct {
			uint8_t channelId;
			uint64_t pTimer;
		} kernelCh;
	};
};

union FleetStateArgs {
	struct {
		uint64_t pTimer;
	} kernelCh;
};

template <typename Init, typename Descr> struct FleetTable {
	const char *name;
	Init init;
	ncclResult_t (*startEvent)(void *, void **, Descr *);
	ncclResult_t (*stopEvent)(void *);
	ncclResult_t (*recordEventState)(void *, ncclProfilerEventState_t, FleetStateArgs *);
	ncclResult_t (*finalize)(void *);
};

typedef ncclResult_t (*FleetInitV4)(void **, int *, const char *, uint64_t, int, int, int, ncclDebugLogger_t);
typedef ncclResult_t (*FleetInitV5)(void **, uint64_t, int *, const char *, int, int, int, ncclDebugLogger_t);

typedef FleetDescr<uint8_t> ncclProfilerEventDescr_v4_t;
typedef FleetDescr<uint64_t> ncclProfilerEventDescr_v5_t, ncclProfilerEventDescr_v6_t, ncclProfilerEventDescr_v7_t;
typedef FleetStateArgs ncclProfilerEventStateArgs_v4_t, ncclProfilerEventStateArgs_v5_t;
typedef FleetStateArgs ncclProfilerEventStateArgs_v6_t, ncclProfilerEventStateArgs_v7_t;
typedef FleetTable<FleetInitV4, ncclProfilerEventDescr_v4_t> ncclProfiler_v4_t;
typedef FleetTable<FleetInitV5, ncclProfilerEventDescr_v5_t> ncclProfiler_v5_t, ncclProfiler_v6_t, ncclProfiler_v7_t;
