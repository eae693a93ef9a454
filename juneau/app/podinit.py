"""Enter a Pod's namespaces and run a command there.

Also a program of its own, started with `python -I -S`: the standard library only, so that a Pod's
command starts in milliseconds and nothing is forked out of a process that has threads.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWNET = 0x4000_0000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 0x8_0000
MNT_DETACH = 2

CANNOT_RUN = 126
NOT_FOUND = 127

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(what: str, result: int) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str, flags: int) -> None:
    result = _libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None)
    _checked(f"mount {target}", result)


def umount(target: str) -> None:
    _checked(f"unmount {target}", _libc.umount2(target.encode(), MNT_DETACH))


def unshare(flags: int) -> None:
    """Affects the calling thread."""
    _checked("unshare", _libc.unshare(flags))


def set_netns(path: str) -> None:
    """Move the calling thread into the network namespace at `path`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(f"enter network namespace {path}", _libc.setns(fd, CLONE_NEWNET))
    finally:
        os.close(fd)


def enter(netns: str, resolv_conf: str, hostname: str) -> None:
    """Network, host name, /sys and /etc/resolv.conf as the Pod sees them. `resolv_conf` may be ""."""
    set_netns(netns)
    unshare(CLONE_NEWNS | CLONE_NEWUTS)
    _keep_mounts_here()
    socket.sethostname(hostname)
    try:
        umount("/sys")
        mount("sysfs", "/sys", "sysfs", 0)  # /sys/class/net shows the namespace it was mounted from
    except OSError:
        pass  # a container without the right to: the Pod then sees the machine's
    if resolv_conf:
        mount(resolv_conf, os.path.realpath("/etc/resolv.conf"), "none", MS_BIND)


def _keep_mounts_here() -> None:
    """Mounts made from now on do not show outside this mount namespace."""
    try:
        mount("none", "/", "none", MS_SLAVE | MS_REC)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        for target in _mount_points():  # in a chroot, "/" is a folder of a mount that cannot be named
            mount("none", target, "none", MS_SLAVE)


def _mount_points() -> list[str]:
    """Those below our root (proc(5), mountinfo): the fifth field, with octal escapes."""
    with open("/proc/self/mountinfo", "rb") as lines:
        fields = [line.split()[4] for line in lines]
    return [field.decode("unicode_escape").encode("latin-1").decode() for field in fields]


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Become the command; returns only when that fails, with the status a shell would give."""
    for number in (signal.SIGPIPE, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], list(argv), dict(env))
    except FileNotFoundError:
        print(f"run {argv[0]}: not found in the Pod's PATH", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"run {argv[0]}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return CANNOT_RUN


def main(args: Sequence[str]) -> int:
    """`args`: netns path, resolv.conf path or "", host name, working folder or "", then the command."""
    netns, resolv_conf, hostname, cwd, *argv = args
    try:
        enter(netns, resolv_conf, hostname)
        if cwd:
            os.chdir(cwd)
    except OSError as error:
        print(f"enter the Pod: {error.strerror or error}", file=sys.stderr)
        return CANNOT_RUN
    return run(argv, os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
