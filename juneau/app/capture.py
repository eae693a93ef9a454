"""Captures of a running lab: what crosses the stacks' edge, and what the packet plane drops beside it.

While nobody captures, no stack has a tap. A reader that is slower than the packets loses some, and
is told how many; the stacks never wait for it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import web

from juneau.netstack.aio.driver import monotonic_us
from juneau.netstack.capture import Capture
from juneau.netstack.tap import Direction, Tap
from juneau.netstack.types import Buffer, Micros, Path
from juneau.netstack.wire.pcapng import LINKTYPE_ETHERNET, LINKTYPE_RAW

if TYPE_CHECKING:
    from juneau.app.lab import Lab
    from juneau.netstack.aio import AsyncStack

QUEUE_BYTES: Final = 16 << 20
"""Packets waiting for one reader: half a second at 250 Mbit/s. What comes on top is lost to it."""
WRITE_BYTES: Final = 1 << 20
"""Handed to the socket at once, so that a capture's share of a turn of the loop stays small."""
ID_HEADER: Final = "Capture-Id"


class Place(NamedTuple):
    """Where a packet was seen. Its name is the capture's interface."""

    name: str
    vpc: str = ""
    pod: str = ""
    linktype: int = LINKTYPE_RAW


class Reader:
    """One capture's file, as a queue of blocks."""

    def __init__(
        self,
        *,
        place: Callable[[Path], Place],
        wanted: Callable[[Place], bool] = lambda place: True,
        count: int = 0,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        """`count` 0: until `end`. Only `wanted` places are captured."""
        self.lost: Counter[str] = Counter()
        """Packets the reader was too slow for, by interface."""
        self._place, self._wanted = place, wanted
        self._count, self._queue_bytes = count, queue_bytes
        self._blocks: deque[bytes] = deque()
        self._queued = 0
        self._taps: dict[Path, tuple[str, Tap] | None] = {}
        self._ended = False
        self._awake = asyncio.Event()
        self._capture = Capture(self._put, epoch_offset=time.time_ns() // 1_000 - monotonic_us())

    def see(
        self, direction: Direction, pieces: tuple[Buffer, ...], path: Path, now: Micros, comment: str | None
    ) -> None:
        """A Tap."""
        found = self._taps[path] if path in self._taps else self._meet(path)
        if found is None or self._ended:
            return
        name, tap = found
        if self._queued + sum(map(len, pieces)) > self._queue_bytes:
            self.lost[name] += 1
            return
        tap(direction, pieces, path, now, comment)
        self._count -= 1
        if not self._count:
            self.end()

    def end(self) -> None:
        """What is queued can still be read."""
        if not self._ended:
            self._ended = True
            self._awake.set()
            self._capture.finish(monotonic_us(), self.lost)

    async def blocks(self) -> AsyncIterator[bytes]:
        """The file, in runs of whole blocks, as it grows."""
        while True:
            while self._blocks:
                yield self._take()
            if self._ended:
                return
            await self._awake.wait()
            self._awake.clear()

    def _meet(self, path: Path) -> tuple[str, Tap] | None:
        place = self._place(path)
        found = None
        if self._wanted(place):
            found = (place.name, self._capture.tap(place.name, linktype=place.linktype))
        self._taps[path] = found
        return found

    def _put(self, block: bytes) -> None:
        self._blocks.append(block)
        self._queued += len(block)
        self._awake.set()

    def _take(self) -> bytes:
        taken: list[bytes] = []
        size = 0
        while self._blocks and size < WRITE_BYTES:
            block = self._blocks.popleft()
            taken.append(block)
            size += len(block)
        self._queued -= size
        return b"".join(taken)


class Captures:
    """Everyone who captures in a lab; its HTTP side too: `GET` streams until `DELETE` ends it."""

    def __init__(self, lab: Lab) -> None:
        assert lab.node is not None
        self._lab, self._node = lab, lab.node
        self._readers: dict[str, Reader] = {}
        self._node.on_stack = self._on_stack

    async def stream(self, request: web.Request) -> web.StreamResponse:
        key = secrets.token_hex(8)
        reader, duration = self._reader(request.query)
        headers = {ID_HEADER: key, "Content-Type": "application/x-pcapng"}
        response = web.StreamResponse(headers=headers)
        self._readers[key] = reader
        self._tap()
        timer = asyncio.get_running_loop().call_later(duration, reader.end) if duration else None
        try:
            await response.prepare(request)
            async for blocks in reader.blocks():
                await response.write(blocks)
            await response.write_eof()
        except ConnectionError:
            pass  # whoever read it has gone
        finally:
            if timer is not None:
                timer.cancel()
            self._readers.pop(key, None)
            self._tap()
        return response

    async def end(self, request: web.Request) -> web.Response:
        reader = self._readers.get(request.match_info["key"])
        if reader is not None:
            reader.end()
        return web.json_response({"ended": reader is not None})

    def close(self) -> None:
        for reader in self._readers.values():
            reader.end()

    def _reader(self, query: Mapping[str, str]) -> tuple[Reader, float]:
        """And how many seconds it runs; 0: until it is ended."""
        pod, vpc = query.get("pod", ""), query.get("vpc", "")
        try:
            count, duration = int(query.get("count", 0)), float(query.get("duration", 0))
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        if vpc and vpc not in self._lab.plan.view.vpcs:
            known = ", ".join(self._lab.plan.view.vpcs)
            raise web.HTTPNotFound(text=f"no vpc {vpc} (vpcs: {known})")

        def wanted(place: Place) -> bool:
            return pod in ("", place.pod) and vpc in ("", place.vpc)

        return Reader(place=self._place, wanted=wanted, count=count), duration

    def _place(self, path: Path) -> Place:
        """`VPC/POD`, `VPC/NAMESPACE/POD` outside `default`; what no Pod is known for is the TAP's."""
        nic = getattr(path, "nic", None)
        if nic is None:
            return Place(self._lab.record.tap, linktype=LINKTYPE_ETHERNET)
        pod = next((pod for pod in self._lab.record.pods if pod.host_ifname == nic.ifname), None)
        if pod is None:
            return Place(nic.ifname)
        name = pod.name if pod.namespace == "default" else pod.key
        return Place(f"{pod.vpc}/{name}", pod.vpc, pod.key)

    # Taps

    def _tap(self) -> None:
        """Everywhere if anybody captures, else nowhere."""
        tap = self._see if self._readers else None
        self._node.plane.drop_tap = tap
        for _, stack in self._node.stacks():
            stack.stack.tap = tap

    def _on_stack(self, stack: AsyncStack) -> None:
        stack.stack.tap = self._see if self._readers else None

    def _see(
        self, direction: Direction, pieces: tuple[Buffer, ...], path: Path, now: Micros, comment: str | None
    ) -> None:
        for reader in self._readers.values():
            reader.see(direction, pieces, path, now, comment)
