"""Shell commands and ICMP names that scripts use: what they mean to a stack in virtual time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from juneau.netstack.tcp.states import State
from juneau.testing.packetdrill.model import IcmpSpec
from juneau.testing.packetdrill.report import Mismatch
from juneau.testing.packetdrill.symbols import Unsupported

if TYPE_CHECKING:
    from juneau.netstack.stack import Stack

_SOCKSTAT: Final = re.compile(r"sockstat\b.*grep -c (\w+)\s*\|\s*grep (\d+)")
_STATES: Final = {"SYN_RCVD": State.SYN_RECEIVED} | {state.name: state for state in State}


def inspect(command: str, stack: Stack | None) -> bool:
    """Carry out a command that looks at connections; False: it is none of those.

    `sockstat … | grep -c STATE | grep N` succeeds if N connections are in STATE.
    """
    found = _SOCKSTAT.search(command)
    if found is None or stack is None:
        return False
    name, wanted = found.group(1), int(found.group(2))
    if name == "CLOSED":
        return True  # a closed connection is no connection: there is nothing to count
    count = count_in(stack, _STATES[name])
    if count != wanted:
        raise Mismatch(f"{count} connections in {name}", f"{wanted} in {name}", f"{count} in {name}")
    return True


def count_in(stack: Stack, state: State) -> int:
    """Half-open connections and those in TIME-WAIT are records of their own in the stack."""
    if state is State.TIME_WAIT:
        return stack.tcp.time_wait_count
    count = sum(conn.state is state for conn in stack.tcp.connections())
    return count + (stack.tcp.half_open if state is State.SYN_RECEIVED else 0)


_UNREACHABLE: Final = [
    "net_unreachable",
    "host_unreachable",
    "protocol_unreachable",
    "port_unreachable",
    "frag_needed",
    "source_route_failed",
    "net_unknown",
    "host_unknown",
    "source_host_isolated",
    "net_prohibited",
    "host_prohibited",
    "net_unreachable_for_tos",
    "host_unreachable_for_tos",
    "packet_filtered",
    "precedence_violation",
    "precedence_cutoff",
]
_TYPES: Final = {
    "echo_reply": 0, "unreachable": 3, "source_quench": 4, "redirect": 5, "echo_request": 8,
    "time_exceeded": 11, "parameter_problem": 12,
}  # fmt: skip
_CODES: Final = {name: number for number, name in enumerate(_UNREACHABLE)} | {
    "ttl_exceeded": 0, "frag_reass_exceeded": 1, "": 0,
}  # fmt: skip


def icmp_numbers(spec: IcmpSpec) -> tuple[int, int]:
    """(type, code) of RFC 792 for a script's words; `code_7` is 7."""
    kind = _TYPES.get(spec.type)
    code = int(spec.code[5:]) if spec.code.startswith("code_") else _CODES.get(spec.code)
    if kind is None or code is None:
        raise Unsupported(f"icmp {spec.type} {spec.code}")
    return kind, code
