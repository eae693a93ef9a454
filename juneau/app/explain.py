"""A line for every counter that `juneau drops` shows. A test compares the names with the code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def explain(name: str, lines: Mapping[str, str]) -> str:
    """By name, or by the family: `ip.bad_checksum` is a case of `ip.bad_*`. "" where nobody knows."""
    found = lines.get(name)
    if found is None:
        families = (key for key in lines if key.endswith("*") and name.startswith(key[:-1]))
        found = lines.get(max(families, key=len, default=""), "")
    return found


TRAFFIC: Final = frozenset(
    ("ip.received", "ip.sent", "udp.received", "udp.sent", "bound", "tcp.accepted", "tcp.served")
    + ("udp.requests", "udp.responses", "dns.queries_tcp", "dns.queries_udp", "dns.cache.hits")
    + ("dns.forward.queries", "dns.NOERROR")
)
"""What only says that all is well."""


def _lines(text: str) -> Mapping[str, str]:
    return dict(line.split(maxsplit=1) for line in text.strip().splitlines())


PLANE: Final = _lines("""
bpf.unknown_nic        drop: the interface is no Pod's (any more)
bpf.unknown_subnet     drop: the Pod's Subnet is not programmed
bpf.malformed          drop: shorter than its headers say, or not ARP for IPv4 over Ethernet
bpf.vlan               drop: a VLAN tag
bpf.ipv6               drop: IPv6
bpf.not_ip             drop: neither IPv4 nor ARP
bpf.spoofed_mac        drop: another source MAC than the Pod's
bpf.spoofed_ip         drop: another source address than the Pod's
bpf.spoofed_arp        drop: ARP in another's name
bpf.arp_not_request    drop: an ARP reply: nobody needs a Pod's
bpf.arp_own_address    drop: the Pod asks for its own address (probe for duplicates)
bpf.arp_unknown        drop: ARP for an address that nobody in the Subnet has
bpf.broadcast          drop: IPv4 to a broadcast or multicast MAC
bpf.ttl_exceeded       drop: TTL used up on the way to another Subnet
bpf.no_route           drop: the destination is in no Subnet of the VPC
bpf.to_gateway         drop: for the gateway's own address, which answers ARP only
bpf.foreign_vip        drop: for a virtual address of another Subnet
bpf.no_neighbour       drop: for an address of the VPC that no Pod here has
bpf.cross_vpc          drop: the route led into another VPC
bpf.unknown_mac        drop: to a MAC that is no Pod's of the Subnet here
bpf.no_tap             drop: for a service while nobody serves
bpf.arp_reply          ARP requests answered
bpf.to_service         packets handed to the stacks
bpf.routed             packets from Subnet to Subnet
bpf.switched           packets within a Subnet
tap.overflow           drop: the daemon read too slowly; counts since the TAP exists
rx.frames              frames read from the TAP
rx.batches             wake-ups that read them
rx.read_error          the TAP broke
rx.reopened            it was attached again
rx.short               drop: too short for Ethernet and IPv4
rx.no_stamp            drop: on the TAP, but not from our BPF program
rx.not_ip              drop: no IPv4
rx.unknown_nic         drop: the stamp's interface is no Pod's (any more)
rx.wrong_subnet        drop: the stamp's Subnet is not the Pod's
rx.no_stack            drop: the VPC has gone
rx.gso_kind            drop: a superframe of a kind that was not asked for
rx.stack_error         drop: the stack raised; the log has the traceback
tx.would_block         drop: send_buffer_bytes are on their way to the Pod already
tx.no_buffers          drop: the kernel had no memory
tx.too_big             drop: larger than the Pod's interface takes
tx.link_down           drop: the Pod's interface is down
tx.no_device           drop: the Pod's interface has gone
tx.no_path             drop: the Pod has gone
tx.error               drop: the kernel refused it otherwise
""")

STACK: Final = _lines("""
ip.received            packets in; a superframe counts once
ip.sent                packets out; a superframe counts once
ip.bad_*               drop: IPv4's header is wrong there
ip.not_ours            drop: for no address of the stack
ip.martian_source      drop: from an address that nobody can have
ip.unknown_protocol    drop: neither ICMP, TCP nor UDP; answered with protocol unreachable
ip.fragments           fragments in
ip.reassembled         datagrams made of them
ip.fragment_too_long   drop: would end beyond 65,535 bytes
ip.fragment_duplicate  drop: the same fragment again
ip.fragment_overlap    drop: contradicts another fragment, or came after one that did
ip.fragment_limit      datagrams pushed out of reassembly by a limit
ip.reassembly_timeout  datagrams that were not complete in time
ip.output_full         drop: ICMP or UDP over the limits of output
icmp.bad_*             drop: ICMP's header is wrong there
icmp.echo_replies      pings answered
icmp.echo_rate_limited drop: pings above the rate
icmp.errors_sent       errors sent
icmp.error_rate_limited errors not sent, above the rate
icmp.error_about_error errors not sent: the packet was one itself
icmp.ignored           drop: a type that asks nothing of a host
icmp.in_*              errors received, by meaning
icmp.not_our_packet    drop: an error about a packet of another host or protocol
udp.received           datagrams delivered to sockets
udp.sent               datagrams sent by sockets
udp.bad_*              drop: UDP's header is wrong there
udp.closed_port        drop: nobody listens; answered with port unreachable
udp.socket_full        drop: the service reads too slowly: its queue is full
udp.stack_full         drop: all queues of the VPC together are full
udp.socket_limit       refused: too many sockets
udp.too_big            refused: a send over 65,507 bytes
udp.no_path            refused: a send to whom no way is known
udp.icmp_*             errors received for a socket, by meaning
udp.icmp_error_unknown drop: an error for no socket
tcp.drop.malformed     drop: the header is cut short
tcp.drop.checksum      drop: the checksum is wrong
tcp.drop.stray_reset   drop: RST for no connection
tcp.drop.no_syn        drop: to a listener, and opens nothing
tcp.drop.no_ack        drop: ACK is missing where it must be (RFC 9293 3.10.7.4)
tcp.drop.out_of_window drop: outside the receive window; answered with an ACK
tcp.drop.paws          drop: timestamp older than the last one (RFC 7323)
tcp.drop.no_timestamp  drop: timestamps were agreed on and one is missing (RFC 7323 3.2)
tcp.drop.unacceptable_ack drop: acknowledges what was never sent, or long ago (RFC 5961 5.2)
tcp.drop.accept_queue_full drop: SYN or last ACK of a handshake while the accept queue is full
tcp.drop.connection_limit drop: SYN while the VPC has its limit of connections
tcp.drop.syn_queue_full drop: SYN while too many are half-open, without cookies
tcp.drop.buffer_limit  drop: data while the VPC's receive buffers are at their limit
tcp.drop.replies_full  drop, out: too many resets are waiting
tcp.drop.icmp_not_in_flight drop: an ICMP error about what is not in flight (RFC 5927)
tcp.no_connection      segments for a closed port or a connection that is gone; answered with RST
tcp.resets_sent        RSTs sent in answer to such
tcp.resets_limited     RSTs not sent, above the rate
tcp.challenge_acks     ACKs that challenge a suspicious segment (RFC 5961)
tcp.challenge_ack_limited not sent, above the rate
tcp.connection_limit   refused: too many connections
tcp.data_after_close   data that the service will not read any more; the connection is reset
tcp.embryo_expired     handshakes that the peer did not complete
tcp.embryo_reset       handshakes that the peer reset
tcp.out_of_order       segments queued behind a gap
tcp.path_mtu_lowered   ICMP said that packets are too big for the way
tcp.retransmission_timeouts timeouts
tcp.retransmitted_segments segments sent again
tcp.tail_loss_probes   probes for a lost tail (RFC 8985)
tcp.syn_cookies_sent   SYNs answered without keeping state
tcp.syn_cookies_accepted connections made of them
tcp.time_wait_overflow TIME-WAITs ended early by a limit
tcp.time_wait_reused   TIME-WAITs ended by a new SYN (RFC 6191)
tcp.fin_wait_2_timeout connections forgotten: our half was closed and the peer never closed its own
tcp.unsent_quota       connections reset: services wrote more than peers read, above the VPC's quota
tcp.timed_out          connections given up after retransmissions, keepalive or user timeout
""")

SERVICE: Final = _lines("""
bound                  listeners bound, ever
bind_errors            listeners that could not be bound; the log says why
unbind_errors          steps of unbinding that failed; the log says why
tcp.accepted           connections given to the handler
tcp.served             handlers that came to their end
tcp.client_gone        handlers ended by the client's reset or disappearance
tcp.handler_errors     handlers that raised; the log has the traceback
tcp.handler_outlived   handlers still running long after their connection; cancelled
tcp.handler_would_not_stop handlers that ignored being cancelled
tcp.idle               connections reset: no byte either way for idle_s
tcp.refused_connections connections reset: the service has its limit of them
tcp.refused_per_client connections reset: the Pod has its limit of them
udp.requests           datagrams given to the handler
udp.responses          answers sent
udp.responses_too_late answers of handlers whose service had been unbound
udp.dropped_queue_full drop: handlers are slower than requests come
udp.handler_errors     handlers that raised; the log has the traceback
udp.handler_timeouts   handlers cancelled: they took longer than timeout_s
dns.queries_tcp        queries by TCP
dns.queries_udp        queries by UDP
dns.cache.hits         answered from the cache
dns.ignored            drop: no query
dns.unknown_tenant     refused: the Subnet is not known (yet)
dns.forward.queries    asked upstream
dns.forward.joined     waited for the same question already under way
dns.forward.tcp        asked again by TCP: the answer was truncated
dns.forward.timeouts   an upstream did not answer in time
dns.forward.errors     an upstream could not be asked
dns.forward.out_of_time no upstream answered before the client gave up
dns.forward.mismatched drop: an upstream's answer to another question
dns.forward.no_upstream refused: no upstream is configured
dns.forward.too_many   refused: too many questions are under way upstream
dns.*                  answers with this rcode
""")
