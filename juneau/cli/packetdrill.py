"""`juneau packetdrill`: run scripts in packetdrill's language against the stack."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from juneau.testing.packetdrill import Result


def register(app: typer.Typer) -> None:
    app.command("packetdrill")(packetdrill)


def packetdrill(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Scripts, or folders of *.pkt files.")],
    profile: Annotated[
        Literal["linux", "freebsd", "juneau"], typer.Option(help="Whose habits the scripts expect.")
    ] = "linux",
    define: Annotated[list[str] | None, typer.Option("--define", "-D", help="True in #ifdef.")] = None,
    tolerance: Annotated[
        int, typer.Option(metavar="USEC", help="Instead of 4 ms; scripts overrule.")
    ] = 4_000,
    iss: Annotated[
        int | None, typer.Option(help="The stack's first sequence number; 4294967295 wraps at once.")
    ] = None,
    shift: Annotated[int, typer.Option(help="Added to the remote side's sequence numbers.")] = 0,
    exclude: Annotated[list[str] | None, typer.Option(help="Skip paths that contain this.")] = None,
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML.")] = None,
    output: Annotated[Literal["text", "json"], typer.Option(help="What goes to standard output.")] = "text",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every packet and call.")] = False,
) -> None:
    """Run packetdrill scripts in virtual time: one line a script, a diff where one fails.

    Exit status: 0 if all passed, 1 if any did not, 2 if there is nothing to run.
    """
    from juneau.testing.packetdrill import run_script, to_json, to_junit

    scripts = _scripts(paths, exclude or [])
    if not scripts:
        typer.echo("packetdrill: no script found (give *.pkt files, or folders that hold some)", err=True)
        raise typer.Exit(2)
    results = [
        run_script(path, profile=profile, defines=define or (), tolerance_us=tolerance, iss=iss, shift=shift)
        for path in scripts
    ]
    if junit is not None:
        junit.write_text(to_junit(results), encoding="utf-8")
    if output == "json":
        typer.echo(to_json(results))
    else:
        _print(results, verbose)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def _scripts(paths: Sequence[Path], exclude: Sequence[str]) -> list[Path]:
    found = [
        script for path in paths for script in (sorted(path.rglob("*.pkt")) if path.is_dir() else [path])
    ]
    return [script for script in found if not any(part in str(script) for part in exclude)]


def _print(results: Sequence[Result], verbose: bool) -> None:
    from juneau.testing.packetdrill import summary

    for result in results:
        typer.echo(result.one_line())
        if verbose:
            typer.echo("".join(f"    {line}\n" for line in [*result.trace, *result.notes]), nl=False)
        if not result.passed:
            typer.echo(result.diff())
    typer.echo(summary(results))


if __name__ == "__main__":
    typer.run(packetdrill)
