"""The out-of-order queue: ranges of bytes beyond rcv_nxt, disjoint, never adjacent, in order.

Bytes that came first stay: a later segment fills gaps only, so overlap cannot rewrite the stream.
The receive window bounds the bytes, `max_ranges` the bookkeeping.
"""

from __future__ import annotations

from bisect import bisect_right

from juneau.netstack.tcp.chunks import Chunks


class Assembler:
    __slots__ = ("_chunks", "_ends", "_max_ranges", "_recent", "_starts", "size")

    def __init__(self, max_ranges: int) -> None:
        self._max_ranges = max_ranges
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._chunks: list[Chunks] = []
        self._recent: list[int] = []  # a byte of each range, the one changed last first
        self.size = 0
        """Bytes held."""

    def __bool__(self) -> bool:
        return self.size > 0

    def insert(self, start: int, data: memoryview, nxt: int) -> tuple[int, int] | None:
        """Keep what is new of `data`; return the first part that was here already, for DSACK.

        What starts at `nxt` is kept whatever the limit: it is what the others wait for.
        """
        end = start + len(data)
        duplicate: tuple[int, int] | None = None
        index = bisect_right(self._starts, start) - 1
        at = start
        while at < end:
            if index >= 0 and self._ends[index] > at:
                covered = min(self._ends[index], end)
                duplicate = duplicate or (at, covered)
                at = covered
            index += 1
            gap_end = min(self._starts[index], end) if index < len(self._starts) else end
            if gap_end > at:
                index = self._fill(index, at, data[at - start : gap_end - start], nxt)
                at = gap_end
        self._note(start)
        return duplicate

    def _fill(self, index: int, start: int, data: memoryview, nxt: int) -> int:
        """Put a gap's bytes before range `index`; return the index of the range that has them now."""
        end = start + len(data)
        left = index > 0 and self._ends[index - 1] == start
        right = index < len(self._starts) and self._starts[index] == end
        if not left and not right and len(self._starts) >= self._max_ranges and start != nxt:
            return index - 1  # dropped, and so never acknowledged or reported
        self.size += len(data)
        if left:
            index -= 1
            self._chunks[index].append(data)
            self._ends[index] = end
        else:
            chunks = Chunks()
            chunks.append(data)
            self._starts.insert(index, start)
            self._ends.insert(index, end)
            self._chunks.insert(index, chunks)
        if right:
            self._join_next(index)
        return index

    def _join_next(self, index: int) -> None:
        self._chunks[index].extend(self._chunks[index + 1])
        self._ends[index] = self._ends[index + 1]
        del self._starts[index + 1], self._ends[index + 1], self._chunks[index + 1]

    def take(self, nxt: int) -> tuple[int, Chunks] | None:
        """If the first range starts at `nxt`: remove it, return its end and its bytes."""
        if not self._starts or self._starts[0] != nxt:
            return None
        del self._starts[0]
        chunks = self._chunks.pop(0)
        self.size -= chunks.size
        return self._ends.pop(0), chunks

    def drop_last(self, size: int) -> None:
        """Forget ranges, the farthest first, until `size` bytes are free or none is left."""
        while size > 0 and self._starts:
            gone = self._chunks.pop().size
            del self._starts[-1], self._ends[-1]
            self.size -= gone
            size -= gone

    def covers(self, start: int, end: int) -> bool:
        index = bisect_right(self._starts, start) - 1
        return index >= 0 and self._ends[index] >= end

    def _note(self, at: int) -> None:
        self._recent.insert(0, at)
        del self._recent[8:]

    def blocks(self, limit: int) -> list[tuple[int, int]]:
        """Ranges to report, the one that changed last first, the next ones repeated (RFC 2018 section 4)."""
        found: list[tuple[int, int]] = []
        for at in self._recent:
            index = bisect_right(self._starts, at) - 1
            if index < 0 or self._ends[index] <= at:
                continue
            block = self._starts[index], self._ends[index]
            if block not in found:
                found.append(block)
                if len(found) == limit:
                    break
        return found

    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._starts, self._ends, strict=True))

    def memory(self) -> int:
        return sum(chunks.memory() for chunks in self._chunks)

    def clear(self) -> None:
        self._starts.clear()
        self._ends.clear()
        self._chunks.clear()
        self._recent.clear()
        self.size = 0
