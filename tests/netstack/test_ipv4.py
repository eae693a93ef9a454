"""What the stack takes for a packet of its own (RFC 1122 3.2.1), one counter for each refusal."""

from __future__ import annotations

import pytest
from ip_sim import CLIENT, ME, PEER, SERVER, Sim

from juneau.netstack.events import Closed
from juneau.netstack.stack import is_martian
from juneau.netstack.types import CloseReason, Endpoint, Link, Misuse, parse_ip
from juneau.testing.packets import Tcp, echo, icmp, ipv4, tcp, udp

PING = echo(b"hello", src=CLIENT, dst=SERVER)


def damaged(packet: bytes, at: int, value: int) -> bytes:
    return packet[:at] + bytes([value]) + packet[at + 1 :]


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (b"", "ip.bad_header"),
        (PING[:19], "ip.bad_header"),
        (ipv4(b"x", version=6), "ip.bad_version"),
        (ipv4(b"x", ihl=4), "ip.bad_ihl"),
        (ipv4(b"x", ihl=15), "ip.bad_ihl"),
        (ipv4(b"x", total_length=19), "ip.bad_total_length"),
        (ipv4(b"x", total_length=22), "ip.bad_total_length"),
        (damaged(PING, 8, 63), "ip.bad_checksum"),
        (echo(dst="10.0.0.3"), "ip.not_ours"),
        (echo(dst="255.255.255.255"), "ip.not_ours"),
        (echo(dst="224.0.0.1"), "ip.not_ours"),
        (echo(src="127.0.0.1"), "ip.martian_source"),
        (echo(src="0.0.0.0"), "ip.martian_source"),
        (echo(src="224.0.0.1"), "ip.martian_source"),
        (echo(src="255.255.255.255"), "ip.martian_source"),
        (echo(src=SERVER), "ip.martian_source"),
    ],
)
@pytest.mark.parametrize("csum_ok", [False, True])
def test_refused_in_silence_and_counted(packet: bytes, reason: str, csum_ok: bool):
    sim = Sim()
    assert sim.receive(packet, csum_ok=csum_ok) == []
    assert sim.drops() == {reason: 1}


SYN = tcp(src=CLIENT, dst=SERVER, flags="S")


@pytest.mark.parametrize(
    ("packet", "reason"),
    [
        (damaged(SYN, 8, 63), "ip.bad_checksum"),
        (tcp(flags="S", dst="10.0.0.3"), "ip.not_ours"),
        (tcp(flags="S", src="127.0.0.1"), "ip.martian_source"),
        (tcp(flags="S", src="224.0.0.1"), "ip.martian_source"),
        (tcp(flags="S", src=SERVER), "ip.martian_source"),
        (SYN[:-1], "ip.bad_total_length"),
        (SYN[:19], "ip.bad_header"),
    ],
)
def test_tcp_is_refused_for_the_same_reasons(packet: bytes, reason: str):
    sim = Sim()
    assert sim.receive(packet, csum_ok=True) == []
    assert sim.drops() == {reason: 1}


@pytest.mark.interpreted
@pytest.mark.parametrize("packet", [PING, udp(b"x", dport=9, src=CLIENT, dst=SERVER), SYN])
def test_the_fast_and_the_slow_path_agree(packet: bytes):
    fast, slow = Sim(), Sim()
    fast.stack._receive_slowly = None  # type: ignore[assignment, method-assign]
    replies = fast.receive(packet)
    nop_option = ipv4(packet[20:], src=CLIENT, dst=SERVER, proto=packet[9], options=b"\x01\x01\x01\x00")
    assert len(replies) == len(slow.receive(nop_option)) == 1
    assert fast.stack.counters.snapshot() == slow.stack.counters.snapshot()


@pytest.mark.parametrize("src", [SERVER, "127.0.0.1", CLIENT])
def test_a_loopback_link_may_bring_our_own(src: str):
    sim = Sim()
    sim.stack.loopback = True
    sim.stack.add_address(parse_ip("127.0.0.1"))
    assert len(sim.receive(echo(src=src, dst=SERVER))) == 1
    assert len(sim.receive(echo(src=src, dst="127.0.0.1"))) == 1


@pytest.mark.parametrize("src", ["0.0.0.0", "224.0.0.1", "255.255.255.255"])
def test_but_no_other_martians(src: str):
    sim = Sim()
    sim.stack.loopback = True
    assert sim.receive(echo(src=src, dst=SERVER)) == []
    assert sim.drops() == {"ip.martian_source": 1}


def test_link_padding_is_cut():
    sim = Sim()
    assert sim.receive(PING + bytes(30)) == Sim().receive(PING)


@pytest.mark.parametrize("ttl", [0, 1, 255])
def test_a_host_does_not_judge_ttl(ttl: int):  # RFC 1122 3.2.1.7
    assert len(Sim().receive(echo(b"x", ttl=ttl))) == 1


def test_options_are_skipped():
    sim = Sim()
    with_options = ipv4(
        PING[20:], src=CLIENT, dst=SERVER, proto=1, options=b"\x94\x04\0\0" + b"\x07\x27" + bytes(34)
    )
    (reply,) = sim.receive(with_options)
    assert reply[20:] == Sim().receive(PING)[0][20:]
    assert reply[0] == 0x45


def test_unknown_protocol_is_answered():
    sim = Sim()
    packet = ipv4(b"sctp, say", src=CLIENT, dst=SERVER, proto=132)
    (reply,) = sim.receive(packet)
    assert reply[20:] == icmp(packet, type=3, code=2)[20:]
    assert sim.drops() == {"ip.unknown_protocol": 1, "icmp.errors_sent": 1}


def test_nothing_is_ours_after_remove_address():
    sim = Sim()
    sim.stack.add_address(parse_ip("10.0.0.3"))
    sim.stack.remove_address(ME, sim.now)
    assert sim.receive(PING) == []
    assert sim.drops() == {"ip.not_ours": 1}
    assert len(sim.receive(echo(dst="10.0.0.3"))) == 1
    sim.stack.remove_address(ME, sim.now)  # idempotent


def test_removing_an_address_closes_its_sockets_only():
    sim = Sim()
    bound, anywhere = sim.stack.udp_bind(Endpoint(ME, 53)), sim.stack.udp_bind(Endpoint(0, 54))
    sim.receive(udp(b"x", dport=53))
    sim.stack.remove_address(ME, sim.now)
    assert bound.closed
    assert bound.receive() is None
    assert not anywhere.closed


def test_removing_an_address_ends_its_connections():
    sim = Sim()
    listener = sim.stack.tcp_listen(Endpoint(ME, 80))
    conn = sim.stack.tcp_connect(Endpoint(PEER, 9), local=Endpoint(ME, 0), path="pod-a", now=sim.now)
    assert len(sim.sent()) == 1
    sim.stack.remove_address(ME, sim.now)
    assert Closed(conn, CloseReason.ABORTED) in sim.stack.take_events()
    assert list(sim.stack.tcp.connections()) == []
    sim.stack.add_address(ME)
    (reset,) = sim.receive(SYN)
    assert Tcp.decode(reset[20:]).flag_text == "RA"
    assert listener.accept() is None


@pytest.mark.parametrize("ip", ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"])
def test_only_unicast_can_be_ours(ip: str):
    with pytest.raises(Misuse, match="not a unicast address"):
        Sim().stack.add_address(parse_ip(ip))


@pytest.mark.parametrize(
    ("ip", "martian"),
    [
        ("0.255.255.255", True), ("1.0.0.0", False), ("126.255.255.255", False), ("127.0.0.0", True),
        ("127.255.255.255", True), ("128.0.0.0", False), ("223.255.255.255", False), ("224.0.0.0", True),
        ("240.0.0.0", True), ("255.255.255.255", True),
    ],
)  # fmt: skip
def test_martians(ip: str, martian: bool):
    assert is_martian(parse_ip(ip)) is martian


@pytest.mark.parametrize("mtu", [67, 65_536])
def test_mtu_out_of_range(mtu: int):
    with pytest.raises(Misuse, match=rf"mtu {mtu}, allowed 68\.\.65535"):
        Sim(link=Link(mtu=mtu))


def test_two_stacks_share_nothing():
    one, two = Sim(), Sim()
    one.receive(PING)
    two.stack.add_address(parse_ip("10.0.0.3"))
    assert two.stack.counters.snapshot() == {}
    assert one.stack.addresses == {ME}
