from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.utils import PcapNgReader

from juneau.netstack.types import Malformed
from juneau.netstack.wire import pcapng
from juneau.testing.packets import echo, udp

PING, QUERY = echo(b"ping"), udp(b"query", dport=5353)
AT = 1_700_000_000_123_456
FILE = b"".join(
    (
        pcapng.section_header(),
        pcapng.interface_description("vpc-a"),
        pcapng.interface_description("vpc-b ✓", tsresol=9, description="nanoseconds"),
        pcapng.enhanced_packet(0, AT, (PING[:20], PING[20:]), direction=pcapng.INBOUND),
        pcapng.enhanced_packet(1, AT * 1000 + 7, (QUERY,), direction=pcapng.OUTBOUND, comment="dropped: why"),
    )
)


def test_our_reader():
    assert list(pcapng.read_packets(FILE)) == [
        ("vpc-a", AT, PING, pcapng.INBOUND, None),
        ("vpc-b ✓", AT * 1000 + 7, QUERY, pcapng.OUTBOUND, "dropped: why"),
    ]


def test_scapy_reads_it(tmp_path: Path):
    (tmp_path / "x.pcapng").write_bytes(FILE)
    with PcapNgReader(str(tmp_path / "x.pcapng")) as reader:
        packets = list(reader)
    assert [bytes(packet) for packet in packets] == [PING, QUERY]
    assert [packet.sniffed_on for packet in packets] == ["vpc-a", "vpc-b ✓"]
    assert int(packets[0].time * 1_000_000) == AT
    assert packets[1].comment == b"dropped: why"


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark")
def test_tshark_reads_it(tmp_path: Path):
    (tmp_path / "x.pcapng").write_bytes(FILE)
    fields = ("interface_name", "time_epoch", "packet_flags_direction", "comment", "protocols")
    command = ["tshark", "-r", str(tmp_path / "x.pcapng"), "-T", "fields", "-E", "separator=|"]
    command += [word for field in fields for word in ("-e", f"frame.{field}")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    first, second = (line.split("|") for line in run.stdout.splitlines())
    assert first[:4] == ["vpc-a", "1700000000.123456000", "0x00000001", ""]
    assert second[:4] == ["vpc-b ✓", "1700000000.123456007", "0x00000002", "dropped: why"]
    assert first[4].startswith("raw:ip:icmp")
    assert second[4].startswith("raw:ip:udp")


@given(st.binary(max_size=100))
def test_any_bytes_are_packets_or_malformed(data: bytes):
    for start in (b"", pcapng.section_header(), pcapng.section_header() + pcapng.interface_description("x")):
        with suppress(Malformed):
            list(pcapng.read_packets(start + data))


@given(st.integers(0, len(FILE) - 1), st.integers(0, 255))
def test_any_changed_byte_is_packets_or_malformed(at: int, value: int):
    changed = bytearray(FILE)
    changed[at] = value
    with suppress(Malformed):
        list(pcapng.read_packets(bytes(changed)))


COUNTED = FILE + pcapng.interface_statistics(1, AT * 1000, received=12, dropped=2**40)


def test_statistics():
    assert list(pcapng.read_statistics(COUNTED)) == [("vpc-b ✓", 12, 2**40)]
    assert len(list(pcapng.read_packets(COUNTED))) == 2


@pytest.mark.skipif(shutil.which("capinfos") is None, reason="no capinfos (tshark)")
def test_wireshark_reads_the_statistics(tmp_path: Path):
    (tmp_path / "x.pcapng").write_bytes(COUNTED)
    run = subprocess.run(
        ["capinfos", str(tmp_path / "x.pcapng")], capture_output=True, text=True, timeout=60, check=True
    )
    assert "Number of stat entries = 1" in run.stdout


@given(st.lists(st.integers(0, len(COUNTED)), max_size=6))
def test_a_stream_is_cut_into_whole_blocks(cuts: list[int]):
    ends = [*sorted(cuts), len(COUNTED)]
    cutter, whole = pcapng.BlockCutter(), b""
    for start, end in zip([0, *ends], ends, strict=False):
        whole += cutter.feed(COUNTED[start:end])
        assert COUNTED.startswith(whole)
        assert len(list(pcapng.read_packets(whole))) == cutter.packets
    assert whole == COUNTED
    assert (cutter.packets, cutter.dropped) == (2, 2**40)


def test_a_stream_of_something_else():
    with pytest.raises(Malformed):
        pcapng.BlockCutter().feed(b"HTTP/1.1 200 OK")
