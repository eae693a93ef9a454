"""Enough TCP to take bytes from a kernel, or give it some, over a plane that loses nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import pack, unpack_from

from juneau.netstack.types import Buffer, Link, Micros, Path, TxPacket
from juneau.netstack.wire.checksum import checksum, ones_sum, pseudo_sum

FIN, SYN, PSH_ACK, ACK = 1, 2, 0x18, 0x10
ISS, MSS = 1_000, 1_398
OPTIONS = bytes([2, 4]) + MSS.to_bytes(2, "big") + bytes([1, 3, 3, 10])
CHUNK = 28 * MSS


@dataclass
class Seen:
    """One packet as it came from the plane."""

    size: int
    path: Path
    csum_ok: bool
    proto: int
    fragment: int
    """Flags and offset of the IPv4 header."""


@dataclass
class Peer:
    src: bytes
    dst: bytes
    ports: tuple[int, int]
    rcv_nxt: int
    path: Path
    snd_nxt: int = ISS + 1
    unsent: bytes = b""
    fin_sent: bool = False
    data: bytearray = field(default_factory=bytearray)
    ahead: dict[int, bytes] = field(default_factory=dict)


class MiniTcp:
    def __init__(self, send: Callable[[list[TxPacket]], None], link: Link, answer: bytes = b"") -> None:
        self.seen: list[Seen] = []
        self.peers: dict[tuple[bytes, int], Peer] = {}
        self.settled = 0
        self._send = send
        self._link = link
        self._answer = answer
        self._due: list[TxPacket] = []

    def digest(self) -> str:
        [peer] = self.peers.values()
        return hashlib.sha256(peer.data).hexdigest()

    def receive(self, packet: Buffer, path: Path, now: Micros, csum_ok: bool = False) -> None:
        ihl, total = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
        fragment = int.from_bytes(packet[6:8], "big")
        self.seen.append(Seen(total, path, csum_ok, packet[9], fragment))
        if packet[9] != 6:
            return
        src, dst, segment = bytes(packet[12:16]), bytes(packet[16:20]), packet[ihl:total]
        if not csum_ok:
            assert ones_sum(bytes(segment)) + pseudo_sum_of(dst, src, len(segment)) in (0xFFFF, 2 * 0xFFFF)
        sport, dport, seq, ack, offset, flags = unpack_from("!HHIIBB", segment)
        if flags & SYN:
            peer = Peer(src, dst, (sport, dport), (seq + 1) & 0xFFFFFFFF, path, unsent=self._answer)
            self.peers[src, sport] = peer
            self._emit(peer, SYN | ACK, seq=ISS, options=OPTIONS)
            return
        peer = self.peers[src, sport]
        self._take(peer, seq, bytes(segment[(offset >> 4) * 4 :]), fin=bool(flags & FIN))
        if ack == peer.snd_nxt:
            self._give(peer)

    def settle(self) -> None:
        self.settled += 1
        due, self._due = self._due, []
        self._send(due)

    def _take(self, peer: Peer, seq: int, data: bytes, *, fin: bool) -> None:
        if not data and not fin:
            return
        peer.ahead[seq] = data
        while (piece := peer.ahead.pop(peer.rcv_nxt, None)) is not None:
            peer.data += piece
            peer.rcv_nxt = (peer.rcv_nxt + len(piece)) & 0xFFFFFFFF
            if not piece:
                break
        if fin and (seq + len(data)) & 0xFFFFFFFF == peer.rcv_nxt:
            peer.rcv_nxt = (peer.rcv_nxt + 1) & 0xFFFFFFFF
        self._emit(peer, ACK)

    def _give(self, peer: Peer) -> None:
        """The next piece, now that all before it has been acknowledged."""
        size = CHUNK if self._link.tso else MSS
        piece, peer.unsent = peer.unsent[:size], peer.unsent[size:]
        if piece:
            self._emit(peer, PSH_ACK, payload=piece)
            peer.snd_nxt += len(piece)
        elif not peer.fin_sent and self._answer:
            peer.fin_sent = True
            self._emit(peer, FIN | ACK)
            peer.snd_nxt += 1

    def _emit(
        self, peer: Peer, flags: int, *, seq: int = 0, options: bytes = b"", payload: bytes = b""
    ) -> None:
        length = 20 + len(options) + len(payload)
        sport, dport = peer.ports[1], peer.ports[0]
        head = pack("!HHII", sport, dport, seq or peer.snd_nxt, peer.rcv_nxt)
        head += pack("!BBHHH", (5 + len(options) // 4) << 4, flags, 8_000, 0, 0) + options
        pseudo = pseudo_sum_of(peer.dst, peer.src, length)
        offload = self._link.checksum_offload
        check = pseudo if offload else 0xFFFF - fold(pseudo + ones_sum(head + payload))
        head = head[:16] + check.to_bytes(2, "big") + head[18:]
        ip = pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, 6, 0) + peer.dst + peer.src
        ip = ip[:10] + checksum(ip).to_bytes(2, "big") + ip[12:]
        halves = (payload[:100], memoryview(payload)[100:]) if payload else ()
        gso = MSS if len(payload) > MSS else 0
        self._due.append(TxPacket(peer.path, ip + head, halves, gso, *((20, 16) if offload else (0, 0))))


def pseudo_sum_of(src: bytes, dst: bytes, length: int) -> int:
    return pseudo_sum(int.from_bytes(src, "big"), int.from_bytes(dst, "big"), 6, length)


def fold(total: int) -> int:
    return (total & 0xFFFF) + (total >> 16)
