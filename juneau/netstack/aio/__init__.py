"""asyncio's transports, streams, servers and datagram endpoints over a `juneau.netstack` stack.

    astack = AsyncStack(Stack(rng=…, secret=…), send=link.send)
    server = await astack.start_server(handle, "10.80.0.3", 8080)

The link calls `astack.receive` for each packet and `astack.settle` once per batch.
"""

from juneau.netstack.aio.driver import monotonic_us
from juneau.netstack.aio.server import Server
from juneau.netstack.aio.sock import StackSocket
from juneau.netstack.aio.stack import AsyncStack
from juneau.netstack.aio.streams import StreamWriter
from juneau.netstack.aio.tls import start_tls
from juneau.netstack.aio.transport import TcpTransport

__all__ = ["AsyncStack", "Server", "StackSocket", "StreamWriter", "TcpTransport", "monotonic_us", "start_tls"]
