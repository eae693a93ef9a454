"""Hypothesis strategies: packets good and bad, segments, whole conversations.

`packets.tcp` and its like build what these draw; sizes are small so that failures shrink well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from juneau.testing import packets
from juneau.testing.wire import Impairment

ports = st.integers(0, 65_535)
seqs = st.one_of(st.integers(0, 2**32 - 1), st.integers(2**32 - 2_000, 2**32 - 1), st.integers(0, 2_000))
"""Sequence numbers, with a liking for the wrap."""
flag_sets = st.one_of(
    st.sampled_from(["S", "SA", "A", "PA", "FA", "R", "RA", "F", "SF", "", "FPU", "SFRPAUEC"]),
    st.integers(0, 0x1FF),
)
payloads = st.one_of(st.just(b""), st.binary(max_size=40), st.integers(1, 1_600).map(bytes))


@st.composite
def tcp_options(draw: st.DrawFn) -> bytes:
    """Up to 40 bytes: sound options in any order, sometimes garbage."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=40))
    numbers = st.integers(0, 2**32 - 1)
    one = st.one_of(
        st.just(packets.NOP),
        st.just(packets.SACK_OK),
        st.integers(0, 65_535).map(packets.mss),
        st.integers(0, 255).map(packets.wscale),
        st.builds(packets.timestamps, numbers, numbers),
        st.lists(st.tuples(seqs, seqs), max_size=4).map(lambda blocks: packets.sack(*blocks)),
    )
    data = b""
    for option in draw(st.lists(one, max_size=6)):
        if len(data) + len(option) <= 40:
            data += option
    return data


@st.composite
def tcp_packets(draw: st.DrawFn, /, **fixed: Any) -> bytes:
    """A TCP packet that is sound as IPv4; `fixed` fields are not drawn."""
    fields: dict[str, Any] = {
        "sport": ports, "dport": ports, "seq": seqs, "ack": seqs, "flags": flag_sets,
        "wnd": st.integers(0, 65_535), "urg": st.integers(0, 65_535), "options": tcp_options(),
    }  # fmt: skip
    drawn = {name: draw(strategy) for name, strategy in fields.items() if name not in fixed}
    return packets.tcp(draw(payloads), **drawn, **fixed)


@st.composite
def udp_packets(draw: st.DrawFn, /, **fixed: Any) -> bytes:
    drawn = {name: draw(ports) for name in ("sport", "dport") if name not in fixed}
    return packets.udp(draw(payloads), **drawn, **fixed)


@st.composite
def icmp_packets(draw: st.DrawFn, /, **fixed: Any) -> bytes:
    """Any type and code; errors echo a TCP packet that may be cut short."""
    kind = draw(st.sampled_from([0, 3, 4, 5, 8, 11, 12, 13, 255]))
    inside = draw(st.one_of(payloads, tcp_packets().map(lambda raw: raw[:28])))
    rest = draw(st.integers(0, 2**32 - 1))
    return packets.icmp(inside, type=kind, code=draw(st.integers(0, 255)), rest=rest, **fixed)


def any_packets(**fixed: Any) -> st.SearchStrategy[bytes]:
    """Packets of every protocol. `fixed` are fields that all builders know: src, dst, ttl, tos."""
    return st.one_of(tcp_packets(**fixed), udp_packets(**fixed), icmp_packets(**fixed))


@st.composite
def damaged(draw: st.DrawFn, base: st.SearchStrategy[bytes]) -> bytes:
    """A packet with bytes overwritten, cut off, put in or appended; checksums are left as they were."""
    raw = bytearray(draw(base))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(raw) - 1)))
        change = draw(st.sampled_from(["overwrite", "cut", "insert", "append"]))
        if change == "overwrite" and raw:
            raw[at] = draw(st.integers(0, 255))
        elif change == "cut":
            del raw[at:]
        elif change == "insert":
            raw[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            raw += draw(st.binary(min_size=1, max_size=8))
    return bytes(raw)


@st.composite
def fragmented(draw: st.DrawFn, base: st.SearchStrategy[bytes]) -> list[bytes]:
    """The fragments of one packet in any order, some missing, some twice."""
    pieces = packets.fragments(draw(base), 8 * draw(st.integers(1, 200)))
    picked = draw(st.lists(st.sampled_from(pieces), max_size=2 * len(pieces)))
    return picked if draw(st.booleans()) else draw(st.permutations(pieces))


@st.composite
def impairments(draw: st.DrawFn, *, loss: float = 0.1) -> Impairment:
    """A wire that is bad, though not so bad that nothing gets through."""
    return Impairment(
        loss=draw(st.floats(0, loss)),
        delay=draw(st.integers(0, 100_000)),
        jitter=draw(st.integers(0, 20_000)),
        duplicate=draw(st.floats(0, 0.1)),
        reorder=draw(st.floats(0, 0.2)),
        reorder_delay=draw(st.integers(0, 20_000)),
        corrupt=draw(st.floats(0, 0.05)),
    )


# --- conversations ---


@dataclass(frozen=True, slots=True)
class Send:
    """Send bytes to the peer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many microseconds."""

    duration: int


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Send no more; go on reading."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Reset the connection."""


Step = Send | Pause | Shutdown | Abort


@st.composite
def conversations(draw: st.DrawFn, *, max_steps: int = 8, max_bytes: int = 20_000) -> list[Step]:
    """What one side does from connect to the end; it ends in Shutdown or Abort."""
    data = st.one_of(st.binary(min_size=1, max_size=64), st.integers(1, max_bytes).map(_pattern))
    step = st.one_of(data.map(Send), st.integers(0, 500_000).map(Pause))
    steps: list[Step] = draw(st.lists(step, max_size=max_steps))
    ends: list[Step] = [Shutdown(), Shutdown(), Shutdown(), Abort()]
    steps.append(draw(st.sampled_from(ends)))
    return steps


def _pattern(size: int) -> bytes:
    block = bytes(range(251))
    return (block * (size // 251 + 1))[:size]
