"""How many blocks CPython asks its allocators for, and how many bytes in large blocks.

The first is objects made, but for those that CPython keeps in free lists (small tuples, floats, frames).
The second finds copies of payload: each needs a block of its size, whoever makes it (`bytes`, `join`, a
slice, a buffer that grows). A copy into memory that is there already is not seen.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

SOURCE: Final = Path(__file__).with_name("guard_allocations.c")
_MEM, _OBJECT = 1, 2
"""PyMemAllocatorDomain; the raw domain is not asked for with the GIL held."""


class _Allocator(ctypes.Structure):
    """PyMemAllocatorEx"""

    _fields_ = [(name, ctypes.c_void_p) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


class Allocated(NamedTuple):
    blocks: int
    large_bytes: int


def lacking() -> str:
    """Why nothing can be counted here; empty: it can."""
    return "" if shutil.which("cc") else "no cc (Debian: gcc, libc6-dev)"


def build(folder: Path) -> Path:
    built = folder / "allocations.so"
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", built, SOURCE], check=True)
    return built


class Allocations:
    def __init__(self, built: Path) -> None:
        self._library: Any = ctypes.CDLL(str(built))
        self._is_counting = ctypes.c_int.in_dll(self._library, "is_counting")
        self._blocks = ctypes.c_ulonglong.in_dll(self._library, "blocks")
        self._large_bytes = ctypes.c_ulonglong.in_dll(self._library, "large_bytes")

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Blocks are CPython's own before, within and after."""
        kept = [self._hook(domain) for domain in (_MEM, _OBJECT)]
        try:
            yield
        finally:
            for domain, original in zip((_MEM, _OBJECT), kept, strict=True):
                ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(original))

    def _hook(self, domain: int) -> _Allocator:
        original = _Allocator()
        ctypes.pythonapi.PyMem_GetAllocator(domain, ctypes.byref(original))
        names = ("malloc", "calloc", "realloc", "free")
        functions = [ctypes.cast(self._library[f"counting_{name}"], ctypes.c_void_p).value for name in names]
        wrapper = _Allocator(ctypes.addressof(original), *functions)
        ctypes.pythonapi.PyMem_SetAllocator(domain, ctypes.byref(wrapper))
        return original

    def start(self) -> None:
        self._blocks.value = self._large_bytes.value = 0
        self._is_counting.value = 1

    def stop(self) -> Allocated:
        """Since `start`."""
        self._is_counting.value = 0
        return Allocated(self._blocks.value, self._large_bytes.value)
