"""The builders against scapy, the matchers against the builders."""

from __future__ import annotations

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP  # type: ignore[attr-defined]

from juneau.testing import match, packets

OPTIONS = packets.mss(1460) + packets.SACK_OK + packets.timestamps(7, 9) + packets.NOP + packets.wscale(7)


def test_tcp_is_what_scapy_reads():
    raw = packets.tcp(b"hello", seq=5, ack=6, flags="PA", wnd=512, options=OPTIONS, ttl=3, tos=2)
    seen = IP(raw)
    assert (seen.src, seen.dst, seen.ttl, seen.tos, seen.len) == ("10.0.0.2", "10.0.0.1", 3, 2, len(raw))
    segment = seen[TCP]
    assert (segment.seq, segment.ack, str(segment.flags), segment.window) == (5, 6, "PA", 512)
    assert dict(segment.options) == {
        "MSS": 1460, "SAckOK": b"", "Timestamp": (7, 9), "NOP": None, "WScale": 7,
    }  # fmt: skip
    assert bytes(segment.payload) == b"hello"
    assert scapy_rebuilt(raw) == raw


def scapy_rebuilt(raw: bytes) -> bytes:
    """Let scapy compute lengths and checksums afresh."""
    seen = IP(raw)
    del seen.chksum, seen.len
    for layer in (TCP, UDP, ICMP):
        if layer in seen:
            del seen[layer].chksum
    return bytes(seen)


@pytest.mark.parametrize(
    "raw",
    [
        packets.udp(b"odd", sport=1, dport=2),
        packets.udp(b""),
        packets.echo(b"ping", ident=3, seq=4),
        packets.tcp(flags="S", seq=2**32 - 1, options=packets.sack((1, 2), (3, 4))),
        packets.tcp(flags="SEW", urg=9),
    ],
)
def test_checksums_agree_with_scapy(raw: bytes):
    assert scapy_rebuilt(raw) == raw
    seen = packets.decode(raw)
    assert seen.ip.checksum_ok
    assert seen.l4_checksum_ok


def test_decode_gives_back_what_was_built():
    segment = packets.decode(packets.tcp(b"xy", flags="S.", options=OPTIONS, urg=1)).tcp
    assert segment is not None
    assert (segment.flag_text, segment.mss, segment.wscale, segment.timestamps) == ("SA", 1460, 7, (7, 9))
    assert (segment.sack_ok, segment.sack, segment.payload, segment.urg) == (True, (), b"xy", 1)


def test_a_wrong_checksum_is_told():
    seen = packets.decode(packets.tcp(checksum=1))
    assert seen.ip.checksum_ok
    assert not seen.l4_checksum_ok
    assert not packets.decode(packets.ipv4(proto=99, checksum=1)).ip.checksum_ok


def test_fragments_carry_the_whole():
    raw = packets.udp(bytes(range(100)))
    cut = packets.fragments(raw, 40)
    seen = [packets.decode(piece) for piece in cut]
    assert [(p.ip.frag_offset, p.ip.mf) for p in seen] == [(0, True), (40, True), (80, False)]
    assert b"".join(piece[20:] for piece in cut) == raw[20:]


@pytest.mark.parametrize("raw", [b"", b"\x45" * 19, b"\x60" + bytes(39), packets.ipv4(total_length=999)])
def test_decode_refuses_what_is_no_packet(raw: bytes):
    with pytest.raises(ValueError):
        packets.decode(raw)


def test_matchers_compose_and_explain():
    raw = packets.tcp(b"hi", src="10.0.0.9", flags="SA", ack=7, wnd=100)
    assert match.ip(match.tcp(flags="S.", ack=7, wnd=range(50, 200)), src="10.0.0.9") == raw
    assert match.ip(match.tcp(payload=lambda data: len(data) == 2, ack={6, 7})) == raw
    wrong = match.ip(match.tcp(flags="A", ack=8), src="10.0.0.8", ttl=match.ANY)
    assert wrong != raw
    assert wrong.differences(packets.decode(raw)) == [
        "ip.src: expected 10.0.0.8, got 10.0.0.9",
        "tcp.flags: expected A, got SA",
        "tcp.ack: expected 8, got 7",
    ]
    assert match.udp().differences(packets.decode(raw)) == ["udp: expected, but the packet has none"]


def test_matchers_see_wrong_checksums():
    assert match.ip() != packets.tcp(checksum=1)
    assert match.ip() != packets.ipv4(proto=99, checksum=1)


def test_check_names_what_is_missing_and_what_is_too_much():
    raw = packets.tcp()
    match.check([raw], [match.tcp(flags="A")])
    with pytest.raises(
        AssertionError, match=r"unexpected packet: 10\.0\.0\.2 > 10\.0\.0\.1 tcp 40000 > 80 A"
    ):
        match.check([raw], [])
    with pytest.raises(AssertionError, match=r"missing packet: tcp\(flags=S\)"):
        match.check([], [match.tcp(flags="S")])
