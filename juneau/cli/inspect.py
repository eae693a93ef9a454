"""`juneau flows`, `conns`, `drops`: what a running lab knows of its traffic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from juneau.cli.lab import Name, named
from juneau.cli.output import Format, OutputOption, aligned, emit_json, emit_table, handled, need_root

_NO_THRESHOLD: Final = 1 << 30
"""An ssthresh beyond this was never set."""


def register(app: typer.Typer) -> None:
    app.command()(flows)
    app.command()(conns)
    app.command()(drops)


def _ask(name: str, what: str) -> Any:
    from juneau.app.client import get
    from juneau.app.state import StateDir, find

    need_root(what)
    settings = named(name)
    find(settings)
    return get(StateDir(settings.state_dir).control, what)


@handled
def flows(name: Name = "lab", output: OutputOption = Format.table) -> None:
    """Flows from Pods to services, latest first."""
    found = _ask(name, "flows")
    if output is Format.json:
        emit_json(found)
        return
    rows = [(f["vpc"], f["subnet"], f["proto"], *_ends(f), f["packets"], f["bytes"]) for f in found]
    emit_table(("VPC", "SUBNET", "PROTO", "FROM", "TO", "PACKETS", "BYTES"), rows)


def _ends(flow: dict[str, Any]) -> tuple[str, str]:
    return f"{flow['src']}:{flow['src_port']}", f"{flow['dst']}:{flow['dst_port']}"


# --- conns --------------------------------------------------------------------------------------------------


@handled
def conns(
    listening: Annotated[bool, typer.Option("--listening", "-l", help="Only what listens.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also what listens, is half-open or in TIME-WAIT.")
    ] = False,
    info: Annotated[bool, typer.Option("--info", "-i", help="A second line: how TCP is doing.")] = False,
    name: Name = "lab",
    output: OutputOption = Format.table,
) -> None:
    """TCP connections of the stacks, like ss -ti.

    The local end is the service's. Queues, windows and sizes are bytes, times are ms; a listener's
    queues are connections that wait to be accepted, and how many may.
    """
    found = [] if listening else _ask(name, "conns")
    if listening or everything:
        found += _ask(name, "listeners")
    if everything:
        found += _ask(name, "remnants")
    found.sort(key=lambda row: (row["vpc"], row["local"], row["remote"]))
    if output is Format.json:
        emit_json(found)
        return
    columns = ("VPC", "STATE", "RECV-Q", "SEND-Q", "LOCAL", "PEER", "POD", "SERVICE")
    rows = [_conn(row) for row in found]
    if not info:
        emit_table(columns, rows)
        return
    header, *lines = aligned([columns, *rows])
    print(header)
    for line, row in zip(lines, found, strict=True):
        print(line)
        if "info" in row:
            print(f"    {_info(row['info'])}")


def _conn(row: Mapping[str, Any]) -> tuple[str, ...]:
    state = row["state"].replace("_", "-")
    queues = str(row["recv_queue"]), str(row["send_queue"])
    return row["vpc"], state, *queues, row["local"], row["remote"] or "*", row["pod"], row["service"]


def _info(info: Mapping[str, Any]) -> str:
    """In the order and with the names of ss; what is 0 or off is left out."""
    options = [word for word, key in (("ts", "timestamps"), ("sack", "sack"), ("ecn", "ecn")) if info[key]]
    parts = [*options, info["congestion_control"]]
    if info["mode"] != "open":
        parts.append(f"({info['mode']})")
    parts.append(f"wscale:{info['snd_wscale']},{info['rcv_wscale']} rto:{_ms(info['rto'])}")
    if info["rtt"]:
        parts.append(f"rtt:{_ms(info['rtt'])}/{_ms(info['rttvar'])} minrtt:{_ms(info['min_rtt'])}")
    parts.append(f"mss:{info['snd_mss']} pmtu:{info['pmtu']} cwnd:{info['cwnd']}")
    if info["ssthresh"] < _NO_THRESHOLD:
        parts.append(f"ssthresh:{info['ssthresh']}")
    if info["rtt"]:
        parts.append(f"send:{info['cwnd'] * 8 / info['rtt']:.1f}Mbit/s")
    parts.append(f"snd_wnd:{info['snd_wnd']} rcv_wnd:{info['rcv_wnd']}")
    return " ".join(parts + [f"{label}:{info[key]}" for key, label in _COUNTS.items() if info[key]])


_COUNTS: Final = {
    "unacked": "unacked",
    "sacked": "sacked",
    "lost": "lost",
    "retransmits": "retrans",
    "backoff": "backoff",
    "bytes_acked": "bytes_acked",
    "bytes_retransmitted": "bytes_retrans",
    "bytes_received": "bytes_received",
    "segs_out": "segs_out",
    "segs_in": "segs_in",
}


def _ms(micros: int) -> str:
    return f"{micros / 1000:.3f}".rstrip("0").rstrip(".")


# --- drops --------------------------------------------------------------------------------------------------


@handled
def drops(
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Counters at zero too, and how much traffic there was.")
    ] = False,
    name: Name = "lab",
    output: OutputOption = Format.table,
) -> None:
    """Packets that went nowhere, and other events.

    Counted by the kernel side, by each VPC's stack and by each service, since the lab is up.
    """
    found = _ask(name, "drops")
    if output is Format.json:
        emit_json(found)
        return
    from juneau.app.explain import TRAFFIC

    rows = [*_plane_drops(found, everything), *_stack_drops(found, everything), *_service_events(found)]
    shown = [row for row in rows if everything or (row[3] and row[2] not in TRAFFIC)]
    emit_table(("WHERE", "VPC", "NAME", "COUNT", "MEANING"), shown)


_DropRow = tuple[str, str, str, int, str]


def _plane_drops(found: dict[str, Any], everything: bool) -> Iterator[_DropRow]:
    from juneau.app.explain import PLANE, explain

    counts = found["plane"]
    if everything:
        counts = dict.fromkeys(PLANE, 0) | counts | found["passed"]
    for reason, count in counts.items():
        yield "plane", "", reason, count, explain(reason, PLANE)


def _stack_drops(found: dict[str, Any], everything: bool) -> Iterator[_DropRow]:
    from juneau.app.explain import STACK, explain

    known = [name for name in STACK if not name.endswith("*")] if everything else []
    for vpc, counts in found["stacks"].items():
        for event, count in sorted((dict.fromkeys(known, 0) | counts).items()):
            yield "stack", vpc, event, count, explain(event, STACK)


def _service_events(found: dict[str, Any]) -> Iterator[_DropRow]:
    from juneau.app.explain import SERVICE, explain

    for row in found["services"]:
        for event, count in sorted(row["events"].items()):
            yield row["service"], row["vpc"], event, count, explain(event, SERVICE)
