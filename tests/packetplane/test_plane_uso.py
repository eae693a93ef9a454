"""UDP superframes back to datagrams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juneau.netstack.wire import udp
from juneau.netstack.wire.checksum import checksum
from juneau.packetplane import uso


def superframe(payload: bytes, *, options: bytes = b"", ident: int = 0xFFFF) -> memoryview:
    ihl = 5 + len(options) // 4
    total = ihl * 4 + 8 + len(payload)
    head = bytes([0x40 | ihl, 0]) + total.to_bytes(2, "big") + ident.to_bytes(2, "big")
    addresses = bytes.fromhex("4000 4011 0000 0a50000a 0a500002")
    ports = (40_000).to_bytes(2, "big") + (443).to_bytes(2, "big")
    return memoryview(
        head + addresses + options + ports + (8 + len(payload)).to_bytes(2, "big") + b"\xab\xcd" + payload
    )


@given(st.binary(min_size=1, max_size=300), st.integers(3, 100), st.sampled_from([b"", b"\x01\x01\x01\0"]))
def test_the_pieces_are_whole_datagrams_of_the_payload(payload: bytes, size: int, options: bytes) -> None:
    pieces = uso.split(superframe(payload, options=options), size)
    assert pieces is not None
    found = []
    for n, piece in enumerate(pieces):
        header = (piece[0] & 15) * 4
        assert checksum(piece[:header]) == 0
        assert int.from_bytes(piece[2:4], "big") == len(piece)
        assert int.from_bytes(piece[4:6], "big") == (0xFFFF + n) & 0xFFFF
        datagram, body = udp.parse(memoryview(piece)[header:])
        assert datagram.src_port == 40_000
        found.append(bytes(body))
    assert b"".join(found) == payload
    assert all(len(body) == size for body in found[:-1])


@pytest.mark.parametrize(("payload", "size"), [(b"", 100), (b"x", 0), (bytes(129), 1)])
def test_what_no_kernel_makes_is_refused(payload: bytes, size: int) -> None:
    assert uso.split(superframe(payload), size) is None


@given(st.binary(min_size=20, max_size=100), st.integers(0, 0xFFFF))
def test_any_bytes_give_pieces_or_nothing(packet: bytes, size: int) -> None:
    pieces = uso.split(memoryview(packet), size)
    assert pieces is None or len(pieces) <= uso.MAX_SEGMENTS
