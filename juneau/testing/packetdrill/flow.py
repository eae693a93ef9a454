"""The connection under test: maps a script's numbers to live ones and back.

A script's sequence numbers are absolute in a SYN and relative to the first SYN elsewhere.
Timestamps that the stack sends are named by what the script expects of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from juneau.netstack.types import Endpoint
from juneau.testing import packets
from juneau.testing.packetdrill.model import TcpOption, TcpSpec
from juneau.testing.packetdrill.notation import flag_bits, flag_letters, option_bytes, options_of, stream
from juneau.testing.packetdrill.report import Mismatch

SYN = 0x02
ACK = 0x10
MOD = 2**32


@dataclass(slots=True)
class Flow:
    local: Endpoint
    remote: Endpoint
    shift: int = 0
    """Added to the script's remote sequence numbers, to make them wrap where a test wants that."""
    local_iss: int | None = None
    """Live; None: no SYN of ours has been seen."""
    script_local_iss: int = 0
    script_remote_iss: int | None = None
    """None: no SYN of theirs has been seen."""
    ts_live: dict[int, int] = field(default_factory=dict)
    """Live value of each timestamp that the script expected."""
    ts_first: tuple[int, int] | None = None
    """(script, live) of the first timestamp sent."""

    def owns(self, packet: packets.Packet) -> bool:
        """Is this a TCP packet of ours, going out?"""
        head, ip = packet.tcp, packet.ip
        return head is not None and (ip.src, head.sport, ip.dst, head.dport) == (*self.local, *self.remote)

    # --- offsets from script to live numbers ---

    def _local_offset(self, syn: bool) -> int:
        iss = self.local_iss or 0
        return iss - self.script_local_iss if syn else iss

    def _remote_offset(self, syn: bool) -> int:
        return self.shift + (0 if syn else self.script_remote_iss or 0)

    # --- into the stack ---

    def inject(self, spec: TcpSpec, *, tos: int, ttl: int) -> bytes:
        """The live packet for a script's inbound segment."""
        bits = flag_bits(spec.flags)
        syn = bool(bits & SYN)
        if syn and self.script_remote_iss is None:
            self.script_remote_iss = spec.seq or 0
        seq = ((spec.seq or 0) + self._remote_offset(syn)) % MOD
        ack = ((spec.ack or 0) + self._local_offset(syn)) % MOD if bits & ACK else (spec.ack or 0)
        options = b"".join(
            option_bytes(self._live_option(o, syn, bool(bits & ACK))) for o in spec.options or ()
        )
        return packets.tcp(
            self._payload(spec, self.script_remote_iss or 0, syn),
            src=self.remote.ip,
            dst=self.local.ip,
            sport=spec.src_port or self.remote.port,
            dport=spec.dst_port or self.local.port,
            seq=seq,
            ack=ack,
            flags=bits,
            wnd=spec.win or 0,
            urg=spec.urg,
            options=options,
            tos=tos,
            ttl=ttl,
        )

    def _payload(self, spec: TcpSpec, iss: int, syn: bool) -> bytes:
        """Bytes of the stream: sequence number 1 after the SYN carries offset 0."""
        seq = spec.seq or 0
        return stream(seq - iss if syn else seq - 1, spec.size)

    def _live_option(self, option: TcpOption, syn: bool, ack: bool) -> TcpOption:
        if option.name == "sack":
            offset = self._local_offset(syn)
            return replace(option, values=tuple((edge + offset) % MOD for edge in option.values))
        if option.name == "TS" and ack:
            return replace(option, values=(option.values[0], self._live_echo(option.values[1])))
        return option

    def _live_echo(self, value: int) -> int:
        """What the stack sent where the script says `value`; between two known ones, by interpolation."""
        if value in self.ts_live:
            return self.ts_live[value]
        if self.ts_first is None:
            return value
        script, live = self.ts_first
        return (live + value - script) % MOD

    # --- out of the stack ---

    def observe(self, packet: packets.Packet, spec: TcpSpec) -> None:
        """Learn the live ISN and timestamps from a packet that `spec` is about to be compared with."""
        segment = packet.tcp
        assert segment is not None
        if segment.flags & SYN and "S" in spec.flags:
            self.local_iss = segment.seq
            self.script_local_iss = spec.seq or 0
        wanted = next((o for o in spec.options or () if o.name == "TS"), None)
        if wanted is not None and segment.timestamps is not None:
            self.ts_live[wanted.values[0]] = segment.timestamps[0]
            if self.ts_first is None:
                self.ts_first = (wanted.values[0], segment.timestamps[0])

    def describe(self, packet: packets.Packet) -> TcpSpec:
        """A live packet in the script's numbers."""
        segment = packet.tcp
        assert segment is not None
        syn = bool(segment.flags & SYN)
        options = tuple(self._script_option(o, syn) for o in options_of(segment))
        ack = (segment.ack - self._remote_offset(syn)) % MOD if segment.flags & ACK else None
        return TcpSpec(
            flag_letters(segment.flags),
            (segment.seq - self._local_offset(syn)) % MOD,
            len(segment.payload),
            ack,
            segment.wnd,
            segment.urg,
            options,
        )

    def _script_option(self, option: TcpOption, syn: bool) -> TcpOption:
        if option.name == "sack":
            offset = self._remote_offset(syn)
            return replace(option, values=tuple((edge - offset) % MOD for edge in option.values))
        if option.name == "TS" and self.ts_first is not None:
            script, live = self.ts_first
            return replace(option, values=((option.values[0] - live + script) % MOD, option.values[1]))
        return option


def aggregate(pieces: list[TcpSpec]) -> TcpSpec:
    """Consecutive segments as the one that segmentation offload would have cut; the last one's header."""
    for before, piece in pairwise(pieces):
        if piece.seq != ((before.seq or 0) + before.size) % MOD or piece.ack != before.ack:
            raise Mismatch("segments do not follow one another")
        if before.size != pieces[0].size or piece.size > before.size:
            raise Mismatch("segments of one burst differ in size")
    last = pieces[-1]
    return replace(last, seq=pieces[0].seq, size=sum(piece.size for piece in pieces))


def differences(expected: TcpSpec, got: TcpSpec, tick: int = 0, tolerance: int = 0) -> list[str]:
    """What is not as the script says, a phrase each. `tick` > 0 checks timestamp values, in µs a tick."""
    found = []
    if flag_bits(expected.flags) != flag_bits(got.flags):
        found.append(f"flags {got.flags} instead of {expected.flags or '-'}")
    for name in ("seq", "ack", "win"):
        wanted, seen = getattr(expected, name), getattr(got, name)
        if wanted is not None and seen is not None and wanted % MOD != seen:
            found.append(f"{name} {seen} instead of {wanted}")
    if expected.size != got.size:
        found.append(f"{got.size} bytes instead of {expected.size}")
    if expected.urg != got.urg and "U" in expected.flags:
        found.append(f"urg {got.urg} instead of {expected.urg}")
    if expected.options is not None and not _options_agree(
        expected.options, got.options or (), tick, tolerance
    ):
        found.append("options")
    return found


def _options_agree(
    expected: tuple[TcpOption, ...], got: tuple[TcpOption, ...], tick: int, tolerance: int
) -> bool:
    if [o.name for o in expected] != [o.name for o in got]:
        return False
    for wanted, seen in zip(expected, got, strict=True):
        if wanted.name == "TS":
            drift = (seen.values[0] - wanted.values[0] + MOD // 2) % MOD - MOD // 2
            if tick and abs(drift) * tick > tolerance:
                return False
            if wanted.values[1] != seen.values[1]:
                return False
        elif wanted != seen:
            return False
    return True
