"""The workloads: what a service does, and what a Pod's kernel sends it and answers, frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from struct import Struct
from typing import Any, ClassVar, Final, TypeAlias

from guard_rig import DNS_VIP, NIC, POD_IP, VIP

from juneau.model.ids import Protocol
from juneau.netstack.wire import vnet
from juneau.packetplane.bpf import abi
from juneau.services import Listener, VirtualService
from juneau.services.dns.service import DnsService
from juneau.testing import packets

MSS: Final = 1450 - 20 - 32
SUPERFRAME: Final = 46 * MSS
"""Payload bytes: as many whole segments as 64 KiB hold."""
BLOCK: Final = 65_536
_BLOCK: Final = bytes(BLOCK)
STREAMS, PROTOCOL, DATAGRAMS = 7, 8, 9
_WINDOW_SHIFT: Final = 7
_WINDOW: Final = 4 * SUPERFRAME >> _WINDOW_SHIFT
"""As on the wire"""
_STAMP: Final = (
    abi.Stamp(abi.STAMP_TAG, NIC.tenant.subnet_id, abi.STAMP_TAG, NIC.ifindex).pack() + b"\x08\x00"
)
_TCP_CHECKSUM_AT: Final = 16
_DNS: Final = Struct("!6H")

Exchanges: TypeAlias = Generator[Sequence[bytes], list[bytes], None]
"""Yields frames for the service, takes the IPv4 packets it sent."""


def frame(packet: bytes, payload: int = 0) -> bytes:
    """As a Pod's kernel leaves it: checksum not yet made, superframes not yet cut."""
    gso = MSS if payload > MSS else 0
    kind = vnet.GSO_TCPV4 if gso else vnet.GSO_NONE
    csum = _TCP_CHECKSUM_AT if packet[9] == packets.TCP else 6
    header = vnet.HEADER.pack(vnet.F_NEEDS_CSUM, kind, 14 + len(packet) - payload, gso, 14 + 20, csum)
    return header + _STAMP + packet


class Client:
    """A kernel's TCP, as far as it shows when nothing is lost."""

    def __init__(self, dport: int, sport: int) -> None:
        self.dport, self.sport = dport, sport
        self.seq = self.acked = 1_000_000
        self.ack, self.now, self.echo = 0, 1, 0

    def segment(self, payload: bytes = b"", flags: str = "A", *, ack: int | None = None) -> bytes:
        options, wnd = packets.NOP * 2 + packets.timestamps(self.now, self.echo), _WINDOW
        if "S" in flags:
            options = packets.mss(1410) + packets.SACK_OK + packets.timestamps(self.now, 0) + packets.NOP
            options, wnd = options + packets.wscale(_WINDOW_SHIFT), 65_535
        packet = packets.tcp(
            payload, src=POD_IP, dst=VIP, sport=self.sport, dport=self.dport, seq=self.seq, checksum=0,
            ack=self.ack if ack is None else ack, flags=flags, wnd=wnd, options=options,
        )  # fmt: skip
        self.seq = (self.seq + len(payload) + ("S" in flags) + ("F" in flags)) % 2**32
        self.now += 1
        return frame(packet, len(payload))

    def heard(self, sent: Sequence[bytes]) -> list[int]:
        """What the service sent; the ends of its segments, to be acknowledged."""
        ends = []
        for packet in sent:
            ip = packets.Ipv4.decode(packet)
            tcp = packets.Tcp.decode(packet[ip.header_length :])
            assert tcp.dport == self.sport
            assert "R" not in tcp.flag_text
            if tcp.payload or set(tcp.flag_text) & set("SF"):
                self.ack = (tcp.seq + len(tcp.payload) + len(set(tcp.flag_text) & set("SF"))) % 2**32
                ends.append(self.ack)
            self.echo = (tcp.timestamps or (0, 0))[0]
            self.acked = tcp.ack
        return ends

    def connect(self) -> Exchanges:
        self.heard((yield [self.segment(flags="S", ack=0)]))
        self.heard((yield [self.segment()]))


# What the services do


class Handlers(VirtualService):
    """The first line of a stream says what is wanted."""

    tcp_ports, udp_ports = (STREAMS,), (DATAGRAMS,)

    async def handle_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match await reader.readline():
            case b"up\n":
                while await reader.read(BLOCK):
                    pass
            case b"down\n":
                while True:
                    writer.write(_BLOCK)
                    await writer.drain()
            case b"echo\n":
                while data := await reader.read(BLOCK):
                    writer.write(data)
                    await writer.drain()
            case request:
                writer.write(request)
                await writer.drain()
                await reader.read()

    def handle_udp(self, request: Any, responder: Any) -> None:
        responder.write_response(request.payload)

    def listeners(self) -> tuple[Listener, ...]:
        return (*super().listeners(), Listener(Protocol.TCP, PROTOCOL, protocol_factory=Bulk))


class Bulk(asyncio.Protocol):
    """Takes what comes; `down`: sends without end, a block at a time."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._paused = False

    def data_received(self, data: bytes) -> None:
        if data == b"down\n":
            self._send()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._send()

    def _send(self) -> None:
        while not self._paused:
            self._transport.write(_BLOCK)


# What Pods do


class Work:
    """`unit`: what is counted, `units` of it after some more to warm up."""

    units: ClassVar[int] = 100
    warm_up: ClassVar[int] = 60
    share: ClassVar[int] = 1
    """A unit is so many superframes or packets; figures are for one of them."""
    payload: ClassVar[int] = SUPERFRAME
    """Bytes that a copy of one of them would be; small packets have none large enough to be seen."""

    def __init__(self) -> None:
        self.client = Client(STREAMS, 40_000)

    def service(self) -> VirtualService:
        return Handlers()

    def start(self) -> Exchanges:
        yield from ()

    def unit(self) -> Exchanges:
        raise NotImplementedError


class Upload(Work):
    """One superframe."""

    port = STREAMS

    def __init__(self) -> None:
        self.client = Client(self.port, 40_000)
        self.body = bytes(SUPERFRAME)

    def start(self) -> Exchanges:
        yield from self.client.connect()
        self.client.heard((yield [self.client.segment(b"up\n", "PA")]))
        self.client.heard(
            (yield [self.client.segment(self.body, "PA")])
        )  # more fit the window once it is told

    def unit(self) -> Exchanges:
        self.client.heard((yield [self.client.segment(self.body, "PA") for _ in range(self.share)]))
        assert self.client.acked == self.client.seq, "all is taken, and acknowledged at once"


class UploadProtocol(Upload):
    port = PROTOCOL


class UploadBatch(Upload):
    """Eight superframes read in one turn."""

    share = 8
    units = 40
    warm_up = 20


class Download(Work):
    """One superframe acknowledged, the next one leaves."""

    port = STREAMS
    slow_start = 20

    def __init__(self) -> None:
        self.client = Client(self.port, 40_000)
        self.ends: list[int] = []

    def start(self) -> Exchanges:
        yield from self.client.connect()
        self.ends += self.client.heard((yield [self.client.segment(b"down\n", "PA")]))
        for _ in range(self.slow_start):
            yield from self.acknowledge()

    def unit(self) -> Exchanges:
        acked = self.ends[0]
        yield from self.acknowledge()
        assert (self.ends[0] - acked) % 2**32 >= SUPERFRAME - MSS, "nothing smaller is in flight"

    def acknowledge(self) -> Exchanges:
        self.ends += self.client.heard((yield [self.client.segment(ack=self.ends.pop(0))]))


class DownloadProtocol(Download):
    port = PROTOCOL


class RoundTrip(Work):
    """One byte there and back, the ACK on the next byte."""

    def start(self) -> Exchanges:
        yield from self.client.connect()
        self.client.heard((yield [self.client.segment(b"echo\n", "PA")]))

    def unit(self) -> Exchanges:
        sent = yield [self.client.segment(b"x", "PA")]
        assert len(self.client.heard(sent)) == 1


class Connect(Work):
    """Connect, request, answer, close: SYN; ACK and request; FIN; the last ACK."""

    def unit(self) -> Exchanges:
        client = self.client = Client(STREAMS, self.client.sport + 1)
        assert len(client.heard((yield [client.segment(flags="S", ack=0)]))) == 1
        assert len(client.heard((yield [client.segment(), client.segment(b"?\n", "PA")]))) == 1
        assert len(client.heard((yield [client.segment(flags="FA")]))) == 1
        assert not client.heard((yield [client.segment()]))


class Datagram(Work):
    """One datagram and its echo."""

    def unit(self) -> Exchanges:
        packet = packets.udp(b"x" * 18, src=POD_IP, dst=VIP, dport=DATAGRAMS)
        sent = yield [frame(packet) for _ in range(self.share)]
        assert sent


class DatagramBatch(Datagram):
    """Sixteen datagrams of one client in one turn."""

    share = 16


class DnsQuery(Work):
    """A name asked for again and again."""

    number = 0

    def service(self) -> VirtualService:
        return DnsService(upstreams=())

    def unit(self) -> Exchanges:
        questions = []
        for _ in range(self.share):
            self.number += 1
            names = (b"web", b"default", b"svc", b"cluster", b"local", b"")
            name = b"".join(bytes((len(label),)) + label for label in names)
            query = _DNS.pack(self.number, 0x0100, 1, 0, 0, 0) + name + b"\0\1\0\1"
            questions.append(frame(packets.udp(query, src=POD_IP, dst=DNS_VIP, sport=5300)))
        sent = yield questions
        assert all(packet[-4:] == bytes((10, 96, 0, 10)) for packet in sent)


class DnsBatch(DnsQuery):
    share = 16


WORK: Final[dict[str, Callable[[], Work]]] = {
    "superframe up, streams": Upload,
    "superframe up, Protocol": UploadProtocol,
    "superframe up, 8 a batch": UploadBatch,
    "superframe down, streams": Download,
    "superframe down, Protocol": DownloadProtocol,
    "1-byte round trip": RoundTrip,
    "connect-request-close": Connect,
    "datagram echo": Datagram,
    "datagram echo, 16 a batch": DatagramBatch,
    "DNS hot answer": DnsQuery,
    "DNS hot answer, 16 a batch": DnsBatch,
}
