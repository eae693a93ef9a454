from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, UDP

from juneau.netstack.types import Malformed, parse_ip
from juneau.netstack.wire import icmp
from juneau.netstack.wire.icmp import IcmpErrorKind

U8, U16 = st.integers(0, 255), st.integers(0, 2**16 - 1)
OURS, THEIRS = "10.0.0.1", "10.0.0.2"


@given(U16, U16, st.binary(max_size=40))
def test_echo_from_scapy(ident: int, seq: int, payload: bytes):
    message = icmp.parse(bytes(ICMP(type=8, id=ident, seq=seq) / payload))
    assert (message.type, message.code, message.ident, message.sequence) == (8, 0, ident, seq)
    assert bytes(message.payload) == payload


@given(
    st.sampled_from([0, 3, 8, 11]), U8, st.integers(0, 2**32 - 1), st.lists(st.binary(max_size=9), max_size=3)
)
def test_what_we_build_has_scapys_checksum(kind: int, code: int, rest: int, pieces: list[bytes]):
    built = icmp.build(kind, code, rest, tuple(pieces)) + b"".join(pieces)
    message = icmp.parse(built)
    assert (message.type, message.code, message.rest) == (kind, code, rest)
    wanted = ICMP(built)
    del wanted.chksum
    assert bytes(wanted)[2:4] == built[2:4]


@pytest.mark.parametrize(
    ("kind", "code", "meaning"),
    [
        (3, 0, IcmpErrorKind.UNREACHABLE), (3, 1, IcmpErrorKind.UNREACHABLE), (3, 2, IcmpErrorKind.PROTOCOL),
        (3, 3, IcmpErrorKind.PORT), (3, 4, IcmpErrorKind.FRAG_NEEDED), (3, 5, IcmpErrorKind.UNREACHABLE),
        (3, 13, IcmpErrorKind.PROHIBITED), (3, 99, IcmpErrorKind.UNREACHABLE), (11, 0, IcmpErrorKind.TTL),
        (11, 1, IcmpErrorKind.REASSEMBLY), (12, 0, IcmpErrorKind.PARAMETER),
        (4, 0, None), (5, 1, None), (0, 0, None), (8, 0, None), (13, 0, None), (255, 0, None),
    ],
)  # fmt: skip
def test_meaning_of_types(kind: int, code: int, meaning: IcmpErrorKind | None):
    assert icmp.error_kind(icmp.IcmpMessage(kind, code, 0, memoryview(b""))) is meaning


def test_quoted_segment_from_scapy_cut_after_eight_bytes():
    quoted = bytes(IP(src=OURS, dst=THEIRS) / TCP(sport=80, dport=40_000, seq=0xFFFF_FFFE))[:28]
    message = icmp.parse(bytes(ICMP(type=3, code=4, nexthopmtu=1400) / quoted))
    error = icmp.parse_error(IcmpErrorKind.FRAG_NEEDED, message)
    ends = (parse_ip(OURS), parse_ip(THEIRS), 80, 40_000)
    assert error == (IcmpErrorKind.FRAG_NEEDED, 1400, 6, *ends, 0xFFFF_FFFE)


def test_only_frag_needed_has_an_mtu():
    quoted = bytes(IP(src=OURS, dst=THEIRS) / UDP(sport=53, dport=9))
    message = icmp.IcmpMessage(3, 3, 1400, memoryview(quoted))
    assert icmp.parse_error(IcmpErrorKind.PORT, message).mtu == 0


@given(st.binary(max_size=64))
def test_any_bytes_are_a_value_or_malformed(data: bytes):
    try:
        message = icmp.parse(data)
    except Malformed:
        return
    assert len(message.payload) == len(data) - 8


@given(st.binary(max_size=64), st.integers(0x40, 0x4F))
def test_any_quotation_is_a_value_or_malformed(data: bytes, version_ihl: int):
    message = icmp.IcmpMessage(3, 3, 0, memoryview(bytes([version_ihl]) + data))
    try:
        error = icmp.parse_error(IcmpErrorKind.PORT, message)
    except Malformed:
        return
    assert len(data) >= 27
    assert error.src == int.from_bytes(data[11:15], "big")


@pytest.mark.parametrize("cut", [0, 19, 27])
def test_quotation_too_short(cut: int):
    quoted = bytes(IP(src=OURS, dst=THEIRS) / UDP(sport=53, dport=9))
    with pytest.raises(Malformed, match=r"icmp\.quoted: got"):
        icmp.parse_error(IcmpErrorKind.PORT, icmp.IcmpMessage(3, 3, 0, memoryview(quoted[:cut])))
