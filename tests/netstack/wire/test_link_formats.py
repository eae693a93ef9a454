"""Ethernet, ARP and the virtio header: what the packet plane speaks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import ARP, Ether

from juneau.netstack.types import Malformed, format_ip, parse_ip
from juneau.netstack.wire import arp, ethernet, vnet

MAC = st.binary(min_size=6, max_size=6)
U16, U32 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)


@given(MAC, MAC, st.integers(0x600, 0xFFFF), st.binary(max_size=20))
def test_ethernet_both_ways(dst: bytes, src: bytes, kind: int, payload: bytes):
    built = ethernet.EthernetHeader(dst, src, kind).build()
    scapy = Ether(dst=dst.hex(":"), src=src.hex(":"), type=kind)
    assert built == bytes(scapy)
    header, got = ethernet.parse(built + payload)
    assert (header, bytes(got)) == ((dst, src, kind), payload)


@given(st.sampled_from([1, 2]), MAC, U32, MAC, U32)
def test_arp_both_ways(oper: int, smac: bytes, sip: int, tmac: bytes, tip: int):
    ours = arp.ArpPacket(oper, smac, sip, tmac, tip)
    scapy = ARP(op=oper, hwsrc=smac.hex(":"), psrc=format_ip(sip), hwdst=tmac.hex(":"), pdst=format_ip(tip))
    assert ours.build() == bytes(scapy)
    assert arp.parse(bytes(scapy) + bytes(18)) == ours


def test_arp_answer():
    mac, asker = b"\x02\0\0\0\0\1", b"\x02\0\0\0\0\2"
    request = arp.ArpPacket(arp.REQUEST, asker, parse_ip("10.0.0.9"), bytes(6), parse_ip("10.0.0.1"))
    want = ARP(op="is-at", hwsrc=mac.hex(":"), psrc="10.0.0.1", hwdst=asker.hex(":"), pdst="10.0.0.9")
    assert request.answer(mac).build() == bytes(want)


@pytest.mark.parametrize(("at", "field"), [(1, "hrd"), (2, "pro"), (4, "hln"), (5, "pln")])
def test_arp_of_other_kinds_is_refused(at: int, field: str):
    packet = bytearray(arp.ArpPacket(1, bytes(6), 1, bytes(6), 2).build())
    packet[at] ^= 0xFF
    with pytest.raises(Malformed, match=f"arp.{field}: got"):
        arp.parse(bytes(packet))


@given(st.tuples(*(st.integers(0, 255),) * 2, *(U16,) * 4))
def test_vnet_round_trip(fields: tuple[int, ...]):
    header = vnet.VnetHeader(*fields)
    assert vnet.parse(header.build() + b"frame") == (header, memoryview(b"frame"))


def test_vnet_is_little_endian():
    header = vnet.VnetHeader(vnet.F_NEEDS_CSUM, vnet.GSO_TCPV4, 54, 1410, 34, 16)
    assert header.build() == bytes.fromhex("01013600820522001000")


@pytest.mark.parametrize(("flags", "vouched"), [(0, False), (1, True), (2, True), (4, False)])
def test_vnet_vouches_for_checksums(flags: int, vouched: bool):
    assert vnet.VnetHeader(flags).csum_ok is vouched


@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_malformed(data: bytes):
    for parse, need in ((ethernet.parse, 14), (arp.parse, 28), (vnet.parse, 10)):
        try:
            parse(data)
        except Malformed:
            continue
        assert len(data) >= need
