"""Answers of upstream servers: kept as the bytes they came in, patched where they must differ.

Compression pointers stay right, because the question they lead to keeps its place and length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from juneau.netstack.types import Malformed
from juneau.services.dns import names
from juneau.services.dns.message import (
    AD,
    CD,
    HEADER,
    OPCODE,
    QR,
    QUESTION,
    RA,
    RCODE,
    RD,
    TC,
    Query,
    Rcode,
    Record,
    Type,
    build_opt,
    read_rr,
)

MAX_TTL: Final = 2**31 - 1
"""RFC 2181 section 8: above it, a TTL means 0."""
PLAIN_TYPES: Final = frozenset({Type.A, Type.AAAA, Type.TXT, 64, 65})
"""Data without compressed names: may be moved to another message as they are."""


@dataclass(slots=True)
class Reply:
    """One answer, without its OPT."""

    rcode: int
    flags: int
    body: bytes
    """What follows the question."""
    counts: tuple[int, int, int]
    answer_ends: list[int] = field(default_factory=list)
    """Offsets in `body` behind each record of the answer section."""
    ttls: list[tuple[int, int]] = field(default_factory=list)
    """Offset in `body` and seconds, of every record."""
    negative_ttl: int | None = None
    """From the SOA, if there is one in the authority section."""
    negative: bool = True
    """No record of the asked type is in it."""

    @property
    def truncated(self) -> bool:
        return bool(self.flags & TC)

    def lifetime(self, most: int, most_negative: int) -> int:
        """Seconds it may be kept; 0: not at all (RFC 2308)."""
        if self.truncated or self.rcode not in (Rcode.NOERROR, Rcode.NXDOMAIN):
            return 0
        shortest = min((ttl for _, ttl in self.ttls), default=0)
        if self.negative or self.rcode == Rcode.NXDOMAIN:
            return 0 if self.negative_ttl is None else min(shortest, self.negative_ttl, most_negative)
        return min(shortest, most)


def matches(message: bytes, query: Query, ident: int) -> bool:
    """Is `message` the answer to what we asked? Anything else is to be ignored, not believed."""
    if len(message) < HEADER.size + len(query.question):
        return len(message) >= HEADER.size and _is_bare_error(message, ident)
    got, flags, questions, *_ = HEADER.unpack_from(message)
    if got != ident or not flags & QR or flags & OPCODE:
        return False
    if questions == 0:
        return _is_bare_error(message, ident)
    asked = message[HEADER.size : HEADER.size + len(query.question)]
    size = QUESTION.size
    return questions == 1 and asked[:-size].lower() == query.qname and asked[-size:] == query.question[-size:]


def _is_bare_error(message: bytes, ident: int) -> bool:
    """Servers that could not read a query may answer with a header only."""
    got, flags, questions, *_ = HEADER.unpack_from(message)
    return got == ident and bool(flags & QR) and questions == 0 and bool(flags & RCODE)


def parse_reply(message: bytes, query: Query) -> Reply:
    """For a message that `matches`. Raises Malformed."""
    _, flags, questions, *counts = HEADER.unpack_from(message)
    rcode, start = flags & RCODE, HEADER.size + len(query.question)
    if not questions:
        return Reply(rcode, flags, b"", (0, 0, 0))
    reply = Reply(rcode, flags, b"", (0, 0, 0))
    at, left = start, list(counts)
    for section in range(3):
        for index in range(counts[section]):
            owner = at
            at, rtype, _, ttl, length = read_rr(message, at)
            if rtype == Type.OPT:
                # what an upstream adds behind its OPT is additional by nature: leave it out too
                reply.rcode |= ttl >> 24 << 4
                left[section] = index
                return _finish(reply, message[start:owner], left[: section + 1])
            ttl = 0 if ttl > MAX_TTL else ttl
            reply.ttls.append((at - 6 - start, ttl))
            if section == 1 and rtype == Type.SOA:
                reply.negative_ttl = _soa_minimum(message, at, length)
            at += length
            if section == 0:
                reply.answer_ends.append(at - start)
                reply.negative = reply.negative and query.qtype not in (rtype, Type.ANY)
    return _finish(reply, message[start:at], left)


def _finish(reply: Reply, body: bytes, counts: list[int]) -> Reply:
    counts += [0] * (3 - len(counts))
    reply.body, reply.counts = body, (counts[0], counts[1], counts[2])
    return reply


def _soa_minimum(message: bytes, at: int, length: int) -> int:
    """Two names and five numbers; the last one."""
    end = names.skip(message, names.skip(message, at)) + 20
    if end != at + length:
        raise Malformed("dns.soa", length, low=end - at)
    return int.from_bytes(message[end - 4 : end], "big")


def build_from_reply(query: Query, reply: Reply, limit: int, *, age: int = 0) -> bytes:
    """`reply` for this client: its id, flags, letter case and EDNS; TTLs `age` seconds lower.

    At most `limit` bytes: as many whole answers as fit, and TC if that is not everything.
    """
    body, counts, flags = reply.body, reply.counts, reply.flags & (TC | AD)
    opt = build_opt(reply.rcode, do=query.do) if query.edns is not None else b""
    room = limit - HEADER.size - len(query.question) - len(opt)
    if len(body) > room:
        fitting = [end for end in reply.answer_ends if end <= room]
        body, counts, flags = body[: fitting[-1] if fitting else 0], (len(fitting), 0, 0), flags | TC
    if age or any(ttl == 0 for _, ttl in reply.ttls):
        body = _aged(body, reply.ttls, age)
    flags |= QR | RA | query.flags & (RD | CD) | reply.rcode & RCODE
    head = HEADER.pack(query.ident, flags, 1, counts[0], counts[1], counts[2] + (1 if opt else 0))
    return b"".join((head, query.question, body, opt))


def _aged(body: bytes, ttls: list[tuple[int, int]], age: int) -> bytes:
    patched = bytearray(body)
    for offset, ttl in ttls:
        if offset < len(patched):
            patched[offset : offset + 4] = max(0, ttl - age).to_bytes(4, "big")
    return bytes(patched)


def build_upstream_query(query: Query, ident: int, *, edns: bool = True) -> bytes:
    """The question, with an id of ours and our own OPT: no client option leaves the node."""
    flags = RD | query.flags & (AD | CD)
    head = HEADER.pack(ident, flags, 1, 0, 0, 1 if edns else 0)
    return b"".join((head, query.question, build_opt(do=query.do) if edns else b""))


def records_of(message: bytes, qtype: int) -> Iterator[Record]:
    """CNAMEs and records of `qtype` in the answer section of a whole reply, names in full.

    For answers that are put together from several messages. Raises Malformed.
    """
    _, _, questions, answers, *_ = HEADER.unpack_from(message)
    at = HEADER.size
    for _ in range(questions):
        at = names.skip(message, at) + QUESTION.size
    for _ in range(answers):
        owner, _ = names.read(message, at)
        at, rtype, _, ttl, length = read_rr(message, at)
        data = message[at : at + length]
        if rtype == Type.CNAME:
            yield Record(owner.lower(), rtype, ttl, names.read(message, at)[0])
        elif rtype == qtype and qtype in PLAIN_TYPES:
            yield Record(owner.lower(), rtype, ttl, data)
        at += length
