"""What goes over the wire: any bytes in; the right header, size and OPT out."""

from __future__ import annotations

import struct
from dataclasses import replace

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import pytest
from dns_world import ALPHA, SUFFIX, World, read, rows
from hypothesis import example, given
from hypothesis import strategies as st

from juneau.netstack.types import Malformed
from juneau.services.dns import names
from juneau.services.dns.message import Reject, build_answer, parse_query

WEB = f"web.default.{SUFFIX}"
BIG = f"big.many.{SUFFIX}"


def query(name: str = WEB, rtype: str = "A", **make) -> bytes:
    return dns.message.make_query(name, rtype, **make).to_wire()


def patched(wire: bytes, **fields: int) -> bytes:
    names_ = ("ident", "flags", "qd", "an", "ns", "ar")
    head = dict(zip(names_, struct.unpack_from("!6H", wire), strict=True)) | fields
    return struct.pack("!6H", *head.values()) + wire[12:]


def rcode(wire: bytes) -> str:
    return dns.rcode.to_text(wire[3] & 15)


OPT = b"\0\0\x29\x04\xd0\0\0\0\0\0\0"


# Who is not answered, and who is told why not


@pytest.mark.parametrize("size", range(12))
def test_shorter_than_a_header_is_silence(size):
    assert World().raw(query()[:size]) is None


def test_responses_are_silence():
    assert World().raw(patched(query(), flags=0x8100)) is None


@pytest.mark.parametrize("opcode", [1, 2, 4, 5, 15])
def test_other_opcodes_are_notimp(opcode):
    answer = World().raw(patched(query(), flags=opcode << 11 | 0x0100))
    assert rcode(answer) == "NOTIMP"
    assert answer[:2] == query()[:2] or answer[2] >> 3 & 15 == opcode


@pytest.mark.parametrize("count", [0, 2, 65535])
def test_anything_but_one_question_is_formerr(count):
    wire = query() if count else query()[:12]
    answer = World().raw(patched(wire, qd=count))
    assert (rcode(answer), len(answer)) == ("FORMERR", 12)


BAD_NAMES = {
    "64-byte label": b"\x40" + b"a" * 64 + b"\0",
    "reserved label type": b"\x80\0",
    "pointer to itself": b"\xc0\x0c",
    "forward pointer": b"\xc0\x20",
    "pointer into the header": b"\xc0\x00",
    "label past the end": b"\x3fabc",
    "no root": b"\x03abc",
}


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES)
def test_impossible_names_are_formerr(name):
    wire = patched(query(), ident=0x4142)[:12] + name + b"\0\1\0\1"
    if name.endswith(b"c"):
        wire = wire[:-4]
    answer = World().raw(wire)
    assert (rcode(answer), answer[:2]) == ("FORMERR", b"AB")


@pytest.mark.parametrize(("size", "expected"), [(255, "NXDOMAIN"), (256, "FORMERR")])
def test_longest_name(size, expected):
    origin = names.encode("cluster.local")
    label = size - 3 * 64 - len(origin) - 1
    name = (b"\x3f" + b"a" * 63) * 3 + bytes((label,)) + b"a" * label + origin
    assert len(name) == size
    assert rcode(World().raw(query()[:12] + name + b"\0\1\0\1")) == expected


@pytest.mark.parametrize(
    ("tail", "additional"),
    [
        (b"x", 0),  # a trailer
        (OPT + OPT, 2),
        (OPT[:-1], 1),
        (b"\1a" + OPT, 1),  # an OPT that has a name
        (OPT[:-2] + b"\0\4\0\x0a\0\1", 1),  # an option longer than its OPT
        (OPT[:-2] + b"\0\2\0\x0a", 1),
        (OPT, 2),
    ],
)
def test_bad_additional_section_is_formerr(tail, additional):
    assert rcode(World().raw(patched(query() + tail, ar=additional))) == "FORMERR"


def test_opt_belongs_into_the_additional_section():
    assert rcode(World().raw(patched(query() + OPT, an=1))) == "FORMERR"


@pytest.mark.parametrize("rdclass", ["CH", "HS", "ANY", "NONE"])
def test_other_classes_are_refused(rdclass):
    assert rcode(World().raw(query("version.bind", "TXT", rdclass=rdclass))) == "REFUSED"


@pytest.mark.parametrize("rtype", ["AXFR", "IXFR", "TKEY", "TYPE254"])
def test_transfers_and_their_like_are_refused(rtype):
    assert rcode(World().raw(query("cluster.local", rtype))) == "REFUSED"


# EDNS


def test_no_opt_no_opt():
    assert World().ask(WEB).edns == -1


@pytest.mark.parametrize(
    ("name", "rtype"), [(WEB, "A"), (WEB, "MX"), (f"no.default.{SUFFIX}", "A"), (WEB, "AXFR")]
)
def test_opt_is_answered_with_opt(name, rtype):
    response = World().ask(name, rtype, use_edns=0, payload=4096, want_dnssec=True)
    assert (response.edns, response.payload) == (0, 1232)
    assert response.ednsflags & dns.flags.DO
    assert response.options == ()


def test_unknown_options_are_ignored_and_not_echoed():
    options = [dns.edns.GenericOption(65001, b"x" * 20), dns.edns.GenericOption(10, b"12345678")]
    response = World().ask(WEB, use_edns=0, options=options)
    assert (rows(response.answer), response.options) == ([f"{WEB} A 10.96.0.10"], ())


def test_edns_version_1_is_badvers_with_the_question():
    message = dns.message.make_query(WEB, "A", use_edns=1)
    response = read(message, World().raw(message.to_wire()))
    assert response.rcode() == dns.rcode.BADVERS
    assert (response.edns, response.question) == (0, message.question)
    assert not response.answer


# Sizes


@pytest.mark.parametrize(
    ("payload", "limit"),
    [(None, 512), (0, 512), (511, 512), (600, 600), (1232, 1232), (4096, 1232), (65535, 1232)],
)
def test_udp_size_is_the_clients_within_ours(payload, limit):
    world = World()
    make = {} if payload is None else {"use_edns": 0, "payload": payload}
    wire = world.raw(query(BIG, **make))
    overhead = 12 + len(names.encode(BIG)) + 4 + (0 if payload is None else 11)
    fit = min(40, (limit - overhead) // 16)
    response = dns.message.from_wire(wire)
    assert len(response.answer[0]) == fit
    assert len(wire) <= limit
    assert bool(response.flags & dns.flags.TC) == (fit < 40)


def test_what_fits_exactly_is_not_truncated():
    """29 addresses of such a name are 511 bytes, 30 are 527."""
    world = World()
    pods = {
        key: pod for key, pod in world.view.pods.items() if pod.namespace != "many" or int(pod.name[4:]) < 30
    }
    world.view = type(world.view)(
        vpcs=world.view.vpcs,
        subnets=world.view.subnets,
        services={("default", "big"): _moved(world.view.services["many", "big"])},
        pods={key: _moved(pod) for key, pod in pods.items()},
    )
    name = f"big.default.{SUFFIX}"
    short = dns.message.from_wire(world.raw(query(name)))
    assert (len(short.answer[0]), bool(short.flags & dns.flags.TC)) == (29, True)
    long = world.raw(query(name, use_edns=0, payload=1232))
    assert len(long) == 527 + 11
    assert not dns.message.from_wire(long).flags & dns.flags.TC


def _moved(thing):
    return replace(thing, namespace="default") if thing.namespace == "many" else thing


def test_glue_that_does_not_fit_is_left_out_without_tc():
    asked = query(f"_pg._tcp.db.default.{SUFFIX}", "SRV")
    world = World()
    whole = world.raw(asked)
    assert len(dns.message.from_wire(whole).additional) == 2
    parsed = parse_query(asked)
    answer = world.resolver._look_up(parsed.qname, parsed.qtype, world.resolver._caller(ALPHA))
    assert len(build_answer(parsed, answer, len(whole))) == len(whole)
    for limit in range(len(whole) - 32, len(whole)):
        cut = dns.message.from_wire(build_answer(parsed, answer, limit))
        assert (len(cut.answer[0]), cut.flags & dns.flags.TC) == (2, 0)
        assert len(cut.additional) < 2


# The question, as it was asked


def test_letter_case_is_echoed_and_does_not_matter():
    for name in ("wEb.DEFAULT.svc.Cluster.LOCAL.", "WEB.default.SVC.cluster.local.", WEB):
        wire = World().raw(query(name))
        assert dns.name.from_text(name).to_wire() in wire
        assert str(dns.message.from_wire(wire).answer[0].name) == name


def test_cd_and_rd_are_copied():
    for flags in (0x0000, 0x0100, 0x0010, 0x0110):
        answer = World().raw(patched(query(), flags=flags))
        assert struct.unpack_from("!H", answer, 2)[0] & 0x0110 == flags


def test_any_is_answered_small():
    for name in (WEB, "google.com."):
        wire = World().raw(query(name, "ANY"))
        assert rows(dns.message.from_wire(wire).answer) == [f'{name} HINFO "RFC8482" ""']
        assert len(wire) <= 100
    assert rcode(World().raw(query(f"no.default.{SUFFIX}", "ANY"))) == "NXDOMAIN"


def test_a_dot_inside_a_label_is_not_a_border():
    """`web.default` as one label is another name than web, default."""
    wire = query()[:12] + b"\x0bweb.default" + names.encode("svc.cluster.local") + b"\0\1\0\1"
    assert rcode(World().raw(wire)) == "NXDOMAIN"
    inside = b"\x15xxxxxxx\x07cluster\x05local\0"  # bytes of our suffix, in a label of another zone
    assert inside.endswith(names.encode("cluster.local"))
    assert rcode(World().raw(query()[:12] + inside + b"\0\1\0\1")) == "SERVFAIL"  # would be forwarded


def test_bytes_that_are_no_text_are_a_name_like_any_other():
    wire = query()[:12] + b"\x04\xff\xfe\0." + names.encode("default.svc.cluster.local") + b"\0\1\0\1"
    assert rcode(World().raw(wire)) == "NXDOMAIN"


# Any bytes

queries = st.builds(
    lambda name, rtype, edns, size: query(name, rtype, use_edns=edns, payload=size),
    st.sampled_from([WEB, BIG, "cluster.local.", "10.0.96.10.in-addr.arpa.", ".", f"_http._tcp.{WEB}"]),
    st.sampled_from(["A", "SRV", "PTR", "ANY", "SOA", "TXT"]),
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 65535),
)


@st.composite
def damaged(draw):
    wire = bytearray(draw(queries))
    for _ in range(draw(st.integers(1, 4))):
        wire[draw(st.integers(2, len(wire) - 1))] = draw(st.integers(0, 255))
    return bytes(wire[: draw(st.integers(0, len(wire)))] if draw(st.booleans()) else wire)


SHARED = World()


@given(st.binary(max_size=600) | queries | damaged(), st.booleans())
@example(b"\0" * 12, False)
def test_any_bytes_are_answered_or_not_but_never_raise(wire, tcp):
    answer = SHARED.raw(wire, tcp=tcp)
    if answer is not None:
        assert answer[:2] == wire[:2]
        assert answer[2] & 0x80
        dns.message.from_wire(answer)
        assert tcp or len(answer) <= 1232


@given(st.binary(max_size=600) | damaged())
def test_what_dnspython_reads_we_read_alike(wire):
    """A differential oracle: both read the same question, or both refuse."""
    try:
        ours = parse_query(wire)
    except Reject:
        return
    try:
        theirs = dns.message.from_wire(wire)
    except dns.exception.DNSException:
        assert any(wire[6:12]), "it reads what is in additional records too; to us they are nothing"
        return
    (question,) = theirs.question
    assert dns.name.from_wire(ours.question, 0)[0] == question.name
    assert (ours.qtype, ours.qclass) == (question.rdtype, question.rdclass)
    assert (ours.edns is not None) == (theirs.edns >= 0)


name_labels = st.lists(st.binary(min_size=1, max_size=63), max_size=6)


@given(name_labels, name_labels)
def test_compressed_names_read_back(labels, other):
    name, qname = names.join(*labels), names.join(*other, *labels[len(labels) // 2 :])
    if max(len(name), len(qname)) > 255:
        return
    message = bytes(12) + qname + names.compress(name, qname)
    assert names.read(message, 12 + len(qname)) == (name, len(message))


@given(st.binary(max_size=300), st.integers(0, 300))
def test_reading_names_ends_with_a_name_or_malformed(message, at):
    for read_name in (names.read, names.skip):
        try:
            read_name(message, at)
        except Malformed:
            continue
