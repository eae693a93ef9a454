/* SPDX-License-Identifier: Apache-2.0
 *
 * load COMMAND ADDRESS PORT SECONDS [-c CONNECTIONS] [-w WINDOW] [-s BYTES] [-r RATE]
 *
 * One load for every peer of the bench; prints one line of JSON. The server is bench/handler.py: the first
 * line of a connection says what the client wants (up, down N, echo).
 */
#include "common.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRACE_S 30 /* beyond SECONDS, before the alarm */

static const struct {
	const char *name;
	void (*run)(const struct options *);
	const char *what;
} COMMANDS[] = {
	{"up", run_up, "send for SECONDS, half-close, read the server's count"},
	{"down", run_down, "receive for SECONDS"},
	{"rr", run_rr, "one byte there and back, again and again"},
	{"crr", run_crr, "connect, one byte there and back, close; -c at once"},
	{"many", run_many, "requests of -s bytes on -c connections, one in flight on each"},
	{"idle", run_idle, "open -c connections, say so, hold them until stdin ends or SECONDS are over"},
	{"paced", run_paced, "-r requests of -s bytes a second, each on time whatever became of the last"},
	{"udp", run_udp, "datagrams of -s bytes, -w in flight"},
};
#define N_COMMANDS (sizeof(COMMANDS) / sizeof(*COMMANDS))

static _Noreturn void usage(void)
{
	fputs("load COMMAND ADDRESS PORT SECONDS [-c CONNECTIONS] [-w WINDOW] [-s BYTES] [-r RATE]\n", stderr);
	for (size_t i = 0; i < N_COMMANDS; i++)
		fprintf(stderr, "  %-6s %s\n", COMMANDS[i].name, COMMANDS[i].what);
	exit(2);
}

static void on_alarm(int signal)
{
	static const char text[] = "not over in time: the server does not answer\n";
	(void)signal;
	if (write(2, text, sizeof(text) - 1) < 0)
		_exit(4);
	_exit(3);
}

static void parse_options(int argc, char **argv, struct options *options)
{
	for (int option; (option = getopt(argc, argv, "c:w:s:r:")) != -1;) {
		switch (option) {
		case 'c': options->connections = atoi(optarg); break;
		case 'w': options->window = atoi(optarg); break;
		case 's': options->size = (size_t)atol(optarg); break;
		case 'r': options->rate = atof(optarg); break;
		default: usage();
		}
	}
	if (options->connections < 1 || options->window < 1 || options->rate <= 0)
		fail("-c, -w and -r must be positive");
	if (options->size < 16 || options->size > 1400)
		fail("-s: allowed 16..1400");
}

int main(int argc, char **argv)
{
	struct options options = {.connections = 1, .window = 64, .size = 64, .rate = 1000};
	if (argc < 5)
		usage();
	options.server.sin_family = AF_INET;
	options.server.sin_port = htons((uint16_t)atoi(argv[3]));
	if (inet_pton(AF_INET, argv[2], &options.server.sin_addr) != 1)
		fail("ADDRESS: not an IPv4 address");
	options.duration = (nanos)(atof(argv[4]) * 1e9);
	if (options.duration <= 0 || options.duration > (nanos)600 * 1000000000)
		fail("SECONDS: allowed above 0, at most 600");
	parse_options(argc - 4, argv + 4, &options);
	signal(SIGALRM, on_alarm);
	alarm((unsigned)seconds(options.duration) + GRACE_S);
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (!strcmp(argv[1], COMMANDS[i].name)) {
			COMMANDS[i].run(&options);
			return 0;
		}
	}
	usage();
}
