"""What is asked outside: what leaves, what is believed, what is remembered, and for whom."""

from __future__ import annotations

import asyncio
import socket

import dns.edns
import dns.flags
import dns.message
import dns.rcode
import pytest
from dns_world import ALPHA, BARE, BETA, SUFFIX, World, read, rows
from hypothesis import given
from hypothesis import strategies as st
from upstream import reply_to, upstream

from juneau.netstack.types import Malformed
from juneau.services.dns.message import parse_query
from juneau.services.dns.reply import build_from_reply, matches, parse_reply, records_of
from juneau.services.dns.settings import Upstream, parse_upstream, read_resolv_conf

WWW = "www.example.com."
SOA = "example.com. 600 SOA ns.example.com. root.example.com. 1 7200 1800 86400 30"


def www(query, tcp):
    return reply_to(query, f"{WWW} 300 A 192.0.2.1", f"{WWW} 300 A 192.0.2.2")


@pytest.mark.parametrize("rtype", ["A", "AAAA", "MX", "TXT", "SRV", "NS", "SOA", "CAA", "HTTPS", "TYPE65400"])
async def test_every_type_passes_unchanged(rtype):
    data = {"A": "192.0.2.1", "AAAA": "2001:db8::1", "MX": "10 mx.example.com.", "TXT": '"a" "b"'}
    data |= {"SRV": "1 2 3 srv.example.com.", "NS": "ns.example.com.", "CAA": '0 issue "ca.example"'}
    data |= {"SOA": SOA.split(" ", 3)[3], "HTTPS": '1 . alpn="h2"', "TYPE65400": "\\# 2 abcd"}

    async with upstream(lambda q, tcp: reply_to(q, f"{WWW} 300 {rtype} {data[rtype]}")) as server:
        response = await World(upstreams=[server.address]).ask_later(WWW, rtype)
    assert rows(response.answer) == [f"{WWW} {rtype} {data[rtype]}"]
    assert response.flags & (dns.flags.RA | dns.flags.AA) == dns.flags.RA


async def test_what_leaves_is_the_question_alone():
    """A random id, our own OPT, no client options; CD and DO as asked."""
    async with upstream(www) as server:
        world = World(upstreams=[server.address], cache_entries=0)
        option = dns.edns.ECSOption("10.80.0.0", 24)
        for _ in range(8):
            await world.ask_later("WwW.example.com.", use_edns=0, options=[option], want_dnssec=True, id=7)
        queries = [query for query, _ in server.asked]
    assert len({query.id for query in queries}) > 4
    assert len({port for _, port in server.clients}) > 4
    for query in queries:
        assert str(query.question[0].name) == "WwW.example.com."
        assert (query.edns, query.payload, query.options) == (0, 1232, ())
        assert query.ednsflags & dns.flags.DO
        assert query.flags & dns.flags.RD


async def test_options_of_upstream_are_not_passed_on():
    def answer(query, tcp):
        response = www(query, tcp)
        response.use_edns(0, options=[dns.edns.GenericOption(10, b"x" * 16)])
        return response

    async with upstream(answer) as server:
        world = World(upstreams=[server.address])
        assert (await world.ask_later(WWW, use_edns=0)).options == ()
        assert (await world.ask_later(WWW)).edns == -1


async def test_only_the_right_answer_is_believed():
    """Wrong id, wrong name, wrong type, a query, junk: ignored, and the right one still waited for."""

    def answer(query, tcp):
        good = www(query, tcp)
        wrong_id = dns.message.from_wire(good.to_wire())
        wrong_id.id ^= 1
        other = dns.message.make_query("evil.example.com.", "A", id=query.id)
        wrong_type = dns.message.make_query(WWW, "AAAA", id=query.id)
        bad = [reply_to(q, f"{WWW} 300 A 203.0.113.66") for q in (other, wrong_type)]
        return [b"junk", query.to_wire(), wrong_id, *bad, good]

    async with upstream(answer) as server:
        world = World(upstreams=[server.address])
        response = await world.ask_later(WWW)
    assert rows(response.answer) == [f"{WWW} A 192.0.2.1", f"{WWW} A 192.0.2.2"]
    assert world.events["dns.forward.mismatched"] == 5


async def test_answers_from_elsewhere_do_not_arrive():
    """The socket is connected: another sender, even with the right id, is not heard."""
    loop = asyncio.get_running_loop()

    def answer(query, tcp):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(reply_to(query, f"{WWW} 300 A 203.0.113.66").to_wire(), server.clients[-1])
        loop.call_later(0.02, lambda: server.transport.sendto(www(query, tcp).to_wire(), server.clients[-1]))

    async with upstream(answer) as server:
        response = await World(upstreams=[server.address]).ask_later(WWW)
    assert "203.0.113.66" not in str(response)


# Failover


async def test_a_silent_server_is_passed_over_and_asked_last_from_then_on():
    async with upstream(lambda *_: None) as dead, upstream(www) as alive:
        world = World(upstreams=[dead.address, alive.address], server_timeout_s=0.05, cache_entries=0)
        for _ in range(3):
            assert (await world.ask_later(WWW)).answer
        assert (len(dead.asked), len(alive.asked)) == (1, 3)
        world.now += 11
        await world.ask_later(WWW)
        assert len(dead.asked) == 2
    assert world.events["dns.forward.timeouts"] == 2


async def test_a_closed_port_is_passed_over_at_once():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{sock.getsockname()[1]}"
    async with upstream(www) as alive, asyncio.timeout(2):
        world = World(upstreams=[closed, alive.address], server_timeout_s=30, budget_s=60)
        assert (await world.ask_later(WWW)).answer
    assert world.events["dns.forward.errors"] == 1


@pytest.mark.parametrize("rcode", ["SERVFAIL", "REFUSED", "NOTIMP"])
async def test_an_unwilling_server_is_passed_over_and_its_word_is_the_last_resort(rcode):
    async with upstream(lambda q, tcp: reply_to(q, rcode=rcode)) as unwilling, upstream(www) as alive:
        assert (await World(upstreams=[unwilling.address, alive.address]).ask_later(WWW)).answer
        alone = World(upstreams=[unwilling.address])
        assert (await alone.ask_later(WWW)).rcode() == dns.rcode.from_text(rcode)
    assert len(unwilling.asked) == 2


async def test_nobody_answers_is_servfail_within_the_budget():
    async with upstream(lambda *_: None) as dead, asyncio.timeout(5):
        world = World(upstreams=[dead.address], server_timeout_s=10, budget_s=0.1)
        assert (await world.ask_later(WWW, use_edns=0)).rcode() == dns.rcode.SERVFAIL
    assert world.events["dns.forward.out_of_time"] == 1


async def test_a_lost_datagram_is_sent_again():
    async with upstream(lambda q, tcp: None if len(server.asked) == 1 else www(q, tcp)) as server:
        world = World(upstreams=[server.address], server_timeout_s=0.05)
        assert (await world.ask_later(WWW)).answer


async def test_a_server_older_than_edns():
    def answer(query, tcp):
        if query.edns >= 0:
            return query.id.to_bytes(2, "big") + b"\x80\x01" + bytes(8)
        return www(query, tcp)

    async with upstream(answer) as server:
        response = await World(upstreams=[server.address]).ask_later(WWW, use_edns=0)
    assert (len(rows(response.answer)), response.edns) == (2, 0)


async def test_malformed_answers_are_no_answers():
    def broken(query, tcp):
        return www(query, tcp).to_wire()[:-3]

    async with upstream(broken) as bad, upstream(www) as good:
        world = World(upstreams=[bad.address, good.address])
        assert (await world.ask_later(WWW)).answer
    assert world.events["dns.forward.errors"] == 1


# Truncation


def many(query, tcp):
    records = [f"{WWW} 300 A 192.0.2.{n}" for n in range(100)]
    return reply_to(query, *records) if tcp else reply_to(query, *records[:10], tc=True)


async def test_truncation_passes_to_udp_clients_and_is_resolved_for_tcp_clients():
    async with upstream(many) as server:
        world = World(upstreams=[server.address])
        udp = await world.ask_later(WWW, use_edns=0)
        assert (len(rows(udp.answer)), bool(udp.flags & dns.flags.TC)) == (10, True)
        assert [tcp for _, tcp in server.asked] == [False]
        tcp = await world.ask_later(WWW, tcp=True)
        assert (len(rows(tcp.answer)), bool(tcp.flags & dns.flags.TC)) == (100, False)
        assert [tcp for _, tcp in server.asked] == [False, False, True]
        again = world.ask(WWW, use_edns=0)
    assert again.flags & dns.flags.TC
    assert len(rows(again.answer)) == (1232 - 12 - 21 - 11) // 16, "as many as fit, from what is remembered"


async def test_too_large_for_the_client_is_cut_at_a_record():
    async with upstream(
        lambda q, tcp: reply_to(q, *(f"{WWW} 300 A 192.0.2.{n}" for n in range(40)))
    ) as server:
        world = World(upstreams=[server.address])
        wire = await world.raw(dns.message.make_query(WWW, "A").to_wire())()
    response = dns.message.from_wire(wire)
    assert (len(wire) <= 512, len(rows(response.answer)), bool(response.flags & dns.flags.TC)) == (
        True,
        29,
        True,
    )


# What is remembered


async def test_answers_are_remembered_with_falling_ttls_and_the_askers_letter_case():
    async with upstream(www) as server:
        world = World(upstreams=[server.address])
        await world.ask_later(WWW)
        world.now += 100
        response = world.ask("wWw.eXample.com.", use_edns=0, id=77)
        assert (response.answer[0].ttl, str(response.question[0].name), response.edns) == (
            200,
            "wWw.eXample.com.",
            0,
        )
        world.now += 199.9
        assert world.ask(WWW).answer[0].ttl == 1
        world.now += 0.2
        await world.ask_later(WWW)
        assert len(server.asked) == 2
    assert world.events["dns.cache.hits"] == 2


async def test_the_same_bytes_asked_again_get_their_id_and_a_ttl_that_falls():
    async with upstream(www) as server:
        world = World(upstreams=[server.address])
        await world.ask_later(WWW)
        for second in range(1, 4):
            for ident in (5, 6):
                world.now += 0.5
                response = world.ask(WWW, id=ident)
                assert (response.id, response.answer[0].ttl) == (ident, 300 - int(world.now - 1000)), second
        world.now += 300
        await world.ask_later(WWW)
        assert len(server.asked) == 2
    assert world.events["dns.cache.hits"] == 6
    assert world.events["dns.NOERROR"] == 8


async def test_one_vpc_does_not_see_what_another_asked():
    async with upstream(www) as server:
        world = World(upstreams=[server.address])
        for tenant in (ALPHA, BETA, ALPHA, BETA):
            await world.ask_later(WWW, tenant=tenant)
        assert len(server.asked) == 2


async def test_do_and_cd_are_other_questions():
    async with upstream(www) as server:
        world = World(upstreams=[server.address])
        for make in ({}, {"want_dnssec": True}, {"flags": dns.flags.CD | dns.flags.RD}, {"use_edns": 0}):
            await world.ask_later(WWW, **make)
        assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("rcode", "records", "authority", "seconds"),
    [
        ("NXDOMAIN", (), (SOA,), 30),
        ("NXDOMAIN", (), (SOA.replace("600", "20"),), 20),
        ("NXDOMAIN", (), (SOA[:-2] + "9999",), 300),  # ours is the cap
        ("NXDOMAIN", (), (), 0),
        ("NOERROR", (), (SOA,), 30),
        ("NOERROR", (), (), 0),
        ("NOERROR", (f"{WWW} 9 CNAME x.example.com.",), (SOA,), 9),  # an alias to nothing
        ("NOERROR", (f"{WWW} 0 A 192.0.2.1",), (), 0),
        ("NOERROR", (f"{WWW} 9999 A 192.0.2.1",), (), 3600),
        ("NOERROR", (f"{WWW} 60 CNAME x.example.com.", "x.example.com. 40 A 192.0.2.1"), (), 40),
        ("SERVFAIL", (), (), 0),
    ],
)
async def test_how_long_an_answer_is_remembered(rcode, records, authority, seconds):
    async with upstream(lambda q, tcp: reply_to(q, *records, rcode=rcode, authority=authority)) as server:
        world = World(upstreams=[server.address])
        first = await world.ask_later(WWW)
        asked = len(server.asked)
        world.now += seconds - 0.5
        if seconds:
            again = world.ask(WWW)
            assert (again.rcode(), rows(again.answer), rows(again.authority)) == (
                *(first.rcode(), rows(first.answer), rows(first.authority)),
            )
        world.now += 0.5
        await world.ask_later(WWW)
        assert len(server.asked) > asked


async def test_ttl_with_the_top_bit_is_zero():
    def answer(query, tcp):
        wire = bytearray(reply_to(query, f"{WWW} 1 A 192.0.2.1").to_wire())
        at = wire.index(b"\xc0\x0c\0\1\0\1") + 6
        wire[at] = 0x80
        return bytes(wire)

    async with upstream(answer) as server:
        world = World(upstreams=[server.address])
        for _ in range(2):
            assert (await world.ask_later(WWW)).answer[0].ttl == 0
        assert len(server.asked) == 2


async def test_the_cache_of_a_vpc_is_bounded_and_its_own():
    async with upstream(lambda q, tcp: reply_to(q, f"{q.question[0].name} 300 A 192.0.2.1")) as server:
        world = World(upstreams=[server.address], cache_entries=2)
        await world.ask_later("mine.example.com", tenant=BETA)
        for name in ("a.example.com", "b.example.com", "a.example.com", "c.example.com"):
            await world.ask_later(name)
        assert len(server.asked) == 4
        world.ask("a.example.com")
        world.ask("c.example.com")
        world.ask("mine.example.com", tenant=BETA)
        await world.ask_later("b.example.com")
        assert len(server.asked) == 5


# Limits


async def test_the_same_question_is_asked_once_at_a_time():
    gate = asyncio.Event()

    async with upstream(lambda *_: None) as server:
        original = server.datagram_received

        def later(data, addr):
            original(data, addr)
            gate.set()

        server.datagram_received = later
        world = World(upstreams=[server.address])
        tasks = [asyncio.create_task(world.ask_later(WWW)) for _ in range(5)]
        async with asyncio.timeout(5):
            await gate.wait()
        server.transport.sendto(www(server.asked[0][0], False).to_wire(), server.clients[0])
        responses = await asyncio.gather(*tasks)
        assert len(server.asked) == 1
    assert all(len(rows(r.answer)) == 2 for r in responses)
    assert world.events["dns.forward.joined"] == 4


async def test_too_many_queries_in_flight_are_servfail_and_other_vpcs_are_served():
    async with upstream(lambda q, tcp: None if "slow" in str(q.question[0].name) else www(q, tcp)) as server:
        world = World(upstreams=[server.address], in_flight_per_vpc=3, server_timeout_s=0.3, budget_s=0.3)
        slow = [asyncio.create_task(world.ask_later(f"slow{n}.example.com")) for n in range(5)]
        await asyncio.sleep(0.05)
        assert world.ask("late.example.com").rcode() == dns.rcode.SERVFAIL
        assert (await world.ask_later(WWW, tenant=BETA)).answer
        responses = await asyncio.gather(*slow)
    assert {r.rcode() for r in responses} == {dns.rcode.SERVFAIL}
    assert world.events["dns.forward.too_many"] == 3
    assert len(server.asked) == 4


async def test_a_burst_is_held_to_the_limit_too():
    """Datagrams read in one turn all pass the first check; the one that counts is when they are asked."""
    async with upstream(lambda *_: None) as server:
        world = World(upstreams=[server.address], in_flight_per_vpc=3, server_timeout_s=0.1, budget_s=0.1)
        queries = [dns.message.make_query(f"slow{n}.example.com", "A") for n in range(8)]
        pending = [world.raw(query.to_wire()) for query in queries]
        answers = await asyncio.gather(*(call() for call in pending))
        assert {read(*pair).rcode() for pair in zip(queries, answers, strict=True)} == {dns.rcode.SERVFAIL}
        assert {str(query.question[0].name) for query, _ in server.asked} == {
            f"slow{n}.example.com." for n in range(3)
        }
    assert world.events["dns.forward.too_many"] == 5


async def test_no_upstream_is_servfail_and_a_vpc_without_one_is_refused():
    assert World().ask(WWW).rcode() == dns.rcode.SERVFAIL
    async with upstream(www) as server:
        world = World(upstreams=[server.address], vpc_upstreams={"bare": [], "beta": ["127.0.0.1:1"]})
        assert world.ask(WWW, tenant=BARE).rcode() == dns.rcode.REFUSED
        assert (await world.ask_later(WWW)).answer
        assert (await world.ask_later(WWW, tenant=BETA)).rcode() == dns.rcode.SERVFAIL
        assert len(server.asked) == 1


# Private reverse zones never leave


async def test_private_reverse_names_do_not_leave_and_public_ones_do():
    async with upstream(lambda q, tcp: reply_to(q, rcode="NXDOMAIN")) as server:
        world = World(upstreams=[server.address])
        private = ["10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.1.1", "127.0.0.1"]
        for ip in [*private, "100.64.0.1", "0.0.0.0"]:
            name = ".".join(reversed(ip.split("."))) + ".in-addr.arpa"
            response = world.ask(name, "PTR")
            assert (response.rcode(), len(response.authority)) == (dns.rcode.NXDOMAIN, 1)
        assert world.ask("255.255.255.255.in-addr.arpa", "PTR").rcode() == dns.rcode.NOERROR  # a zone's apex
        assert server.asked == []
        for ip in ("8.8.8.8", "172.32.0.1", "11.0.0.1", "100.128.0.1"):
            await world.ask_later(".".join(reversed(ip.split("."))) + ".in-addr.arpa", "PTR")
        assert len(server.asked) == 4


# Aliases that lead outside


async def test_external_name_is_completed_from_outside():
    name = f"outside.default.{SUFFIX}"
    chain = (f"{WWW} 300 CNAME cdn.example.net.", "cdn.example.net. 300 A 192.0.2.7")
    async with upstream(lambda q, tcp: reply_to(q, *chain)) as server:
        world = World(upstreams=[server.address])
        for _ in range(2):
            response = await world.ask_later(name, use_edns=0)
            assert rows(response.answer) == [
                "cdn.example.net. A 192.0.2.7",
                f"{name} CNAME {WWW}",
                f"{WWW} CNAME cdn.example.net.",
            ]
            assert str(response.answer[0].name) == name, "the alias comes first"
        assert len(server.asked) == 1
        assert str(server.asked[0][0].question[0].name) == WWW


@pytest.mark.parametrize(("rcode", "expected"), [("NXDOMAIN", "NXDOMAIN"), ("SERVFAIL", "SERVFAIL")])
async def test_external_name_takes_the_outcome_of_its_target(rcode, expected):
    async with upstream(lambda q, tcp: reply_to(q, rcode=rcode)) as server:
        response = await World(upstreams=[server.address]).ask_later(f"outside.default.{SUFFIX}")
    assert dns.rcode.to_text(response.rcode()) == expected
    assert len(rows(response.answer)) == 1


async def test_external_name_keeps_truncation():
    def answer(query, tcp):
        return reply_to(query, f"{WWW} 300 A 192.0.2.1", tc=True)

    async with upstream(answer) as server:
        response = await World(upstreams=[server.address]).ask_later(f"outside.default.{SUFFIX}")
    assert response.flags & dns.flags.TC


# Settings


@pytest.mark.parametrize(
    ("text", "upstream_"),
    [
        ("9.9.9.9", Upstream("9.9.9.9")),
        ("9.9.9.9:5353", Upstream("9.9.9.9", 5353)),
        ("2001:db8::1", Upstream("2001:db8::1")),
        ("[2001:db8::1]:54", Upstream("2001:db8::1", 54)),
        ("[2001:db8::1]", Upstream("2001:db8::1")),
    ],
)
def test_upstream_addresses(text, upstream_):
    assert parse_upstream(text) == upstream_


@pytest.mark.parametrize(
    "text", ["", "dns.example", "1.2.3", "1.2.3.4:x", "1.2.3.4:0", "1.2.3.4:65536", "[::1]:"]
)
def test_bad_upstream_addresses(text):
    if text == "[::1]:":
        assert parse_upstream(text) == Upstream("::1")
        return
    with pytest.raises(ValueError, match="allowed ADDRESS or ADDRESS:PORT"):
        parse_upstream(text)


def test_resolv_conf(tmp_path):
    path = tmp_path / "resolv.conf"
    path.write_text(
        "# x\nsearch a b\nnameserver 192.0.2.1\nnameserver bogus\n nameserver ::1 # y\nnameserver\n"
    )
    assert read_resolv_conf(str(path)) == (Upstream("192.0.2.1"), Upstream("::1"))
    assert read_resolv_conf(str(tmp_path / "none")) == ()


# Any bytes from upstream


QUERY = parse_query(dns.message.make_query(WWW, "A", use_edns=0, id=5).to_wire())
GOOD = reply_to(
    dns.message.from_wire(dns.message.make_query(WWW, "A", use_edns=0, id=5).to_wire()),
    SOA,
    f"{WWW} 3 A 192.0.2.1",
)


@st.composite
def damaged_replies(draw):
    wire = bytearray(GOOD.to_wire())
    for _ in range(draw(st.integers(0, 4))):
        wire[draw(st.integers(0, len(wire) - 1))] = draw(st.integers(0, 255))
    return bytes(wire[: draw(st.integers(0, len(wire)))] if draw(st.booleans()) else wire)


@given(damaged_replies() | st.binary(max_size=200), st.sampled_from([512, 1232]), st.integers(0, 10))
def test_any_bytes_from_upstream_give_a_whole_message_or_malformed(wire, limit, age):
    if not matches(wire, QUERY, 5):
        return
    try:
        reply = parse_reply(wire, QUERY)
        tuple(records_of(wire, 1))
    except Malformed:
        return
    built = build_from_reply(QUERY, reply, limit, age=age)
    assert len(built) <= limit
    assert built[:2] == b"\0\5"
    assert reply.lifetime(3600, 300) >= 0


@pytest.mark.parametrize("spare", [0, 15, 16])
def test_answers_that_just_fit_are_kept_when_what_follows_does_not(spare):
    records = [f"{WWW} 3 A 192.0.2.{n}" for n in range(3)]
    query = dns.message.make_query(WWW, "A", use_edns=0, id=5)
    reply = parse_reply(reply_to(query, *records, authority=(SOA,)).to_wire(), QUERY)
    wire = build_from_reply(QUERY, reply, 12 + 21 + 2 * 16 + 11 + spare)
    response = read(query, wire)
    assert (len(rows(response.answer)), bool(response.flags & dns.flags.TC)) == (
        3 if spare == 16 else 2,
        True,
    )


def test_records_behind_the_opt_are_left_out():
    query = dns.message.make_query(WWW, "A", use_edns=0, id=5)
    wire = bytearray(reply_to(query, f"{WWW} 3 A 192.0.2.1").to_wire())
    wire += b"\xc0\x0c\0\1\0\1\0\0\0\3\0\4\1\2\3\4"
    wire[11] += 1
    response = read(query, build_from_reply(QUERY, parse_reply(bytes(wire), QUERY), 1232))
    assert (len(response.answer), response.additional) == (1, [])
