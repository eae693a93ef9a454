from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, IPOption_Router_Alert

from juneau.netstack.types import Malformed, format_ip
from juneau.netstack.wire import ipv4

U8, U16, U32 = st.integers(0, 255), st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)


@given(U32, U32, U8, st.integers(0, 60), U16, U8, U8, U16)
def test_what_we_build_scapy_reads(src, dst, proto, size, ident, ttl, tos, flags_offset):
    built = ipv4.build_header(src, dst, proto, size, ident=ident, ttl=ttl, tos=tos, flags_offset=flags_offset)
    read = IP(built + bytes(size))
    assert (read.src, read.dst, read.proto) == (format_ip(src), format_ip(dst), proto)
    assert (read.version, read.ihl, read.len, read.id) == (4, 5, 20 + size, ident)
    assert (read.ttl, read.tos, int(read.flags) << 13 | read.frag) == (ttl, tos, flags_offset)
    wanted = read.copy()
    del wanted.chksum
    assert IP(bytes(wanted)).chksum == read.chksum


@given(U16, U8, U8, U8, st.integers(0, 7), st.integers(0, 0x1FFF), st.binary(max_size=40), st.booleans())
def test_what_scapy_builds_we_read(ident, ttl, tos, proto, flags, frag, payload, with_option):
    options = [IPOption_Router_Alert()] if with_option else []
    packet = bytes(
        IP(src="1.2.3.4", dst="5.6.7.8", id=ident, ttl=ttl, tos=tos, proto=proto, flags=flags, frag=frag,
           options=options) / payload
    )  # fmt: skip
    header, got = ipv4.parse(packet + b"padding")
    assert bytes(got) == payload
    assert (header.src, header.dst) == (0x01020304, 0x05060708)
    assert (header.ident, header.ttl, header.proto) == (ident, ttl, proto)
    assert (header.dscp, header.ecn, header.tos) == (tos >> 2, tos & 3, tos)
    assert (header.df, header.mf, header.frag_offset) == (bool(flags & 2), bool(flags & 1), frag * 8)
    assert header.is_fragment == bool(flags & 1 or frag)
    assert (header.ihl, header.header_bytes) == ((6, 24) if with_option else (5, 20))


@given(st.binary(max_size=80))
def test_any_bytes_are_a_value_or_malformed(data: bytes):
    try:
        header, payload = ipv4.parse(data)
    except Malformed:
        return
    assert header.header_bytes + len(payload) == header.total_length <= len(data)


GOOD = ipv4.build_header(1, 2, 6, 4) + b"data"


@pytest.mark.parametrize(
    ("packet", "field"),
    [
        (GOOD[:19], "ip.header"),
        (b"\x65" + GOOD[1:], "ip.version"),
        (b"\x44" + GOOD[1:], "ip.ihl"),
        (b"\x4f" + GOOD[1:], "ip.ihl"),
        (GOOD[:2] + b"\x00\x13" + GOOD[4:], "ip.total_length"),
        (GOOD[:23], "ip.total_length"),
        (GOOD[:8] + b"\x41" + GOOD[9:], "ip.checksum"),
    ],
)
def test_each_fault_has_its_field(packet: bytes, field: str):
    assert bytes(ipv4.parse(GOOD)[1]) == b"data"
    with pytest.raises(Malformed) as caught:
        ipv4.parse(packet)
    assert caught.value.field == field
