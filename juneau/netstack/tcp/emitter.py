"""Building a connection's packets: IPv4 and TCP header in one `pack`, sums by modular arithmetic.

Modulo 0xffff a sum of 16-bit words equals the sum of the 32-bit words that hold them, so checksums are
a handful of integer additions (see wire.checksum).
"""

from __future__ import annotations

import struct
from typing import Final

from juneau.netstack.types import Buffer, Link, Path, TxPacket
from juneau.netstack.wire import ipv4, tcp
from juneau.netstack.wire.checksum import ones_sum, ones_sum_of

_MASK: Final = 0xFFFF_FFFF
_PLAIN: Final = struct.Struct("!IIIQIIIII")
_STAMPED: Final = struct.Struct("!IIIQIIIIIIII")
"""With a timestamp option and no other, as nearly every segment is."""
_IP_AND_TCP: Final = ipv4.HEADER_BYTES + tcp.HEADER_BYTES
_TTL_PROTO: Final = [ttl << 24 | ipv4.PROTO_TCP << 16 for ttl in range(256)]
"""Made once: one integer for all connections is less than one for each."""
_NEW: Final = tuple.__new__


class Emitter:
    """Constants of one four-tuple. DF is always set, so an ident of 0 is right (RFC 6864)."""

    __slots__ = ("_addresses", "_ip_sum", "_partial", "_ports", "_pseudo", "_ttl_proto")

    def __init__(
        self, local_ip: int, local_port: int, remote_ip: int, remote_port: int, link: Link, ttl: int
    ) -> None:
        addresses = local_ip + remote_ip
        self._addresses = local_ip << 32 | remote_ip
        self._ports = local_port << 16 | remote_port
        self._ttl_proto = _TTL_PROTO[ttl]
        self._ip_sum = 0x4500 + ipv4.FLAG_DF + (ttl << 8 | ipv4.PROTO_TCP) + addresses
        self._pseudo = addresses + ipv4.PROTO_TCP
        self._partial = link.checksum_offload

    def packet(
        self,
        path: Path,
        seq: int,
        ack: int,
        flags: int,
        window: int,
        *,
        ts_val: int = -1,
        ts_ecr: int = 0,
        options: bytes = b"",
        payload: tuple[Buffer, ...] = (),
        size: int = 0,
        gso_size: int = 0,
        tos: int = 0,
    ) -> TxPacket:
        """`seq` and `ack` may be extended; `size` is the payload's; `ts_val` -1: no timestamp.

        A payload's checksum is left to the link where it offers that; without payload nothing is saved.
        """
        seq &= _MASK
        ack &= _MASK
        stamped = ts_val >= 0 and not options
        if stamped:
            header_bytes = 32
            option_sum = tcp.TIMESTAMP_LAYOUT + ts_val + ts_ecr
        else:
            if ts_val >= 0:
                options = tcp.build_timestamps(ts_val, ts_ecr) + options
            header_bytes = 20 + len(options)
            option_sum = ones_sum(options) if options else 0
        words = header_bytes << 26 | flags << 16 | window
        total = 20 + header_bytes + size
        if size and self._partial:
            check = (self._pseudo + header_bytes + size) % 0xFFFF or 0xFFFF
            start, offset = 20, 16
        else:
            value = self._pseudo + self._ports + header_bytes + size + seq + ack + words + option_sum
            if size:
                value += ones_sum(payload[0]) if len(payload) == 1 else ones_sum_of(payload)
            check = -value % 0xFFFF
            start = offset = 0
        w0 = 0x4500_0000 | tos << 16 | total
        w2 = self._ttl_proto | -(self._ip_sum + tos + total) % 0xFFFF
        if stamped:
            header = _STAMPED.pack(
                w0, 0x4000, w2, self._addresses, self._ports, seq, ack, words, check << 16,
                tcp.TIMESTAMP_LAYOUT, ts_val, ts_ecr,
            )  # fmt: skip
        else:
            header = _PLAIN.pack(w0, 0x4000, w2, self._addresses, self._ports, seq, ack, words, check << 16)
            if options:
                header += options
        return _NEW(TxPacket, (path, header, payload, gso_size, start, offset))
