"""Our compiled client: `load.c`, built when first needed."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Final

from bench.model import CACHE, BenchError, run

SOURCE: Final = Path(__file__).with_name("load.c")
_FLAGS: Final = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")


@cache
def program() -> Path:
    """The binary; its name holds the source's hash, so a changed source is another binary."""
    digest = hashlib.blake2b(SOURCE.read_bytes(), digest_size=6).hexdigest()
    binary = CACHE / f"load-{digest}"
    if not binary.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        building = binary.with_suffix(f".{os.getpid()}")
        try:
            run("cc", *_FLAGS, "-o", str(building), str(SOURCE), timeout=60)
        except BenchError as error:
            raise BenchError(
                f"build the client (needs cc: `apt-get install gcc libc6-dev`): {error}"
            ) from error
        building.replace(binary)
    return binary
