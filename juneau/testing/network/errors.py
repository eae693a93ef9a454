"""Ends of a simulation that are findings, each with the tasks that were waiting."""

from __future__ import annotations

from collections.abc import Sequence


class Stuck(Exception):
    """What the three below have in common: `tasks` has a line for each task that was not done."""

    def __init__(self, what: str, tasks: Sequence[str], now: float) -> None:
        self.tasks, self.now = tuple(tasks), now
        lines = "".join(f"\n  {task}" for task in self.tasks) or "\n  (no task is left)"
        super().__init__(f"at {now:.6f} s: {what}{lines}")


class Deadlock(Stuck):
    """Nothing is scheduled and no packet is under way: what the tasks wait for can never come."""

    def __init__(self, tasks: Sequence[str], now: float) -> None:
        super().__init__("nothing is scheduled any more, and these tasks wait:", tasks, now)


class OutOfTime(Stuck, TimeoutError):
    """The run's virtual time is up."""

    def __init__(self, tasks: Sequence[str], now: float) -> None:
        super().__init__("the virtual time is up, and these tasks are not done:", tasks, now)


class Livelock(Stuck):
    """A program spins without letting time pass."""

    def __init__(self, tasks: Sequence[str], now: float, turns: int) -> None:
        super().__init__(f"{turns} turns and time stands still; these tasks are not done:", tasks, now)
