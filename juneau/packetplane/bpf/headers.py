"""Find kernel headers for bcc.

Our programs include UAPI only, so any version's headers will do. bcc wants one complete tree; Debian splits
it into `linux-headers-<version>-common` and `linux-headers-<version>-<flavour>`: merged here, by links.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Final

from juneau.packetplane.types import PlaneError

BCC_KERNEL_SOURCE: Final = "BCC_KERNEL_SOURCE"
_COMPLETE: Final = ("include/linux/kconfig.h", "include/generated/autoconf.h", "include/uapi/linux/bpf.h")
_PACKAGES: Final = {"x86_64": "linux-headers-amd64", "aarch64": "linux-headers-arm64"}


def prepare(cache: Path | None = None) -> None:
    """Make bcc find headers: set BCC_KERNEL_SOURCE unless it is set or the running kernel has its own.

    Raises PlaneError that names the package to install.
    """
    if os.environ.get(BCC_KERNEL_SOURCE) or is_complete(Path("/lib/modules", os.uname().release, "build")):
        return
    os.environ[BCC_KERNEL_SOURCE] = str(find(Path("/usr/src"), cache or default_cache()))


def default_cache() -> Path:
    if os.access("/var/cache", os.W_OK):
        return Path("/var/cache/juneau")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "juneau"


def is_complete(tree: Path) -> bool:
    return all((tree / name).exists() for name in _COMPLETE)


def find(sources: Path, cache: Path) -> Path:
    """A complete tree below `sources`, newest version first, or a merged one below `cache`."""
    trees = sorted(sources.glob("linux-headers-*"), key=lambda tree: _version(tree.name), reverse=True)
    for tree in trees:
        if is_complete(tree):
            return tree
        common = _common_of(tree)
        if common is not None and (merged := _merged(tree, common, cache / tree.name)) is not None:
            return merged
    package = _PACKAGES.get(platform.machine(), "linux-headers-generic")
    raise PlaneError(f"find kernel headers in {sources}: none (apt install {package}; any version will do)")


def _version(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name))


def _common_of(tree: Path) -> Path | None:
    """`linux-headers-6.1.0-9-amd64` → `linux-headers-6.1.0-9-common`."""
    if tree.name.endswith("-common"):
        return None
    parts = tree.name.split("-")
    for length in range(len(parts) - 1, 2, -1):
        common = tree.with_name("-".join([*parts[:length], "common"]))
        if common.is_dir():
            return common
    return None


def _merged(tree: Path, common: Path, target: Path) -> Path | None:
    if is_complete(target):
        return target
    try:
        merge(target, [tree, common])
    except OSError as err:
        raise PlaneError(f"merge kernel headers into {target}: {err.strerror} (is it writable?)") from err
    return target if is_complete(target) else None


def merge(target: Path, trees: list[Path]) -> None:
    """Make `target` show the files of all `trees`; the first one wins. Folders only one has are one link."""
    target.mkdir(parents=True, exist_ok=True)
    for name in sorted({child.name for tree in trees for child in tree.iterdir()}):
        having = [tree / name for tree in trees if (tree / name).exists()]
        if not having:
            continue
        link = target / name
        if len(having) > 1 and all(path.is_dir() and not path.is_symlink() for path in having):
            merge(link, having)
        elif not link.exists():
            link.unlink(missing_ok=True)
            _link(link, having[0].resolve())


def _link(link: Path, to: Path) -> None:
    try:
        link.symlink_to(to)
    except FileExistsError:
        pass  # another process merges at the same time: same link
