"""A network in a process: ordinary asyncio programs over real packets, virtual time and a seed.

    net = Network(seed=1)
    server, client = net.host("server"), net.host("client")
    net.link(server, client, loss=0.02, delay_ms=20)
    net.run(main(), on=client, timeout=60)

docs/network-in-a-process.md tells the rest.
"""

from juneau.testing.network.errors import Deadlock, Livelock, OutOfTime, Stuck
from juneau.testing.network.host import Host
from juneau.testing.network.network import Network

__all__ = ["Deadlock", "Host", "Livelock", "Network", "OutOfTime", "Stuck"]
