"""The stacks' TCP connections as rows, like `ss`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

from juneau.model.ids import Protocol
from juneau.netstack.types import Endpoint

if TYPE_CHECKING:
    from juneau.app.lab import Lab
    from juneau.app.node import Node
    from juneau.netstack.tcp import TcpListener
    from juneau.netstack.tcp.info import TcpInfo
    from juneau.netstack.tcp.layer import TcpLayer
    from juneau.netstack.types import Path

Row: TypeAlias = dict[str, Any]


def connections(lab: Lab, node: Node) -> list[Row]:
    """Handshake done, and not in TIME-WAIT."""
    names = _Names(lab, node)
    return [
        names.row(vpc_id, conn.state.name, conn.local, conn.remote, conn.path)
        | {"recv_queue": conn.recv_queue_bytes, "send_queue": conn.send_queue_bytes}
        | {"info": _plain(conn.info())}
        for vpc_id, tcp in _layers(node)
        for conn in tcp.connections()
    ]


def listeners(lab: Lab, node: Node) -> list[Row]:
    """`recv_queue`: accepted by the stack and not yet by the service; `send_queue`: how many may be."""
    names = _Names(lab, node)
    return [
        names.row(vpc_id, "LISTEN", listener.local)
        | {"recv_queue": listener.waiting, "send_queue": listener.backlog}
        for vpc_id, tcp in _layers(node)
        for listener in tcp.listeners()
    ]


def remnants(lab: Lab, node: Node) -> list[Row]:
    """Half-open connections and those in TIME-WAIT: no service holds them."""
    names = _Names(lab, node)
    return [
        names.row(vpc_id, state, local, remote, path) | {"recv_queue": 0, "send_queue": 0}
        for vpc_id, tcp in _layers(node)
        for state, local, remote, path in _remnants(tcp)
    ]


def _layers(node: Node) -> Iterator[tuple[int, TcpLayer]]:
    for vpc_id, stack in node.stacks():
        yield vpc_id, stack.stack.tcp


def _remnants(tcp: TcpLayer) -> Iterator[tuple[str, Endpoint, Endpoint, Path]]:
    found: list[TcpListener] = list(tcp.listeners())
    for listener in found:
        for embryo in listener.embryos.values():
            yield "SYN_RECEIVED", listener.local, Endpoint(*embryo.flow[2:]), embryo.path
    for waiting in tcp.time_waits():
        yield "TIME_WAIT", Endpoint(*waiting.flow[:2]), Endpoint(*waiting.flow[2:]), None


class _Names:
    """Who is behind addresses and paths, as things are now."""

    def __init__(self, lab: Lab, node: Node) -> None:
        self._view = lab.plan.view
        self._pods = {pod.host_ifname: pod for pod in lab.record.pods}
        self._by_address = {(pod.vpc, pod.ip): pod for pod in lab.record.pods}
        self._services = {
            (b.spec.tenant.vpc_id, int(b.spec.addr.ip), b.spec.addr.port): b.name
            for b in node.registry.bindings()
            if b.spec.addr.proto == Protocol.TCP
        }

    def row(
        self, vpc_id: int, state: str, local: Endpoint, remote: Endpoint | None = None, path: Path = None
    ) -> Row:
        vpc = self._view.vpc_by_id[vpc_id].name
        nic = getattr(path, "nic", None)
        address = "" if remote is None else str(remote).partition(":")[0]
        pod = self._pods.get(nic.ifname) if nic else self._by_address.get((vpc, address))
        return {
            "vpc": vpc,
            "subnet": pod.subnet if pod else "",
            "pod": pod.key if pod else "",
            "service": self._services.get((vpc_id, *local), ""),
            "state": state,
            "local": str(local),
            "remote": "" if remote is None else str(remote),
        }


def _plain(info: TcpInfo) -> dict[str, Any]:
    """As JSON can carry it, less what the row says already."""
    said = ("state", "local", "remote", "recv_queue", "send_queue")
    return {key: value for key, value in asdict(info).items() if key not in said}
