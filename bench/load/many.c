/* SPDX-License-Identifier: Apache-2.0
 *
 * Many connections at once: requests on all of them, connect-request-close, and such as only stay open.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct client {
	int fd;
	size_t answered; /* bytes of the request in flight */
	nanos since;
};

static void watch(int epoll, struct client *client, uint32_t events, int how)
{
	struct epoll_event event = {.events = events, .data.ptr = client};
	if (epoll_ctl(epoll, how, client->fd, &event))
		die("epoll_ctl");
}

static int new_epoll(void)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	if (epoll < 0)
		die("epoll_create");
	return epoll;
}

/* -1: nothing yet. */
static ssize_t receive_now(int fd, void *room, size_t size)
{
	ssize_t received = recv(fd, room, size, MSG_DONTWAIT);
	if (received < 0 && errno == EAGAIN)
		return -1;
	if (received < 0)
		die("receive");
	if (!received)
		fail("receive: the server closed the connection too early");
	return received;
}

static void print_rate(uint64_t count, nanos took, struct samples *samples)
{
	printf("{\"per_s\": %.1f, \"seconds\": %.3f", (double)count / seconds(took), seconds(took));
	samples_print(samples);
	puts("}");
}

/* --- requests on connections that stay ---------------------------------------------------------------- */

static char request[1400] = "";

static void ask(struct client *client, size_t size)
{
	client->answered = 0;
	client->since = now();
	send_all(client->fd, request, size);
}

/* True once the whole answer is there. */
static int take_answer(struct client *client, size_t size, struct samples *samples)
{
	char room[1400];
	ssize_t received = receive_now(client->fd, room, size - client->answered);
	if (received < 0)
		return 0;
	client->answered += (size_t)received;
	if (client->answered < size)
		return 0;
	samples_add(samples, now() - client->since);
	return 1;
}

void run_many(const struct options *options)
{
	int n = options->connections, epoll = new_epoll();
	struct client *clients = allocate((size_t)n * sizeof(*clients));
	struct samples samples = {0};
	raise_file_limit(n);
	for (int i = 0; i < n; i++) {
		clients[i].fd = tcp_connect(options);
		send_all(clients[i].fd, "echo\n", 5);
		watch(epoll, &clients[i], EPOLLIN, EPOLL_CTL_ADD);
	}
	nanos start = now();
	for (int i = 0; i < n; i++)
		ask(&clients[i], options->size);
	while (now() - start < options->duration) {
		struct epoll_event events[EPOLL_BATCH];
		int ready = epoll_wait(epoll, events, EPOLL_BATCH, 100);
		for (int i = 0; i < ready; i++)
			if (take_answer(events[i].data.ptr, options->size, &samples))
				ask(events[i].data.ptr, options->size);
	}
	print_rate(samples.count, now() - start, &samples);
}

/* --- connect, request, close ---------------------------------------------------------------------------- */

static const char HELLO[] = "echo\nx";

/* Connecting takes as long as it takes: the first event says that it is done, or why it failed. */
static void open_one(int epoll, struct client *client, const struct options *options)
{
	client->fd = tcp_socket();
	client->answered = 0;
	client->since = now();
	if (connect(client->fd, (const struct sockaddr *)&options->server, sizeof(options->server)) &&
	    errno != EINPROGRESS)
		die("connect");
	watch(epoll, client, EPOLLOUT, EPOLL_CTL_ADD);
}

static void on_connected(int epoll, struct client *client)
{
	int error = 0;
	socklen_t size = sizeof(error);
	getsockopt(client->fd, SOL_SOCKET, SO_ERROR, &error, &size);
	if (error) {
		errno = error;
		die("connect");
	}
	send_all(client->fd, HELLO, sizeof(HELLO) - 1);
	watch(epoll, client, EPOLLIN, EPOLL_CTL_MOD);
}

static void run_crr_at_once(const struct options *options)
{
	int n = options->connections, epoll = new_epoll();
	struct client *clients = allocate((size_t)n * sizeof(*clients));
	struct samples samples = {0};
	raise_file_limit(n);
	nanos start = now();
	for (int i = 0; i < n; i++)
		open_one(epoll, &clients[i], options);
	while (now() - start < options->duration) {
		struct epoll_event events[EPOLL_BATCH];
		int ready = epoll_wait(epoll, events, EPOLL_BATCH, 100);
		for (int i = 0; i < ready; i++) {
			struct client *client = events[i].data.ptr;
			if (events[i].events & EPOLLOUT) {
				on_connected(epoll, client);
			} else if (take_answer(client, 1, &samples)) {
				close(client->fd);
				open_one(epoll, client, options);
			}
		}
	}
	print_rate(samples.count, now() - start, &samples);
}

static void run_crr_in_a_row(const struct options *options)
{
	struct samples samples = {0};
	char byte;
	nanos start = now(), at = start;
	while (at - start < options->duration) {
		int fd = tcp_connect(options);
		send_all(fd, HELLO, sizeof(HELLO) - 1);
		receive_exactly(fd, &byte, 1);
		close(fd);
		nanos done = now();
		samples_add(&samples, done - at);
		at = done;
	}
	print_rate(samples.count, at - start, &samples);
}

void run_crr(const struct options *options)
{
	if (options->connections > 1)
		run_crr_at_once(options);
	else
		run_crr_in_a_row(options);
}

/* --- idle -------------------------------------------------------------------------------------------------- */

/* Each has been served once, so that the server's handler exists and waits. */
void run_idle(const struct options *options)
{
	struct pollfd in = {.fd = 0, .events = POLLIN};
	char byte;
	nanos start = now();
	raise_file_limit(options->connections);
	for (int i = 0; i < options->connections; i++) {
		int fd = tcp_connect(options);
		send_all(fd, HELLO, sizeof(HELLO) - 1);
		receive_exactly(fd, &byte, 1);
	}
	printf("{\"open\": %d, \"seconds\": %.3f}\n", options->connections, seconds(now() - start));
	fflush(stdout);
	poll(&in, 1, (int)(options->duration / 1000000));
}
