"""The TAP that BPF redirects virtual services' frames to. Only read; answers leave through AF_PACKET.

It has many queues and a Pod always the same one: who sends more than we read loses its own frames, not
everybody's. Plain ioctls, no netlink: safe to call on the event loop.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from io import FileIO
from pathlib import Path
from struct import Struct
from typing import Final

from juneau.netstack.wire import vnet
from juneau.packetplane.types import PlaneError, PlaneSettings

READ_BYTES: Final = vnet.HEADER_BYTES + 14 + 65_535
"""vnet header, Ethernet, the largest IPv4 packet."""

_TUNSETIFF, _TUNSETPERSIST, _TUNSETOFFLOAD, _TUNSETVNETHDRSZ = 0x400454CA, 0x400454CB, 0x400454D0, 0x400454D8
_TUNSETSTEERINGEBPF: Final = 0x800454E0
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _SIOCSIFMTU, _SIOCSIFTXQLEN = 0x8913, 0x8914, 0x8922, 0x8943
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR, _IFF_UP = 0x0002, 0x1000, 0x4000, 0x1
_IFF_MULTI_QUEUE: Final = 0x0100
_TUN_F_CSUM, _TUN_F_TSO4, _TUN_F_TSO_ECN, _TUN_F_USO = 0x01, 0x02, 0x08, 0x20 | 0x40
_IFNAMSIZ: Final = 16
_IFREQ: Final = Struct("16sI20x")
_IFREQ_FLAGS: Final = Struct("16sH22x")


class Tap:
    """An open, persistent TAP: its ifindex outlives this process."""

    def __init__(
        self, fds: list[int], claim: socket.socket, name: str, *, vnet_header: bool, uso: bool
    ) -> None:
        self.fds = fds
        """One per queue; empty once closed."""
        self.name = name
        self.ifindex = socket.if_nametoindex(name)
        self.vnet_header = vnet_header
        self.uso = uso
        self._claim = claim

    @classmethod
    def open(cls, settings: PlaneSettings) -> Tap:
        """Create the device or attach to the one an earlier run left. Raises PlaneError."""
        name = settings.tap_name
        if not 0 < len(name.encode()) < _IFNAMSIZ:
            raise PlaneError(f"open tap {name!r}: got {len(name)} characters, allowed 1..{_IFNAMSIZ - 1}")
        fds: list[int] = []
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            _claim(claim, name)
            fds.append(_attach(name, settings.offload))
            uso = _set_offload(fds[0], settings.offload)
            fcntl.ioctl(fds[0], _TUNSETPERSIST, 1)
            _set_up(name, settings)
            while len(fds) < settings.tap_queues:
                fds.append(_attach(name, settings.offload))
            return cls(fds, claim, name, vnet_header=settings.offload, uso=uso)
        except OSError as err:
            for fd in fds:
                os.close(fd)
            claim.close()
            raise PlaneError(f"open tap {name}: {err.strerror} ({_remedy(err)})") from err

    def steer(self, program_fd: int) -> None:
        """Let the BPF program choose each frame's queue; the device keeps it. Raises PlaneError."""
        try:
            fcntl.ioctl(self.fds[0], _TUNSETSTEERINGEBPF, program_fd.to_bytes(4, sys.byteorder))
        except OSError as err:
            raise PlaneError(f"steer tap {self.name}: {err.strerror} (needs Linux 4.16)") from err

    def reads(self) -> list[tuple[int, Callable[[], bytes | None]]]:
        """Each queue's descriptor and what takes one frame of it, in memory of its own.

        That returns None: none now (an exception for it, as `os.read` has, costs more than the system call);
        it raises OSError: the device broke.
        """
        return [(fd, partial(FileIO(fd, closefd=False).read, READ_BYTES)) for fd in self.fds]

    def close(self) -> None:
        """The device stays."""
        while self.fds:
            os.close(self.fds.pop())
        self._claim.close()

    def destroy(self) -> None:
        """Close, and the device goes with us."""
        if self.fds:
            fcntl.ioctl(self.fds[0], _TUNSETPERSIST, 0)
        self.close()

    def kernel_drops(self) -> int:
        """Frames the kernel dropped because we did not read fast enough."""
        try:
            return int(Path("/sys/class/net", self.name, "statistics/tx_dropped").read_text())
        except OSError:
            return 0


def _claim(claim: socket.socket, name: str) -> None:
    """A device with many queues lets anybody attach one more. Abstract names belong to the network
    namespace, as the device does, and end with the process."""
    try:
        claim.bind(f"\0juneau-tap-{name}")
    except OSError as err:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY)) from err


def _attach(name: str, offload: bool) -> int:
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    flags = _IFF_TAP | _IFF_NO_PI | _IFF_MULTI_QUEUE | (_IFF_VNET_HDR if offload else 0)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, _IFREQ_FLAGS.pack(name.encode(), flags))
    except OSError:
        os.close(fd)
        raise
    return fd


def _remedy(err: OSError) -> str:
    if isinstance(err, FileNotFoundError):
        return "modprobe tun"
    if isinstance(err, PermissionError):
        return "needs root or CAP_NET_ADMIN"
    return "is another juneau using it? choose another tap_name, or stop that one"


def _set_offload(fd: int, offload: bool) -> bool:
    """Take superframes. Returns whether UDP's come too (Linux 6.2)."""
    if not offload:
        fcntl.ioctl(fd, _TUNSETOFFLOAD, 0)
        return False
    fcntl.ioctl(fd, _TUNSETVNETHDRSZ, vnet.HEADER_BYTES.to_bytes(4, sys.byteorder))
    tcp = _TUN_F_CSUM | _TUN_F_TSO4 | _TUN_F_TSO_ECN
    try:
        fcntl.ioctl(fd, _TUNSETOFFLOAD, tcp | _TUN_F_USO)
    except OSError as err:
        if err.errno != errno.EINVAL:
            raise
        fcntl.ioctl(fd, _TUNSETOFFLOAD, tcp)
        return False
    return True


def _set_up(name: str, settings: PlaneSettings) -> None:
    # No router solicitations, no neighbour discovery: nobody but BPF has anything to say here.
    quiet = Path("/proc/sys/net/ipv6/conf", name, "disable_ipv6")
    if quiet.exists():
        quiet.write_text("1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        raw = name.encode()
        fcntl.ioctl(control, _SIOCSIFMTU, _IFREQ.pack(raw, settings.mtu))
        fcntl.ioctl(control, _SIOCSIFTXQLEN, _IFREQ.pack(raw, settings.tap_queue_frames))
        _, flags = _IFREQ_FLAGS.unpack(fcntl.ioctl(control, _SIOCGIFFLAGS, _IFREQ_FLAGS.pack(raw, 0)))
        fcntl.ioctl(control, _SIOCSIFFLAGS, _IFREQ_FLAGS.pack(raw, flags | _IFF_UP))
