// Stands in for libibverbs where there is no RDMA device: two versions of one function, as the real library has them. Each calls
// for its own file in the linker script.
#include <stdint.h>

struct ibv_async_event {
	uint64_t element;
	int event_type;
};

static volatile int acknowledged;

void ack_before(struct ibv_async_event *event)
{
	acknowledged = ~event->event_type;
}

void ack_now(struct ibv_async_event *event)
{
	acknowledged = event->event_type;
}

__asm__(".symver ack_before, ibv_ack_async_event@IBVERBS_1.0");
__asm__(".symver ack_now, ibv_ack_async_event@@IBVERBS_1.1");
