"""The grammar, one construct a test; what is wrong is refused with its line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from juneau.testing.packetdrill.model import (
    ANYTHING,
    Array,
    CodeEvent,
    CommandEvent,
    Event,
    IcmpSpec,
    Name,
    Or,
    PacketEvent,
    ScriptError,
    Struct,
    SyscallEvent,
    TcpOption,
    TcpSpec,
    Time,
    UdpSpec,
    When,
)
from juneau.testing.packetdrill.parser import parse


def one(text: str) -> Event:
    (event,) = parse(text).events
    return event


def segment(text: str) -> TcpSpec:
    action = one(f"0 {text}").action
    assert isinstance(action, PacketEvent)
    assert isinstance(action.body, TcpSpec)
    return action.body


def call(text: str) -> SyscallEvent:
    action = one(f"0 {text}").action
    assert isinstance(action, SyscallEvent)
    return action


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("0.5", Time(When.ABSOLUTE, 500_000)),
        ("+.1", Time(When.RELATIVE, 100_000)),
        ("+0", Time(When.RELATIVE, 0)),
        ("+ 0.00", Time(When.RELATIVE, 0)),
        ("*", Time(When.ANY)),
        ("1~2.5", Time(When.ABSOLUTE, 1_000_000, 2_500_000)),
        ("+.35~+2.35", Time(When.RELATIVE, 350_000, 2_350_000)),
    ],
)
def test_times(text: str, time: Time):
    assert one(f"{text} > . 1:1(0) ack 1").time == time


def test_a_blocking_call_has_an_end():
    event = one("+.1...0.200 connect(3, ..., ...) = 0")
    assert event.time == Time(When.RELATIVE, 100_000)
    assert event.action == SyscallEvent("connect", (3, ANYTHING, ANYTHING), 0, "", 200_000)


def test_segments():
    assert segment("< SEW 0:0(0) win 10 <mss 1460,nop,wscale 7>") == TcpSpec(
        "SEW", 0, 0, None, 10, 0, (TcpOption("mss", (1460,)), TcpOption("nop"), TcpOption("wscale", (7,)))
    )
    assert segment("> . 1:1001(1000) ack 5 <...>") == TcpSpec(".", 1, 1000, 5, None, 0, None)
    assert segment("< - 1:1(0) win 2") == TcpSpec("", 1, 0, None, 2)
    assert segment("> S. ...(0) ack 1") == TcpSpec("S.", None, 0, 1)
    assert segment("< U. 1:3(2) ack 1 win 9 urg 2").urg == 2
    assert segment("> 80 > 1234 R 7:7(0)") == TcpSpec("R", 7, 0, src_port=80, dst_port=1234)


def test_options():
    assert segment("> . 1:1(0) ack 1 <sackOK,TS val 1 ecr 2,eol,sack 1:2 5:9,md5 0aff>").options == (
        TcpOption("sackOK"),
        TcpOption("TS", (1, 2)),
        TcpOption("eol"),
        TcpOption("sack", (1, 2, 5, 9)),
        TcpOption("md5", (), b"\x0a\xff"),
    )


def test_an_inbound_packet_on_the_next_line_is_no_option_list():
    first, second = parse("+0 > . 1:1(0) ack 1\n+0 < . 1:1(0) ack 1 win 5").events
    assert first.action == PacketEvent(False, TcpSpec(".", 1, 0, 1))
    assert second.action == PacketEvent(True, TcpSpec(".", 1, 0, 1, 5))


def test_ip_marks():
    action = one("0 > [ect0] . 1:1(0) ack 1").action
    assert isinstance(action, PacketEvent)
    assert action.ip.ecn == 2
    action = one("0 < (tos 0x28) . 1:1(0) ack 1").action
    assert isinstance(action, PacketEvent)
    assert action.ip.tos == 0x28


def test_udp_and_icmp():
    assert one("0 < udp 53 > 1024 (100)").action == PacketEvent(True, UdpSpec(100, 53, 1024))
    assert one("0 < icmp unreachable frag_needed mtu 800 [1:1461(1460)]").action == PacketEvent(
        True, IcmpSpec("unreachable", "frag_needed", 800, 1, 1460)
    )
    assert one("0 < icmp unreachable port_unreachable [udp (8)]").action == PacketEvent(
        True, IcmpSpec("unreachable", "port_unreachable", udp_size=8)
    )


def test_calls():
    assert call("fcntl(3, F_GETFL) = 0x02 (flags O_RDWR)") == SyscallEvent("fcntl", (3, Name("F_GETFL")), 2)
    assert call("connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)").errno == "EINPROGRESS"
    assert call("fcntl(3, F_SETFL, O_RDWR | O_NONBLOCK) = 0").args[2] == Or(
        Name("O_RDWR"), Name("O_NONBLOCK")
    )
    assert call('open("/tmp/f\\n", O_RDONLY) = 5').args[0] == "/tmp/f\n"
    assert call("getsockopt(3, SOL_SOCKET, SO_ERROR, [0], [4]) = 0").args[3] == Array((0,))


def test_structs():
    assert call("poll([{fd=4, events=POLLIN, revents=0}], 1, 0) = 0").args[0] == Array(
        (Struct({"fd": 4, "events": Name("POLLIN"), "revents": 0}),)
    )
    message = call(
        "sendmsg(4, {msg_name(...)=..., msg_iov(2)=[{..., 40}, {..., 2}], msg_flags=0}, 0) = 42"
    ).args[1]
    assert isinstance(message, Struct)
    assert message.get("msg_iov") == Array(
        (Struct({"0": ANYTHING, "1": 40}), Struct({"0": ANYTHING, "1": 2}))
    )
    address = call(
        'bind(3, {sa_family = AF_INET, sin_port = htons(80), sin_addr = inet_addr("10.0.0.1")}, ...) = 0'
    )
    assert address.args[1] == Struct({"sa_family": Name("AF_INET"), "sin_port": 80, "sin_addr": "10.0.0.1"})


def test_options_commands_code_and_comments():
    script = parse(
        """// one
        --tolerance_usecs=9000 --ip_version=ipv4
        `init.sh`
        0 `sysctl -q a=1` /* two
        lines */
        +0 %{ assert 1 == 1 }%
        `cleanup`
        """
    )
    assert script.options == {"tolerance_usecs": "9000", "ip_version": "ipv4"}
    assert (script.init, script.cleanup) == (("init.sh",), ("cleanup",))
    assert [event.action for event in script.events] == [
        CommandEvent("sysctl -q a=1"),
        CodeEvent(" assert 1 == 1 "),
    ]
    assert script.events[1].line == 6


def test_ifdef_keeps_line_numbers():
    text = "#ifdef A\n0 read(1) = 1\n#else\n0 read(2) = 2\n#endif\n#ifndef A\n0 read(3) = 3\n#endif"
    assert [(e.line, e.action.args) for e in parse(text, {"A"}).events] == [(2, (1,))]  # type: ignore[union-attr]
    assert [(e.line, e.action.args) for e in parse(text).events] == [(4, (2,)), (7, (3,))]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0 < . 1:2(5) ack 1", 1),
        ("\n0 < Q 1:1(0)", 2),
        ("0 read(3) 1", 1),
        ("0 > . 1:1(0) ack 1 <shiny 5>", 1),
        ("0 > . 1:1(0) ack 1 <md5 zz>", 1),
        ("#endif", 1),
        ("#ifdef A\n0 read(1) = 1", 2),
        ("0 < ipv6 1:1(0)", 1),
        ("0 ]", 1),
    ],
)
def test_errors_name_the_line(text: str, line: int):
    with pytest.raises(ScriptError) as caught:
        parse(text)
    assert caught.value.line == line


@given(st.text(alphabet='0123456789+-.~*<>()[]{},:=|`"%/#\n SFRP.ackwinmsconect_', max_size=60))
def test_any_text_is_a_script_or_a_script_error(text: str):
    with suppress(ScriptError):
        parse(text)
