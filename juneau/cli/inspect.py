"""`juneau flows`, `conns`, `drops`: what a running lab knows of its traffic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import typer

from juneau.cli.lab import Name
from juneau.cli.output import Format, OutputOption, emit_json, emit_table, handled, need_root

_TRAFFIC: Final = (".received", ".sent")


def register(app: typer.Typer) -> None:
    app.command()(flows)
    app.command()(conns)
    app.command()(drops)


def _ask(name: str, what: str) -> Any:
    from juneau.app.client import get
    from juneau.app.settings import lab_settings
    from juneau.app.state import StateDir, find

    need_root(what)
    settings = lab_settings(name)
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


@handled
def conns(name: Name = "lab", output: OutputOption = Format.table) -> None:
    """TCP connections of the stacks, like ss -ti."""
    found = _ask(name, "conns")
    if output is Format.json:
        emit_json(found)
        return
    rows = [
        (c["vpc"], c["subnet"], c["state"], *_queues(c["info"]), c["local"], c["remote"], _info(c["info"]))
        for c in found
    ]
    emit_table(("VPC", "SUBNET", "STATE", "RECV-Q", "SEND-Q", "LOCAL", "REMOTE", "INFO"), rows)


@handled
def drops(name: Name = "lab", output: OutputOption = Format.table) -> None:
    """Packets that went nowhere, and other events."""
    found = _ask(name, "drops")
    if output is Format.json:
        emit_json(found)
        return
    rows = [row for row in _drops(found) if row[-1]]
    emit_table(("WHERE", "VPC", "REASON", "COUNT"), rows)


def _drops(found: dict[str, Any]) -> Iterator[tuple[str, str, str, int]]:
    """Reasons and events; how much traffic there was is for `--output json`."""
    for reason, count in found["plane"].items():
        yield "plane", "", reason, count
    for vpc, events in found["stacks"].items():
        for event, count in events.items():
            if not event.endswith(_TRAFFIC):
                yield "stack", vpc, event, count
    for row in found["services"]:
        for event, count in row["events"].items():
            yield row["service"], row["vpc"], event, count


def _ends(flow: dict[str, Any]) -> tuple[str, str]:
    return f"{flow['src']}:{flow['src_port']}", f"{flow['dst']}:{flow['dst_port']}"


def _queues(info: dict[str, Any]) -> tuple[int, int]:
    return info["recv_queue"], info["send_queue"]


def _info(info: dict[str, Any]) -> str:
    """What one looks at first; everything is in `--output json`. Times in ms, sizes in bytes."""
    parts = [
        f"{info['congestion_control']} {info['mode']} mss:{info['snd_mss']} cwnd:{info['cwnd']}",
        f"rtt:{info['rtt'] / 1000:.3f}/{info['rttvar'] / 1000:.3f} rto:{info['rto'] / 1000:.0f}",
    ]
    shown = (
        "unacked",
        "lost",
        "retransmits",
        "backoff",
        "bytes_acked",
        "bytes_received",
        "bytes_retransmitted",
    )
    return " ".join(parts + [f"{key}:{info[key]}" for key in shown if info[key]])
