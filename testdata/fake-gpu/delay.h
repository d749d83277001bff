// Ways for a rank to lose time on its host: `delay=RANK:KIND:MS` spends that long in every step in one of
//
//   spin    computing
//   lock    waiting for a mutex that another thread holds
//   pipe    reading a pipe that another thread writes to
//   tcp     reading a connection that another thread writes to
//   file    reading a file past the page cache, `file=FILE`
//   fault   touching a mapping of that file whose pages were dropped
//   irq     sending datagrams to itself, which arrive in software interrupts
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define DELAY_FILE_BYTES (16 << 20)

struct delay {
	char kind[16];
	double ms;
	const char *file;
	pthread_mutex_t lock;
	int wake[2];	   // tells the other thread to begin
	int from, to;	   // what it writes to, and the rank reads from
	int fd;
	char *map, *block;
};

static double delay_now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void *delay_other_thread(void *argument)
{
	struct delay *delay = argument;
	struct timespec pause = {.tv_sec = delay->ms / 1e3, .tv_nsec = (long)(delay->ms * 1e6) % 1000000000L};
	char byte;

	while (read(delay->wake[0], &byte, 1) == 1) {
		if (!strcmp(delay->kind, "lock")) {
			pthread_mutex_lock(&delay->lock);
			if (write(delay->from, &byte, 1) != 1)
				break;
			nanosleep(&pause, NULL);
			pthread_mutex_unlock(&delay->lock);
			continue;
		}
		nanosleep(&pause, NULL);
		if (write(delay->from, &byte, 1) != 1)
			break;
	}
	return NULL;
}

static int delay_connect(struct delay *delay)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(address);
	int type = !strcmp(delay->kind, "irq") ? SOCK_DGRAM : SOCK_STREAM;
	int listener = socket(AF_INET, type, 0);

	if (bind(listener, (void *)&address, length) || getsockname(listener, (void *)&address, &length))
		return -1;
	delay->from = socket(AF_INET, type, 0);
	if (type == SOCK_STREAM && listen(listener, 1))
		return -1;
	if (connect(delay->from, (void *)&address, length))
		return -1;
	delay->to = type == SOCK_STREAM ? accept(listener, NULL, NULL) : listener;
	return delay->to;
}

static int delay_open(struct delay *delay)
{
	pthread_t other;
	int pair[2];

	if (!strcmp(delay->kind, "spin"))
		return 0;
	if (!strcmp(delay->kind, "file") || !strcmp(delay->kind, "fault")) {
		int direct = !strcmp(delay->kind, "file") ? O_DIRECT : 0;
		delay->fd = open(delay->file, O_RDONLY | direct);
		delay->map = direct ? NULL : mmap(NULL, DELAY_FILE_BYTES, PROT_READ, MAP_SHARED, delay->fd, 0);
		return posix_memalign((void **)&delay->block, 4096, 1 << 20) || delay->fd < 0 || delay->map == MAP_FAILED;
	}
	if (!strcmp(delay->kind, "irq"))
		return delay_connect(delay) < 0;
	if (!strcmp(delay->kind, "tcp") ? delay_connect(delay) < 0 : pipe(pair))
		return 1;
	if (strcmp(delay->kind, "tcp"))
		delay->to = pair[0], delay->from = pair[1];
	pthread_mutex_init(&delay->lock, NULL);
	return pipe(delay->wake) || pthread_create(&other, NULL, delay_other_thread, delay);
}

static void delay_step(struct delay *delay)
{
	double end = delay_now_ms() + delay->ms;
	char byte = 0;

	if (!strcmp(delay->kind, "spin")) {
		while (delay_now_ms() < end)
			;
	} else if (!strcmp(delay->kind, "irq")) {
		while (delay_now_ms() < end)
			if (send(delay->from, delay->kind, sizeof(delay->kind), MSG_DONTWAIT) < 0)
				while (recv(delay->to, &byte, 1, MSG_DONTWAIT) > 0)
					;
	} else if (!strcmp(delay->kind, "file")) {
		for (off_t at = 0; delay_now_ms() < end; at = (at + (1 << 20)) % DELAY_FILE_BYTES)
			if (pread(delay->fd, delay->block, 1 << 20, at) < 0)
				break;
	} else if (!strcmp(delay->kind, "fault")) {
		while (delay_now_ms() < end) {
			madvise(delay->map, DELAY_FILE_BYTES, MADV_DONTNEED);
			posix_fadvise(delay->fd, 0, 0, POSIX_FADV_DONTNEED);
			for (int at = 0; at < DELAY_FILE_BYTES && delay_now_ms() < end; at += 1 << 16)
				byte += ((volatile char *)delay->map)[at];
		}
	} else {
		int ends = write(delay->wake[1], &byte, 1) != 1 || read(delay->to, &byte, 1) != 1;
		if (!ends && !strcmp(delay->kind, "lock")) {
			pthread_mutex_lock(&delay->lock);
			pthread_mutex_unlock(&delay->lock);
		}
	}
}
