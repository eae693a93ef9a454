"""An asyncio loop whose time jumps to the next timer, and that counts the timers it fires."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing will ever happen: no timer is armed")
        self.loop.now += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _Jump()
        selector.loop = self
        self.now = 1_000.0
        self.fired = 0
        self.early = 0.0
        """Seconds by which timers come too soon, as on a loop with a coarse clock."""
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def micros(self) -> int:
        return round(self.now * 1e6)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        return super().call_later(max(0.0, delay - self.early), self._fire, callback, args, **kw)

    def _fire(self, callback: Callable[..., Any], args: Any) -> None:
        self.fired += 1
        callback(*args)


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop: Any = runner.get_loop()
        return runner.run(main(loop))
