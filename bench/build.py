"""The compiled build that the bench measures: which one belongs to these sources.

`python -m bench.build` prints its name for `bench/prepare`, which makes it: that takes a minute.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from bench.model import CACHE, ROOT, Unavailable


def package() -> Path:
    """A folder for PYTHONPATH. Raises Unavailable with the reason that bench/prepare left."""
    built = CACHE / f"compiled-{digest()}"
    if built.exists():
        return built
    reason = CACHE / "compiled.reason"
    raise Unavailable(
        reason.read_text().strip() if reason.exists() else "these sources are not built (bench/prepare)"
    )


def runs_compiled(pid: int) -> bool:
    """Asked of the kernel: what a process was meant to import may be another thing."""
    return "/juneau__mypyc." in Path(f"/proc/{pid}/maps").read_text()


def digest() -> str:
    """Of all that decides what is built."""
    found = hashlib.blake2b(sys.version.encode(), digest_size=6)
    sources = [*(ROOT / "juneau").rglob("*.py"), *(ROOT / "bpf").rglob("*.[ch]")]
    recipe = [ROOT / name for name in ("pyproject.toml", "constraints.txt", "scripts/build_hook.py")]
    for path in sorted([*sources, *recipe]):
        found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return found.hexdigest()


if __name__ == "__main__":
    print(digest())
