"""The record on disk and the lock around it."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from juneau.app.settings import lab_settings
from juneau.app.state import Busy, LabError, PodRecord, Record, StateDir, find, find_pod, started_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The name of a lab is taken machine-wide, so each test has its own."""
    return tmp_path / f"t{secrets.token_hex(6)}"


def pod(namespace: str, name: str) -> PodRecord:
    return PodRecord(
        namespace, name, "v", "s", "10.0.0.4", "02:00:00:00:00:01", name, f"n.{name}", f"j{name}", ""
    )


def record(*pods: PodRecord) -> Record:
    return Record("lab", 1, "2026-01-01T00:00:00+00:00", "ready", "tap", "/pins", pods=pods)


def test_a_folder_that_goes_at_the_wrong_moment_is_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    mkdir, gone = Path.mkdir, []

    def mkdir_and_lose_it(path: Path, *args: object, **kw: object) -> None:
        mkdir(path, *args, **kw)  # type: ignore[arg-type]
        if len(gone) < 3:
            gone.append(path)
            path.rmdir()

    monkeypatch.setattr(Path, "mkdir", mkdir_and_lose_it)
    with StateDir(folder).locked():
        assert (folder / "lock").exists()
    assert len(gone) == 3


def test_what_was_written_is_read(folder: Path):
    state = StateDir(folder)
    assert state.read() is None
    with state.locked():
        state.write(record(pod("default", "a")))
        assert state.read() == record(pod("default", "a"))
        state.remove()
    assert not state.path.exists()


def test_one_holder(folder: Path):
    state = StateDir(folder)
    assert not state.busy
    with state.locked():
        assert state.busy
        with pytest.raises(Busy), StateDir(state.path).locked():
            pass
    assert not state.busy


def test_a_dead_holder_holds_nothing(folder: Path):
    program = (
        "import sys, os, signal, pathlib; from juneau.app.state import StateDir\n"
        "with StateDir(pathlib.Path(sys.argv[1])).locked(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", program, str(folder)], check=False)
    assert died.returncode == -9
    assert (folder / "lock").exists()
    assert not StateDir(folder).busy


def test_a_lock_of_a_removed_folder_is_no_lock(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Its holder tore down between our open and our flock."""
    state = StateDir(folder)
    stale = state._open_lock()
    state.remove()
    monkeypatch.setattr(state, "_open_lock", lambda: stale)
    with pytest.raises(Busy), state.locked():
        pass


def test_the_name_is_taken_whatever_the_folder(folder: Path, tmp_path: Path):
    """Kernel objects carry the name only."""
    other = StateDir(tmp_path / "elsewhere" / folder.name)
    with StateDir(folder).locked():
        with pytest.raises(Busy), other.locked():
            pass
        assert not other.path.exists(), "nothing is left of the attempt"
    with other.locked():
        pass


@pytest.mark.parametrize("text", ["", "{", "{}", '{"pods": [{"x": 1}]}'])
def test_a_record_that_cannot_be_read_is_none(folder: Path, text: str):
    folder.mkdir()
    (folder / "state.json").write_text(text)
    assert StateDir(folder).read() is None


def test_a_pid_used_again_is_not_ours():
    ours = replace(record(), pid=os.getpid(), pid_started=started_at(os.getpid()))
    assert ours.alive
    assert not replace(ours, pid_started=ours.pid_started - 1).alive
    assert not replace(ours, pid=2**22 + 1).alive


def test_pods_by_name():
    found = record(pod("default", "a"), pod("x", "a"), pod("x", "b"), pod("y", "c"), pod("z", "c"))
    assert find_pod(found, "a").key == "default/a"
    assert find_pod(found, "x/a").key == "x/a"
    assert find_pod(found, "b").key == "x/b"
    for unknown in ("c", "default/b", "nope"):
        with pytest.raises(LabError, match=r"no pod .* \(pods: default/a, x/a"):
            find_pod(found, unknown)


def test_find_tells_a_dead_lab_from_none(folder: Path):
    settings = lab_settings(folder.name, {"JUNEAU_STATE_DIR": str(folder.parent)})
    with pytest.raises(LabError, match="is not up"):
        find(settings)
    state = StateDir(settings.state_dir)
    with state.locked():
        state.write(record())
        assert find(settings) == record()
    with pytest.raises(LabError, match=r"died without tearing down \(clear up: juneau lab down --name t"):
        find(settings)


def test_names_of_a_lab_are_its_own():
    one, other = lab_settings("lab", {}), lab_settings("other", {})
    assert (one.node.tap_name, one.node.pin_path) == ("juneau-svc0", "/sys/fs/bpf/juneau")
    assert (other.node.tap_name, other.node.pin_path) == ("jsvc-other", "/sys/fs/bpf/juneau-other")
    assert len(lab_settings("x" * 32, {}).node.tap_name) <= 15


def test_a_record_that_cannot_be_written_is_one_line(folder: Path):
    with pytest.raises(
        LabError, match=r"write .*state.json.new: no such file or directory \(JUNEAU_STATE_DIR"
    ):
        StateDir(folder).write(record())
