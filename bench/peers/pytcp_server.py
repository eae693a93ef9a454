"""pmd-pytcp's server, for its own environment's interpreter: `pytcp_server.py TAP ADDRESS/PREFIX MTU PORT`.

It is GPL: its process holds this file and the handler, and nothing else of ours. The TAP is made in the
namespace this runs in. Says `made` when the TAP is there, and `ready` once it listens.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from pathlib import Path
from typing import Any

from pmd_net_addr import Ip4IfAddr, MacAddress  # type: ignore[import-not-found]
from pmd_pytcp import socket, stack  # type: ignore[import-not-found]

HIGH_WATER = 1 << 18
"""Bytes unsent at which `drain` waits; its own `send` takes anything at once."""
QUICK_PROBES = {"arp.probe_num": 1, "arp.announce_wait": 1}
"""Of its search for another owner of its address, which nobody measures."""


class Reader:
    """As much of asyncio.StreamReader as the handler uses."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._line = connection, b""

    async def readline(self) -> bytes:
        while b"\n" not in self._line:
            if not (data := await self._connection.recv(1 << 16)):
                break
            self._line += data
        line, end, self._line = self._line.partition(b"\n")
        return line + end

    async def read(self, size: int) -> bytes:
        if self._line:
            data, self._line = self._line[:size], self._line[size:]
            return data
        data = await self._connection.recv(size)
        return bytes(data)


class Writer:
    """As much of asyncio.StreamWriter as the handler uses."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def write(self, data: bytes) -> None:
        self._connection.tcp_session.send(
            data=data
        )  # what `await connection.send` does, which waits for nothing

    async def drain(self) -> None:
        while self._connection.status().tx_buffer_len > HIGH_WATER:  # noqa: ASYNC110 (it tells nobody)
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self._connection.close()


async def main(tap: str, address: str, mtu: str, port: str) -> None:
    sys.path.append(str(Path(__file__).parents[2]))
    from bench.handler import handle

    boot = stack.initialize_interface__tap(tap, mac_address=MacAddress("02:00:00:00:00:03"))
    boot["mtu"] = int(mtu)
    stack.init(**boot, ip4_host=Ip4IfAddr(address), ip4_dhcp=False, ip6_support=False, sysctls=QUICK_PROBES)
    print("made", flush=True)
    await stack.start()
    while not stack.local_ip4_unicast():  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((str(ipaddress.ip_interface(address).ip), int(port)))
    listener.listen(backlog=128)
    print("ready", flush=True)
    tasks = set()
    while True:
        connection, _ = await listener.accept()
        reader: Any = Reader(connection)
        writer: Any = Writer(connection)
        task = asyncio.create_task(handle(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
