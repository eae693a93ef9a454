"""Libraries whose own tests run on a network in a process: versions, adaptations, exclusions."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from adapt import NETWORKS, Exclusions


@dataclass
class Suite:
    name: str
    version: str
    tests: str
    """Where they are in the source package."""
    needs: tuple[str, ...] = ()
    """What they import besides, from PyPI."""
    exclusions: Exclusions = field(default_factory=list)
    adapt: Callable[[], None] = lambda: None


def adapt_aiosmtpd() -> None:
    """Its controller runs a loop in a thread. Here the loop is the network's and turns whenever anybody
    blocks, so the thread only asks it and waits.
    """
    from aiosmtpd import controller

    socket.getfqdn = lambda name="": name or "here"  # its tests ask once, before there is a network
    controller.makesock = lambda *args: socket.socket(*args)  # it took the class before there was a network
    base: Any = controller.BaseThreadedController
    cancel_tasks = base.cancel_tasks

    def run(self: Any, ready: threading.Event) -> None:
        self.adapted_stop = threading.Event()
        try:
            self.server_coro = self._create_server()
            self.server = asyncio.run_coroutine_threadsafe(self.server_coro, self.loop).result()
        except Exception as error:  # noqa: BLE001 (as the original)
            self._thread_exception = error
            return
        self.loop.call_soon_threadsafe(ready.set)
        self.adapted_stop.wait()
        self.server.close()
        self.server = None

    def cancel(self: Any, stop_loop: bool = True) -> None:
        cancel_tasks(self, stop_loop=False)
        self.adapted_stop.set()

    base._run, base.cancel_tasks = run, cancel
    NETWORKS.share = True


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            name="aiosmtpd",
            version="1.4.6",
            tests="aiosmtpd/tests",
            needs=("pytest-mock",),
            adapt=adapt_aiosmtpd,
            exclusions=[
                (r"(?i)unixsocket", "unix sockets: outside the network, refused"),
                (r"test_lmtp", "one server for several tests; each test has its own network"),
                (
                    r"TestProxy::test_deliver",
                    "a blocking client in one loop, its server on another: ours is one",
                ),
                (
                    r"test_(ready|factory)_timeout|test_testconn_raises",
                    "times and breaks the controller's thread, which the adaptation replaces",
                ),
                (
                    r"test_inet_(loop|cont)stop",
                    "asks is_running() of another thread's loop; ours turns only while somebody waits",
                ),
                (r"TestMainByWatcher", "starts processes: outside the network"),
            ],
        ),
        Suite(
            name="aioftp",
            version="0.28.3",
            tests="tests",
            needs=("pytest-mock", "async_timeout", "siosocks", "trustme"),
            exclusions=[
                (r"\[::1|socks1\]|ipv6_pasv", "IPv6: the stack is IPv4 only"),
                (
                    r"test_stat_mlst",
                    "compares datetime.now() (real) with time.time() (virtual)",
                ),
            ],
        ),
    )
}
