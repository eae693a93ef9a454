"""What the words in system calls stand for. The numbers are Linux's; scripts compare words, not numbers."""

from __future__ import annotations

import errno
from typing import Final

from juneau.testing.packetdrill.model import Array, Expr, Name, Or, Struct

_WORDS: Final = """
AF_INET=2 PF_INET=2 SOCK_STREAM=1 SOCK_DGRAM=2 SOCK_NONBLOCK=2048 IPPROTO_IP=0 IPPROTO_TCP=6 IPPROTO_UDP=17
SOL_SOCKET=1 SOL_IP=0 SOL_TCP=6 NULL=0
SO_REUSEADDR=2 SO_ERROR=4 SO_SNDBUF=7 SO_RCVBUF=8 SO_KEEPALIVE=9 SO_LINGER=13 SO_RCVLOWAT=18
SO_TIMESTAMPING=37 SO_MARK=36 SO_PRIORITY=12 SO_ZEROCOPY=60 SO_REUSEPORT=15 SO_TIMESTAMP=29
IP_TOS=1 IP_TTL=2 IP_FREEBIND=15 IP_MTU_DISCOVER=10 IP_MTU=14 IP_RECVERR=11
IP_PMTUDISC_DONT=0 IP_PMTUDISC_WANT=1 IP_PMTUDISC_DO=2 IP_PMTUDISC_PROBE=3
TCP_NODELAY=1 TCP_MAXSEG=2 TCP_CORK=3 TCP_KEEPIDLE=4 TCP_KEEPINTVL=5 TCP_KEEPCNT=6 TCP_SYNCNT=7
TCP_LINGER2=8 TCP_DEFER_ACCEPT=9 TCP_WINDOW_CLAMP=10 TCP_INFO=11 TCP_QUICKACK=12 TCP_CONGESTION=13
TCP_USER_TIMEOUT=18 TCP_FASTOPEN=23 TCP_NOTSENT_LOWAT=25 TCP_INQ=36 TCP_CM_INQ=36 TCP_NOOPT=1008 TCP_NOPUSH=3
O_RDONLY=0 O_WRONLY=1 O_RDWR=2 O_NONBLOCK=2048 F_GETFL=3 F_SETFL=4
SHUT_RD=0 SHUT_WR=1 SHUT_RDWR=2
MSG_OOB=1 MSG_PEEK=2 MSG_DONTWAIT=64 MSG_EOR=128 MSG_WAITALL=256 MSG_NOSIGNAL=16384 MSG_MORE=32768
MSG_ERRQUEUE=8192 MSG_ZEROCOPY=67108864 MSG_TRUNC=32
POLLIN=1 POLLPRI=2 POLLOUT=4 POLLERR=8 POLLHUP=16 POLLRDHUP=8192
EPOLLIN=1 EPOLLPRI=2 EPOLLOUT=4 EPOLLERR=8 EPOLLHUP=16 EPOLLRDHUP=8192 EPOLLONESHOT=1073741824
EPOLLET=2147483648 EPOLL_CTL_ADD=1 EPOLL_CTL_DEL=2 EPOLL_CTL_MOD=3
FIONREAD=21531 SIOCINQ=21531 SIOCOUTQ=21521 FIONBIO=21537 SPLICE_F_NONBLOCK=2 SPLICE_F_MORE=4
"""

SYMBOLS: Final[dict[str, int]] = {
    **{name: int(value) for name, value in (word.split("=") for word in _WORDS.split())},
    **{name: number for number, name in errno.errorcode.items()},
    "EWOULDBLOCK": errno.EAGAIN,
}


class Unsupported(Exception):
    """The runner cannot do what the script asks: a gap of the runner, not of the stack."""


def number(expr: Expr) -> int:
    if isinstance(expr, bool | int):
        return int(expr)
    if isinstance(expr, Name):
        if expr.text not in SYMBOLS:
            raise Unsupported(f"symbol {expr.text}")
        return SYMBOLS[expr.text]
    if isinstance(expr, Or):
        return number(expr.left) | number(expr.right)
    if isinstance(expr, Array) and len(expr.items) == 1:
        return number(expr.items[0])
    raise Unsupported(f"expression {show(expr)} where a number belongs")


def show(expr: Expr) -> str:
    """As a script would write it."""
    if isinstance(expr, Name):
        return expr.text
    if isinstance(expr, Or):
        return f"{show(expr.left)}|{show(expr.right)}"
    if isinstance(expr, Array):
        return f"[{', '.join(map(show, expr.items))}]"
    if isinstance(expr, Struct):
        return "{" + ", ".join(f"{name}={show(value)}" for name, value in expr.fields.items()) + "}"
    return repr(expr) if isinstance(expr, str) else str(expr)


def errno_name(value: str) -> str:
    """EWOULDBLOCK and EAGAIN are one."""
    return "EAGAIN" if value == "EWOULDBLOCK" else value
