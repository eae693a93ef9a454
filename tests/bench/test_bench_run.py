"""Rounds, on peers that are no servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench.model import JUNEAU, BenchError, Metric, Peer, PeerFactory, Sample, Settings, Unavailable, Workload
from bench.run import chosen, run


def peer_named(name: str, log: list[str], *, unavailable: str = "") -> PeerFactory:
    @contextmanager
    def factory(settings: Settings) -> Iterator[Peer]:
        if unavailable:
            raise Unavailable(unavailable)
        log.append(f"{name} up")
        yield Peer(name=name, address="", ports={})
        log.append(f"{name} down")

    return factory


def workload(name: str, peers: tuple[str, ...], log: list[str], **more: object) -> Workload:
    def measure(peer: Peer, seconds: float) -> Sample:
        log.append(f"{name} {peer.name}")
        return len(log)

    return Workload(name=name, unit="u", better="higher", peers=peers, measure=measure, **more)  # type: ignore[arg-type]


def measured(log: list[str], name: str) -> list[str]:
    return [line.split()[1] for line in log if line.startswith(f"{name} ")]


def run_quietly(factories: dict[str, PeerFactory], workloads: list[Workload], rounds: int):
    return run(factories, workloads, Settings(), rounds=rounds, seconds=0.1, say=lambda text: None)


def test_rounds_alternate_and_the_order_rotates():
    log: list[str] = []
    factories = {name: peer_named(name, log) for name in ("a", "b", "c")}
    found = run_quietly(factories, [workload("w", ("a", "b", "c"), log), workload("v", ("a",), log)], 3)
    assert "".join(measured(log, "w")) == "abc" + "bca" + "cab"
    assert log[:5] == ["a up", "b up", "c up", "w a", "w b"]
    assert log[-3:] == ["c down", "b down", "a down"]
    assert [len(samples) for samples in found.samples["w"].values()] == [3, 3, 3]


def test_peers_that_no_workload_wants_stay_down():
    log: list[str] = []
    run_quietly({name: peer_named(name, log) for name in ("a", "b")}, [workload("w", ("b",), log)], 1)
    assert "a up" not in log


def test_a_peer_that_cannot_be_had_is_named_with_the_reason():
    log: list[str] = []
    factories = {"a": peer_named("a", log), "b": peer_named("b", log, unavailable="no Go here")}
    found = run_quietly(factories, [workload("w", ("a", "b"), log)], 2)
    assert found.missing == {"b": "no Go here"}
    assert list(found.samples["w"]) == ["a"]


def test_a_workload_whose_tool_is_missing_is_named_once():
    def measure(peer: Peer, seconds: float) -> Sample:
        raise Unavailable("wrk is not installed")

    web = Workload(name="http", unit="u", better="higher", peers=("a",), measure=measure)
    found = run_quietly({"a": peer_named("a", [])}, [web], 3)
    assert (found.missing, found.failed, found.samples) == ({"http of a": "wrk is not installed"}, [], {})


def test_once_is_the_first_round():
    log: list[str] = []
    found = run_quietly({"a": peer_named("a", log)}, [workload("w", ("a",), log, once=True)], 4)
    assert len(found.samples["w"]["a"]) == 1


def test_a_measurement_that_fails_is_reported_and_its_round_is_empty():
    calls: list[int] = []

    def measure(peer: Peer, seconds: float) -> Sample:
        calls.append(1)
        if len(calls) == 1:
            raise BenchError("no answer")
        return {"w": 1.0, "x": 2.0}

    broken = Workload(
        name="w",
        unit="u",
        better="lower",
        peers=("a",),
        measure=measure,
        also=(Metric("x", "u", "lower"),),
    )
    found = run_quietly({"a": peer_named("a", [])}, [broken], 2)
    assert found.samples == {"w": {"a": [None, 1.0]}, "x": {"a": [None, 2.0]}}
    assert found.failed == ["round 1/2, w, a: no answer"]


def test_juneau_s_memory_is_taken_before_and_after(monkeypatch: pytest.MonkeyPatch):
    readings = iter([100 * 1024, 120 * 1024])
    monkeypatch.setattr(Peer, "rss_kib", lambda self: next(readings))
    monkeypatch.setattr("bench.run._SETTLE_S", 0)
    found = run_quietly({JUNEAU: peer_named(JUNEAU, [])}, [workload("w", (JUNEAU,), [])], 2)
    assert found.samples["memory-before"] == {JUNEAU: [100.0]}
    assert found.samples["memory"] == {JUNEAU: [120.0]}


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(BenchError, match=r"no workload nix, tcp \(there are: up; down\)"):
        chosen(["up", "tcp", "nix"], ["up", "down"], "workload")
