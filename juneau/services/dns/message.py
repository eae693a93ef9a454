"""DNS messages: the header, question and OPT of a query, and answers built around them.

Only what a resolver on the way needs; a forwarded message stays the bytes it is (see `upstream`).
RFC 1035, 2308, 6891, 8482, 9619.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from juneau.netstack.types import Malformed
from juneau.services.dns import names

HEADER: Final = struct.Struct("!HHHHHH")  # id, flags, counts of questions, answers, authorities, additionals
QUESTION: Final = struct.Struct("!HH")  # type, class
RR: Final = struct.Struct("!HHIH")  # type, class, ttl, length of the data
U16: Final = struct.Struct("!H")

QR: Final = 0x8000
OPCODE: Final = 0x7800
AA: Final = 0x0400
TC: Final = 0x0200
RD: Final = 0x0100
RA: Final = 0x0080
AD: Final = 0x0020
CD: Final = 0x0010
RCODE: Final = 0x000F
DO: Final = 0x8000

CLASS_IN: Final = 1
UDP_PLAIN: Final = 512
"""RFC 1035 section 2.3.4, bytes: what a client without EDNS takes."""
UDP_EDNS: Final = 1232
"""The most we send or announce, bytes: fits every path without fragments (DNS flag day 2020)."""
TCP_MAX: Final = 65_535


class Type(IntEnum):
    A = 1
    NS = 2
    CNAME = 5
    SOA = 6
    PTR = 12
    HINFO = 13
    TXT = 16
    AAAA = 28
    SRV = 33
    OPT = 41
    IXFR = 251
    AXFR = 252
    ANY = 255


class Rcode(IntEnum):
    NOERROR = 0
    FORMERR = 1
    SERVFAIL = 2
    NXDOMAIN = 3
    NOTIMP = 4
    REFUSED = 5
    BADVERS = 16


class Edns(NamedTuple):
    size: int
    version: int
    do: bool


class Query(NamedTuple):
    ident: int
    flags: int
    question: bytes
    """As it came: the case of its letters is part of the answer (0x20)."""
    qname: bytes
    """Wire form, lower case."""
    qtype: int
    qclass: int
    edns: Edns | None

    @property
    def do(self) -> bool:
        return self.edns is not None and self.edns.do

    @property
    def udp_limit(self) -> int:
        """Bytes that may be sent to this client in one datagram."""
        return UDP_PLAIN if self.edns is None else min(max(self.edns.size, UDP_PLAIN), UDP_EDNS)


class Record(NamedTuple):
    """A resource record of class IN, its owner's name in full and lower case."""

    owner: bytes
    rtype: int
    ttl: int
    data: bytes


class Answer(NamedTuple):
    rcode: Rcode
    aa: bool = False
    answers: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()


class Reject(Exception):
    """A message that gets `rcode`, or with None: silence."""

    def __init__(self, rcode: Rcode | None) -> None:
        super().__init__(rcode)
        self.rcode = rcode


def parse_query(message: bytes) -> Query:
    """Raises Reject for whatever is no query that we could answer."""
    if len(message) < HEADER.size:
        raise Reject(None)
    ident, flags, questions, *counts = HEADER.unpack_from(message)
    if flags & QR:
        raise Reject(None)
    if flags & OPCODE:
        raise Reject(Rcode.NOTIMP)
    if questions != 1:
        raise Reject(Rcode.FORMERR)
    try:
        return _parse_body(message, ident, flags, counts)
    except Malformed as error:
        raise Reject(Rcode.FORMERR) from error


def _parse_body(message: bytes, ident: int, flags: int, counts: list[int]) -> Query:
    qname, at = names.read(message, HEADER.size)
    end = at + QUESTION.size
    if at != HEADER.size + len(qname) or end > len(message):  # a pointer here leads nowhere good
        raise Malformed("dns.question", len(message), low=end)
    qtype, qclass = QUESTION.unpack_from(message, at)
    edns = None
    if any(counts):
        edns = _parse_rest(message, end, counts)
    elif end != len(message):
        raise Malformed("dns.trailer", len(message), high=end)
    return Query(ident, flags, message[HEADER.size : end], qname.lower(), qtype, qclass, edns)


def _parse_rest(message: bytes, at: int, counts: list[int]) -> Edns | None:
    """Everything behind the question; only one OPT matters, everything must be well-formed."""
    edns = None
    for index in range(sum(counts)):
        owner = at
        at, rtype, rclass, ttl, length = read_rr(message, at)
        if rtype == Type.OPT:
            if edns is not None or message[owner] or index < counts[0] + counts[1]:
                raise Malformed("dns.opt", index)
            _check_options(message[at : at + length])
            edns = Edns(rclass, ttl >> 16 & 0xFF, bool(ttl & DO))
        at += length
    if at != len(message):
        raise Malformed("dns.trailer", len(message), high=at)
    return edns


def read_rr(message: bytes, at: int) -> tuple[int, int, int, int, int]:
    """The record at `at`: where its data start, type, class, TTL, length of its data. Raises Malformed."""
    at = names.skip(message, at)
    start = at + RR.size
    if start > len(message):
        raise Malformed("dns.rr", len(message), low=start)
    rtype, rclass, ttl, length = RR.unpack_from(message, at)
    if start + length > len(message):
        raise Malformed("dns.rdata", len(message), low=start + length)
    return start, rtype, rclass, ttl, length


def _check_options(data: bytes) -> None:
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise Malformed("dns.option", len(data), low=at + 4)
        at += 4 + U16.unpack_from(data, at + 2)[0]
    if at != len(data):
        raise Malformed("dns.option", len(data), low=at)


def build_reject(message: bytes, rcode: Rcode) -> bytes:
    """An answer to what could not be read: header only."""
    ident, flags = struct.unpack_from("!HH", message)
    return HEADER.pack(ident, QR | flags & (OPCODE | RD) | RA | rcode, 0, 0, 0, 0)


def build_answer(query: Query, answer: Answer, limit: int) -> bytes:
    """At most `limit` bytes: as many whole answers as fit, and TC if one did not.

    Additional records that do not fit are left out without TC (RFC 2181 section 9).
    """
    opt = build_opt(answer.rcode, do=query.do) if query.edns is not None else b""
    room = limit - HEADER.size - len(query.question) - len(opt)
    flags = QR | query.flags & (RD | CD) | RA | (AA if answer.aa else 0) | answer.rcode & RCODE
    body: list[bytes] = []
    counts = [0, 0, 0]
    for section, records in enumerate(answer[2:]):
        room, whole = _take(body, counts, section, _encoded(records, query.qname), room)
        if not whole:
            flags |= TC if section < 2 else 0
            break
    counts[2] += 1 if opt else 0
    head = HEADER.pack(query.ident, flags, 1, *counts)
    return b"".join((head, query.question, *body, opt))


def _take(
    body: list[bytes], counts: list[int], section: int, records: Iterable[bytes], room: int
) -> tuple[int, bool]:
    for record in records:
        if len(record) > room:
            return room, False
        body.append(record)
        counts[section] += 1
        room -= len(record)
    return room, True


def _encoded(records: Iterable[Record], qname: bytes) -> Iterable[bytes]:
    for owner, rtype, ttl, data in records:
        yield names.compress(owner, qname) + RR.pack(rtype, CLASS_IN, ttl, len(data)) + data


def build_opt(rcode: int = 0, *, do: bool = False, size: int = UDP_EDNS) -> bytes:
    return names.ROOT + RR.pack(Type.OPT, size, rcode >> 4 << 24 | (DO if do else 0), 0)


def error(rcode: Rcode) -> Answer:
    return Answer(rcode)
