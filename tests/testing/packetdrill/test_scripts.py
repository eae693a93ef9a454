"""Our own scripts, in the plain and across the sequence wrap of either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from juneau.testing.packetdrill import run_script

SCRIPTS = sorted((Path(__file__).parents[2] / "scripts").rglob("*.pkt"))
"""A folder's name is the profile."""
NEAR_WRAP = (2**32 - 1, 2**32 - 2, 2**32 - 600)


def profile(path: Path) -> str:
    return "linux" if path.parent.name == "scripts" else path.parent.name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path):
    result = run_script(path, profile=profile(path))
    assert result.passed, f"{result.one_line()}\n{result.diff()}"
    assert not [note for note in result.notes if "no line asked for" in note]


@pytest.mark.parametrize("iss", NEAR_WRAP)
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script_across_the_wrap(path: Path, iss: int):
    result = run_script(path, profile=profile(path), iss=iss, shift=(iss + 7) % 2**32)
    assert result.passed, f"{result.one_line()}\n{result.diff()}"
