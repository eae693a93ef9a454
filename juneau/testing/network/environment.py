"""While a network runs, the process around its programs is the network's: time, chance, names, sockets
and threads. Only the network's own threads see that; everything is put back afterwards.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import random
import select
import selectors
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from socket import socket as RealSocket
from typing import TYPE_CHECKING, Any, Final

from juneau.netstack.types import SECOND, format_ip
from juneau.testing.network.capture import EPOCH
from juneau.testing.network.claims import socketpair
from juneau.testing.network.host import current_boot
from juneau.testing.network.readiness import SimSelector, sim_select
from juneau.testing.network.sockets import SimSocket
from juneau.testing.network.threads import REAL_JOIN, REAL_START
from juneau.testing.network.tls import wrap_socket

if TYPE_CHECKING:
    from juneau.testing.network.network import Network

_MISSING: Final = object()
_REAL_SLEEP: Final = time.sleep
_REAL_WRAP: Final = ssl.SSLContext.wrap_socket
_REAL_WAIT: Final = threading.Condition.wait


class Environment:
    """`patch` False: nothing is replaced, and programs must ask the loop for time and connections."""

    def __init__(self, network: Network, *, patch: bool = True) -> None:
        self._network = network
        self._patch = patch
        self._depth = 0
        self._owner = 0
        self._saved: list[tuple[Any, str, Any]] = []
        self._entropy = Random(f"{network.seed}/urandom")
        self._chance: Any = Random(f"{network.seed}/random").getstate()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """May be nested."""
        self._depth += 1
        outside: Any = None
        if self._depth == 1 and self._patch:
            self._owner = threading.get_ident()
            outside = random.getstate()
            random.setstate(self._chance)
            self._install()
        try:
            yield
        finally:
            self._depth -= 1
            if self._depth == 0 and self._patch:
                self._restore()
                self._chance = random.getstate()
                random.setstate(outside)

    def _ours(self) -> bool:
        """Whether the calling thread is one of the network's."""
        threads = self._network.threads
        if threads.starting:  # Thread.start waits for the new thread, which takes real time
            return False
        return threading.get_ident() == self._owner or threads.takes_turns()

    def _replace(self, module: Any, name: str, value: Any) -> None:
        self._saved.append((module, name, getattr(module, name, _MISSING)))
        setattr(module, name, value)

    def _replace_call(self, module: Any, name: str, ours: Callable[..., Any]) -> None:
        """`ours` for the network's threads, what was there for all others."""
        theirs = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            return ours(*args, **kwargs) if self._ours() else theirs(*args, **kwargs)

        self._replace(module, name, call)

    def _restore(self) -> None:
        for module, name, value in reversed(self._saved):
            setattr(module, name, value)
        self._saved.clear()

    def _install(self) -> None:
        self._install_time()
        self._install_chance()
        self._install_sockets()
        self._install_threads()

    def _install_time(self) -> None:
        clock = self._network.clock
        for name in ("monotonic", "perf_counter"):
            self._replace_call(time, name, lambda: clock.now / SECOND)
            self._replace_call(time, f"{name}_ns", lambda: clock.now * 1000)
        self._replace_call(time, "time", lambda: (EPOCH + clock.now) / SECOND)
        self._replace_call(time, "time_ns", lambda: (EPOCH + clock.now) * 1000)
        self._replace_call(time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        """On a thread, wait; in the loop, stall it: what is due meanwhile comes late."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        if seconds == 0 and not self._network.threads.takes_turns():
            _REAL_SLEEP(0)  # lets threads from outside run
        else:
            self._network.threads.block(lambda: False, seconds, "time.sleep")

    def _install_chance(self) -> None:
        self._replace_call(os, "urandom", self._entropy.randbytes)
        self._replace_call(random, "_urandom", self._entropy.randbytes)

    def _install_sockets(self) -> None:
        names = self._network.names
        self._replace(socket, "socket", _socket_class(self._ours))
        self._replace_call(socket, "getaddrinfo", names.getaddrinfo)
        self._replace_call(socket, "getnameinfo", names.getnameinfo)
        self._replace_call(socket, "gethostbyname", lambda host: format_ip(names.resolve(host)[0]))
        self._replace_call(socket, "gethostname", lambda: current_boot().host.name)
        self._replace_call(socket, "getfqdn", lambda name="": name or current_boot().host.name)
        self._replace_call(socket, "socketpair", socketpair)
        self._replace_call(select, "select", sim_select)
        self._replace(ssl.SSLContext, "wrap_socket", _wrap_socket)
        for module, name in (
            (selectors, "DefaultSelector"),
            (selectors, "PollSelector"),
            (selectors, "SelectSelector"),
            (socketserver, "_ServerSelector"),
        ):
            self._replace_call(module, name, SimSelector)

    def _install_threads(self) -> None:
        threads = self._network.threads
        real_alive = threading.Thread.is_alive

        def start(thread: threading.Thread) -> None:
            if self._ours():
                threads.start(thread)
            else:
                REAL_START(thread)

        def join(thread: threading.Thread, timeout: float | None = None) -> None:
            if not (self._ours() and threads.join(thread, timeout)):
                REAL_JOIN(thread, timeout)

        def is_alive(thread: threading.Thread) -> bool:
            return real_alive(thread) and not threads.is_done(thread)

        def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            if self._ours():
                return _wait_in_turns(self._network, condition, timeout)
            return _REAL_WAIT(condition, timeout)

        self._replace(threading.Thread, "start", start)
        self._replace(threading.Thread, "join", join)
        self._replace(threading.Thread, "is_alive", is_alive)
        self._replace(threading.Condition, "wait", wait)
        self._replace_call(threading, "Lock", lambda: _Lock(self._network, self._ours))
        self._replace(queue, "SimpleQueue", queue._PySimpleQueue)  # type: ignore[attr-defined]


def _socket_class(ours: Callable[[], bool]) -> type[socket.socket]:
    """A class that makes simulated sockets for the network's threads; both kinds are its instances."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, RealSocket)

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not Chosen:
                return super().__call__(*args, **kwargs)
            return (SimSocket if ours() else RealSocket)(*args, **kwargs)

    class Chosen(RealSocket, metaclass=Meta):
        pass

    Chosen.__name__ = Chosen.__qualname__ = "socket"
    return Chosen


def _wrap_socket(context: ssl.SSLContext, sock: socket.socket, *args: Any, **kwargs: Any) -> Any:
    simulated = SimSocket.by_number.get(sock.fileno())  # also of a wrapper around one
    if simulated is not None:
        return wrap_socket(context, simulated, *args, **kwargs)
    return _REAL_WRAP(context, sock, *args, **kwargs)


class _Lock:
    """A lock for which the network's threads wait in turns, and any other as ever."""

    def __init__(self, network: Network, ours: Callable[[], bool]) -> None:
        self._network, self._ours = network, ours
        self._lock = _thread.allocate_lock()
        self.release, self.locked = self._lock.release, self._lock.locked
        self._at_fork_reinit = getattr(self._lock, "_at_fork_reinit", None)  # concurrent.futures asks for it

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        if self._lock.acquire(False):
            return True
        if not blocking or not self._ours():
            return self._lock.acquire(blocking, timeout)
        limit = None if timeout < 0 else timeout
        self._network.threads.block(lambda: not self.locked(), limit, "a lock")
        return self._lock.acquire(False)

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


class _Waiter:
    """What `Condition.notify` releases."""

    def __init__(self) -> None:
        self.notified = False

    def release(self) -> None:
        self.notified = True


def _wait_in_turns(network: Network, condition: Any, timeout: float | None) -> bool:
    """`Condition.wait` that lets the network go on."""
    if not condition._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = _Waiter()
    condition._waiters.append(waiter)
    saved = condition._release_save()
    try:
        return network.threads.block(lambda: waiter.notified, timeout, "a threading primitive")
    finally:
        condition._acquire_restore(saved)
        if not waiter.notified:
            with contextlib.suppress(ValueError):
                condition._waiters.remove(waiter)
