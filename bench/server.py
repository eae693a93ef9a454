"""`bench.handler` on kernel sockets: `python -m bench.server asyncio|uvloop`. Says `ready`, then serves."""

from __future__ import annotations

import asyncio
import importlib
import resource
import sys

from bench.handler import PROTOCOL_PORT, STREAMS_PORT, UDP_PORT, Handler, UdpEcho, handle
from bench.peers.extra import EXTRAS

_HOST = "0.0.0.0"
_BACKLOG = 4_096


async def serve() -> None:
    loop = asyncio.get_running_loop()
    await asyncio.start_server(handle, _HOST, STREAMS_PORT, backlog=_BACKLOG)
    await loop.create_server(Handler, _HOST, PROTOCOL_PORT, backlog=_BACKLOG)
    await loop.create_datagram_endpoint(UdpEcho, (_HOST, UDP_PORT))
    for extra in EXTRAS:
        module, _, name = extra.kernel.partition(":")
        await getattr(importlib.import_module(module), name)(_HOST, extra.port)
    print("ready", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if sys.argv[1] == "uvloop":
        import uvloop

        uvloop.run(serve())
    else:
        asyncio.run(serve())


if __name__ == "__main__":
    main()
