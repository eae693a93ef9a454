"""Keeps the TAP read: a batch of each queue per turn, and a new attachment when the device broke."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from juneau.netstack.types import Micros
from juneau.packetplane.dispatcher import Dispatcher, monotonic_us
from juneau.packetplane.tap import Tap
from juneau.packetplane.types import PlaneError, PlaneSettings

_log = logging.getLogger(__name__)

_FIRST_RETRY_S: Final = 0.05
_CLOSE_US: Final = 200
"""Batches that come this close upon another are worth staying awake for."""
_SMALL_BYTES: Final = 2_048
"""A frame that is no superframe."""
_LAST_RETRY_S: Final = 5.0


class TapReader:
    """Counters: `rx.frames`, `rx.batches`; `rx.read_error`, `rx.reopened`."""

    def __init__(
        self,
        tap: Tap,
        dispatcher: Dispatcher,
        settings: PlaneSettings,
        counters: Counter[str],
        on_reopened: Callable[[Tap], None],
    ) -> None:
        """`on_reopened` gets the new attachment, whose ifindex may be another."""
        self.tap = tap
        self._dispatcher = dispatcher
        self._settings = settings
        self._counters = counters
        self._on_reopened = on_reopened
        self._loop: asyncio.AbstractEventLoop | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = _FIRST_RETRY_S
        self._last_at: Micros = 0
        self._close_us = _CLOSE_US if settings.busy_poll_us else -1
        self._is_polling = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._add_readers(loop)

    def stop(self) -> None:
        if self._loop is None:
            return
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        else:
            self._remove_readers(self._loop)
        self._loop = None

    def _add_readers(self, loop: asyncio.AbstractEventLoop) -> None:
        for fd, read in self.tap.reads():
            loop.add_reader(fd, self._on_readable, read)

    def _remove_readers(self, loop: asyncio.AbstractEventLoop) -> None:
        for fd in self.tap.fds:
            loop.remove_reader(fd)

    def _on_readable(self, read: Callable[[], bytes | None]) -> None:
        try:
            taken = self._dispatcher.read_batch(read, self._settings.frame_budget)
        except OSError as err:
            self._on_broken(err)
            return
        self._counters["rx.frames"] += taken
        self._counters["rx.batches"] += 1
        now = monotonic_us()
        if (
            now - self._last_at <= self._close_us
            and not self._is_polling
            and self._dispatcher.last_bytes <= _SMALL_BYTES  # bulk is better read in batches
        ):
            self._poll_on()
        self._last_at = now

    def _poll_on(self) -> None:
        self._is_polling = self._loop is not None
        if self._loop is not None:
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Stay awake a little: to sleep and be woken takes as long as all the work of a round trip."""
        self._is_polling = False
        if monotonic_us() - self._last_at < self._settings.busy_poll_us:
            self._poll_on()

    def _on_broken(self, err: OSError) -> None:
        """EBADFD or EIO: somebody removed the device. Never end; attach again, later and later."""
        if not self.tap.fds:
            return  # another queue has said so in the same turn
        self._counters["rx.read_error"] += 1
        _log.error("read tap %s: %s (attaching again)", self.tap.name, err.strerror)
        if self._loop is None:
            return
        self._remove_readers(self._loop)
        self.tap.close()
        self._retry = self._loop.call_later(self._retry_s, self._reopen)

    def _reopen(self) -> None:
        loop, self._retry = self._loop, None
        if loop is None:
            return
        try:
            self.tap = Tap.open(self._settings)
            self._on_reopened(self.tap)
        except PlaneError as err:
            self.tap.close()
            self._retry_s = min(self._retry_s * 2, _LAST_RETRY_S)
            _log.error("%s; trying again in %.1f s", err, self._retry_s)
            self._retry = loop.call_later(self._retry_s, self._reopen)
            return
        self._retry_s = _FIRST_RETRY_S
        self._counters["rx.reopened"] += 1
        self._add_readers(loop)
