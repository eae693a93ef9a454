"""Kernel headers, bpffs and bcc: found, merged, or named in the error."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from juneau.packetplane import PlaneError, PlaneSettings
from juneau.packetplane.bpf import bpffs, headers, loader

COMPLETE = ("include/linux/kconfig.h", "include/uapi/linux/bpf.h")
GENERATED = "include/generated/autoconf.h"


def tree(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{folder.name}/{name}")
    return folder


def debian(sources: Path, version: str, flavour: str = "amd64") -> None:
    tree(sources / f"linux-headers-{version}-common", *COMPLETE, "Makefile", "arch/x86/Makefile")
    own = tree(sources / f"linux-headers-{version}-{flavour}", GENERATED, "Makefile", "arch/x86/module.lds")
    (own / "scripts").symlink_to("nowhere")


def test_debians_two_trees_become_one(tmp_path: Path) -> None:
    debian(tmp_path / "src", "6.1.0-9")
    found = headers.find(tmp_path / "src", tmp_path / "cache")
    assert headers.is_complete(found)
    assert (found / "Makefile").read_text() == "linux-headers-6.1.0-9-amd64/Makefile"
    assert (found / "arch/x86/Makefile").exists()
    assert (found / "arch/x86/module.lds").exists()
    assert (found / "include/linux").is_symlink()
    assert not (found / "scripts").is_symlink()


def test_the_newest_version_wins_as_numbers(tmp_path: Path) -> None:
    for version in ("6.9.0-1", "6.12.0-2", "6.1.0-30"):
        debian(tmp_path / "src", version)
    assert headers.find(tmp_path / "src", tmp_path / "cache").name == "linux-headers-6.12.0-2-amd64"


def test_flavours_with_dashes_find_their_common_tree(tmp_path: Path) -> None:
    debian(tmp_path / "src", "6.1.0-9", "cloud-amd64")
    assert headers.is_complete(headers.find(tmp_path / "src", tmp_path / "cache"))


def test_a_complete_tree_is_taken_as_it_is(tmp_path: Path) -> None:
    own = tree(tmp_path / "src/linux-headers-6.8.0-generic", *COMPLETE, GENERATED)
    assert headers.find(tmp_path / "src", tmp_path / "cache") == own
    assert not (tmp_path / "cache").exists()


def test_merging_again_after_an_upgrade_repairs_the_links(tmp_path: Path) -> None:
    debian(tmp_path / "src", "6.1.0-9")
    first = headers.find(tmp_path / "src", tmp_path / "cache")
    for name in ("Makefile", "include/generated"):
        (first / name).unlink()
        (first / name).symlink_to(tmp_path / "gone")
    assert headers.find(tmp_path / "src", tmp_path / "cache") == first
    assert headers.is_complete(first)
    assert (first / "Makefile").exists()


@pytest.mark.parametrize("half", ["common", "amd64"])
def test_nothing_usable_names_the_package(tmp_path: Path, half: str) -> None:
    debian(tmp_path / "src", "6.1.0-9")
    other = "amd64" if half == "common" else "common"
    (tmp_path / f"src/linux-headers-6.1.0-9-{other}").rename(tmp_path / "elsewhere")
    with pytest.raises(PlaneError, match=r"apt install linux-headers-"):
        headers.find(tmp_path / "src", tmp_path / "cache")


def test_an_unwritable_cache_is_named(tmp_path: Path) -> None:
    debian(tmp_path / "src", "6.1.0-9")
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(PlaneError, match="is it writable"):
        headers.find(tmp_path / "src", tmp_path / "cache")


def test_the_callers_choice_of_headers_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(headers.BCC_KERNEL_SOURCE, "/chosen")
    headers.prepare(Path("/nowhere"))
    assert headers.os.environ[headers.BCC_KERNEL_SOURCE] == "/chosen"


def test_without_bcc_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bcc", None)
    with pytest.raises(PlaneError, match=r"apt install python3-bpfcc.*--system-site-packages"):
        loader.load(PlaneSettings())


def test_pypis_bcc_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    other = ModuleType("bcc")
    other.__file__ = "/site-packages/bcc.py"
    monkeypatch.setitem(sys.modules, "bcc", other)
    with pytest.raises(PlaneError, match=r"/site-packages/bcc\.py is another package"):
        loader.load(PlaneSettings())


MOUNTS = """\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /sys rw,nosuid - sysfs sysfs rw
24 23 0:22 / /sys/fs/bpf rw,nosuid shared:9 - bpf bpf rw,mode=700
25 22 0:23 / /mnt/a\\040b rw - bpf bpf rw
26 22 0:24 / /run rw - tmpfs tmpfs rw
27 26 0:25 / /run rw - bpf bpf rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/sys/fs/bpf", "bpf"),
        ("/sys/fs/bpf/juneau/x", "bpf"),
        ("/sys/fs/bpfx", "sysfs"),
        ("/sys/fs", "sysfs"),
        ("/mnt/a b/juneau", "bpf"),
        ("/run/juneau", "bpf"),
        ("/var", "ext4"),
    ],
)
def test_the_file_system_of_a_path(path: str, kind: str) -> None:
    assert bpffs.file_system_of(path, MOUNTS) == kind


def test_pins_outside_a_bpf_file_system_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlaneError, match=r"not on a bpf file system \(choose a folder below /sys/fs/bpf\)"):
        bpffs.ensure_folder(str(tmp_path))
