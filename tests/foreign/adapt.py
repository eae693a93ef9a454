"""Runs foreign unittest suites on a network in a process: each test gets a host, and each event loop
that it makes is that of a fresh network.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
import unittest
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from juneau.testing.network import Network

REAL_SECONDS = 30
"""A test that takes longer hangs in real time."""


class Networks:
    """The network that the running test uses: the one whose loop it made last."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.current: Network | None = None
        self._fresh = False
        self.share = False
        """Loops open at the same time are one: for programs with a loop in each of several threads."""

    def enter(self, seed: int = 0) -> Network:
        network = Network(seed)
        host = network.host("here", "10.0.0.1")
        self._stack.callback(network.close)
        self._stack.enter_context(network.entered(host))
        self.current, self._fresh = network, True
        return network

    def new_loop(self, *args: Any, **kwargs: Any) -> asyncio.AbstractEventLoop:
        """What `asyncio.new_event_loop` and `SelectorEventLoop` are for the tests."""
        shared = self.share and self.current is not None and not self.current.loop.is_closed()
        if not self._fresh and not shared:
            self.enter()
        assert self.current is not None
        self._fresh = False
        return self.current.loop

    @contextlib.contextmanager
    def test(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            self._stack = stack
            self.enter()
            yield


NETWORKS = Networks()


def install_asyncio() -> None:
    """Every way to a selector loop leads to ours."""
    from asyncio import unix_events

    unix_events._UnixDefaultEventLoopPolicy._loop_factory = staticmethod(NETWORKS.new_loop)  # type: ignore[attr-defined]
    for module in (asyncio, unix_events):
        module.SelectorEventLoop = NETWORKS.new_loop  # type: ignore[attr-defined]


@dataclass
class Tally:
    """What became of a suite's tests."""

    passed: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    excluded: dict[str, str] = field(default_factory=dict)

    def line(self, name: str) -> str:
        return (
            f"{name:<24} {len(self.passed):>4} passed {len(self.failed):>3} failed"
            f" {len(self.excluded):>3} excluded {len(self.skipped):>3} skipped by the suite itself"
        )

    def details(self, *, why: bool) -> str:
        """A line for each failure; with `why`, failures in full and each exclusion."""
        lines = []
        for test, text in self.failed.items():
            last = text.strip().splitlines()[-1] if text.strip() else ""
            lines += [f"  FAILED {test}: {last[:150]}"] + ([text] if why else [])
        if why:
            lines += [f"  excluded {test}: {reason}" for test, reason in self.excluded.items()]
        return "".join(f"{line}\n" for line in lines)

    def add(self, other: Tally) -> None:
        self.passed += other.passed
        self.failed |= other.failed
        self.skipped |= other.skipped
        self.excluded |= other.excluded


Exclusions = list[tuple[str, str]]
"""(regular expression over the test's id, reason)"""


def excluded(test_id: str, exclusions: Exclusions) -> str | None:
    return next((reason for pattern, reason in exclusions if re.search(pattern, test_id)), None)


def run_suite(
    suite: unittest.TestSuite,
    exclusions: Exclusions,
    *,
    only: str = "",
    verbose: bool = False,
    leave_out: tuple[str, ...] = (),
) -> Tally:
    """`leave_out`: classes that are not counted at all."""
    tally = Tally()
    for test in _flatten(suite):
        name = test.id()
        if (only and only not in name) or type(test).__name__ in leave_out:
            continue
        if (reason := excluded(name, exclusions)) is not None:
            tally.excluded[name] = reason
            continue
        if verbose:
            print(name, file=sys.stderr, flush=True)
        _run_one(test, name, tally)
    return tally


def _flatten(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _flatten(item)
        else:
            yield item


def _run_one(test: unittest.TestCase, name: str, tally: Tally) -> None:
    result = unittest.TestResult()
    try:
        with _alarm(), NETWORKS.test():
            unittest.TestSuite([test]).run(result)  # with its class's and module's set-up
    except BaseException as exc:
        result.errors.append((test, f"{type(exc).__name__}: {exc}"))
        if isinstance(exc, KeyboardInterrupt):
            raise
    problems = result.errors + result.failures
    if problems:
        tally.failed[name] = "\n".join(text for _, text in problems)
    elif result.skipped:
        tally.skipped[name] = result.skipped[0][1]
    elif result.unexpectedSuccesses:
        tally.failed[name] = "unexpected success"
    else:
        tally.passed.append(name)


class TookTooLong(BaseException):
    pass


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TookTooLong(f"{REAL_SECONDS} real seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(REAL_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
