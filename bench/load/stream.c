/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection: bulk both ways, one-byte round trips, requests at a fixed rate.
 */
#define _GNU_SOURCE
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void print_bulk(uint64_t bytes, nanos took)
{
	double mbit_s = (double)bytes * 8 / 1e6 / seconds(took);
	printf("{\"mbit_s\": %.1f, \"bytes\": %llu, \"seconds\": %.3f}\n", mbit_s, (unsigned long long)bytes,
	       seconds(took));
}

/* The server counts: what waits in the kernel's buffers does not look like sent. */
void run_up(const struct options *options)
{
	static char block[BLOCK], answer[32];
	int fd = tcp_connect(options);
	nanos start = now();
	send_all(fd, "up\n", 3);
	while (now() - start < options->duration)
		send_all(fd, block, sizeof(block));
	if (shutdown(fd, SHUT_WR))
		die("shutdown");
	size_t length = 0;
	for (size_t more; length < sizeof(answer) - 1; length += more)
		if (!(more = receive(fd, answer + length, sizeof(answer) - 1 - length)))
			break;
	nanos took = now() - start;
	if (!length)
		fail("up: the server gave no count");
	print_bulk(strtoull(answer, NULL, 10), took);
}

void run_down(const struct options *options)
{
	static const char request[] = "down 1099511627776\n"; /* 1 TiB: more than there is time for */
	static char block[BLOCK];
	int fd = tcp_connect(options);
	nanos start = now(), took;
	uint64_t bytes = 0;
	send_all(fd, request, sizeof(request) - 1);
	do {
		size_t more = receive(fd, block, sizeof(block));
		if (!more)
			fail("down: the server closed the connection too early");
		bytes += more;
		took = now() - start;
	} while (took < options->duration);
	print_bulk(bytes, took);
}

void run_rr(const struct options *options)
{
	struct samples samples = {0};
	char byte = 'x';
	int fd = tcp_connect(options);
	send_all(fd, "echo\n", 5);
	for (nanos start = now(), sent = start; sent - start < options->duration;) {
		send_all(fd, &byte, 1);
		receive_exactly(fd, &byte, 1);
		nanos answered = now();
		samples_add(&samples, answered - sent);
		sent = answered;
	}
	printf("{\"size\": 1");
	samples_print(&samples);
	puts("}");
}

/* Ahead of a bulk client on the same CPU: the server's delay is wanted, not the client's scheduler's. */
static int run_first(void)
{
	struct sched_param priority = {.sched_priority = 1};
	return sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
}

static void wait_readable(int fd, nanos until)
{
	struct pollfd poll = {.fd = fd, .events = POLLIN};
	nanos left = until - now();
	struct timespec timeout = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
	if (left > 0 && ppoll(&poll, 1, &timeout, NULL) < 0)
		die("poll");
}

/* Whatever there is; answers come in order, so counting bytes finds theirs. */
static size_t take_answers(int fd, char *room, size_t size)
{
	ssize_t received = recv(fd, room, size, MSG_DONTWAIT);
	if (received == 0)
		fail("paced: the server closed the connection too early");
	if (received < 0 && errno != EAGAIN)
		die("receive");
	return received > 0 ? (size_t)received : 0;
}

/* A late answer delays no request, and a request's time starts when it was due. */
void run_paced(const struct options *options)
{
	static char request[1400], room[BLOCK];
	struct samples samples = {0};
	size_t size = options->size, sent = 0, answered_bytes = 0;
	nanos interval = (nanos)(1e9 / options->rate);
	size_t total = (size_t)(options->duration / interval);
	int fd = tcp_connect(options), first = run_first();
	send_all(fd, "echo\n", 5);
	nanos start = now() + interval;
	while (samples.count < total) {
		nanos due = start + (nanos)sent * interval;
		if (sent < total && now() >= due) {
			send_all(fd, request, size);
			sent++;
			continue;
		}
		wait_readable(fd, sent < total ? due : now() + 1000000000);
		answered_bytes += take_answers(fd, room, sizeof(room));
		while (samples.count < answered_bytes / size)
			samples_add(&samples, now() - (start + (nanos)samples.count * interval));
	}
	printf("{\"rate\": %.0f, \"realtime\": %s", options->rate, first ? "true" : "false");
	samples_print(&samples);
	puts("}");
}
