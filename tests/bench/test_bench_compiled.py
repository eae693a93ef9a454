"""The peer that is compiled: which build it takes, and that it says why there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench import build
from bench.model import COMPILED, Settings, Unavailable
from bench.peers.juneau import compiled


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(build, "CACHE", tmp_path)
    return tmp_path


def test_a_build_of_other_sources_is_none(cache: Path):
    (cache / "compiled-0123456789ab").mkdir()
    with pytest.raises(Unavailable, match="bench/prepare"):
        build.package()
    (cache / f"compiled-{build.digest()}").mkdir()
    assert build.package().name.endswith(build.digest())


def test_why_it_could_not_be_built(cache: Path):
    (cache / "compiled.reason").write_text("no gcc\n")
    with pytest.raises(Unavailable, match=r"^no gcc$"):
        build.package()


@pytest.mark.parametrize("path", ["juneau/netstack/stack.py", "bpf/x.h", "pyproject.toml"])
def test_any_change_is_another_build(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in (path, "pyproject.toml", "constraints.txt", "scripts/build_hook.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    before = build.digest()
    assert build.digest() == before
    (tmp_path / path).write_text("b")
    assert build.digest() != before


@pytest.mark.root
def test_an_interpreted_lab_is_not_taken_for_a_compiled_one(cache: Path):
    """A folder without `juneau` in it: the lab then runs what is here."""
    (cache / f"compiled-{build.digest()}").mkdir()
    with pytest.raises(Unavailable, match="does not run"), compiled(Settings()) as up:
        pytest.fail(f"{COMPILED} is up with {os.environ.get('PYTHONPATH')}, {up.pids()}")
