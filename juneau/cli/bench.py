"""`juneau bench`: the checkout's `bench` package, which is no part of an installation."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

import juneau
from juneau.cli.output import USAGE, fail

_PASS_ON = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def register(app: typer.Typer) -> None:
    app.command(context_settings=_PASS_ON)(bench)


def bench(context: typer.Context) -> None:
    """Measure juneau and its peers side by side.

    The same as `make bench`; options (see --help) are passed on.
    """
    checkout = Path(juneau.__file__).resolve().parent.parent
    if not (checkout / "bench" / "__main__.py").is_file():
        fail(
            f"bench: no bench/ beside {checkout / 'juneau'} (clone the repository, run `make bench` there)",
            USAGE,
        )
    path = os.pathsep.join(filter(None, (str(checkout), os.environ.get("PYTHONPATH"))))
    program = [sys.executable, "-P", "-m", "bench", *context.args]
    os.execve(program[0], program, {**os.environ, "PYTHONPATH": path})
