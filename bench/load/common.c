/* SPDX-License-Identifier: Apache-2.0 */
#include "common.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

nanos now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (nanos)t.tv_sec * 1000000000 + t.tv_nsec;
}

double seconds(nanos duration)
{
	return (double)duration / 1e9;
}

void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	exit(1);
}

void *allocate(size_t bytes)
{
	void *memory = calloc(1, bytes);
	if (!memory)
		die("allocate");
	return memory;
}

void samples_add(struct samples *samples, nanos duration)
{
	if (samples->count == samples->room) {
		samples->room = samples->room ? 2 * samples->room : 65536;
		samples->ns = realloc(samples->ns, samples->room * sizeof(*samples->ns));
		if (!samples->ns)
			die("allocate");
	}
	samples->ns[samples->count++] = duration < UINT32_MAX ? (uint32_t)duration : UINT32_MAX;
}

static int by_size(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
	return (a > b) - (a < b);
}

/* The smallest sample that `share` of all do not exceed. */
static double percentile_us(const struct samples *samples, double share)
{
	size_t rank = (size_t)(share * (double)samples->count);
	return samples->ns[rank < samples->count ? rank : samples->count - 1] / 1e3;
}

void samples_print(struct samples *samples)
{
	static const struct {
		const char *name;
		double share;
	} wanted[] = {{"min", 0}, {"p50", .5}, {"p90", .9}, {"p99", .99}, {"p999", .999}, {"max", 1}};

	printf(", \"count\": %zu", samples->count);
	if (!samples->count)
		return;
	qsort(samples->ns, samples->count, sizeof(*samples->ns), by_size);
	for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++)
		printf(", \"%s_us\": %.1f", wanted[i].name, percentile_us(samples, wanted[i].share));
}

static void no_delay(int fd)
{
	int on = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)))
		die("TCP_NODELAY");
}

int tcp_connect(const struct options *options)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("socket");
	no_delay(fd);
	if (connect(fd, (const struct sockaddr *)&options->server, sizeof(options->server)))
		die("connect");
	return fd;
}

int tcp_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("socket");
	no_delay(fd);
	return fd;
}

void send_all(int fd, const void *data, size_t size)
{
	for (const char *at = data; size;) {
		ssize_t sent = send(fd, at, size, MSG_NOSIGNAL);
		if (sent < 0)
			die("send");
		at += sent;
		size -= (size_t)sent;
	}
}

size_t receive(int fd, void *data, size_t room)
{
	ssize_t received = recv(fd, data, room, 0);
	if (received < 0)
		die("receive");
	return (size_t)received;
}

void receive_exactly(int fd, void *data, size_t size)
{
	for (char *at = data; size;) {
		size_t received = receive(fd, at, size);
		if (!received)
			fail("receive: the server closed the connection too early");
		at += received;
		size -= received;
	}
}

void raise_file_limit(int connections)
{
	struct rlimit limit;
	rlim_t wanted = (rlim_t)connections + 64;
	if (getrlimit(RLIMIT_NOFILE, &limit))
		die("getrlimit");
	if (limit.rlim_cur >= wanted)
		return;
	limit.rlim_cur = wanted;
	if (limit.rlim_max < wanted)
		limit.rlim_max = wanted;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		die("raise the limit of open files");
}
