"""`getaddrinfo` and `getnameinfo` of a network whose only names are its hosts'. IPv4 only."""

from __future__ import annotations

import socket
from typing import Any, Final

from juneau.netstack.types import Misuse, format_ip, parse_ip

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]

_KINDS: Final = (
    (socket.SOCK_STREAM, socket.IPPROTO_TCP),
    (socket.SOCK_DGRAM, socket.IPPROTO_UDP),
)
_SERVICES: Final = {"domain": 53, "http": 80, "https": 443, "imap": 143, "pop3": 110, "smtp": 25, "ssh": 22}
"""Enough for programs that say "http"; the machine's own /etc/services must not matter."""


class Names:
    def __init__(self) -> None:
        self._ips: dict[str, tuple[int, ...]] = {"localhost": (0x7F000001,)}

    def add(self, name: str, ips: tuple[int, ...]) -> None:
        """Raises Misuse for a name that is taken or no name."""
        key = name.lower()
        if not key or key in self._ips or any(c.isspace() for c in key):
            raise Misuse(f"host {name!r}: the name is taken or empty")
        self._ips[key] = ips

    def resolve(self, host: str | bytes) -> tuple[int, ...]:
        """An address or a name. Raises socket.gaierror EAI_NONAME."""
        text = (host.decode("ascii", "replace") if isinstance(host, bytes) else host).lower().rstrip(".")
        try:
            return (parse_ip(text),)
        except Misuse:
            pass
        if text in self._ips:
            return self._ips[text]
        known = ", ".join(sorted(self._ips))
        raise socket.gaierror(socket.EAI_NONAME, f"name {text!r} is not a host of this network ({known})")

    def getaddrinfo(
        self, host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> list[AddressInfo]:
        """As `socket.getaddrinfo`; addresses in the order in which the host was given them."""
        if family not in (0, socket.AF_INET):
            raise socket.gaierror(socket.EAI_FAMILY, f"family {family}: this network is IPv4 only")
        number = _port(port)
        if host is None or host in ("", b""):
            ips: tuple[int, ...] = (0,) if flags & socket.AI_PASSIVE else (0x7F000001,)
        elif flags & socket.AI_NUMERICHOST:
            ips = (_numeric(host),)
        else:
            ips = self.resolve(host)
        name = str(host or "") if flags & socket.AI_CANONNAME else ""
        kinds = [(k, p) for k, p in _KINDS if type in (0, k) and proto in (0, p)]
        if not kinds:
            raise socket.gaierror(
                socket.EAI_SOCKTYPE, f"socket type {type}, protocol {proto}: TCP and UDP only"
            )
        return [
            (socket.AF_INET, kind, protocol, name, (format_ip(ip), number))
            for ip in ips
            for kind, protocol in kinds
        ]

    def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """As `socket.getnameinfo`. NI_NAMEREQD and an unknown address: gaierror."""
        ip, port = self.resolve(sockaddr[0])[0], int(sockaddr[1])
        service = str(port)
        if not flags & socket.NI_NUMERICSERV:
            service = next((name for name, number in _SERVICES.items() if number == port), service)
        if flags & socket.NI_NUMERICHOST:
            return format_ip(ip), service
        name = next((name for name, ips in self._ips.items() if ip in ips), None)
        if name is None and flags & socket.NI_NAMEREQD:
            raise socket.gaierror(socket.EAI_NONAME, f"no host of this network has {format_ip(ip)}")
        return name or format_ip(ip), service


def _numeric(host: str | bytes) -> int:
    try:
        return parse_ip(host.decode("ascii", "replace") if isinstance(host, bytes) else host)
    except Misuse as exc:
        raise socket.gaierror(socket.EAI_NONAME, str(exc)) from exc


def _port(port: Any) -> int:
    if port is None or port in ("", b""):
        return 0
    text = port.decode("ascii", "replace") if isinstance(port, bytes) else str(port)
    if text.isascii() and text.isdigit():
        if int(text) > 0xFFFF:
            raise OverflowError("getaddrinfo(): port must be 0-65535.")
        return int(text)
    if text in _SERVICES:
        return _SERVICES[text]
    raise socket.gaierror(
        socket.EAI_SERVICE, f"service {text!r}: known are numbers and {', '.join(_SERVICES)}"
    )
