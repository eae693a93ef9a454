"""juneau: a lab with two VPCs that use the same addresses, a Pod each."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from bench import build
from bench.handler import PORTS
from bench.model import (
    COMPILED,
    JUNEAU,
    ROOT,
    BenchError,
    Peer,
    Settings,
    Unavailable,
    many_ports,
    run,
    within,
)
from bench.peers import dns
from bench.peers.extra import EXTRAS
from juneau.app.settings import lab_settings
from juneau.app.state import Record, find, find_pod

MANIFESTS: Final = ROOT / "bench" / "manifests.yaml"
VIP: Final = "10.80.0.3"
DNS_VIP: Final = "10.80.0.2"
_UP_TIMEOUT_S: Final = 180.0


@contextmanager
def juneau(settings: Settings, *, name: str = JUNEAU, package: Path | None = None) -> Iterator[Peer]:
    """`package`: where it is imported from, if not from here."""
    services = ["bench.service:Bench", *(extra.juneau for extra in EXTRAS)]
    with _names() as names, lab(settings, MANIFESTS, services, also=[names], package=package) as record:
        ports = {**PORTS, "dns": 53, **{extra.service: extra.port for extra in EXTRAS}}
        neighbour = pod(record, "neighbour", settings, name, ports)
        yield pod(record, "client", settings, name, ports, neighbour=neighbour)


@contextmanager
def compiled(settings: Settings) -> Iterator[Peer]:
    """The same, its stack compiled ahead of time."""
    with juneau(settings, name=COMPILED, package=build.package()) as peer:
        if not all(map(build.runs_compiled, peer.server_pids())):
            raise Unavailable("its lab does not run the compiled stack")
        yield peer


@contextmanager
def _names() -> Iterator[Path]:
    """Manifests of the Services whose names are asked for."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(dns.manifests("bench"))
        file.flush()
        yield Path(file.name)


@contextmanager
def lab(
    settings: Settings,
    manifests: Path,
    services: list[str],
    *,
    also: Sequence[Path] = (),
    package: Path | None = None,
) -> Iterator[Record]:
    """A lab of its own name, detached, on the server's CPU."""
    name = f"bench-{secrets.token_hex(3)}"
    command = [str(Path(sys.executable).with_name("juneau")), "lab"]
    up = [*settings.server(), *command, "up", "--detach", "--name", name]
    up += [word for path in (manifests, *also) for word in ("-f", str(path))]
    up += [word for service in services for word in ("--service", _absolute(service))]
    up += [] if settings.offload else ["--no-offload"]
    # services may import `bench`
    folders = [*([str(package)] if package else []), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = ["env", f"PYTHONPATH={os.pathsep.join(folders).rstrip(os.pathsep)}"]
    down = (*command, "down", "--name", name)
    try:
        run(*environment, *up, timeout=_UP_TIMEOUT_S)
    except BenchError:
        with suppress(BenchError):  # why it did not come up says more
            run(*down, timeout=60)
        raise
    try:
        yield find(lab_settings(name))
    finally:
        run(*down, timeout=60)


def pod(
    record: Record,
    name: str,
    settings: Settings,
    peer: str,
    ports: dict[str, int],
    *,
    vip: str = VIP,
    neighbour: Peer | None = None,
) -> Peer:
    """The lab as its Pod `name` sees it."""
    netns = find_pod(record, name).netns
    many_ports(netns)
    return Peer(
        name=peer,
        address=vip,
        addresses={"dns": DNS_VIP},
        ports=ports,
        enter=[*settings.client(), *within(netns)],
        pids=lambda: [record.pid],
        neighbour=neighbour,
    )


def _absolute(service: str) -> str:
    """FILE:NAME is relative to the checkout, MODULE:NAME stays."""
    where, _, name = service.rpartition(":")
    if not name:
        raise BenchError(f"service {service!r}: no NAME in it")
    return f"{ROOT / where}:{name}" if where.endswith(".py") else service
