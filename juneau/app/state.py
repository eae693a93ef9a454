"""What a lab has made, on disk before it is made, so that another process can undo it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

if TYPE_CHECKING:
    from juneau.app.settings import LabSettings

log = logging.getLogger(__name__)

DEFAULT_BASE: Final = Path("/run/juneau")
_LOCK_TRIES: Final = 10
_NAME_WAIT_S: Final = 2.0


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
    pid_started: int = 0
    """Clock ticks since boot, so that a pid used again is not taken for ours."""
    pods: tuple[PodRecord, ...] = ()

    @property
    def alive(self) -> bool:
        return self.pid > 0 and started_at(self.pid) == self.pid_started

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


def started_at(pid: int) -> int:
    """proc(5), field 22 of stat; 0: no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(stat.rpartition(")")[2].split()[19])


class StateDir:
    """`lock` is held as long as the lab runs; `state.json` says what there is to undo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "lab.log"
        self.control = path / "control.sock"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Raises Busy at once when someone else has it.

        The kernel objects of a lab carry its name only, so the name is taken too, for the network
        namespace we are in: a lab with another state folder must not be swept away by ours.
        """
        with self._open_lock() as lock, socket.socket(socket.AF_UNIX) as name:
            _flock(lock)
            if not self._is_current(lock):  # its last holder removed the folder in between
                raise Busy(lock.name)
            self._take_name(name)
            yield

    def _take_name(self, name: socket.socket) -> None:
        """Waits a moment: a lab that ends lets go of its folder before its process does of the name."""
        deadline = time.monotonic() + _NAME_WAIT_S
        while True:
            try:
                return name.bind(f"\0juneau/lab/{self.path.name}")  # abstract: gone with its process
            except OSError:
                if time.monotonic() > deadline:
                    self._remove_if_unused()
                    raise Busy(f"name {self.path.name}") from None
                time.sleep(0.02)

    def _remove_if_unused(self) -> None:
        if [entry.name for entry in self.path.iterdir()] == ["lock"]:
            self.remove()

    def _open_lock(self) -> TextIO:
        """Again where a lab that ends has removed the folder between the two steps."""
        for _ in range(_LOCK_TRIES):
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                return (self.path / "lock").open("a")
        raise Busy(f"folder {self.path} comes and goes")

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
        """None when there is no record, or none of this version: names alone then say what is the lab's."""
        try:
            return Record.from_json(json.loads((self.path / "state.json").read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            log.warning("read %s: %s", self.path / "state.json", error)
            return None

    def write(self, record: Record) -> None:
        """Raises LabError; the record before it stays then."""
        temporary = self.path / "state.json.new"
        try:
            with temporary.open("w") as out:
                json.dump(asdict(record), out, indent=1)
                out.flush()
                os.fsync(out.fileno())
            temporary.replace(self.path / "state.json")
        except OSError as error:
            cause = (error.strerror or str(error)).lower()
            raise LabError(f"write {temporary}: {cause} (JUNEAU_STATE_DIR moves it)") from error

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
