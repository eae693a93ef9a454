"""What an operator may change about the resolver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

DNS_PORT = 53


class Upstream(NamedTuple):
    host: str
    port: int = DNS_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class DnsSettings:
    domain: str = "cluster.local"
    ttl_s: int = 5
    """Of cluster names, and of their absence: how long a client may not notice a change."""
    upstreams: Sequence[str] | None = None
    """`ADDRESS[:PORT]`, tried in this order. None: the nameservers of `resolv_conf`. Empty: SERVFAIL."""
    vpc_upstreams: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Other servers for one Vpc, by name. Empty: that Vpc resolves nothing outside (REFUSED)."""
    resolv_conf: str = "/etc/resolv.conf"
    server_timeout_s: float = 1.5
    """How long one server may take before the next is asked."""
    budget_s: float = 4.5
    """For all servers together: clients give up after 5 s."""
    in_flight: int = 1024
    """Forwarded queries at once on this node; one takes about 4 KiB and a socket. Past it: SERVFAIL."""
    in_flight_per_vpc: int = 100
    """Of those, for one Vpc. Below the 128 UDP workers of a Subnet, so that answers come from here."""
    cache_entries: int = 1024
    """Answers from upstream kept per Vpc; one tenant cannot evict another's."""
    cache_ttl_s: int = 3600
    negative_ttl_s: int = 300
    """The longest an absence is remembered, whatever the SOA says."""
    tcp_idle_s: float = 10.0
    """A TCP client without a query in flight is closed after this long (RFC 7766 section 6.2.3)."""
    tcp_in_flight: int = 128
    """Queries of one TCP connection answered at once; the next is not read before one is done."""


def parse_upstream(text: str) -> Upstream:
    """Raises ValueError. IPv6 with a port needs brackets."""
    host, port = text.strip(), str(DNS_PORT)
    if host.startswith("["):
        host, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    try:
        number = int(port)
        return Upstream(str(ip_address(host)), number if 0 < number < 65536 else int("x"))
    except ValueError:
        raise ValueError(
            f"DNS upstream {text!r}: allowed ADDRESS or ADDRESS:PORT, such as 9.9.9.9:53"
        ) from None


def read_resolv_conf(path: str) -> tuple[Upstream, ...]:
    """The nameservers of a resolv.conf; none if there is no such file. What is no address is skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            try:
                found.append(Upstream(str(ip_address(words[1]))))
            except ValueError:
                continue
    return tuple(found)
