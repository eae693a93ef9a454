"""One task per connection around a handler, and everything a handler must not be trusted with.

Whatever it does (raise, return early, never return, exit), only its own connection pays: errors are
logged with the tenant and counted, the connection is closed or reset, limits hold.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from juneau.netstack.aio.streams import StreamProtocol, StreamReader
from juneau.services.limits import TcpLimits
from juneau.services.log import Reporter
from juneau.services.workers import cancel_and_wait

StreamHandler: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

log = logging.getLogger(__name__)

IDLE_CHECKS: Final = 4
"""Sweeps per idle limit: a connection is found idle at most a quarter late."""
_TASK_NAME: Final = "stream handler"  # one string; Python would number them


class StreamBinding:
    """All connections of one binding: `protocol()` is the factory to listen with."""

    def __init__(
        self,
        handle: StreamHandler,
        *,
        limit: int,
        limits: TcpLimits,
        events: Counter[str],
        reporter: Reporter,
    ) -> None:
        self.handle, self.limit, self.limits = handle, limit, limits
        self.events, self.reporter = events, reporter
        self.connections: set[Connection] = set()
        self._per_client: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._sweep: asyncio.TimerHandle | None = None
        self._arm()

    def protocol(self) -> Connection:
        return Connection(self, self._loop)

    def admit(self, connection: Connection) -> str:
        """Count `connection` in; otherwise the name of the limit it meets."""
        if len(self.connections) >= self.limits.connections:
            return "tcp.refused_connections"
        if self._per_client[connection.client_ip] >= self.limits.connections_per_client:
            return "tcp.refused_per_client"
        self.connections.add(connection)
        self._per_client[connection.client_ip] += 1
        return ""

    def leave(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.remove(connection)
        if not self.connections:
            self.connections = set()  # an emptied one keeps its room
        self._per_client[connection.client_ip] -= 1
        if not self._per_client[connection.client_ip]:
            del self._per_client[connection.client_ip]

    def abort(self) -> set[asyncio.Task[None]]:
        """Reset every connection, at once; the tasks are left to `wait`."""
        if self._sweep is not None:
            self._sweep.cancel()
        tasks = {c.task for c in self.connections if c.task is not None}
        for connection in list(self.connections):
            connection.abort()
        return tasks

    async def wait(self, tasks: set[asyncio.Task[None]]) -> None:
        if stubborn := await cancel_and_wait(tasks):
            self.events["tcp.handler_would_not_stop"] += stubborn

    def _arm(self) -> None:
        if self.limits.idle_s > 0:
            self._sweep = self._loop.call_later(self.limits.idle_s / IDLE_CHECKS, self._abort_idle)

    def _abort_idle(self) -> None:
        for connection in list(self.connections):
            if connection.idle_checks() >= IDLE_CHECKS:
                self.events["tcp.handler_outlived" if connection.lost else "tcp.idle"] += 1
                connection.abort()
        self._arm()


class Connection(StreamProtocol):
    """The streams' own protocol, with admission, isolation and an eye on progress."""

    transport: Any = None
    task: asyncio.Task[None] | None = None
    client_ip = ""
    lost = False
    _over = False  # the handler is
    _seen = -1
    _unchanged = 0

    def __init__(self, binding: StreamBinding, loop: asyncio.AbstractEventLoop) -> None:
        reader = StreamReader(limit=binding.limit, loop=loop)
        super().__init__(reader, None, loop)
        self.serve(reader)
        self._binding = binding

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.client_ip = str((transport.get_extra_info("peername") or ("",))[0])
        refused = self._binding.admit(self)
        if refused:
            self._binding.events[refused] += 1
            transport.abort()  # type: ignore[attr-defined]
            return
        self._binding.events["tcp.accepted"] += 1
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if _is_quota(exc):
            self._failed(str(exc))  # the handler need not notice: it may have returned long ago
        self._leave_if_over()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Reset, and cancel the handler: also one that outlives its connection."""
        self.transport.abort()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()

    def idle_checks(self) -> int:
        """How many sweeps in a row have seen no byte move."""
        seen: int = self.transport.get_extra_info("tcp_progress")
        self._unchanged = self._unchanged + 1 if seen == self._seen else 0
        self._seen = seen
        return self._unchanged

    def started(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.task = self._loop.create_task(self._serve(reader, writer), name=_TASK_NAME)

    def _leave_if_over(self) -> None:
        """A slot is free again when both the connection and its handler are gone."""
        if self.lost and (self._over or self.task is None or self.task.done()):
            self._binding.leave(self)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._binding.handle(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._failed("handler cancelled itself")
        except BaseException as error:  # noqa: BLE001 - isolation: any handler's any error
            self._on_error(error)
            writer.transport.abort()
        else:
            self._binding.events["tcp.served"] += 1
            writer.close()
        finally:
            self._over = True  # but for the last step of the task
            self._leave_if_over()

    def _on_error(self, error: BaseException) -> None:
        if self.lost and isinstance(error, (ConnectionError, EOFError)):
            self._binding.events["tcp.client_gone"] += 1  # the Pod's doing, not the handler's
            return
        if self.lost and _is_quota(error):
            return  # told already
        self._failed(repr(error), error)

    def _failed(self, what: str, error: BaseException | None = None) -> None:
        self._binding.events["tcp.handler_errors"] += 1
        self._binding.reporter.error(f"handler failed: {what}", client=self.client_ip, error=error)


def _is_quota(error: BaseException | None) -> bool:
    """The stack has reset the connection: too much was written without `drain`."""
    return isinstance(error, OSError) and error.errno == errno.ENOBUFS
