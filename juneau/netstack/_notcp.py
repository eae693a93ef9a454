"""Stands in for TCP until it is there."""

from typing import Any


class TcpOptions:
    pass


class TcpListener:
    pass


class TcpConnection:
    pass


class TcpLayer:
    wants_output = False

    def __init__(self, *args: Any) -> None:
        self.counters = args[5]
        self.segments: list[Any] = []
        self.errors: list[Any] = []

    def receive(self, ip: Any, segment: Any, path: Any, now: int, *, csum_ok: bool) -> None:
        self.counters.add("tcp.received")
        self.segments.append((ip, bytes(segment), path, now, csum_ok))

    def receive_icmp_error(self, *args: Any) -> None:
        self.errors.append(args)

    def listen(self, *args: Any, **kw: Any) -> None:
        pass

    def handle_timeout(self, now: int) -> None:
        pass

    def next_timeout(self) -> int | None:
        return None

    def take_packets(self, now: int, budget: int) -> list[Any]:
        return []

    def remove_address(self, ip: int, now: int) -> None:
        pass
