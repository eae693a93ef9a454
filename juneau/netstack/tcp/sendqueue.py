"""What the application has sent and the peer has not acknowledged, by sequence number.

Large `bytes` are kept by reference and lent out as views, so that a byte is not copied between
`send` and the link, nor for a retransmission. Small writes are gathered into chunks; one alone needs no view.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from juneau.netstack.types import Buffer

GATHER_BELOW = 4_096
"""Writes below this are copied together; a view costs about as much as copying 4 KiB."""
CHUNK_BYTES = 65_536
_TIDY_AT = 64
_NONE: list[Any] = []
"""Stands for every list of a queue without bytes; never written to."""


class SendQueue:
    __slots__ = ("_chunks", "_head", "_starts", "_tail", "_tail_room", "end")

    def __init__(self, start: int) -> None:
        """`start`: extended sequence number of the first byte."""
        self.end = start
        """Sequence number after the last byte."""
        self._chunks: list[Buffer] = _NONE
        self._starts: list[int] = _NONE
        self._head = 0
        self._tail: list[bytes] = _NONE  # small writes not yet joined: the bytes before `end`
        self._tail_room = CHUNK_BYTES

    def append(self, data: bytes | bytearray | memoryview) -> None:
        if type(data) is not bytes:
            data = bytes(data)
        size = len(data)
        if not size:
            return
        if not self._chunks and not self._tail:
            self._starts, self._chunks = [self.end], [data if size < GATHER_BELOW else memoryview(data)]
        elif size < GATHER_BELOW:
            if size > self._tail_room:
                self._join()
            if self._tail:
                self._tail.append(data)
            else:
                self._tail = [data]
            self._tail_room -= size
        else:
            if self._tail:
                self._join()
            self._add(self.end, data)
        self.end += size

    def _add(self, start: int, data: bytes) -> None:
        if self._chunks:
            self._starts.append(start)
            self._chunks.append(memoryview(data))
        else:
            self._starts, self._chunks = [start], [memoryview(data)]

    def _join(self) -> None:
        if tail := self._tail:
            data = tail[0] if len(tail) == 1 else b"".join(tail)
            self._add(self.end - len(data), data)
            self._tail = _NONE
        self._tail_room = CHUNK_BYTES

    def slice(self, start: int, end: int) -> tuple[Buffer, ...]:
        """Views of the bytes start..end, which must be in the queue."""
        if self._tail:
            self._join()
        index = bisect_right(self._starts, start, self._head) - 1
        chunk, at = self._chunks[index], self._starts[index]
        if end - at <= len(chunk):
            if start == at and end - at == len(chunk):
                return (chunk,)
            return (chunk[start - at : end - at],)
        views = [chunk[start - at :]]
        start = at + len(chunk)
        while start < end:
            index += 1
            chunk = self._chunks[index]
            views.append(chunk if len(chunk) <= end - start else chunk[: end - start])
            start += len(chunk)
        return tuple(views)

    def release(self, una: int) -> None:
        """Forget whole chunks before `una`."""
        if una >= self.end:  # all there is, as a rule
            if una == self.end:
                self.end = una  # one number in memory instead of two
            self._tail_room = CHUNK_BYTES
            self._chunks = self._starts = self._tail = _NONE
            self._head = 0
            return
        head, chunks, starts = self._head, self._chunks, self._starts
        count = len(chunks)
        while head < count and starts[head] + len(chunks[head]) <= una:
            chunks[head] = _NOTHING
            head += 1
        if head == count:
            self._chunks = self._starts = _NONE
            head = 0
        elif head >= _TIDY_AT and head * 2 > count:
            del chunks[:head], starts[:head]
            head = 0
        self._head = head

    def clear(self) -> None:
        self._chunks = self._starts = self._tail = _NONE
        self._head = 0


_NOTHING = b""
