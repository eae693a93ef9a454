"""A TCP layer without the rest of the stack, a raw peer for it, and two layers on a wire."""

# ruff: noqa: B008 (the defaults are frozen)

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, replace
from typing import Any

from juneau.netstack.counters import Counters
from juneau.netstack.events import Accepted, Closed, Connected, Event, Readable, Writable
from juneau.netstack.limits import Limits
from juneau.netstack.tcp import TcpConnection, TcpLayer, TcpListener, TcpOptions
from juneau.netstack.types import MILLISECOND, Endpoint, FourTuple, Link, Micros, TxPacket, parse_ip
from juneau.netstack.wire import ipv4
from juneau.testing import packets
from juneau.testing.packets import Packet

OURS = Endpoint(parse_ip("10.0.0.1"), 80)
THEIRS = Endpoint(parse_ip("10.0.0.2"), 40_000)
NO_TIMESTAMPS = TcpOptions(timestamps=False)
PLAIN = TcpOptions(timestamps=False, sack=False, window_scaling=False)
MTU_1040 = Link(mtu=1040)
"""An MSS of 1000, which is easy on the eyes."""
ISS = (1_000, 2**32 - 1, 2**32 - 3, 2**32 - 1_500, 2**31 - 1)
"""Both sides' ISNs in tests that change state: below the wrap, on it, just before it."""


class FixedIsn:
    """Stands in for `TcpLayer.isn`."""

    def __init__(self, iss: int) -> None:
        self.iss = iss

    def generate(self, flow: FourTuple, now: Micros) -> tuple[int, int]:
        return self.iss, 0

    def words(self, flow: FourTuple) -> tuple[int, int]:
        return 0, 0


class Host:
    """A TcpLayer and what it would need of a Stack."""

    def __init__(
        self,
        options: TcpOptions = TcpOptions(),
        link: Link = MTU_1040,
        limits: Limits = Limits(),
        iss: int | None = 1_000,
        seed: int = 1,
    ) -> None:
        self.events: list[Event] = []
        self.counters = Counters()
        self.tcp = TcpLayer(link, limits, options, random.Random(seed), b"k" * 16, self.counters, self.events)
        if iss is not None:
            self.tcp.isn = FixedIsn(iss)  # type: ignore[assignment]
        self.now: Micros = 1_000_000

    def receive(self, packet: bytes, *, csum_ok: bool = False) -> None:
        header, payload = ipv4.parse(packet)
        self.tcp.receive(header.src, header.dst, header.tos, payload, "path", self.now, csum_ok)

    def take(self, budget: int = 1_000) -> list[TxPacket]:
        return self.tcp.take_packets(self.now, budget)

    def take_events(self) -> list[Event]:
        events = self.events[:]
        self.events.clear()
        return events

    def advance(self, by: Micros) -> list[tuple[Micros, Packet]]:
        """Let `by` pass; every packet that leaves, with the time since the start."""
        start, end = self.now, self.now + by
        out = [(0, p) for p in self.sent()]
        while (at := self.tcp.next_timeout()) is not None and at <= end:
            self.now = max(self.now, at)
            self.tcp.handle_timeout(self.now)
            out += [(self.now - start, p) for p in self.sent()]
        self.now = end
        return out

    def sent(self) -> list[Packet]:
        """Decoded, checksums verified (superframes aside)."""
        out = []
        for tx in self.take():
            packet = packets.decode(tx.to_bytes())
            assert packet.ip.checksum_ok
            assert tx.csum_start or packet.l4_checksum_ok, "a complete checksum is wrong"
            out.append(packet)
        return out


class Peer:
    """Speaks raw segments to a Host; numbers are relative: seq to our ISN here, ack to the host's."""

    def __init__(
        self,
        host: Host,
        *,
        iss: int = 5_000,
        remote_iss: int = 1_000,
        local: Endpoint = THEIRS,
        remote: Endpoint = OURS,
    ) -> None:
        self.host = host
        self.iss = iss
        self.remote_iss = remote_iss
        self.local, self.remote = local, remote
        self.ts: int | None = None
        """Our timestamp clock, once timestamps are agreed on."""
        self.ts_ecr = 0

    def inject(
        self,
        flags: str,
        seq: int = 0,
        ack: int = 0,
        payload: bytes = b"",
        *,
        wnd: int = 65_535,
        options: bytes = b"",
        csum_ok: bool = False,
        **fields: Any,
    ) -> None:
        if self.ts is not None and "S" not in flags:
            options = b"\1\1" + packets.timestamps(self.ts, self.ts_ecr) + options
        self.host.receive(
            packets.tcp(
                payload,
                src=self.local.ip,
                dst=self.remote.ip,
                sport=self.local.port,
                dport=self.remote.port,
                seq=self.iss + seq,
                ack=self.remote_iss + ack if "A" in flags else 0,
                flags=flags,
                wnd=wnd,
                options=options,
                **fields,
            ),
            csum_ok=csum_ok,
        )

    def got(self) -> list[Seen]:
        """What the host sends now."""
        return [self.see(p) for p in self.host.sent()]

    def see(self, packet: Packet) -> Seen:
        assert packet.tcp is not None
        tcp = packet.tcp
        ack = (tcp.ack - self.iss) % 2**32 if "A" in tcp.flag_text else 0
        if tcp.timestamps and self.ts is not None:
            self.ts_ecr = tcp.timestamps[0]
        sack = tuple(((a - self.iss) % 2**32, (b - self.iss) % 2**32) for a, b in tcp.sack)
        seq = (tcp.seq - self.remote_iss + 2**31) % 2**32 - 2**31
        return Seen(tcp.flag_text.replace("P", ""), seq, ack, tcp.payload, tcp.wnd, sack)

    def one(self) -> Seen:
        seen = self.got()
        assert len(seen) == 1, seen
        return seen[0]


@dataclass(frozen=True)
class Seen:
    """A segment from the host, PSH left out."""

    flags: str
    seq: int
    ack: int
    payload: bytes = b""
    wnd: int = -1
    sack: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        end = self.seq + len(self.payload)
        return f"{self.flags} {self.seq}:{end} ack {self.ack} win {self.wnd} {self.sack}"

    @property
    def short(self) -> tuple[str, int, int, int]:
        return self.flags, self.seq, len(self.payload), self.ack


def established(
    options: TcpOptions = NO_TIMESTAMPS,
    *,
    link: Link = MTU_1040,
    limits: Limits = Limits(),
    host_iss: int = 1_000,
    peer_iss: int = 5_000,
    wnd: int = 65_535,
    mss: int = 1_000,
    wscale: int | None = None,
    sack: bool = True,
) -> tuple[Host, Peer, TcpConnection]:
    """A passive open by raw segments. Numbers go on at seq 1, ack 1."""
    host = Host(options, link, limits, host_iss)
    listener = host.tcp.listen(OURS)
    peer = Peer(host, iss=peer_iss, remote_iss=host_iss)
    offered = packets.mss(mss)
    if sack and options.sack:
        offered += b"\1\1" + packets.SACK_OK
    if options.timestamps:
        offered += b"\1\1" + packets.timestamps(1, 0)
    if wscale is not None:
        offered += b"\1" + packets.wscale(wscale)
    peer.inject("S", 0, wnd=wnd, options=offered)
    answer = peer.one()
    assert (answer.flags, answer.seq, answer.ack) == ("SA", 0, 1)
    if options.timestamps:
        peer.ts = 1
    peer.inject("A", 1, 1, wnd=wnd)
    conn = listener.accept()
    assert conn is not None
    host.take_events()
    assert peer.got() == []
    return host, peer, conn


def connected(
    options: TcpOptions = NO_TIMESTAMPS, *, host_iss: int = 1_000, peer_iss: int = 5_000, **kwargs: Any
) -> tuple[Host, Peer, TcpConnection]:
    """An active open; the host is the client."""
    host, peer, conn = syn_sent(options, host_iss=host_iss, peer_iss=peer_iss, **kwargs)
    peer.inject("SA", 0, 1, options=packets.mss(1_000) + b"\1\1" + packets.SACK_OK)
    assert peer.one().short == ("A", 1, 0, 1)
    assert host.take_events() == [Connected(conn)]
    return host, peer, conn


def syn_sent(
    options: TcpOptions = NO_TIMESTAMPS, *, host_iss: int = 1_000, peer_iss: int = 5_000, **kwargs: Any
) -> tuple[Host, Peer, TcpConnection]:
    host = Host(options, iss=host_iss, **kwargs)
    server = Endpoint(THEIRS.ip, 8_080)
    conn = host.tcp.connect(server, local=Endpoint(OURS.ip, 33_000), path="path", now=host.now)
    peer = Peer(host, iss=peer_iss, remote_iss=host_iss, local=server, remote=conn.local)
    assert peer.one().flags == "S"
    return host, peer, conn


def read_all(conn: TcpConnection) -> bytes:
    return b"".join(conn.read(1 << 30))


# --- two ends ---


@dataclass
class WireModel:
    """One direction of a wire: probabilities, and delay in microseconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: Micros = 0
    jitter: Micros = 0


@dataclass
class App:
    """Sends `outgoing` as room allows, collects what arrives, half-closes when done."""

    outgoing: bytes = b""
    chunk: int = 100_000
    received: bytearray | None = None
    closed: Any = None
    eof: bool = False
    shut: bool = False
    at: int = 0

    def __post_init__(self) -> None:
        self.received = bytearray()


class Pair:
    """Two hosts joined by a lossy wire on a virtual clock."""

    def __init__(
        self,
        options: TcpOptions = TcpOptions(),
        *,
        link: Link = Link(mtu=1450),
        link_b: Link | None = None,
        wire: WireModel = WireModel(),
        seed: int = 1,
        iss: tuple[int, int] = (1_000, 5_000),
        limits: Limits = Limits(),
        options_b: TcpOptions | None = None,
    ) -> None:
        self.a = Host(options, link, limits, iss[0])
        self.b = Host(options_b or options, link_b or link, limits, iss[1])
        self.wire = wire
        self.random = random.Random(seed)
        self.queue: list[tuple[Micros, int, Host, bytes, bool]] = []
        self.serial = 0
        self.now: Micros = 1_000_000
        self.apps: dict[TcpConnection, App] = {}
        self.listener: TcpListener = self.b.tcp.listen(OURS)
        self.server_app = App()
        self.packets = 0
        self.limit_outgoing = 256 * 1024

    def connect(self, outgoing: bytes = b"", reply: bytes = b"") -> tuple[TcpConnection, App, App]:
        conn = self.a.tcp.connect(OURS, local=Endpoint(THEIRS.ip, 0), path="path", now=self.now)
        app = App(outgoing)
        self.apps[conn] = app
        self.server_app = App(reply)
        return conn, app, self.server_app

    def _send(self, host: Host) -> None:
        target = self.b if host is self.a else self.a
        for tx in host.take():
            self.packets += 1
            wire, rnd = self.wire, self.random
            if rnd.random() < wire.loss:
                continue
            copies = 2 if rnd.random() < wire.duplicate else 1
            for _ in range(copies):
                delay = wire.delay + (rnd.randrange(wire.jitter) if wire.jitter else 0)
                if wire.reorder and rnd.random() < wire.reorder:
                    delay += 3 * wire.delay + 100
                self.serial += 1
                heapq.heappush(
                    self.queue, (self.now + delay, self.serial, target, tx.to_bytes(), bool(tx.csum_start))
                )

    def _app(self, host: Host) -> None:
        for event in host.take_events():
            if isinstance(event, Accepted):
                while (conn := event.listener.accept()) is not None:
                    self.apps[conn] = self.server_app
                    self._read(conn, self.server_app)
            elif isinstance(event, Closed):
                if event.conn in self.apps:
                    self.apps[event.conn].closed = event.reason
            elif isinstance(event, Readable):
                if event.conn in self.apps:
                    self._read(event.conn, self.apps[event.conn])
            else:
                assert isinstance(event, Connected | Writable)
        for conn, app in self.apps.items():
            if conn.layer is host.tcp and conn.state != 0 and app.closed is None:
                self._write(conn, app)

    def _read(self, conn: TcpConnection, app: App) -> None:
        assert app.received is not None
        for piece in conn.read(1 << 30):
            app.received += piece
        app.eof = app.eof or conn.at_eof

    def _write(self, conn: TcpConnection, app: App) -> None:
        while app.at < len(app.outgoing) and conn.send_queue_bytes < self.limit_outgoing:
            piece = app.outgoing[app.at : app.at + app.chunk]
            conn.send(piece, self.now)
            app.at += len(piece)
        if app.at == len(app.outgoing) and not app.shut:
            app.shut = True
            conn.shutdown(self.now)

    def settle(self) -> None:
        for host in (self.a, self.b):
            host.now = self.now
            self._app(host)
            self._send(host)

    def run(self, until: Micros = 600_000_000, steps: int = 2_000_000) -> None:
        """Until nothing is left to happen but TIME-WAIT, or virtual `until`."""
        for _ in range(steps):
            self.settle()
            if self.apps and all(app.closed is not None for app in self.apps.values()) and len(self.apps) > 1:
                return
            times = [t for t in (self.a.tcp.next_timeout(), self.b.tcp.next_timeout()) if t is not None]
            if self.queue:
                times.append(self.queue[0][0])
            if not times:
                return
            self.now = max(self.now, min(times))
            if self.now > until:
                return
            self.a.now = self.b.now = self.now
            while self.queue and self.queue[0][0] <= self.now:
                _, _, host, packet, csum_ok = heapq.heappop(self.queue)
                host.receive(packet, csum_ok=csum_ok)
            self.a.tcp.handle_timeout(self.now)
            self.b.tcp.handle_timeout(self.now)
        raise AssertionError(f"still busy after {steps} steps at {self.now}")


def faster(options: TcpOptions = TcpOptions(), **fields: Any) -> TcpOptions:
    return replace(options, **fields)


RTT_10_MS = 10 * MILLISECOND
