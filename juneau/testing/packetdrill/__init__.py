"""Scripts in packetdrill's language, run against the stack in virtual time.

    result = run_script("tests/scripts/half_close.pkt")
    assert result.passed, result.diff()

A script's `%{ … }%` blocks are Python and run as such: run only scripts you would run otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from juneau.testing.packetdrill.model import ScriptError
from juneau.testing.packetdrill.parser import parse
from juneau.testing.packetdrill.profile import PROFILES, Profile
from juneau.testing.packetdrill.report import Result, summary, to_json, to_junit
from juneau.testing.packetdrill.runtime import Runner

__all__ = ["PROFILES", "Profile", "Result", "run_script", "run_text", "summary", "to_json", "to_junit"]


def run_script(
    path: str | Path,
    *,
    profile: str | Profile = "linux",
    defines: Collection[str] = (),
    shift: int = 0,
    iss: int | None = None,
    tolerance_us: int = 4_000,
) -> Result:
    """Run one file; never raises for what is in it. For the arguments see `run_text`."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Result(str(path), "error", what=f"read script: {error.strerror}")
    return run_text(
        text,
        path=str(path),
        profile=profile,
        defines=defines,
        shift=shift,
        iss=iss,
        tolerance_us=tolerance_us,
    )


def run_text(
    text: str,
    *,
    path: str = "<text>",
    profile: str | Profile = "linux",
    defines: Collection[str] = (),
    shift: int = 0,
    iss: int | None = None,
    tolerance_us: int = 4_000,
) -> Result:
    """Run a script given as text.

    `defines` are true in `#ifdef`. `shift` is added to the remote side's sequence numbers and `iss`
    is the stack's own first one: near 2**32 they make a script cross the wrap. `tolerance_us` is for
    scripts that name none themselves.
    """
    chosen = PROFILES[profile] if isinstance(profile, str) else profile
    try:
        script = parse(text, {*chosen.symbols, *defines})
        return Runner(script, chosen, shift=shift, iss=iss, tolerance_us=tolerance_us).run(path)
    except ScriptError as error:
        return Result(path, "error", error.line, what=error.message)
