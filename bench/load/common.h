/* SPDX-License-Identifier: Apache-2.0
 *
 * The bench's client: what its sub-commands share. Every error ends the program with one line on stderr;
 * an alarm ends it when it takes much longer than it was asked to.
 */
#ifndef JUNEAU_LOAD_COMMON_H
#define JUNEAU_LOAD_COMMON_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BLOCK (256 * 1024) /* bulk: bytes a system call */
#define EPOLL_BATCH 256

typedef int64_t nanos; /* of the monotonic clock */

struct options {
	struct sockaddr_in server;
	nanos duration;
	int connections; /* -c */
	int window;      /* -w: datagrams in flight */
	size_t size;     /* -s: bytes of a request */
	double rate;     /* -r: requests a second */
};

/* Durations, kept whole so that percentiles are exact. */
struct samples {
	uint32_t *ns;
	size_t count, room;
};

nanos now(void);
double seconds(nanos duration);
_Noreturn void die(const char *what); /* with errno */
_Noreturn void fail(const char *what);
void *allocate(size_t bytes); /* zeroed */

void samples_add(struct samples *samples, nanos duration);
void samples_print(struct samples *samples); /* , "count": …, "p50_us": …, … "max_us": … */

int tcp_connect(const struct options *options);
int tcp_socket(void); /* non-blocking, without delay */
void send_all(int fd, const void *data, size_t size);
size_t receive(int fd, void *data, size_t room); /* 0 at the end */
void receive_exactly(int fd, void *data, size_t size);
void raise_file_limit(int connections);

void run_up(const struct options *options);
void run_down(const struct options *options);
void run_rr(const struct options *options);
void run_crr(const struct options *options);
void run_many(const struct options *options);
void run_idle(const struct options *options);
void run_paced(const struct options *options);
void run_udp(const struct options *options);

#endif
