/* SPDX-License-Identifier: Apache-2.0
 *
 * Echoed datagrams, a fixed number in flight. Each carries the time it was sent.
 */
#include "common.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define LOST_AFTER_MS 200 /* of silence: whatever is in flight is taken for lost */

struct flight {
	int fd, in_air;
	uint64_t sent, received;
	struct samples samples;
};

static void send_up_to(struct flight *flight, const struct options *options)
{
	char datagram[1400] = {0};
	while (flight->in_air < options->window) {
		nanos at = now();
		memcpy(datagram, &at, sizeof(at));
		if (send(flight->fd, datagram, options->size, MSG_DONTWAIT) < 0) {
			if (errno == EAGAIN || errno == ENOBUFS)
				return;
			die("send");
		}
		flight->sent++;
		flight->in_air++;
	}
}

static void take_all(struct flight *flight, const struct options *options)
{
	char room[1500];
	nanos at;
	for (ssize_t size; (size = recv(flight->fd, room, sizeof(room), MSG_DONTWAIT)) >= 0;) {
		if ((size_t)size != options->size)
			fail("udp: the answer is not as long as the request");
		memcpy(&at, room, sizeof(at));
		samples_add(&flight->samples, now() - at);
		flight->received++;
		if (flight->in_air > 0) /* one that was given up came after all */
			flight->in_air--;
	}
	if (errno != EAGAIN)
		die("receive");
}

static void fly(struct flight *flight, const struct options *options, nanos start)
{
	struct pollfd poll_in = {.fd = flight->fd, .events = POLLIN};
	while (now() - start < options->duration) {
		send_up_to(flight, options);
		if (poll(&poll_in, 1, LOST_AFTER_MS) == 0)
			flight->in_air = 0;
		take_all(flight, options);
	}
}

void run_udp(const struct options *options)
{
	struct flight flight = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
	if (flight.fd < 0 || connect(flight.fd, (const struct sockaddr *)&options->server, sizeof(options->server)))
		die("socket");
	nanos start = now();
	fly(&flight, options, start);
	nanos took = now() - start;
	uint64_t lost = flight.sent - flight.received - (uint64_t)flight.in_air;
	if (flight.received + (uint64_t)flight.in_air > flight.sent) /* late answers, counted as lost before */
		lost = 0;
	printf("{\"per_s\": %.1f, \"seconds\": %.3f, \"sent\": %llu, \"received\": %llu, \"lost\": %llu",
	       (double)flight.received / seconds(took), seconds(took), (unsigned long long)flight.sent,
	       (unsigned long long)flight.received, (unsigned long long)lost);
	samples_print(&flight.samples);
	puts("}");
}
