"""Whose habits a script was written against: Linux's or FreeBSD's. Not defaults of the stack.

A profile is a link, TcpOptions and a socket layer's habits; `sysctl` lines in a script change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from juneau.netstack.tcp.options import TcpOptions
from juneau.netstack.types import MILLISECOND


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    tcp: TcpOptions = field(default_factory=TcpOptions)
    mtu: int = 1_500
    """packetdrill's tun device."""
    symbols: frozenset[str] = frozenset()
    """True in `#ifdef`."""
    recvspace: int = 65_536
    """SO_RCVBUF as reported before a connection exists."""
    rcvbuf_in_segments: bool = False
    """The receive buffer of a connection is rounded up to whole segments."""
    sndbuf: int = 1 << 20
    """Bytes that write() takes before it blocks."""
    notsent_lowat: int = 0
    """Unsent bytes below which poll() says writable; 0: no limit."""
    ignored: tuple[str, ...] = ()
    """sysctls that change nothing here, each with a reason in `_IGNORED`."""

    def with_tcp(self, **changes: Any) -> Profile:
        """Fields that this TcpOptions does not have are left out."""
        known = {f.name for f in fields(self.tcp)}
        return replace(self, tcp=replace(self.tcp, **{k: v for k, v in changes.items() if k in known}))

    def rcvbuf(self, mss: int) -> int:
        size = self.recvspace
        return -(-size // mss) * mss if self.rcvbuf_in_segments else size


LINUX: Final = Profile(
    "linux",
    TcpOptions(
        syn_option_style="linux",
        wscale=8,
        rcv_buf=270_000,
        initial_window=65_535,
        nodelay=False,
        delayed_ack=40 * MILLISECOND,
        quickack=16 * 1460,
        syn_retries=5,
        push_segments=2,
        tlp_min=4 * MILLISECOND,
        tlp_max_ack_delay=200 * MILLISECOND,
        tolerate_missing_timestamps=True,
    ),
    symbols=frozenset({"linux", "Linux"}),
    recvspace=540_000,
    sndbuf=4 << 20,
)

FREEBSD: Final = Profile(
    "freebsd",
    TcpOptions(
        syn_option_style="freebsd",
        rcv_buf=65_700,
        initial_window=65_535,
        wscale=6,
        nodelay=False,
        delayed_ack=40 * MILLISECOND,
        sws_bytes=1,
        ack_any_size=True,
        judge_by_buffer=True,
        repeat_fin=True,
        time_wait_ignores_rst=True,
        time_wait_reuse=False,
        update_fraction=4,
    ),
    symbols=frozenset({"STANDARD"}),
    rcvbuf_in_segments=True,
)

JUNEAU: Final = Profile("juneau", symbols=frozenset({"juneau"}), recvspace=1 << 20)
"""The stack as it is."""

PROFILES: Final = {profile.name: profile for profile in (LINUX, FREEBSD, JUNEAU)}


# --- sysctl ---

_SETTING: Final = re.compile(
    r"""(?:net[./]ipv4[./]|/proc/sys/net/ipv4/|(?=net\.inet\.)|(?=kern\.))([\w./]+)\s*=\s*("[^"]*"|\S+)"""
)


def settings(command: str) -> list[tuple[str, str]]:
    """`name, value` of every sysctl that a shell command sets."""
    return [(name.replace("/", "."), value.strip("\"'`")) for name, value in _SETTING.findall(command)]


def apply(profile: Profile, name: str, value: str) -> Profile | None:
    """The profile with one sysctl set; None: not known."""
    change = _SYSCTLS.get(name)
    if change is not None:
        return change(profile, value)
    return profile if name in _IGNORED else None


def _flag(option: str) -> Callable[[Profile, str], Profile]:
    return lambda profile, value: profile.with_tcp(**{option: value != "0"})


def _not(option: str) -> Callable[[Profile, str], Profile]:
    return lambda profile, value: profile.with_tcp(**{option: value == "0"})


def _number(option: str, unit: int = 1) -> Callable[[Profile, str], Profile]:
    return lambda profile, value: profile.with_tcp(**{option: int(value) * unit})


def _ecn(profile: Profile, value: str) -> Profile:
    modes = {"0": "off", "1": "active", "2": "passive"}
    return profile.with_tcp(ecn=modes.get(value, "off"))


def _rfc1323(profile: Profile, value: str) -> Profile:
    return profile.with_tcp(timestamps=value == "1", window_scaling=value in ("1", "2"))


def _recvspace(profile: Profile, value: str) -> Profile:
    profile = replace(profile, recvspace=int(value))
    return profile.with_tcp(rcv_buf=profile.rcvbuf(profile.mtu - 40))


def _maxsockbuf(profile: Profile, value: str) -> Profile:
    """FreeBSD offers the shift that this size would need."""
    return profile.with_tcp(wscale=next(s for s in range(15) if 65_535 << s >= int(value) or s == 14))


def _tcp_rmem(profile: Profile, value: str) -> Profile:
    """ "min default max": the buffer is half the default; the shift lets the maximum be advertised."""
    _, default, largest = map(int, value.split())
    shift = next(s for s in range(15) if largest >> s <= 65_535 or s == 14)
    return replace(profile, recvspace=default).with_tcp(rcv_buf=default // 2, wscale=shift)


_SYSCTLS: Final[dict[str, Callable[[Profile, str], Profile]]] = {
    "tcp_timestamps": _flag("timestamps"),
    "tcp_sack": _flag("sack"),
    "tcp_window_scaling": _flag("window_scaling"),
    "tcp_ecn": _ecn,
    "tcp_rmem": _tcp_rmem,
    "tcp_syn_retries": _number("syn_retries"),
    "tcp_synack_retries": _number("synack_retries"),
    "tcp_slow_start_after_idle": _flag("slow_start_after_idle"),
    "tcp_syncookies": _flag("syn_cookies"),
    "tcp_congestion_control": lambda profile, value: profile.with_tcp(congestion_control=value),
    "tcp_notsent_lowat": lambda profile, value: replace(profile, notsent_lowat=int(value)),
    "tcp_tso_win_divisor": lambda profile, value: profile.with_tcp(tso_defer=int(value) < 10),
    "net.inet.tcp.rfc1323": _rfc1323,
    "net.inet.tcp.sack.enable": _flag("sack"),
    "net.inet.tcp.ecn.enable": _ecn,
    "net.inet.tcp.recvspace": _recvspace,
    "kern.ipc.maxsockbuf": _maxsockbuf,
    "net.inet.tcp.sendspace": lambda profile, value: replace(profile, sndbuf=int(value)),
    "net.inet.tcp.rexmit_initial": _number("rto_initial", MILLISECOND),
    "net.inet.tcp.rexmit_min": _number("rto_min", MILLISECOND),
    "net.inet.tcp.insecure_rst": _not("challenge_rst"),
    "net.inet.tcp.insecure_syn": _not("challenge_syn"),
    "net.inet.tcp.drop_synfin": _flag("drop_syn_fin"),
    "net.inet.tcp.syncookies": _flag("syn_cookies"),
}

_IGNORED: Final = frozenset(
    {
        "tcp_wmem",  # the socket layer here takes whole writes
        "tcp_dsack",  # always on
        "tcp_fack",  # gone from Linux since 4.15
        "tcp_frto",
        "tcp_reordering",  # RACK adapts
        "tcp_early_retrans",
        "tcp_recovery",  # RACK and TLP are on
        "tcp_pacing_ss_ratio",
        "tcp_pacing_ca_ratio",
        "tcp_min_tso_segs",
        "tcp_ecn_option",
        "tcp_fastopen",
        "tcp_fastopen_key",
        "net.inet.tcp.hostcache.purgenow",  # no host cache
        "net.inet.tcp.blackhole",  # 0: closed ports answer, as they do here
        "net.inet.tcp.rexmit_slop",
        "net.inet.tcp.rexmit_drop_options",
    }
)
