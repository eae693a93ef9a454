"""Rounds: every workload on every peer that does it, in turn: a busy minute of the machine hits all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from bench.model import JUNEAU, BenchError, Metric, Peer, PeerFactory, Settings, Unavailable, Workload

Say = Callable[[str], None]

MEMORY: Final = (Metric("memory", "MiB", "lower"), Metric("memory-before", "MiB", "lower"))
_SETTLE_S: Final = 8.0
"""juneau gives memory back some seconds after many connections have gone."""


@dataclass
class Found:
    """What a run measured. A sample is None where a measurement failed."""

    metrics: dict[str, Metric] = field(default_factory=dict)
    samples: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    """By metric, then by peer; one a round."""
    missing: dict[str, str] = field(default_factory=dict)
    """Peers that cannot be had here, and why."""
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, metric: Metric, peer: str, value: float | None) -> None:
        self.metrics[metric.name] = metric
        self.samples.setdefault(metric.name, {}).setdefault(peer, []).append(value)


def run(
    factories: Mapping[str, PeerFactory],
    workloads: Sequence[Workload],
    settings: Settings,
    *,
    rounds: int,
    seconds: float,
    say: Say | None = None,
) -> Found:
    """Bring the peers up, measure, take them down."""
    found, start = Found(), time.monotonic()
    tell = say or (lambda text: print(text, file=sys.stderr, flush=True))
    with ExitStack() as stack:
        peers = _bring_up(_wanted(factories, workloads), settings, stack, found, tell)
        _measure_all(peers, workloads, found, rounds, seconds, tell)
    found.seconds = time.monotonic() - start
    return found


def _wanted(factories: Mapping[str, PeerFactory], workloads: Sequence[Workload]) -> dict[str, PeerFactory]:
    named = {name for workload in workloads for name in workload.peers}
    return {name: factory for name, factory in factories.items() if name in named}


def _bring_up(
    factories: Mapping[str, PeerFactory], settings: Settings, stack: ExitStack, found: Found, tell: Say
) -> dict[str, Peer]:
    peers: dict[str, Peer] = {}
    for name, factory in factories.items():
        tell(f"bringing up {name}")
        try:
            peers[name] = stack.enter_context(factory(settings))
        except (Unavailable, BenchError) as error:
            found.missing[name] = str(error)
            tell(f"without {name}: {error}")
    return peers


def _measure_all(
    peers: Mapping[str, Peer],
    workloads: Sequence[Workload],
    found: Found,
    rounds: int,
    seconds: float,
    tell: Say,
) -> None:
    before = _memory_mib(peers)
    for number in range(rounds):
        for workload in workloads:
            if workload.once and number:
                continue
            for peer in rotated([peers[name] for name in workload.peers if name in peers], number):
                _measure(workload, peer, seconds, found, tell, f"round {number + 1}/{rounds}")
    if JUNEAU in peers:
        time.sleep(_SETTLE_S)
        found.add(MEMORY[0], JUNEAU, _memory_mib(peers))
        found.add(MEMORY[1], JUNEAU, before)


def _memory_mib(peers: Mapping[str, Peer]) -> float | None:
    try:
        return peers[JUNEAU].rss_kib() / 1024
    except (KeyError, OSError):  # not there, or no longer
        return None


def rotated(peers: Sequence[Peer], number: int) -> list[Peer]:
    """Nobody is always the first after a pause."""
    start = number % len(peers) if peers else 0
    return [*peers[start:], *peers[:start]]


def _measure(workload: Workload, peer: Peer, seconds: float, found: Found, tell: Say, where: str) -> None:
    try:
        sample = workload.measure(peer, seconds)
    except Unavailable as error:  # the tool, not the peer
        found.missing[f"{workload.name} of {peer.name}"] = str(error)
        return
    except (BenchError, OSError) as error:
        found.failed.append(f"{where}, {workload.name}, {peer.name}: {error}")
        tell(f"{where}  {workload.name:18} {peer.name:22} failed: {error}")
        sample = {metric.name: None for metric in workload.metrics()}  # type: ignore[misc]
    if sample is None:
        return
    values: Mapping[str, float | None] = sample if isinstance(sample, Mapping) else {workload.name: sample}
    for metric in workload.metrics():
        value = values[metric.name]
        found.add(metric, peer.name, value)
        if value is not None:
            tell(f"{where}  {metric.name:18} {peer.name:22} {value:14,.1f} {metric.unit}")


def chosen(names: Iterable[str], available: Iterable[str], what: str) -> set[str]:
    """Raises BenchError that says what there is."""
    wanted, known = set(names), list(available)
    if unknown := sorted(wanted - set(known)):
        raise BenchError(f"no {what} {', '.join(unknown)} (there are: {'; '.join(known)})")
    return wanted
