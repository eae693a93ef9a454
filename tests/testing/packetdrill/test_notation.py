from __future__ import annotations

import pytest

from juneau.netstack.types import Endpoint
from juneau.testing import packets
from juneau.testing.packetdrill.flow import Flow, aggregate, differences
from juneau.testing.packetdrill.model import TcpOption, TcpSpec
from juneau.testing.packetdrill.notation import (
    flag_bits,
    flag_letters,
    option_bytes,
    options_of,
    show_tcp,
    stream,
)
from juneau.testing.packetdrill.report import Mismatch

LOCAL, REMOTE = Endpoint(0xC0A80001, 8080), Endpoint(0xC0000201, 40_001)


def test_flags_both_ways():
    for letters in ("S", "S.", "F.", "R", "R.", "P.", ".", "SEW", "FP.", "-"):
        assert flag_letters(flag_bits(letters.strip("-"))) == letters


def test_options_survive_the_wire():
    options = tuple(
        TcpOption(name, values)
        for name, values in (
            ("mss", (1460,)), ("nop", ()), ("wscale", (7,)), ("sackOK", ()), ("TS", (1, 2**32 - 1)),
            ("sack", (1, 9, 20, 30)),
        )
    )  # fmt: skip
    raw = packets.tcp(options=b"".join(map(option_bytes, options)))
    segment = packets.decode(raw).tcp
    assert segment is not None
    assert options_of(segment)[: len(options)] == options


def test_the_stream_has_one_byte_for_each_offset():
    whole = stream(0, 2_000)
    for at, size in ((0, 0), (250, 3), (1_003, 500)):
        assert stream(at, size) == whole[at : at + size]
    assert stream(-1, 2) == bytes((250, 0))


def test_show_reads_like_a_script():
    spec = TcpSpec("P.", 1, 10, 5, 99, 0, (TcpOption("sack", (1, 2)), TcpOption("TS", (3, 4))))
    assert show_tcp(spec, 2) == "[ect0] P. 1:11(10) ack 5 win 99 <sack 1:2,TS val 3 ecr 4>"
    assert show_tcp(TcpSpec("", None, 0, options=None)) == "- ...(0) <...>"


@pytest.mark.parametrize("shift", [0, 2**32 - 5])
@pytest.mark.parametrize("iss", [7, 2**32 - 3])
def test_numbers_map_both_ways_across_the_wrap(shift: int, iss: int):
    flow = Flow(LOCAL, REMOTE, shift)
    syn = packets.decode(flow.inject(TcpSpec("S", 3, 0, win=9), tos=0, ttl=64)).tcp
    assert syn is not None
    assert syn.seq == (3 + shift) % 2**32
    reply = packets.tcp(
        src=LOCAL.ip, dst=REMOTE.ip, sport=LOCAL.port, dport=REMOTE.port, flags="SA", seq=iss,
        ack=syn.seq + 1, options=packets.timestamps(5_000, 1),
    )  # fmt: skip
    wanted = TcpSpec("S.", 0, 0, 4, options=(TcpOption("TS", (100, 1)), TcpOption("eol"), TcpOption("eol")))
    seen = packets.decode(reply)
    assert flow.owns(seen)
    flow.observe(seen, wanted)
    assert differences(wanted, flow.describe(seen)) == []
    ack = packets.decode(
        flow.inject(
            TcpSpec(".", 1, 4, 1, 9, options=(TcpOption("TS", (2, 100)), TcpOption("sack", (1, 11)))),
            tos=0,
            ttl=64,
        )
    ).tcp
    assert ack is not None
    assert (ack.seq, ack.ack, ack.payload) == ((3 + shift + 1) % 2**32, (iss + 1) % 2**32, stream(0, 4))
    assert ack.timestamps == (2, 5_000)
    assert ack.sack == (((iss + 1) % 2**32, (iss + 11) % 2**32),)


def test_differences_in_words():
    got = TcpSpec("P.", 1, 10, 5, 99)
    assert differences(TcpSpec(".", 2, 11, 6, 98), got) == [
        "flags P. instead of .", "seq 1 instead of 2", "ack 5 instead of 6", "win 99 instead of 98",
        "10 bytes instead of 11",
    ]  # fmt: skip
    assert differences(TcpSpec("P.", 1, 10, 5, options=(TcpOption("nop"),)), got) == ["options"]


def test_timestamps_are_compared_where_a_tick_is_given():
    wanted = TcpSpec(".", 1, 0, 1, options=(TcpOption("TS", (100, 1)),))
    got = TcpSpec(".", 1, 0, 1, options=(TcpOption("TS", (110, 1)),))
    assert differences(wanted, got) == []
    assert differences(wanted, got, tick=1_000, tolerance=4_000) == ["options"]
    assert differences(wanted, got, tick=1_000, tolerance=10_000) == []


def test_segments_join_only_where_they_follow_one_another():
    one, two = TcpSpec(".", 1, 10, 5), TcpSpec("P.", 11, 4, 5, 7)
    assert aggregate([one, two]) == TcpSpec("P.", 1, 14, 5, 7)
    for odd in (
        [one, TcpSpec(".", 12, 4, 5)],
        [one, TcpSpec(".", 11, 12, 5)],
        [two, TcpSpec(".", 15, 3, 5), one],
    ):
        with pytest.raises(Mismatch):
            aggregate(odd)
