"""`juneau`: the sub-commands joined."""

from __future__ import annotations

from typing import Annotated

import typer

from juneau.cli import bench, capture, doctor, inspect, lab, packetdrill, serve

app = typer.Typer(
    name="juneau",
    help="Userspace network stack and VPC service plane.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
app.add_typer(lab.app, name="lab")
serve.register(app)
inspect.register(app)
capture.register(app)
doctor.register(app)
packetdrill.register(app)
bench.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from juneau.app.doctor import build

        print(f"juneau {version('juneau')} ({build()})")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    app()


if __name__ == "__main__":
    main()
