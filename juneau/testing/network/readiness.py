"""`select` and `selectors` over simulated sockets."""

from __future__ import annotations

import selectors
from collections.abc import Iterable
from typing import Any

from juneau.netstack.types import Misuse
from juneau.testing.network.host import current_boot
from juneau.testing.network.sockets import SimSocket


def sim_select(
    rlist: Iterable[Any], wlist: Iterable[Any], xlist: Iterable[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """As `select.select`; nothing is ever exceptional."""
    reading = [(item, socket_of(item)) for item in rlist]
    writing = [(item, socket_of(item)) for item in wlist]

    def ready() -> tuple[list[Any], list[Any]]:
        return [i for i, s in reading if s.can_read()], [i for i, s in writing if s.can_write()]

    threads = current_boot().host.network.threads
    if timeout != 0:
        threads.block(lambda: any(ready()), timeout, "select")
    readable, writable = ready()
    return readable, writable, []


class SimSelector(selectors._BaseSelectorImpl):
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        keys = list(self.get_map().values())
        rlist = [key.fileobj for key in keys if key.events & selectors.EVENT_READ]
        wlist = [key.fileobj for key in keys if key.events & selectors.EVENT_WRITE]
        if timeout is not None and timeout <= 0:
            timeout = 0
        readable, writable, _ = sim_select(rlist, wlist, [], timeout)
        found = []
        for key in keys:
            events = selectors.EVENT_READ * (key.fileobj in readable)
            events |= selectors.EVENT_WRITE * (key.fileobj in writable)
            if events:
                found.append((key, events))
        return found


def socket_of(item: Any) -> SimSocket:
    """The socket itself, or that of an object with its `fileno`. Raises Misuse for anything else."""
    if isinstance(item, SimSocket):
        return item
    number = item if isinstance(item, int) else item.fileno()
    sock = SimSocket.by_number.get(number)
    if sock is None:
        raise Misuse(f"{item!r} is no socket of this network")
    return sock
