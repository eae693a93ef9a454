"""unbound, dnsmasq and CoreDNS, each on one thread; they know the names that the juneau peer knows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from bench.model import BenchError, Peer, Settings, network, within
from bench.peers.kernel import SERVER_ADDRESS, new_names
from bench.peers.process import installed, made, serving

NAMES: Final = tuple(f"name-{number}.default.svc.cluster.local" for number in range(100))
"""Of the Services in `bench/manifests`; each has one address."""
TTL: Final = 5
"""juneau's."""


def addresses() -> Iterator[tuple[str, str]]:
    return ((name, f"10.96.0.{number + 1}") for number, name in enumerate(NAMES))


def manifests(vpc: str) -> str:
    """The Services that have these names in juneau's `vpc`."""
    return "---".join(
        f"""
apiVersion: v1
kind: Service
metadata: {{name: {name.partition(".")[0]}, annotations: {{juneau.loutres.me/vpc: {vpc}}}}}
spec: {{clusterIP: {ip}, selector: {{app: none}}, ports: [{{port: 80}}]}}
"""
        for name, ip in addresses()
    )


def unbound_conf() -> str:
    data = "\n".join(f'  local-data: "{name}. {TTL} A {ip}"' for name, ip in addresses())
    return f"""\
server:
  interface: {SERVER_ADDRESS}
  access-control: 10.80.0.0/24 allow
  num-threads: 1
  do-daemonize: no
  username: ""
  chroot: ""
  pidfile: ""
  use-syslog: no
  module-config: "iterator"
  local-zone: "cluster.local." static
{data}
remote-control:
  control-enable: no
"""


def dnsmasq_conf() -> str:
    data = "\n".join(f"host-record={name},{ip},{TTL}" for name, ip in addresses())
    return f"""\
keep-in-foreground
no-resolv
no-hosts
user=root
pid-file=
bind-interfaces
listen-address={SERVER_ADDRESS}
{data}
"""


def corefile() -> str:
    data = "\n".join(f"    {ip} {name}" for name, ip in addresses())
    return f"""\
.:53 {{
  bind {SERVER_ADDRESS}
  hosts {{
{data}
    ttl {TTL}
    no_reverse
  }}
}}
"""


@dataclass(frozen=True)
class NameServer:
    name: str
    program: Callable[[], str]
    """Where it is. Raises Unavailable."""
    config: Callable[[], str]
    arguments: str
    """{} is the configuration's path."""
    environment: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def __call__(self, settings: Settings) -> Iterator[Peer]:
        program = self.program()
        server, client = new_names("dns")
        with network(server, client), tempfile.NamedTemporaryFile("w", suffix=".conf") as config:
            config.write(self.config())
            config.flush()
            words = [program, *self.arguments.format(config.name).split()]
            command = [*settings.server(), *within(server), *words]
            with serving(command, environment=self.environment) as process:
                peer = Peer(
                    name=self.name,
                    address=SERVER_ADDRESS,
                    ports={"dns": 53},
                    enter=[*settings.client(), *within(client)],
                    pids=lambda: [process.pid],
                )
                process.until(lambda: answers(peer))
                yield peer


def answers(peer: Peer) -> bool:
    """Whether it knows the last of the names."""
    *_, (name, ip) = addresses()
    address, port = peer.at("dns")
    try:
        return peer.client(
            "dig", "+short", "+tries=1", "+time=1", f"@{address}", "-p", port, name, timeout=5
        ).split() == [ip]
    except BenchError:
        return False


unbound = NameServer("unbound", lambda: installed("unbound"), unbound_conf, "-d -c {}")
dnsmasq = NameServer("dnsmasq", lambda: installed("dnsmasq"), dnsmasq_conf, "-C {}")
coredns = NameServer("coredns", lambda: made("coredns", "coredns"), corefile, "-conf {}", {"GOMAXPROCS": "1"})
PEERS: Final = {server.name: server for server in (unbound, dnsmasq, coredns)}
