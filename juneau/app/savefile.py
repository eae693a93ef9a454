"""Saves a lab's capture. Whatever ends it, the file ends with a whole block."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from juneau.app.client import Stream, capture
from juneau.app.state import LabError
from juneau.netstack.types import Malformed
from juneau.netstack.wire.pcapng import BlockCutter

STDOUT: Final = Path("-")


class Saved(NamedTuple):
    packets: int
    lost: int
    """Because we were too slow."""


def save(
    control: Path, target: Path, query: Mapping[str, object], begun: Callable[[], None] = lambda: None
) -> Saved:
    """Until the lab ends it, or SIGINT or SIGTERM does; `target` "-" is stdout. Blocking.

    When `begun` is called, packets are seen. Raises ApiError, and LabError when the file cannot be written.
    """
    cutter = BlockCutter()
    with capture(control, **query) as stream, _opened(target) as fd, _ended_by_signal(stream):
        begun()
        try:
            while data := stream.read():
                _write(fd, cutter.feed(data))
        except BrokenPipeError:
            pass  # our reader, such as `head`, has enough
        except OSError as error:
            raise LabError(f"write {target}: {error.strerror}") from error
        except Malformed as error:
            raise LabError(f"capture: the lab sent no pcapng ({error})") from error
    return Saved(cutter.packets, cutter.dropped)


@contextmanager
def _opened(target: Path) -> Iterator[int]:
    if target == STDOUT:
        yield 1
        return
    try:
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LabError(f"open {target}: {error.strerror}") from error
    try:
        yield fd
    finally:
        os.close(fd)


def _write(fd: int, blocks: bytes) -> None:
    """All or nothing where the file allows: a full disk, or a second Ctrl-C, leaves no half of a block."""
    start = os.lseek(fd, 0, os.SEEK_CUR) if stat.S_ISREG(os.fstat(fd).st_mode) else -1
    left = memoryview(blocks)
    try:
        while left:
            left = left[os.write(fd, left) :]
    except BaseException:
        if start >= 0:
            os.ftruncate(fd, start)
        raise


@contextmanager
def _ended_by_signal(stream: Stream) -> Iterator[None]:
    """The first signal ends the capture, the second one ends us."""

    def end(number: int, frame: FrameType | None) -> None:
        restore()
        stream.end()

    old: dict[int, Any] = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in old.items():
            signal.signal(number, handler)

    try:
        yield
    finally:
        restore()
