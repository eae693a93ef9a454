"""The record on disk and the lock around it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from juneau.app.settings import lab_settings
from juneau.app.state import Busy, LabError, PodRecord, Record, StateDir, find, find_pod


def pod(namespace: str, name: str) -> PodRecord:
    return PodRecord(
        namespace, name, "v", "s", "10.0.0.4", "02:00:00:00:00:01", name, f"n.{name}", f"j{name}", ""
    )


def record(*pods: PodRecord) -> Record:
    return Record("lab", 1, "2026-01-01T00:00:00+00:00", "ready", "tap", "/pins", pods)


def test_what_was_written_is_read(tmp_path: Path):
    state = StateDir(tmp_path / "lab")
    assert state.read() is None
    with state.locked():
        state.write(record(pod("default", "a")))
        assert state.read() == record(pod("default", "a"))
        state.remove()
    assert not state.path.exists()


def test_one_holder(tmp_path: Path):
    state = StateDir(tmp_path / "lab")
    assert not state.busy
    with state.locked():
        assert state.busy
        with pytest.raises(Busy), StateDir(state.path).locked():
            pass
    assert not state.busy


def test_a_dead_holder_holds_nothing(tmp_path: Path):
    program = (
        "import sys, os, signal, pathlib; from juneau.app.state import StateDir\n"
        "with StateDir(pathlib.Path(sys.argv[1])).locked(): os.kill(os.getpid(), signal.SIGKILL)"
    )
    died = subprocess.run([sys.executable, "-c", program, str(tmp_path / "lab")], check=False)
    assert died.returncode == -9
    assert (tmp_path / "lab" / "lock").exists()
    assert not StateDir(tmp_path / "lab").busy


def test_a_lock_of_a_removed_folder_is_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its holder tore down between our open and our flock."""
    state = StateDir(tmp_path / "lab")
    stale = state._open_lock()
    state.remove()
    monkeypatch.setattr(state, "_open_lock", lambda: stale)
    with pytest.raises(Busy), state.locked():
        pass


def test_pods_by_name():
    found = record(pod("default", "a"), pod("x", "a"), pod("x", "b"), pod("y", "c"), pod("z", "c"))
    assert find_pod(found, "a").key == "default/a"
    assert find_pod(found, "x/a").key == "x/a"
    assert find_pod(found, "b").key == "x/b"
    for unknown in ("c", "default/b", "nope"):
        with pytest.raises(LabError, match=r"no pod .* \(pods: default/a, x/a"):
            find_pod(found, unknown)


def test_find_tells_a_dead_lab_from_none(tmp_path: Path):
    settings = lab_settings("lab", {"JUNEAU_STATE_DIR": str(tmp_path)})
    with pytest.raises(LabError, match="is not up"):
        find(settings)
    state = StateDir(settings.state_dir)
    with state.locked():
        state.write(record())
        assert find(settings) == record()
    with pytest.raises(LabError, match=r"died without tearing down \(clear up: juneau lab down\)"):
        find(settings)


def test_names_of_a_lab_are_its_own():
    one, other = lab_settings("lab", {}), lab_settings("other", {})
    assert (one.node.tap_name, one.node.pin_path) == ("juneau-svc0", "/sys/fs/bpf/juneau")
    assert (other.node.tap_name, other.node.pin_path) == ("jsvc-other", "/sys/fs/bpf/juneau-other")
    assert len(lab_settings("x" * 32, {}).node.tap_name) <= 15
