"""CPython's own asyncio tests (Debian: libpython3.11-testsuite) on a network in a process.

python tests/foreign/cpython.py [-v] [--why] [MODULE…] [-k SUBSTRING]
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import unittest
import warnings

from adapt import Exclusions, Tally, install_asyncio, run_suite

from juneau.netstack.aio import Server

CONNECTING = (
    "test_streams",
    "test_server",
    "test_buffered_proto",
    "test_sslproto",
    "test_ssl",
    "test_sock_lowlevel",
    "test_sendfile",
    "test_events",
)
LOOP = (
    "test_tasks",
    "test_futures",
    "test_locks",
    "test_queues",
    "test_taskgroups",
    "test_timeouts",
    "test_waitfor",
    "test_runners",
    "test_threads",
    "test_pep492",
    "test_context",
)
"""They open nothing, but run on the loop: its order, its timers, its threads."""

VARIANTS = ("PollEventLoopTests", "SelectEventLoopTests")
"""The same tests on other selectors, of which ours has none: they would count every result three times."""

EXCLUDED: Exclusions = [
    (r"test_interrupt_", "a KeyboardInterrupt in the midst of a test: signals come from outside"),
    (
        r"pep492.LockTests|FutureTests.test_wrap_future$",
        "run a loop of their own with mocks: virtual time moves with ours only",
    ),
    (r"unix", "unix sockets: outside the network, refused"),
    (r"_pipe|pipe_|_pty", "pipes and terminals: outside the network, refused"),
    (r"subprocess|new_process", "processes: outside the network, refused"),
    (r"signal_handl", "signals come from outside; handlers are accepted and never called"),
    (r"ipv6|dual_stack", "IPv6: the stack is IPv4 only"),
    (r"multiple_hosts_ipv4", "replaces getaddrinfo and sockets by mocks for addresses that no host has"),
    (r"reuse_port", "SO_REUSEPORT: the stack has no shared listeners"),
    (r"test_create_server_sock$", "compares descriptors; there are none behind a server of ours"),
    (
        r"test_create_datagram_endpoint(_sock)?$",
        "wants UDP transports to be asyncio.Transport, CPython's own class tree",
    ),
    (r"prompt_cancellation", "calls the private _stop_serving of selector loops"),
    (r"timeout_rounding", "replaces the private _selector of selector loops"),
    (
        r"force_unsupported_native|prevents_bare_write",
        "about os.sendfile: our transport says that it has only the fallback",
    ),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=[*CONNECTING, *LOOP])
    parser.add_argument("--connecting", action="store_true", help="only the modules that open connections")
    parser.add_argument("-k", dest="only", default="", metavar="SUBSTRING")
    parser.add_argument("-v", action="store_true", help="name each test as it runs")
    parser.add_argument("--why", action="store_true", help="show failures in full, and each exclusion")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    install_asyncio()
    Server._sockets = property(lambda self: self._endpoints)  # type: ignore[attr-defined]  # test_server looks
    total = Tally()
    for name in CONNECTING if args.connecting else args.modules:
        module = importlib.import_module(f"test.test_asyncio.{name}")
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        tally = run_suite(suite, EXCLUDED, only=args.only, verbose=args.v, leave_out=VARIANTS)
        print(tally.line(name), flush=True)
        total.add(tally)
    print(total.line("cpython asyncio"))
    print(total.details(why=args.why), end="")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
