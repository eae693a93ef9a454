"""A queue of received bytes that neither copies superframes nor drowns in 1-byte segments."""

from __future__ import annotations

from juneau.netstack.types import Buffer

CHUNK_BYTES = 65_536
"""A gathering chunk stops growing here."""
_NONE: list[Buffer | bytearray] = []
"""Stands for every empty queue; never written to."""


class Chunks:
    """Bytes in order. A payload that is at least half of its packet is kept as the view it is; smaller
    ones are copied, and one that follows another joins it: memory stays within about twice `size`."""

    __slots__ = ("_gathered", "_queue", "size")

    def __init__(self) -> None:
        self._queue: list[Buffer | bytearray] = _NONE  # a deque takes 760 bytes, empty
        self._gathered = False  # some chunks are bytearrays
        self.size = 0

    def append(self, data: memoryview) -> None:
        size = len(data)
        self.size += size
        queue = self._queue
        if 2 * size >= len(data.obj):  # type: ignore[arg-type]  # an object with a buffer has a length here
            if queue:
                queue.append(data)
            else:
                self._queue = [data]
            return
        if not queue:
            self._queue = [bytes(data)]
        elif (last := self._growing(queue)) is not None:
            last += data
        else:
            queue.append(bytes(data))

    def _growing(self, queue: list[Buffer | bytearray]) -> bytearray | None:
        """The last chunk, if it takes more bytes."""
        last = queue[-1]
        if type(last) is bytes:
            self._gathered = True
            queue[-1] = last = bytearray(last)
        return last if type(last) is bytearray and len(last) < CHUNK_BYTES else None

    def extend(self, other: Chunks) -> None:
        """Take all of `other`, which is empty afterwards."""
        mine, theirs = self._queue, other._queue
        while theirs and mine:
            first = theirs[0]
            if type(first) is memoryview or (last := self._growing(mine)) is None:
                break
            last += first
            del theirs[0]
        if mine:
            mine.extend(theirs)
        else:
            self._queue = theirs
        other._queue = _NONE
        self._gathered |= other._gathered
        self.size += other.size
        other.size = 0

    def take(self, limit: int) -> list[Buffer]:
        """Remove and return up to `limit` bytes."""
        queue = self._queue
        if self.size <= limit:
            self._queue = _NONE
            self.size = 0
            if self._gathered:
                self._gathered = False
                return [bytes(chunk) if type(chunk) is bytearray else chunk for chunk in queue]  # type: ignore[misc]
            return queue  # type: ignore[return-value]
        out: list[Buffer] = []
        whole = 0
        for chunk in queue:
            if limit <= 0:
                break
            size = len(chunk)
            if size <= limit:
                whole += 1
                out.append(bytes(chunk) if type(chunk) is bytearray else chunk)  # type: ignore[arg-type]
            elif isinstance(chunk, bytearray):
                size = limit
                out.append(bytes(chunk[:size]))
                del chunk[:size]
            else:
                size = limit
                out.append(chunk[:size])
                queue[whole] = chunk[size:]
            limit -= size
            self.size -= size
        del queue[:whole]
        return out

    def clear(self) -> None:
        self._queue = _NONE
        self.size = 0

    def memory(self) -> int:
        """Bytes held, those of the packets behind views included."""
        return sum(len(c.obj) if isinstance(c, memoryview) else len(c) for c in self._queue)  # type: ignore[arg-type, misc]
