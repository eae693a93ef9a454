"""What a lab has made, on disk before it is made, so that another process can undo it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from juneau.app.settings import LabSettings

DEFAULT_BASE: Final = Path("/run/juneau")


@dataclass(frozen=True, slots=True)
class PodRecord:
    namespace: str
    name: str
    vpc: str
    subnet: str
    ip: str
    mac: str
    hostname: str
    netns: str
    host_ifname: str
    resolv_conf: str
    """Path; "": the machine's own."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Container name → path."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Record:
    lab: str
    pid: int
    since: str
    """ISO 8601, local time with offset."""
    phase: str
    """starting | ready | stopping"""
    tap: str
    pin_path: str
    pods: tuple[PodRecord, ...] = ()

    def pod(self, name: str) -> PodRecord | None:
        """By `namespace/name`, or by name where only one namespace has it, `default` first."""
        found = [pod for pod in self.pods if name in (pod.key, pod.name)]
        in_default = [pod for pod in found if pod.namespace == "default"]
        candidates = in_default or found
        return candidates[0] if len(candidates) == 1 else None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Record:
        pods = tuple(PodRecord(**pod) for pod in data.pop("pods"))
        return cls(**data, pods=pods)


class LabError(Exception):
    """The lab cannot do that now: what, why, what to try."""


class Busy(Exception):
    """Another process holds the lab."""


class StateDir:
    """`lock` is held as long as the lab runs; `state.json` says what there is to undo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "lab.log"
        self.socket = path / "control.sock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises Busy at once when someone else has it."""
        with self._open_lock() as lock:
            _flock(lock)
            if not self._is_current(lock):  # its last holder removed the folder in between
                raise Busy(lock.name)
            yield

    def _open_lock(self) -> TextIO:
        self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
        return (self.path / "lock").open("a")

    def _is_current(self, lock: TextIO) -> bool:
        try:
            return os.path.samestat(os.fstat(lock.fileno()), (self.path / "lock").stat())
        except FileNotFoundError:
            return False

    @property
    def busy(self) -> bool:
        try:
            lock = (self.path / "lock").open("r")
        except FileNotFoundError:
            return False
        with lock:
            try:
                _flock(lock)
            except Busy:
                return True
            return False

    def read(self) -> Record | None:
        """None when there is no record. One that cannot be read is an error: something is to be undone."""
        try:
            text = (self.path / "state.json").read_text()
        except FileNotFoundError:
            return None
        return Record.from_json(json.loads(text))

    def write(self, record: Record) -> None:
        temporary = self.path / "state.json.new"
        with temporary.open("w") as out:
            json.dump(asdict(record), out, indent=1)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(self.path / "state.json")

    def remove_contents(self) -> None:
        """All but the lock."""
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != "lock":
                entry.unlink(missing_ok=True)

    def remove(self) -> None:
        """Everything, the lock file too: call it holding the lock."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path.parent == DEFAULT_BASE:
            with suppress(OSError):  # another lab is in it
                self.path.parent.rmdir()


def _flock(lock: TextIO) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Busy(lock.name) from None


def find(settings: LabSettings) -> Record:
    """The record of the lab that is up. Raises LabError when there is none."""
    state = StateDir(settings.state_dir)
    record = state.read()
    if record is None:
        raise LabError(f"lab {settings.name!r} is not up (start it: {command('up', settings)} -f FILE)")
    if not state.busy:
        hint = f"clear up: {command('down', settings)}"
        raise LabError(f"lab {settings.name!r} (pid {record.pid}) died without tearing down ({hint})")
    return record


def find_pod(record: Record, name: str) -> PodRecord:
    """Raises LabError that names the Pods there are."""
    pod = record.pod(name)
    if pod is None:
        known = ", ".join(pod.key for pod in record.pods) or "none"
        raise LabError(f"no pod {name} in lab {record.lab!r} (pods: {known})")
    return pod


def command(verb: str, settings: LabSettings) -> str:
    return f"juneau lab {verb}" + ("" if settings.name == "lab" else f" --name {settings.name}")
