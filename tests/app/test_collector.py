"""Memory goes back once many connections have gone, and no timer runs until then."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from juneau.app import collector
from juneau.app.collector import BUSY, FIRST_LOOK_S, LAST_LOOK_S, MANY, Slack, seldom


class Loop:
    """Time that passes by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Any]] = []

    def call_later(self, delay: float, callback: Any) -> Loop:
        self.waiting.append((delay, callback))
        return self

    def cancel(self) -> None:
        self.waiting.clear()

    def run(self) -> float:
        """The only timer; how long it was."""
        ((delay, callback),) = self.waiting
        self.waiting.clear()
        callback()
        return delay


@pytest.fixture
def world(monkeypatch):
    """A loop, its Slack, memory blocks to set, and what was given back."""
    loop, blocks, given = Loop(), [1_000_000], []
    monkeypatch.setattr(collector.sys, "getallocatedblocks", lambda: blocks[0])
    monkeypatch.setattr(collector, "give_back", lambda: given.append(blocks[0]))
    return loop, Slack(loop), blocks, given


def leave(slack: Slack, count: int) -> None:
    for _ in range(count):
        slack.gone()


def test_few_connections_start_no_timer(world):
    loop, slack, _, _ = world
    leave(slack, MANY - 1)
    assert not loop.waiting


def test_memory_is_given_back_once_the_rush_is_over(world):
    loop, slack, blocks, given = world
    leave(slack, MANY)
    leave(slack, BUSY)
    loop.run()
    assert not given, "still leaving"
    blocks[0] //= 2
    leave(slack, BUSY - 1)
    loop.run()
    assert given == [500_000]


def test_stragglers_are_looked_for_ever_later_and_then_no_more(world):
    loop, slack, blocks, given = world
    leave(slack, MANY)
    loop.run()
    blocks[0] //= 2
    waits = [loop.run(), loop.run()]
    assert len(given) == 1, "nobody has left since"
    leave(slack, 1)
    while loop.waiting:
        waits.append(loop.run())
    assert len(given) == 2
    assert waits == [FIRST_LOOK_S * 2**n for n in range(len(waits))]
    assert waits[-1] == LAST_LOOK_S
    assert not loop.waiting


def test_connections_that_come_as_others_go_cost_no_collection(world):
    loop, slack, blocks, given = world
    leave(slack, MANY)
    loop.run()
    blocks[0] = 990_000
    loop.run()
    assert not given
    assert not loop.waiting


def test_the_next_rush_counts_anew(world):
    loop, slack, blocks, given = world
    for _ in range(2):
        blocks[0] = 1_000_000
        leave(slack, MANY)
        blocks[0] = 400_000
        while loop.waiting:
            loop.run()
    assert len(given) == 2


def test_a_closed_slack_has_no_timer(world):
    loop, slack, _, _ = world
    leave(slack, MANY)
    slack.close()
    assert not loop.waiting


def test_what_the_start_made_is_not_looked_through():
    before = gc.get_threshold(), gc.get_freeze_count()
    with seldom():
        assert gc.get_freeze_count() > 1_000
        assert gc.get_threshold()[0] > 700
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


async def test_a_real_loop_takes_it():
    slack = Slack(asyncio.get_running_loop())
    leave(slack, MANY)
    slack.close()
