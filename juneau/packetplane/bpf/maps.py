"""Pinned BPF maps by bpf(2) itself: bytes in, bytes out, one system call per element.

bcc is not needed here, so another process can read a running plane's maps cheaply.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from collections.abc import Iterator
from struct import Struct
from typing import Final

from juneau.packetplane.bpf.abi import MapSpec

_MAP_LOOKUP_ELEM, _MAP_UPDATE_ELEM, _MAP_DELETE_ELEM, _MAP_GET_NEXT_KEY = 1, 2, 3, 4
_OBJ_GET, _MAP_LOOKUP_BATCH = 7, 24
_ELEM_ATTR: Final = Struct("=I4xQQQ")  # map_fd, key, value or next_key, flags
_BATCH_ATTR: Final = Struct("=QQQQIIQQ")  # in, out, keys, values, count, map_fd, elem_flags, flags
_BATCH_COUNT: Final = Struct("=32xI20x")
_BATCH_ENTRIES: Final = 4_096
_OBJ_ATTR: Final = Struct("=QII")  # pathname, bpf_fd, file_flags

_ENOTSUPP: Final = 524
"""The kernel's own, without a name in errno.h: this kind of map has no batches."""

_SYSCALL_NUMBER: Final = {"x86_64": 321, "s390x": 351, "ppc64le": 361}.get(platform.machine(), 280)
_libc: Final = ctypes.CDLL(None, use_errno=True)


def _bpf(command: int, attr: bytes | ctypes.Array[ctypes.c_char]) -> int:
    """Raises OSError. An array may be written to by the kernel."""
    result: int = _libc.syscall(_SYSCALL_NUMBER, command, attr, len(attr))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def open_pin(path: str) -> int:
    """A file descriptor for a pinned object. Raises OSError."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    return _bpf(_OBJ_GET, _OBJ_ATTR.pack(ctypes.addressof(name), 0, 0))


def possible_cpus() -> int:
    """Values a per-CPU element has; `0-3,8` counts up to the highest."""
    with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
        return int(file.read().strip().replace(",", "-").split("-")[-1]) + 1


def map_info(fd: int) -> dict[str, int]:
    """`map_type`, `key_size`, `value_size` and `max_entries` of an open map."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        pairs = dict(line.split(":", 1) for line in file)
    return {name: int(pairs.get(name, -1)) for name in ("map_type", "key_size", "value_size", "max_entries")}


def _cut(raw: bytes, size: int, count: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, size * count, size)]


class BpfMap:
    """An open map. Owns the file descriptor. Every method raises OSError for what it does not name."""

    def __init__(self, fd: int, spec: MapSpec, *, max_entries: int, per_cpu: int = 0) -> None:
        """`per_cpu`: number of possible CPUs for a per-CPU map; lookups then return that many values."""
        self.fd = fd
        self.spec = spec
        self.max_entries = max_entries
        self._value_size = spec.value_size if not per_cpu else -(-spec.value_size // 8) * 8 * per_cpu

    @classmethod
    def open(cls, folder: str, spec: MapSpec, *, per_cpu: int = 0) -> BpfMap:
        fd = open_pin(f"{folder}/{spec.name}")
        return cls(fd, spec, max_entries=map_info(fd)["max_entries"], per_cpu=per_cpu)

    def get(self, key: bytes) -> bytes | None:
        value = ctypes.create_string_buffer(self._value_size)
        try:
            self._call(_MAP_LOOKUP_ELEM, key, ctypes.addressof(value))
        except FileNotFoundError:
            return None
        return value.raw

    def set(self, key: bytes, value: bytes) -> None:
        if len(value) != self._value_size:
            raise ValueError(f"{self.spec.name} value: got {len(value)} bytes, allowed {self._value_size}")
        buffer = ctypes.create_string_buffer(value, len(value))
        self._call(_MAP_UPDATE_ELEM, key, ctypes.addressof(buffer))

    def delete(self, key: bytes) -> bool:
        """False: there was none."""
        try:
            self._call(_MAP_DELETE_ELEM, key, 0)
        except FileNotFoundError:
            return False
        return True

    def keys(self) -> Iterator[bytes]:
        """Ends after `max_entries` keys: a hash that changes meanwhile may send the walk round again."""
        following = ctypes.create_string_buffer(self.spec.key_size)
        key: bytes | None = None
        for _ in range(self.max_entries):
            try:
                self._call(_MAP_GET_NEXT_KEY, key, ctypes.addressof(following))
            except OSError as err:
                if err.errno == errno.ENOENT:
                    return
                raise
            key = following.raw
            yield key

    def items(self) -> dict[bytes, bytes]:
        """All of it, some thousand entries per system call where the kernel can (Linux 5.6; tries 5.15)."""
        try:
            return self._items_by_batch()
        except OSError as err:
            if err.errno not in (errno.EINVAL, _ENOTSUPP):
                raise
        found = ((key, self.get(key)) for key in list(self.keys()))
        return {key: value for key, value in found if value is not None}

    def _items_by_batch(self) -> dict[bytes, bytes]:
        entries = min(_BATCH_ENTRIES, self.max_entries)
        keys = ctypes.create_string_buffer(self.spec.key_size * entries)
        values = ctypes.create_string_buffer(self._value_size * entries)
        places = ctypes.addressof(keys), ctypes.addressof(values)
        position = ctypes.create_string_buffer(max(4, self.spec.key_size))
        found: dict[bytes, bytes] = {}
        start, more = 0, True
        while more and len(found) < self.max_entries:
            attr = ctypes.create_string_buffer(
                _BATCH_ATTR.pack(start, ctypes.addressof(position), *places, entries, self.fd, 0, 0),
                _BATCH_ATTR.size,
            )
            try:
                _bpf(_MAP_LOOKUP_BATCH, attr)
            except FileNotFoundError:
                more = False  # the last batch
            [count] = _BATCH_COUNT.unpack(attr.raw)
            found.update(
                zip(
                    _cut(keys.raw, self.spec.key_size, count),
                    _cut(values.raw, self._value_size, count),
                    strict=True,
                )
            )
            start = ctypes.addressof(position)
        return found

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _call(self, command: int, key: bytes | None, pointer: int) -> None:
        if key is not None and len(key) != self.spec.key_size:
            raise ValueError(f"{self.spec.name} key: got {len(key)} bytes, allowed {self.spec.key_size}")
        buffer = ctypes.create_string_buffer(key, len(key)) if key is not None else None
        address = ctypes.addressof(buffer) if buffer is not None else 0
        _bpf(command, _ELEM_ATTR.pack(self.fd, address, pointer, 0))
