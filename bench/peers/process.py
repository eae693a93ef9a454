"""Servers that are programs: where they are, starting them, waiting until they serve, stopping them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Final

from bench.model import CACHE, Unavailable

START_S: Final = 30.0
STOP_S: Final = 5.0


def installed(program: str) -> str:
    """A Debian package's program; servers are in folders that not everyone searches. Raises Unavailable."""
    found = shutil.which(program, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin")))
    if found is None:
        raise Unavailable(f"{program} is not installed (scripts/setup bench)")
    return found


def made(name: str, program: str) -> str:
    """A program of what `bench/prepare` made. Raises Unavailable with the reason that it left."""
    for found in sorted(CACHE.glob(f"{name}-*/{program}")):
        return str(found)
    reason = CACHE / f"{name}.reason"
    raise Unavailable(reason.read_text().strip() if reason.exists() else "bench/prepare has not been run")


class Server:
    def __init__(self, process: subprocess.Popen[bytes], output: IO[str]) -> None:
        self._process, self._output = process, output
        self.pid = process.pid

    def says(self, line: str) -> bool:
        return line in self._lines()

    def until(self, ready: Callable[[], bool]) -> None:
        """Raises Unavailable with the last it said."""
        give_up = time.monotonic() + START_S
        while not ready():
            if self._process.poll() is not None or time.monotonic() > give_up:
                state = "serves nothing" if self._process.returncode is None else "ended"
                raise Unavailable(f"{state}: {' '.join(self._lines()[-1:])}")
            time.sleep(0.05)

    def _lines(self) -> list[str]:
        self._output.seek(0)
        return self._output.read().splitlines()


@contextmanager
def serving(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """`command`, which must not fork into the background, and must become the server itself by exec."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield Server(process, output)
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
