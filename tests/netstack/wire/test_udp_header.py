from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP

from juneau.netstack.types import Malformed
from juneau.netstack.wire import udp

PORT = st.integers(0, 65_535)


@given(PORT, PORT, st.binary(max_size=40))
def test_what_scapy_builds_we_read(sport: int, dport: int, payload: bytes):
    packet = bytes(IP(src="1.2.3.4", dst="5.6.7.8") / UDP(sport=sport, dport=dport) / payload)
    header, got = udp.parse(packet[20:])
    assert (header.src_port, header.dst_port, header.length) == (sport, dport, 8 + len(payload))
    assert bytes(got) == payload


def test_the_length_field_cuts_trailing_bytes():
    assert bytes(udp.parse(udp.build_header(1, 2, 3, 0) + b"abcdef")[1]) == b"abc"


@given(st.binary(max_size=30))
def test_any_bytes_are_a_value_or_malformed(data: bytes):
    try:
        header, payload = udp.parse(data)
    except Malformed:
        return
    assert len(payload) == header.length - 8 <= len(data) - 8


@pytest.mark.parametrize("length", [7, 13])
def test_length_out_of_range(length: int):
    with pytest.raises(Malformed, match=f"udp.length: got {length}, allowed 8..12"):
        udp.parse(bytes([0, 1, 0, 2, 0, length, 0, 0]) + b"data")
