"""`loop.sock_*`, `add_reader` and `add_writer`, for programs that keep their sockets to themselves."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from juneau.netstack.aio.connect import wake
from juneau.netstack.aio.errors import os_error
from juneau.testing.network.loop import VirtualLoop
from juneau.testing.network.readiness import socket_of
from juneau.testing.network.sockets import SimSocket

CHUNK: Final = 64 * 1024
"""Bytes of a file in memory while `sock_sendfile` sends it."""

Watched = dict[int, tuple[SimSocket, asyncio.Handle]]


class SocketLoop(VirtualLoop):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._readers: Watched = {}
        self._writers: Watched = {}

    # Watching

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        """Level-triggered, as asyncio's. Raises Misuse for what is no socket of this network."""
        self._add(self._readers, fd, callback, args)

    def remove_reader(self, fd: Any) -> bool:
        return self._remove(self._readers, fd)

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        self._add(self._writers, fd, callback, args)

    def remove_writer(self, fd: Any) -> bool:
        return self._remove(self._writers, fd)

    def _add(self, watched: Watched, fd: Any, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._check_closed()
        sock = socket_of(fd)
        self._remove(watched, sock)
        watched[sock.number] = sock, asyncio.Handle(callback, args, self, None)

    def _remove(self, watched: Watched, fd: Any) -> bool:
        number = fd if isinstance(fd, int) else fd.number if isinstance(fd, SimSocket) else fd.fileno()
        entry = watched.pop(number, None)
        if entry is None:
            return False
        entry[1].cancel()
        return True

    def close(self) -> None:
        super().close()
        self._readers.clear()
        self._writers.clear()

    def _poll(self) -> None:
        for sock, handle in self._readers.values():
            if sock.can_read():
                self._ready.append(handle)
        for sock, handle in self._writers.values():
            if sock.can_write():
                self._ready.append(handle)

    # Calls

    async def sock_recv(self, sock: Any, n: int) -> bytes:
        return await self._when_ready(sock, "can_read", "recv", n)  # type: ignore[no-any-return]

    async def sock_recv_into(self, sock: Any, buf: Any) -> int:
        return await self._when_ready(sock, "can_read", "recv_into", buf)  # type: ignore[no-any-return]

    async def sock_recvfrom(self, sock: Any, bufsize: int) -> Any:
        return await self._when_ready(sock, "can_read", "recvfrom", bufsize)

    async def sock_recvfrom_into(self, sock: Any, buf: Any, nbytes: int = 0) -> Any:
        if nbytes > len(buf):
            raise ValueError("nbytes is greater than buffer size")
        return await self._when_ready(sock, "can_read", "recvfrom_into", buf, nbytes or len(buf))

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        view = memoryview(data).cast("B")
        sent = 0
        while sent < len(view):
            sent += await self._when_ready(sock, "can_write", "send", view[sent:])

    async def sock_sendto(self, sock: Any, data: Any, address: Any) -> int:
        return await self._when_ready(sock, "can_write", "sendto", data, address)  # type: ignore[no-any-return]

    async def sock_accept(self, sock: Any) -> Any:
        conn, address = await self._when_ready(sock, "can_read", "accept")
        conn.setblocking(False)
        return conn, address

    async def sock_connect(self, sock: Any, address: Any) -> None:
        self._check_sock(sock)
        try:
            sock.connect(address)
            return
        except BlockingIOError:
            pass
        await self._until(sock, sock.settled)
        error = sock.take_error()
        if error:
            raise os_error(error, f"Connect call failed {address}")

    async def sock_sendfile(  # type: ignore[override]
        self, sock: Any, file: Any, offset: int = 0, count: int | None = None, *, fallback: bool = True
    ) -> int:
        """Always the fallback: there is no kernel to hand the file to."""
        self._check_sock(sock)
        self._check_sendfile_params(sock, file, offset, count)  # type: ignore[attr-defined]
        if not fallback:
            raise asyncio.SendfileNotAvailableError("no kernel is behind this network's sockets")
        file.seek(offset)
        sent = 0
        try:
            while count is None or sent < count:
                data = file.read(CHUNK if count is None else min(CHUNK, count - sent))
                if not data:
                    break
                await self.sock_sendall(sock, data)
                sent += len(data)
        finally:
            file.seek(offset + sent)
        return sent

    async def _when_ready(self, sock: Any, ready: str, call: str, *args: Any) -> Any:
        """`ready` and `call` are names of the socket's methods."""
        self._check_sock(sock)
        while True:
            try:
                return getattr(sock, call)(*args)
            except BlockingIOError:
                await self._until(sock, getattr(sock, ready))

    async def _until(self, sock: SimSocket, ready: Callable[[], bool]) -> None:
        """Wait, at least for a turn of the loop."""
        if ready():
            await asyncio.sleep(0)
        while not ready():
            changed = self.create_future()
            sock.watch(partial(wake, changed))
            await changed

    def _check_sock(self, sock: Any) -> None:
        if not isinstance(sock, SimSocket):
            raise os_error(errno.ENOTSOCK, f"{sock!r} (make it by socket.socket while the network runs)")
        if self.get_debug() and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
