// Ways for a rank to lose time on its host: `delay=RANK:KIND:MS` spends that long in every step in one of
//
//   spin    computing
//   lock    waiting for a mutex that another thread holds
//   pipe    reading a pipe that another thread writes to
//   tcp     reading a connection that another thread writes to
//   file    reading a file past the page cache, `file=FILE`
//   fault   touching a mapping of that file whose pages were dropped
//   irq     sending datagrams to itself, which arrive in software interrupts
//   memory  touching all pages of a mapping of that file, of which its memory limit holds a part only
//   loader  waiting for the only worker process that prepares its batches; other ranks have eight each
//   loss    reading 64 KiB from a socket in the network namespace `netns=FILE`, at 192.0.2.1; its own is in FILE-peer
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define DELAY_FILE_BYTES (16 << 20)
#define DELAY_LOSS_BYTES (64 << 10)

struct delay {
	char kind[16];
	double ms;
	const char *file, *netns;
	int workers;
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
		if (!strcmp(delay->kind, "loss") ? write(delay->from, delay->block, DELAY_LOSS_BYTES) != DELAY_LOSS_BYTES
						 : write(delay->from, &byte, 1) != 1)
			break;
	}
	return NULL;
}

// A worker prepares batches until its rank has ended.
static void delay_worker(struct delay *delay, int read_end)
{
	close(read_end);
	do
		usleep(delay->ms * 1e3);
	while (write(delay->from, "", 1) == 1);
	_exit(0);
}

static int delay_start_workers(struct delay *delay)
{
	int pair[2];

	if (pipe(pair))
		return 1;
	delay->to = pair[0], delay->from = pair[1];
	for (int worker = 0; worker < delay->workers; worker++)
		if (!fork())
			delay_worker(delay, pair[0]);
	return close(delay->from);
}

// Returns a socket in a network namespace, or in the own one without any.
static int delay_socket(const char *netns, const char *suffix, int type)
{
	int own = open("/proc/self/ns/net", O_RDONLY), other, made;
	char path[4096];

	if (!netns)
		return socket(AF_INET, type, 0);
	snprintf(path, sizeof(path), "%s%s", netns, suffix);
	other = open(path, O_RDONLY);
	if (setns(other, CLONE_NEWNET))
		return -1;
	made = socket(AF_INET, type, 0);
	return setns(own, CLONE_NEWNET) ? -1 : made;
}

static int delay_connect(struct delay *delay)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(address);
	int type = !strcmp(delay->kind, "irq") ? SOCK_DGRAM : SOCK_STREAM;
	int listener = delay_socket(delay->netns, "", type);

	if (delay->netns)
		inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
	if (bind(listener, (void *)&address, length) || getsockname(listener, (void *)&address, &length))
		return -1;
	delay->from = delay_socket(delay->netns, "-peer", type);
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
	if (!strcmp(delay->kind, "loader"))
		return delay_start_workers(delay);
	if (!strcmp(delay->kind, "file") || !strcmp(delay->kind, "fault") || !strcmp(delay->kind, "memory")) {
		int direct = !strcmp(delay->kind, "file") ? O_DIRECT : 0;
		delay->fd = open(delay->file, O_RDONLY | direct);
		delay->map = direct ? NULL : mmap(NULL, DELAY_FILE_BYTES, PROT_READ, MAP_SHARED, delay->fd, 0);
		if (!strcmp(delay->kind, "memory"))
			// Its own control group pays for the pages that it reads again.
			madvise(delay->map, DELAY_FILE_BYTES, MADV_RANDOM), fsync(delay->fd), posix_fadvise(delay->fd, 0, 0, POSIX_FADV_DONTNEED);
		return posix_memalign((void **)&delay->block, 4096, 1 << 20) || delay->fd < 0 || delay->map == MAP_FAILED;
	}
	if (!strcmp(delay->kind, "irq"))
		return delay_connect(delay) < 0;
	int is_tcp = !strcmp(delay->kind, "tcp") || !strcmp(delay->kind, "loss");
	if (is_tcp ? delay_connect(delay) < 0 : pipe(pair))
		return 1;
	if (!is_tcp)
		delay->to = pair[0], delay->from = pair[1];
	if (!(delay->block = calloc(1, DELAY_LOSS_BYTES)))
		return 1;
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
	} else if (!strcmp(delay->kind, "memory")) {
		while (delay_now_ms() < end)
			for (int at = 0; at < DELAY_FILE_BYTES && delay_now_ms() < end; at += 4096)
				byte += ((volatile char *)delay->map)[at];
	} else if (!strcmp(delay->kind, "loader")) {
		if (read(delay->to, &byte, 1) != 1)
			return;
	} else if (!strcmp(delay->kind, "loss")) {
		ssize_t n = write(delay->wake[1], &byte, 1) == 1 ? 1 : 0;
		char received[4096];
		for (ssize_t left = DELAY_LOSS_BYTES; n > 0 && left > 0; left -= n)
			n = read(delay->to, received, sizeof(received));
	} else {
		int ends = write(delay->wake[1], &byte, 1) != 1 || read(delay->to, &byte, 1) != 1;
		if (!ends && !strcmp(delay->kind, "lock")) {
			pthread_mutex_lock(&delay->lock);
			pthread_mutex_unlock(&delay->lock);
		}
	}
}
