"""Domain names in wire form: length-prefixed labels, root at the end. Lower case is the key.

`bytes.lower` on a wire name is safe: a length is at most 63, below the letters.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from juneau.netstack.types import Malformed

MAX_LABEL: Final = 63
MAX_NAME: Final = 255
"""RFC 1035 section 2.3.4, bytes with all lengths and the root."""
ROOT: Final = b"\0"


def encode(text: str) -> bytes:
    """A dotted name, relative or not, in wire form. Raises ValueError if it cannot be one."""
    labels = [label.encode("ascii") for label in text.rstrip(".").split(".")] if text.strip(".") else []
    if any(not 0 < len(label) <= MAX_LABEL for label in labels):
        raise ValueError(f"domain name {text!r}: label of 0 or more than {MAX_LABEL} bytes")
    wire = join(*labels)
    if len(wire) > MAX_NAME:
        raise ValueError(f"domain name {text!r}: {len(wire)} bytes, allowed {MAX_NAME}")
    return wire


def join(*labels: bytes, suffix: bytes = ROOT) -> bytes:
    return b"".join(bytes((len(label),)) + label for label in labels) + suffix


def labels_of(name: bytes) -> list[bytes]:
    """The labels of a whole, valid wire name, root left out."""
    labels, at = [], 0
    while size := name[at]:
        labels.append(name[at + 1 : at + 1 + size])
        at += 1 + size
    return labels


def text_of(name: bytes) -> str:
    """For people: bytes that are not plain are escaped as RFC 4343 section 2.1 does."""
    return "".join(_escaped(label) + "." for label in labels_of(name)) or "."


def _escaped(label: bytes) -> str:
    plain = b"-_*"
    return "".join(chr(c) if (chr(c).isalnum() and c < 128) or c in plain else f"\\{c:03d}" for c in label)


def skip(message: bytes, at: int) -> int:
    """Where the name at `at` ends; pointers are not followed. Raises Malformed."""
    end = len(message)
    while at < end:
        size = message[at]
        if size == 0:
            return at + 1
        if size >= 0xC0:
            if at + 2 > end:
                break
            return at + 2
        if size > MAX_LABEL:
            raise Malformed("dns.label", size, high=MAX_LABEL)
        at += 1 + size
    raise Malformed("dns.name", at, high=end)


def read(message: bytes, at: int) -> tuple[bytes, int]:
    """The name at `at`, pointers followed, and where it ends. Raises Malformed.

    A pointer must lead to before where its name began: no loop, and at most 127 jumps.
    """
    parts: list[bytes] = []
    total, end, start = 1, -1, at
    while True:
        stop = skip_label(message, at)
        size = message[at]
        if size == 0:
            return b"".join(parts) + ROOT, end if end >= 0 else stop
        if size >= 0xC0:
            end = stop if end < 0 else end
            target = (size & 0x3F) << 8 | message[at + 1]
            if target >= start:
                raise Malformed("dns.pointer", target, high=start - 1)
            at = start = target
            continue
        parts.append(message[at:stop])
        total += 1 + size
        if total > MAX_NAME:
            raise Malformed("dns.name", total, high=MAX_NAME)
        at = stop


def skip_label(message: bytes, at: int) -> int:
    """Where the label, pointer or root at `at` ends. Raises Malformed."""
    if at >= len(message):
        raise Malformed("dns.name", at, high=len(message) - 1)
    size = message[at]
    if MAX_LABEL < size < 0xC0:
        raise Malformed("dns.label", size, high=MAX_LABEL)
    stop = at + 2 if size >= 0xC0 else at + 1 + size
    if stop > len(message):
        raise Malformed("dns.name", stop, high=len(message))
    return stop


def compress(name: bytes, qname: bytes, *, at: int = 12) -> bytes:
    """`name` with its longest tail that `qname` has too as a pointer; `qname` stands at `at`."""
    start = 0
    while name[start]:
        tail = name[start:]
        if qname.endswith(tail):
            return name[:start] + (0xC000 | at + len(qname) - len(tail)).to_bytes(2, "big")
        start += 1 + name[start]
    return name


def reverse(ip: IPv4Address) -> bytes:
    """The name that PTR queries for `ip` ask."""
    return join(*(str(octet).encode() for octet in reversed(ip.packed)), suffix=IN_ADDR_ARPA)


IN_ADDR_ARPA: Final = encode("in-addr.arpa.")
IP6_ARPA: Final = encode("ip6.arpa.")
