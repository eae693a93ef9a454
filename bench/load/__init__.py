"""Our compiled client (`load COMMAND ADDRESS PORT SECONDS …`), built when first needed."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Final

from bench.model import CACHE, BenchError, run

_HERE: Final = Path(__file__).parent
_FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


@cache
def program() -> Path:
    """The binary; its name holds the sources' hash, so changed sources are another binary."""
    binary = CACHE / f"load-{_digest()}"
    if not binary.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        building = binary.with_suffix(f".{os.getpid()}")
        sources = [str(path) for path in sorted(_HERE.glob("*.c"))]
        try:
            run("cc", *_FLAGS, "-o", str(building), *sources, timeout=60)
        except BenchError as error:
            raise BenchError(f"build the client (`apt-get install gcc libc6-dev`): {error}") from error
        building.replace(binary)
    return binary


def _digest() -> str:
    digest = hashlib.blake2b(" ".join(_FLAGS).encode(), digest_size=6)
    for path in sorted(_HERE.glob("*.[ch]")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
