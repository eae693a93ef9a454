"""What one stack, that is one tenant, may hold. Every limit that bites has a counter."""

from __future__ import annotations

from dataclasses import dataclass

from juneau.netstack.types import SECOND, Micros

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Quotas of a stack. The defaults let a busy tenant work and keep 100 idle ones cheap."""

    # TCP
    connections: int = 10_000
    """TCP connections in any state but TIME-WAIT."""
    half_open: int = 1_024
    """Connections in SYN-RECEIVED; past it SYN cookies answer. A usual tcp_max_syn_backlog of Linux."""
    time_wait: int = 4_096
    """Connections in TIME-WAIT; past it the oldest goes."""
    rcv_buffer: int = 1 * MIB
    """Receive buffer of one connection, bytes: a window of 1 MiB fills 1 Gbit/s at 8 ms RTT."""
    min_rcv_buffer: int = 4 * KIB
    """What a connection gets when `buffered_bytes` is nearly used up."""
    buffered_bytes: int = 64 * MIB
    """Received TCP bytes held for the application or out of order, all connections together, exactly;
    out-of-order text is refused from three quarters on."""
    unsent_bytes: int = 256 * MIB
    """Bytes that services wrote and peers have not acknowledged, all connections together; past it the
    connection with most is reset. Who waits for `drain` has little more than 1 MiB in it."""

    # UDP
    udp_sockets: int = 1_024
    udp_socket_bytes: int = 256 * KIB
    """Receive queue of one socket, bytes with `UDP_OVERHEAD` a datagram. Linux's rmem_default is 208 KiB."""
    udp_bytes: int = 4 * MIB
    """All UDP receive queues together."""

    # IPv4
    fragment_bytes: int = 1 * MIB
    """Fragments waiting for the rest, overhead included: 15 datagrams of full size."""
    fragment_datagrams: int = 256
    """Datagrams that fragments may wait for at once."""
    fragment_timeout: Micros = 30 * SECOND
    """Linux's and gVisor's value; RFC 1122 3.3.2 asks for 60..120 s, links here are microseconds long."""

    # ICMP, each per path
    icmp_errors_per_second: int = 100
    icmp_errors_burst: int = 50
    echo_replies_per_second: int = 2_000
    """Echo is a service, not an error: `ping -f` at a sane speed gets its answers."""
    echo_replies_burst: int = 500
    icmp_paths: int = 1_024
    """Paths whose rate is remembered; the one idle longest is forgotten first."""

    # output of ICMP and UDP; TCP queues nothing but what windows allow
    output_packets: int = 4_096
    output_bytes: int = 8 * MIB
