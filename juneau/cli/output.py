"""What every sub-command shares: exit codes, one-line errors, progress on stderr, results on stdout."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from rich.status import Status

FAILED: Final = 1
"""It was tried and did not work."""
USAGE: Final = 2
"""It was not tried: flags, manifests or rights are wrong."""

P = ParamSpec("P")
R = TypeVar("R")


class Format(StrEnum):
    table = "table"
    json = "json"


OutputOption = Annotated[Format, typer.Option("--output", "-o", help="For people, or for programs.")]


def handled(command: Callable[P, R]) -> Callable[P, R]:
    """The command's known errors become lines on stderr and an exit status."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except (typer.Exit, typer.BadParameter):
            raise
        except Exception as error:  # noqa: BLE001 - what is not known is raised again
            fail(str(error), _status(error), cause=error)

    return run


def fail(text: str, status: int, *, cause: BaseException | None = None) -> NoReturn:
    for line in text.splitlines():
        print(f"error: {line}", file=sys.stderr)
    raise typer.Exit(status) from cause


def _status(error: Exception) -> int:
    """Raises what is no known error: a defect of ours shows its traceback."""
    from juneau.app.client import ApiError
    from juneau.app.state import LabError
    from juneau.control.manifests import ManifestError

    if isinstance(error, ManifestError):
        return USAGE
    if isinstance(error, LabError | ApiError):
        return FAILED
    from juneau.packetplane import PlaneError
    from juneau.services.host import ServiceError
    from juneau.services.load import LoadError

    if isinstance(error, LoadError | ServiceError):
        return USAGE
    if isinstance(error, PlaneError):
        return FAILED
    raise error


def need_root(what: str) -> None:
    if os.geteuid() != 0:
        fail(f"{what}: needs root (interfaces, namespaces and BPF; try sudo)", USAGE)


def emit_json(data: Any) -> None:
    print(json.dumps(data, indent=2))


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A Rich table on a terminal, plain aligned columns in a pipe, where there is no edge to wrap at."""
    cells = [tuple(map(str, row)) for row in rows]
    if not sys.stdout.isatty():
        for line in aligned([tuple(columns), *cells]):
            print(line)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=None, pad_edge=False)
    for row in cells:
        table.add_row(*map(Text, row))
    Console().print(table)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line per row, columns as wide as they must be."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def warnings_to_stderr() -> None:
    """Of everything that is logged, what someone at the terminal should see."""
    import logging

    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    logging.getLogger().addHandler(handler)


class Progress:
    """A spinner on a terminal, a line per step elsewhere. Called with "" when nothing goes on any more."""

    def __init__(self) -> None:
        self._status: Status | None = None

    def __call__(self, text: str) -> None:
        if not sys.stderr.isatty():
            if text:
                print(f"juneau: {text}", file=sys.stderr, flush=True)
            return
        if self._status is not None:
            self._status.stop()
            self._status = None
        if text:
            from rich.console import Console

            self._status = Console(stderr=True).status(text)
            self._status.start()
