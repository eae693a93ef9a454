"""The bpf file system and the pins on it."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from juneau.packetplane.bpf import abi, maps
from juneau.packetplane.types import PlaneError

MOUNT_POINT: Final = "/sys/fs/bpf"


def ensure_folder(pin_path: str) -> None:
    """Make `pin_path`, mounting bpffs at /sys/fs/bpf where that is what is missing. Raises PlaneError."""
    if not is_on_bpffs(pin_path):
        if not Path(pin_path).is_relative_to(MOUNT_POINT):
            raise PlaneError(
                f"pin maps in {pin_path}: not on a bpf file system (choose a folder below {MOUNT_POINT})"
            )
        _mount()
    try:
        os.makedirs(pin_path, mode=0o700, exist_ok=True)
    except OSError as err:
        raise PlaneError(f"make folder {pin_path}: {err.strerror} (needs root)") from err


def is_on_bpffs(path: str) -> bool:
    return file_system_of(path, Path("/proc/self/mountinfo").read_text(encoding="utf-8")) == "bpf"


def file_system_of(path: str, mountinfo: str) -> str:
    """Type of the file system that `path` is or would be on: longest mount point, last mounted."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        mount, _, rest = line.partition(" - ")
        point = mount.split(" ")[4].encode().decode("unicode_escape")
        if Path(path).is_relative_to(point) and len(point) >= len(best):
            best, kind = point, rest.split(" ")[0]
    return kind


def _mount() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"bpf", MOUNT_POINT.encode(), b"bpf", ctypes.c_ulong(0), None) < 0:
        cause = os.strerror(ctypes.get_errno())
        raise PlaneError(
            f"mount bpffs on {MOUNT_POINT}: {cause} (needs root; try: mount -t bpf bpf {MOUNT_POINT})"
        )


def remove_misfits(pin_path: str, flow_entries: int) -> list[str]:
    """Unpin maps that an earlier version or other settings left with another layout; returns their names."""
    misfits = [spec.name for spec in abi.MAPS if _is_misfit(pin_path, spec, flow_entries)]
    for name in misfits:
        Path(pin_path, name).unlink(missing_ok=True)
    return misfits


def _is_misfit(pin_path: str, spec: abi.MapSpec, flow_entries: int) -> bool:
    if not os.path.exists(f"{pin_path}/{spec.name}"):
        return False
    try:
        fd = maps.open_pin(f"{pin_path}/{spec.name}")
    except OSError:
        return True
    try:
        info = maps.map_info(fd)
    finally:
        os.close(fd)
    sizes = info.get("key_size"), info.get("value_size")
    return sizes != spec[1:] or (spec is abi.FLOW_MAP and info["max_entries"] != flow_entries)


def remove_pins(pin_path: str) -> list[str]:
    """Remove our pins and the folder if nothing else is in it; returns the paths removed."""
    removed = []
    for spec in abi.MAPS:
        pin = Path(pin_path, spec.name)
        if pin.exists():
            pin.unlink()
            removed.append(str(pin))
    try:
        os.rmdir(pin_path)
    except OSError:
        return removed  # absent, or somebody else's files are in it
    return [*removed, pin_path]
