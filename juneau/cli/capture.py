"""`juneau capture`: packets of a running lab, for Wireshark."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from juneau.cli.lab import Name, named
from juneau.cli.output import handled, need_root


def register(app: typer.Typer) -> None:
    app.command()(capture)


@handled
def capture(
    write: Annotated[
        Path, typer.Option("--write", "-w", metavar="FILE", help="A pcapng file to make; '-' is stdout.")
    ],
    pod: Annotated[str, typer.Option(help="Only this Pod: NAME or NAMESPACE/NAME.")] = "",
    vpc: Annotated[str, typer.Option(help="Only this VPC.")] = "",
    duration: Annotated[float, typer.Option(min=0, help="Seconds; 0: until Ctrl-C.")] = 0,
    count: Annotated[int, typer.Option(min=0, help="Packets; 0: until Ctrl-C.")] = 0,
    name: Name = "lab",
) -> None:
    """Capture what crosses the edge of the stacks, as pcapng.

    An interface per Pod, named VPC/POD; inbound is from the Pod. Dropped packets say why in a comment.
    """
    need_root("capture")
    from juneau.app.savefile import STDOUT, save
    from juneau.app.state import StateDir, find, find_pod

    if write == STDOUT and sys.stdout.isatty():
        raise typer.BadParameter("a terminal shows no pcapng (redirect it)", param_hint="-w")
    settings = named(name)
    record = find(settings)
    key = find_pod(record, pod).key if pod else ""
    query = {"pod": key, "vpc": vpc, "duration": duration, "count": count}

    def begun() -> None:
        print(f"capturing lab {name!r} to {write}; Ctrl-C ends it", file=sys.stderr, flush=True)

    saved = save(StateDir(settings.state_dir).control, write, query, begun)
    lost = f", {saved.lost} lost because they came faster than they were written" if saved.lost else ""
    print(f"{saved.packets} packets{lost}", file=sys.stderr)
