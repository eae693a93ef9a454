"""The service of a lab whose product wastes system calls."""

from __future__ import annotations

import os
import select
from typing import Any

from guard_work import Handlers

from juneau.netstack.aio import AsyncStack
from juneau.netstack.types import TxPacket
from juneau.packetplane.dispatcher import Dispatcher
from juneau.packetplane.sender import Sender

poller = select.epoll()
read_batch, send, settle = Dispatcher.read_batch, Sender.send, AsyncStack.settle


def read_twice(self: Dispatcher, read: Any, budget: int) -> int:
    return read_batch(self, read, budget) + read_batch(self, read, budget)


def send_twice(self: Sender, packets: list[TxPacket]) -> None:
    send(self, packets)
    send(self, packets)


def settle_and_more(self: AsyncStack) -> None:
    settle(self)
    os.getppid()
    poller.poll(0)


Dispatcher.read_batch, Sender.send = read_twice, send_twice  # type: ignore[method-assign]
AsyncStack.settle = settle_and_more  # type: ignore[method-assign]

__all__ = ["Handlers"]
