"""One handler for every peer, so that only the stack below it differs. First line: what the client wants."""

from __future__ import annotations

import asyncio

from juneau.services import VirtualService

PORT = 9000
_BLOCK = bytes(1 << 18)


async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """`up`: read to EOF, answer the count. `down N`: N bytes. `echo`: byte for byte, until EOF."""
    try:
        command, *arguments = (await reader.readline()).split()
        if command == b"up":
            await _up(reader, writer)
        elif command == b"down":
            await _down(writer, int(arguments[0]))
        else:
            await _echo(reader, writer)
    finally:
        writer.close()


async def _up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    total = 0
    while data := await reader.read(1 << 18):
        total += len(data)
    writer.write(b"%d\n" % total)
    await writer.drain()


async def _down(writer: asyncio.StreamWriter, total: int) -> None:
    while total > 0:
        writer.write(_BLOCK if total >= len(_BLOCK) else _BLOCK[:total])
        total -= len(_BLOCK)
        await writer.drain()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)


class Bench(VirtualService):
    offset, tcp_ports = 3, (PORT,)
    handle_tcp = staticmethod(handle)


async def _serve_kernel() -> None:
    server = await asyncio.start_server(handle, "0.0.0.0", PORT, backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    import sys

    if sys.argv[1] == "uvloop":
        import uvloop

        uvloop.run(_serve_kernel())
    else:
        asyncio.run(_serve_kernel())
