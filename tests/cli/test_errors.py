"""The command line without a lab: help, versions, and one clear line for what cannot be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from juneau.cli.main import app


def run(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(args))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Far enough to be refused for another reason; nothing here reaches the machine."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("JUNEAU_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("JUNEAU_LAB", raising=False)


def test_version():
    code, out, _ = run("--version")
    assert code == 0
    assert re.fullmatch(r"juneau 0\.\S+ \(interpreted\)\n", out)


@pytest.mark.parametrize("command", [[], ["lab"], ["lab", "up"], ["serve"], ["flows"], ["doctor"]])
def test_help(command: list[str]):
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert out.startswith("Usage: ")


@pytest.mark.parametrize(
    "command",
    [
        ["lab", "up", "-f", "x"],
        ["lab", "run", "-f", "x", "--", "true"],
        ["lab", "exec", "a", "--", "true"],
        ["lab", "status"],
        ["lab", "down"],
        ["serve", "x.py:handle", "--tcp", "80"],
        ["drops"],
        ["conns"],
        ["capture", "-w", "x"],
    ],
)
def test_without_root_one_line_and_status_2(monkeypatch: pytest.MonkeyPatch, command: list[str]):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert err.endswith(": needs root (interfaces, namespaces and BPF; try sudo)\n")
    assert err.count("\n") == 1


@pytest.mark.usefixtures("as_root")
class TestAsRoot:
    def test_every_problem_has_its_line(self, tmp_path: Path):
        path = tmp_path / "bad.yaml"
        path.write_text("---\n".join(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {n}}}\n" for n in "pq"))
        code, out, err = run("lab", "up", "-f", str(path))
        assert (code, out) == (2, "")
        assert [line.split(": in no")[0] for line in err.splitlines()] == [
            f"error: {path}:1: Pod default/p", f"error: {path}:5: Pod default/q",
        ]  # fmt: skip
        assert not (tmp_path / "state").exists()

    @pytest.mark.parametrize("name", ["Lab", "a/b", "-a", "x" * 33, ""])
    def test_lab_names(self, name: str):
        code, _, err = run("lab", "down", "--name", name)
        assert code == 2
        assert "at most 32 lower-case letters" in err

    def test_command_is_required(self):
        assert run("lab", "exec", "a")[0] == 2
        assert run("lab", "exec", "a", "--")[0] == 2

    @pytest.mark.parametrize(
        "command",
        [
            ["lab", "status"],
            ["flows"],
            ["conns", "-a"],
            ["drops"],
            ["lab", "exec", "a", "ls"],
            ["capture", "-w", "x"],
        ],
    )
    def test_no_lab(self, command: list[str]):
        code, out, err = run(*command)
        assert (code, out) == (1, "")
        assert err == "error: lab 'lab' is not up (start it: juneau lab up -f FILE)\n"

    @pytest.mark.parametrize(
        ("args", "cause"),
        [
            (["nowhere.py:handle", "--tcp", "80"], "no file"),
            (["nowhere", "--tcp", "80"], "no NAME in it"),
            (["json:loads"], "--tcp PORT or --udp PORT"),
        ],
    )
    def test_serve_what_cannot_be_loaded(self, args: list[str], cause: str):
        code, _, err = run("serve", *args)
        assert code == 2
        assert err.startswith("error: load ")
        assert cause in err
        assert err.count("\n") == 1

    def test_serve_at_the_pods_address(self):
        code, _, err = run("serve", "json:loads", "--tcp", "80", "--vip-offset", "10")
        assert code == 2
        assert "10.80.0.10 is the Pod's own address" in err


def test_help_imports_little():
    """What a command does not need must not slow down its start."""
    program = "import sys, juneau.cli.main; print(*sorted(m for m in sys.modules if '.' not in m))"
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"pydantic", "yaml", "aiohttp", "uvloop", "pyroute2", "rich", "asyncio", "bcc"} & set(out)
