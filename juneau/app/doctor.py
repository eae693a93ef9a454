"""Can this machine run labs? Each check says what it found and, where it fails, what to do."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_CAP_NET_ADMIN: Final = 12
_CAP_SYS_ADMIN: Final = 21


class Check(NamedTuple):
    what: str
    ok: bool
    found: str
    remedy: str = ""
    needed: bool = True
    """False: something works less well without it."""


def checks() -> Iterator[Check]:
    for check in _CHECKS:
        yield check()


def build() -> str:
    """Whether the stack is Python or was compiled (docs/operations.md)."""
    from juneau.netstack import stack

    return "interpreted" if stack.__file__.endswith(".py") else "compiled"


def _python() -> Check:
    return Check("python", True, f"{platform.python_version()}, juneau {build()}")


def _root() -> Check:
    caps = _capabilities()
    ok = all(caps >> cap & 1 for cap in (_CAP_NET_ADMIN, _CAP_SYS_ADMIN))
    found = f"uid {os.geteuid()}" + ("" if ok else ", without CAP_NET_ADMIN or CAP_SYS_ADMIN")
    return Check(
        "root", ok and os.geteuid() == 0, found, "run as root (sudo), in a privileged container if in one"
    )


def _capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _tun() -> Check:
    device = Path("/dev/net/tun")
    if not device.exists():
        return Check(
            "TUN/TAP", False, "no /dev/net/tun", "modprobe tun; in a container: --device /dev/net/tun"
        )
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError as error:
        return Check(
            "TUN/TAP", False, f"{device}: {error.strerror}", "run as root; the container must be given it"
        )
    return Check("TUN/TAP", True, str(device))


def _bpffs() -> Check:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mounted = [fields[1] for fields in mounts if fields[2] == "bpf"]
    remedy = "mount -t bpf bpf /sys/fs/bpf (a lab does it by itself)"
    known = "bpf" in Path("/proc/filesystems").read_text().split()
    if not known:
        return Check("bpffs", False, "this kernel has no bpf filesystem", "a kernel with CONFIG_BPF_SYSCALL")
    return Check(
        "bpffs", bool(mounted), ", ".join(mounted) or "not mounted", "" if mounted else remedy, needed=False
    )


def _clsact() -> Check:
    """Asked of the kernel, on an interface made for it."""
    if os.geteuid() != 0:
        return Check("clsact, veth", False, "not tried", "run as root")
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    name = f"jvdoc{os.getpid() % 1_000_000}"
    try:
        with IPRoute() as ipr:
            ipr.link("add", ifname=name, kind="veth", peer={"ifname": name + "p"})
            index = ipr.link_lookup(ifname=name)[0]
            try:
                ipr.tc("add", "clsact", index)
            finally:
                ipr.link("del", index=index)
    except (NetlinkError, OSError) as error:
        return Check(
            "clsact, veth", False, str(error), "a kernel with CONFIG_VETH and CONFIG_NET_SCH_INGRESS"
        )
    return Check("clsact, veth", True, "work")


def _btf() -> Check:
    path = Path("/sys/kernel/btf/vmlinux")
    return Check(
        "BTF",
        path.exists(),
        str(path) if path.exists() else "none",
        "only tests of struct mirrors need it",
        False,
    )


def _bcc() -> Check:
    found = importlib.util.find_spec("bcc") is not None
    remedy = "apt install python3-bpfcc, and an environment made with --system-site-packages (make setup)"
    return Check("bcc", found, "found" if found else "none (PyPI's bcc is another thing)", remedy)


def _headers() -> Check:
    from juneau.packetplane.bpf import headers
    from juneau.packetplane.types import PlaneError

    try:
        headers.prepare()
    except PlaneError as error:
        return Check("kernel headers", False, str(error), "apt install linux-headers-amd64")
    own = f"/lib/modules/{os.uname().release}/build"
    return Check("kernel headers", True, os.environ.get(headers.BCC_KERNEL_SOURCE, own))


def _tools() -> Check:
    absent = [tool for tool in ("ip", "tc", "curl", "dig", "ping", "ethtool") if shutil.which(tool) is None]
    remedy = (
        "apt install iproute2 curl dnsutils iputils-ping ethtool (demo and tests use them; a lab does not)"
    )
    return Check(
        "tools", not absent, f"no {', '.join(absent)}" if absent else "all there", remedy, needed=False
    )


def _uvloop() -> Check:
    found = importlib.util.find_spec("uvloop") is not None
    return Check("uvloop", found, "found" if found else "none", "pip install uvloop")


_CHECKS: Final[tuple[Callable[[], Check], ...]] = (
    _python,
    _root,
    _tun,
    _bpffs,
    _clsact,
    _btf,
    _bcc,
    _headers,
    _uvloop,
    _tools,
)
