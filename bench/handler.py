"""What every peer serves: bulk both ways and an echo, as streams, as a Protocol, and UDP's echo.

The first line of a connection says what the client wants: `up` (read to the end, answer the count),
`down N` (N bytes), or anything else (echo). Only the stack below differs from peer to peer.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

STREAMS_PORT: Final = 9000
PROTOCOL_PORT: Final = 9001
UDP_PORT: Final = 9002
PORTS: Final = {"streams": STREAMS_PORT, "protocol": PROTOCOL_PORT, "udp": UDP_PORT}

_READ: Final = 65_536
_BLOCK: Final = bytes(65_536)
_BLOCKS_A_TURN: Final = 16
"""Of a Protocol: other connections want a turn of the loop, too."""


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        command, *arguments = (await reader.readline()).split() or [b""]
        if command == b"up":
            await _up(reader, writer)
        elif command == b"down":
            await _down(writer, int(arguments[0]))
        else:
            await _echo(reader, writer)
    except ConnectionError:
        pass  # a client that has seen enough of a download
    finally:
        writer.close()


async def _up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    total = 0
    while data := await reader.read(_READ):
        total += len(data)
    writer.write(b"%d\n" % total)
    await writer.drain()


async def _down(writer: asyncio.StreamWriter, total: int) -> None:
    for left in range(total, 0, -len(_BLOCK)):
        writer.write(_BLOCK if left >= len(_BLOCK) else _BLOCK[:left])
        await writer.drain()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_READ):
        writer.write(data)
        await writer.drain()


class Handler(asyncio.Protocol):
    """The same as `handle`."""

    def __init__(self) -> None:
        self._line = b""
        self._command = b""
        self._count = 0
        """Bytes received of an upload, or still to be sent of a download."""
        self._paused = self._scheduled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._command == b"up":
            self._count += len(data)
        elif self._command:
            self._transport.write(data)
        else:
            self._on_line(data)

    def _on_line(self, data: bytes) -> None:
        self._line, newline, rest = (self._line + data).partition(b"\n")
        if not newline:
            return
        command, *arguments = self._line.split() or [b"echo"]
        self._command = command
        if command == b"down":
            self._count = int(arguments[0])
            self._send()
        elif rest:
            self.data_received(rest)

    def _send(self) -> None:
        self._scheduled = False
        for _ in range(_BLOCKS_A_TURN):
            if self._count <= 0:
                self._transport.close()
            if self._paused or self._transport.is_closing():
                return
            self._transport.write(_BLOCK if self._count >= len(_BLOCK) else _BLOCK[: self._count])
            self._count -= len(_BLOCK)
        self._scheduled = True
        asyncio.get_running_loop().call_soon(self._send)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._command == b"down" and not self._scheduled:
            self._send()

    def eof_received(self) -> bool:
        if self._command == b"up":
            self._transport.write(b"%d\n" % self._count)
        return False


class UdpEcho(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._transport.sendto(data, addr)
