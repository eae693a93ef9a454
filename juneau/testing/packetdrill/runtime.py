"""Runs a script against a stack in virtual time.

As in packetdrill: outbound packets are taken in order, and one that no line asks for is noticed by
the next line that does; a relative time counts from the end of the event before.
"""

from __future__ import annotations

import textwrap
import traceback
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from juneau.netstack.limits import Limits
from juneau.netstack.stack import Stack
from juneau.netstack.types import SECOND, Endpoint, Link, Micros, parse_ip
from juneau.testing import packets
from juneau.testing.packetdrill import commands, flow
from juneau.testing.packetdrill import profile as profiles
from juneau.testing.packetdrill.info import CONSTANTS, tcp_info
from juneau.testing.packetdrill.model import (
    CodeEvent,
    CommandEvent,
    Event,
    IcmpSpec,
    PacketEvent,
    Script,
    SyscallEvent,
    TcpSpec,
    UdpSpec,
    When,
)
from juneau.testing.packetdrill.notation import show_tcp, stream
from juneau.testing.packetdrill.report import Mismatch, Result
from juneau.testing.packetdrill.sockets import Blocked, Socket, SocketLayer, SysError
from juneau.testing.packetdrill.symbols import Unsupported
from juneau.testing.packetdrill.syscalls import Calls, agrees, call_text, expected_text, result_text

START: Final[Micros] = 1_000 * SECOND
"""The stack's clock at the script's zero: not 0, so that nothing works by being there."""
PATIENCE: Final[Micros] = 2 * SECOND
"""How long past its time an outbound packet is waited for, to report when it came."""
SETTLE_LIMIT: Final = 10_000
LOCAL: Final = "192.168.0.1"
REMOTE: Final = "192.0.2.1"
FIRST_REMOTE_PORT: Final = 40_001


@dataclass(slots=True)
class Sent:
    at: Micros
    packet: packets.Packet


@dataclass(slots=True)
class Pending:
    """A blocking call under way."""

    event: Event
    call: SyscallEvent
    ends: Micros


@dataclass(slots=True)
class Tolerance:
    usecs: Micros = 4_000
    percent: float = 12.5

    def of(self, interval: Micros) -> Micros:
        return max(self.usecs, int(interval * self.percent / 100))


class FixedIsn:
    """Stands in for the stack's generator where a test wants to choose."""

    def __init__(self, iss: int) -> None:
        self.iss = iss

    def generate(self, flow: object, now: Micros) -> tuple[int, int]:
        return self.iss % 2**32, 0


class Runner:
    """One run of one script. `shift` is added to the remote sequence numbers, `iss` is our first one."""

    def __init__(
        self,
        script: Script,
        profile: profiles.Profile,
        *,
        shift: int = 0,
        iss: int | None = None,
        seed: int = 0,
        tolerance_us: int = 4_000,
    ) -> None:
        self.script, self.profile, self.shift, self.iss, self.seed = script, profile, shift, iss, seed
        self.now: Micros = START
        options = script.options
        self.tolerance = Tolerance(
            int(options.get("tolerance_usecs", tolerance_us)), float(options.get("tolerance_percent", 12.5))
        )
        self.tick = int(options.get("tcp_ts_tick_usecs", 0))
        self.local = Endpoint(parse_ip(_plain(options.get("local_ip", LOCAL))), 8080)
        self.remote = Endpoint(parse_ip(_plain(options.get("remote_ip", REMOTE))), 8080)
        if "mtu" in options:
            self.profile = replace(self.profile, mtu=int(options["mtu"]))
        self.sent: deque[Sent] = deque()
        self.notes: list[str] = []
        self.trace: list[str] = []
        self.flow: flow.Flow | None = None
        self.pending: Pending | None = None
        self.event: Event | None = None
        self._variables: dict[str, Any] = {}
        self._last: Micros = START
        """When the last event ended."""
        self._next_port = FIRST_REMOTE_PORT
        self._stack: Stack | None = None

    # --- the stack, made when it is first needed: `sysctl` lines come before ---

    @property
    def stack(self) -> Stack:
        assert self._stack is not None, "made by the first event that is not a command"
        return self._stack

    def _make_stack(self) -> None:
        random = Random(self.seed)
        link = Link(mtu=self.profile.mtu)
        self._stack = Stack(
            link=link, limits=Limits(), tcp=self.profile.tcp, rng=random, secret=random.randbytes(16)
        )
        self._stack.add_address(self.local.ip)
        if self.iss is not None:
            self._stack.tcp.isn = FixedIsn(self.iss)  # type: ignore[assignment]
        self.layer = SocketLayer(self._stack, self.local.ip)
        self.calls = Calls(self.layer, self.profile, self.remote)

    # --- the run ---

    def run(self, path: str) -> Result:
        result = Result(path, notes=self.notes, trace=self.trace)
        try:
            for command in self.script.init:
                self._command(command)
            for event in self.script.events:
                self.event = event
                self._run_event(event)
                self._last = self.now
            self._await_pending()
        except Mismatch as mismatch:
            self._blame(result, "fail", mismatch.what, mismatch.expected, mismatch.got)
        except Unsupported as gap:
            self._blame(result, "unsupported", str(gap))
        except Exception as bug:  # noqa: BLE001 (whatever the stack raises is a finding)
            where = traceback.extract_tb(bug.__traceback__)[-1]
            self._blame(
                result, "fail", f"{type(bug).__name__}: {bug} ({Path(where.filename).name}:{where.lineno})"
            )
        result.time = self.now - START
        if result.passed and self.sent:
            self.notes.append(f"{len(self.sent)} packets at the end that no line asked for")
        return result

    def _blame(self, result: Result, status: Any, what: str, expected: str = "", got: str = "") -> None:
        result.status, result.what, result.expected, result.got = status, what, expected, got
        if self.event is not None:
            result.line, result.source = self.event.line, self.event.source

    def _run_event(self, event: Event) -> None:
        action = event.action
        if self._stack is None and not isinstance(action, CommandEvent):
            self._make_stack()
        if isinstance(action, PacketEvent) and not action.inbound:
            self._expect(event, action)
            return
        self._wait(event)
        if isinstance(action, PacketEvent):
            self._inject(action)
        elif isinstance(action, SyscallEvent):
            self._call(event, action)
        elif isinstance(action, CommandEvent):
            self._command(action.text)
        else:
            self._code(action)
        self._settle()

    # --- time ---

    def _due(self, event: Event) -> tuple[Micros, Micros]:
        """From when to when the event may be."""
        time = event.time
        base = self.now if time.when is not When.ABSOLUTE else START
        return base + time.at, base + (time.at if time.end is None else time.end)

    def _wait(self, event: Event) -> None:
        """Let time pass until the event is due; complain if it has passed already."""
        if event.time.when is When.ANY:
            return
        due, end = self._due(event)
        self._pass_time(due)
        self._check_time("the event", due, end, self.now)

    def _check_time(self, what: str, due: Micros, end: Micros, at: Micros) -> None:
        slack = self.tolerance.of(due - self._last)
        if not due - slack <= at <= end + slack:
            wanted = f"{(due - START) / SECOND:.6f}" + (
                f"~{(end - START) / SECOND:.6f}" if end != due else ""
            )
            got = f"{(at - START) / SECOND:.6f}"
            raise Mismatch(f"{what} came at the wrong time", f"{what} at {wanted} s", f"{what} at {got} s")

    def _pass_time(self, until: Micros) -> None:
        while self._step(until):
            pass
        self.now = max(self.now, until)

    def _step(self, until: Micros) -> bool:
        """Jump to the next timer due by `until` and fire it."""
        if self._stack is None:
            return False
        self._settle()
        waiting = self.calls.deadline if self.pending is not None else None
        deadlines = (self.stack.next_timeout(), self.layer.deadline(), waiting)
        due = min((at for at in deadlines if at is not None), default=None)
        if due is None or due > until:
            return False
        self.now = self.layer.now = max(self.now, due)
        self.stack.handle_timeout(self.now)
        self._settle()
        return True

    def _settle(self) -> None:
        """Deliver events, try the blocked call again, and take what the stack wants to send."""
        if self._stack is None:
            return
        self.layer.now = self.now
        for _ in range(SETTLE_LIMIT):
            events = self.stack.take_events()
            for event in events:
                self.layer.on_event(event)
            self._retry()
            self.layer.settle()
            sent = self.stack.take_packets(self.now)
            for tx in sent:
                for raw in packets.to_wire(tx):
                    self.sent.append(Sent(self.now, packets.decode(raw)))
            if not events and not sent:
                return
        raise Mismatch("the stack sends for ever at one instant")

    # --- packets in ---

    def _inject(self, event: PacketEvent) -> None:
        tos = event.ip.tos if event.ip.tos is not None else event.ip.ecn or 0
        ttl = event.ip.ttl if event.ip.ttl is not None else 255
        if isinstance(event.body, TcpSpec):
            raw = self._flow_for_inbound().inject(event.body, tos=tos, ttl=ttl)
            self._log("<", show_tcp(event.body, event.ip.ecn))
        elif isinstance(event.body, UdpSpec):
            raw = self._udp_packet(event.body)
        else:
            raw = self._icmp_packet(event.body)
        self.stack.receive(raw, "wire", self.now)

    def _flow_for_inbound(self) -> flow.Flow:
        """The flow under test; a packet for a listener (or for nobody) starts a new one."""
        sock = self.calls.under_test
        listening = sock is None or sock.conn is None
        if self.flow is None or (
            listening and sock is not None and sock.listener is not None and self._fresh(sock)
        ):
            self.flow = self._new_flow()
        return self.flow

    def _fresh(self, sock: Socket) -> bool:
        """Has this listener become the socket under test since the flow was made?"""
        return self._flow_listener is not sock

    _flow_listener: Socket | None = None

    def _new_flow(self) -> flow.Flow:
        sock = self.calls.under_test
        self._flow_listener = sock
        port = self._next_port
        self._next_port += 1
        local = sock.local if sock is not None and sock.local.port else self.local
        return flow.Flow(Endpoint(self.local.ip, local.port), Endpoint(self.remote.ip, port), self.shift)

    def _udp_packet(self, spec: UdpSpec) -> bytes:
        sock = self.calls.under_test
        local = sock.udp.local if sock is not None and sock.udp is not None else self.local
        return packets.udp(
            bytes(spec.size), src=self.remote.ip, dst=self.local.ip,
            sport=spec.src_port or self.remote.port, dport=spec.dst_port or local.port,
        )  # fmt: skip

    def _icmp_packet(self, spec: IcmpSpec) -> bytes:
        live = self.flow or self._new_flow()
        kind, code = commands.icmp_numbers(spec)
        header = packets.tcp_segment(
            src=live.local.ip, dst=live.remote.ip, sport=live.local.port, dport=live.remote.port,
            seq=(spec.seq or 0) + (live.local_iss or 0),
        )  # fmt: skip
        if spec.udp_size is not None:
            echoed = packets.udp(bytes(spec.udp_size), src=live.local.ip, dst=live.remote.ip)
        else:
            length = 40 + spec.size
            echoed = packets.ipv4(header, src=live.local.ip, dst=live.remote.ip, total_length=length)
        rest = spec.mtu if not spec.echo_id else spec.echo_id << 16
        self._log("<", f"icmp {spec.type} {spec.code}")
        return packets.icmp(echoed, src=self.remote.ip, dst=self.local.ip, type=kind, code=code, rest=rest)

    # --- packets out ---

    def _expect(self, event: Event, wanted: PacketEvent) -> None:
        due, end = self._due(event)
        any_time = event.time.when is When.ANY
        patience = (
            end + PATIENCE + self.tolerance.of(due - self._last) if not any_time else self.now + 600 * SECOND
        )
        if isinstance(wanted.body, TcpSpec):
            times, got, ecn, ttl = self._take_segments(wanted.body, patience)
            self._compare_segment(wanted, got, ecn, ttl, due)
        elif isinstance(wanted.body, UdpSpec):
            times = [self._take_udp(wanted.body, patience)]
        else:
            times = [self._take_icmp(wanted.body, patience)]
        if not any_time:
            for at in times:
                self._check_time("the packet", due, end, at)

    def _take_segments(self, spec: TcpSpec, patience: Micros) -> tuple[list[Micros], TcpSpec, int, int]:
        """Packets until they carry as many bytes as `spec`."""
        taken: list[Sent] = []
        pieces: list[TcpSpec] = []
        while not pieces or sum(piece.size for piece in pieces) < spec.size:
            sent = self._next_sent(patience, spec, pieces)
            live = self._flow_for_outbound(sent.packet, spec)
            live.observe(sent.packet, spec)
            self._check_stream(sent.packet, live)
            piece = live.describe(sent.packet)
            self._log(">", show_tcp(piece, sent.packet.ip.ecn), sent.at)
            taken.append(sent)
            pieces.append(piece)
            if not piece.size:
                break
        try:
            whole = flow.aggregate(pieces)
        except Mismatch as mismatch:
            raise Mismatch(mismatch.what, show_tcp(spec), "; ".join(map(show_tcp, pieces))) from None
        return [sent.at for sent in taken], whole, taken[-1].packet.ip.tos, taken[-1].packet.ip.ttl

    def _next_sent(self, patience: Micros, spec: TcpSpec, pieces: list[TcpSpec]) -> Sent:
        """The next packet of the flow under test; others are passed over, as packetdrill does."""
        while True:
            while self.sent:
                sent = self.sent.popleft()
                if sent.packet.tcp is not None and self._is_ours(sent.packet):
                    return sent
                self._skip_packet(sent)
            if not self._step(patience):
                got = "; ".join(map(show_tcp, pieces)) or f"nothing until {(patience - START) / SECOND:.3f} s"
                raise Mismatch("no packet was sent", show_tcp(spec), got)

    def _is_ours(self, packet: packets.Packet) -> bool:
        return self._connecting(packet) or (self.flow is not None and self.flow.owns(packet))

    def _connecting(self, packet: packets.Packet) -> bool:
        """Is this the first SYN of the active open under test?"""
        sock, segment = self.calls.under_test, packet.tcp
        if sock is None or sock.conn is None or segment is None or segment.flags & 0x12 != 0x02:
            return False
        return (packet.ip.src, segment.sport) == sock.local and (packet.ip.dst, segment.dport) == sock.remote

    def _flow_for_outbound(self, packet: packets.Packet, spec: TcpSpec) -> flow.Flow:
        if self.flow is None or not self.flow.owns(packet):
            assert self.calls.under_test is not None
            sock = self.calls.under_test
            self.flow = flow.Flow(sock.local, sock.remote, self.shift)
        return self.flow

    def _skip_packet(self, sent: Sent) -> None:
        self.notes.append(f"passed over a packet of another flow at {(sent.at - START) / SECOND:.6f} s")

    def _check_stream(self, packet: packets.Packet, live: flow.Flow) -> None:
        """The bytes are those that the script wrote, wherever they are sent or sent again."""
        segment = packet.tcp
        assert segment is not None
        if not packet.ip.checksum_ok or not packet.l4_checksum_ok:
            raise Mismatch("a checksum is wrong", got=packet.raw.hex())
        if not segment.payload or live.local_iss is None:
            return
        offset = (segment.seq - live.local_iss - 1 + (segment.flags & 2) // 2) % 2**32
        if offset < 2**31 and segment.payload != stream(offset, len(segment.payload)):
            raise Mismatch(
                "the payload is not what was written", f"stream from {offset}", segment.payload[:40].hex()
            )

    def _compare_segment(self, wanted: PacketEvent, got: TcpSpec, tos: int, ttl: int, due: Micros) -> None:
        spec = wanted.body
        assert isinstance(spec, TcpSpec)
        found = flow.differences(spec, got, self.tick, self.tolerance.of(due - START))
        ip = wanted.ip
        if ip.ecn is not None and tos & 3 != ip.ecn:
            found.append(f"ecn {tos & 3} instead of {ip.ecn}")
        if ip.ect01 and tos & 3 not in (1, 2):
            found.append(f"ecn {tos & 3} instead of ect01")
        if ip.tos is not None and tos != ip.tos:
            found.append(f"tos {tos} instead of {ip.tos}")
        if ip.ttl is not None and ttl != ip.ttl:
            found.append(f"ttl {ttl} instead of {ip.ttl}")
        if found:
            raise Mismatch(", ".join(found), show_tcp(spec, ip.ecn), show_tcp(got, tos & 3))

    def _take_udp(self, spec: UdpSpec, patience: Micros) -> Micros:
        sent = self._next_of("udp", patience)
        assert sent.packet.udp is not None
        size = len(sent.packet.udp.payload)
        if size != spec.size:
            raise Mismatch("datagram size", f"udp ({spec.size})", f"udp ({size})")
        return sent.at

    def _take_icmp(self, spec: IcmpSpec, patience: Micros) -> Micros:
        sent = self._next_of("icmp", patience)
        assert sent.packet.icmp is not None
        kind, code = commands.icmp_numbers(spec)
        got = (sent.packet.icmp.type, sent.packet.icmp.code)
        if got != (kind, code):
            raise Mismatch("icmp type and code", f"icmp {kind} {code}", f"icmp {got[0]} {got[1]}")
        return sent.at

    def _next_of(self, layer: str, patience: Micros) -> Sent:
        while True:
            while self.sent:
                sent = self.sent.popleft()
                if getattr(sent.packet, layer) is not None:
                    return sent
                self._skip_packet(sent)
            if not self._step(patience):
                raise Mismatch("no packet was sent", layer, "nothing")

    # --- system calls ---

    def _call(self, event: Event, call: SyscallEvent) -> None:
        self._await_pending()
        self.layer.now = self.now
        try:
            value, errno = self._attempt(call)
        except Blocked:
            ends = self.now if call.ends is None else self._call_end(event, call.ends)
            self.pending = Pending(event, call, ends)
            if call.ends is None:
                self._await_pending()
            return
        self._judge(call, value, errno)

    def _call_end(self, event: Event, ends: Micros) -> Micros:
        base = START if event.time.when is When.ABSOLUTE else self.now - event.time.at
        return base + ends

    def _attempt(self, call: SyscallEvent) -> tuple[int, str]:
        try:
            return self.calls.run(call), ""
        except SysError as error:
            return -1, error.errno

    def _retry(self) -> None:
        if self.pending is None:
            return
        try:
            value, errno = self._attempt(self.pending.call)
        except Blocked:
            return
        pending, self.pending = self.pending, None
        self._judge(pending.call, value, errno)
        slack = self.tolerance.of(pending.ends - self._last)
        if abs(self.now - pending.ends) > slack:
            wanted, got = (pending.ends - START) / SECOND, (self.now - START) / SECOND
            what = f"{pending.call.name} returned at the wrong time"
            raise Mismatch(what, f"return at {wanted:.6f} s", f"return at {got:.6f} s")

    def _await_pending(self) -> None:
        """A call waits for the one before it."""
        if self.pending is None:
            return
        limit = max(self.pending.ends, self.now) + PATIENCE
        while self.pending is not None:
            if not self._step(limit):
                call = self.pending.call
                raise Mismatch(f"{call.name} blocks", expected_text(call), "no return")

    def _judge(self, call: SyscallEvent, value: int, errno: str) -> None:
        got = result_text(value, errno)
        self._log(" ", f"{call_text(call)} = {got}")
        if not agrees(call, value, errno):
            raise Mismatch(f"{call.name} returned {got}", f"= {expected_text(call)}", f"= {got}")

    # --- commands and code ---

    def _command(self, text: str) -> None:
        if commands.inspect(text, self._stack):
            return
        for name, value in profiles.settings(text):
            changed = profiles.apply(self.profile, name, value)
            if changed is None:
                self.notes.append(f"ignored sysctl {name}={value}")
            elif changed != self.profile:
                self._change_profile(changed)
        if not profiles.settings(text):
            self.notes.append(f"ignored command: {textwrap.shorten(text, 60)}")

    def _change_profile(self, changed: profiles.Profile) -> None:
        self.profile = changed
        if self._stack is not None:
            self.notes.append("a sysctl after the first socket acts on new connections only")
            self._stack.tcp.tune(changed.tcp)
            self.calls.profile = changed

    def _code(self, event: CodeEvent) -> None:
        """Run Python: assertions about tcp_info of the socket under test."""
        sock = self.calls.under_test
        if sock is not None and sock.conn is not None:
            self._variables.update(tcp_info(sock.conn, self.now))
        self._variables.update(CONSTANTS)
        text = _python(event.text)
        try:
            exec(compile(text, "<script>", "exec"), self._variables)
        except AssertionError as error:
            raise Mismatch("assertion failed", text, str(error)) from None
        except NameError as error:
            raise Unsupported(str(error)) from None
        except SyntaxError as error:
            raise Unsupported(f"code: {error}") from None

    def _log(self, mark: str, text: str, at: Micros | None = None) -> None:
        self.trace.append(f"{((self.now if at is None else at) - START) / SECOND:9.6f} {mark} {text}")


def _python(text: str) -> str:
    """A code block as Python: continuation lines joined, indentation taken off."""
    lines = text.replace("\\\n", " ").strip("\n").split("\n")
    first, rest = lines[0].strip(), textwrap.dedent("\n".join(lines[1:]))
    return f"{first}\n{rest}".strip().rstrip(";")


def _plain(address: str) -> str:
    """Without a prefix length."""
    return address.split("/")[0]
