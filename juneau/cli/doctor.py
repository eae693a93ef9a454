"""`juneau doctor`: can this machine run labs?"""

from __future__ import annotations

import typer

from juneau.cli.output import FAILED, Format, OutputOption, emit_json, handled


def register(app: typer.Typer) -> None:
    app.command()(doctor)


@handled
def doctor(output: OutputOption = Format.table) -> None:
    """Check what labs need of this machine.

    Each failing line says what to do.
    """
    from juneau.app.doctor import checks

    found = list(checks())
    if output is Format.json:
        emit_json([check._asdict() for check in found])
    else:
        for check in found:
            mark = "ok  " if check.ok else "FAIL" if check.needed else "warn"
            remedy = f"  → {check.remedy}" if check.remedy and not check.ok else ""
            print(f"{mark}  {check.what}: {check.found}{remedy}")
    if any(check.needed and not check.ok for check in found):
        raise typer.Exit(FAILED)
