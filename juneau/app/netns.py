"""Named network namespaces, kept where `ip netns` looks for them. Blocking; never on the loop's thread."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Final, TypeVar

from juneau.app import podinit

FOLDER: Final = Path("/run/netns")
_MS_SHARED: Final = 1 << 20

_T = TypeVar("_T")


def path(name: str) -> Path:
    return FOLDER / name


def create(name: str) -> None:
    """A new namespace, kept by a bind mount. Raises FileExistsError when the name is in use."""
    _share_folder()
    target = path(name)
    target.touch(mode=0o444, exist_ok=False)
    try:
        in_thread(lambda: _bind_new(target))
    except BaseException:
        target.unlink()
        raise


def remove(name: str) -> bool:
    """False when there was none. The kernel ends the namespace with its last process."""
    target = path(name)
    if not target.exists():
        return False
    with suppress(OSError):  # a plain file: its creator died before the mount
        podinit.umount(str(target))
    target.unlink(missing_ok=True)
    return True


def release_folder() -> None:
    """Undo the mount that `create` needed, once nobody's namespace is kept there."""
    with suppress(OSError):  # not there, or not a mount: as `ip netns` never ran
        if not any(FOLDER.iterdir()):
            podinit.umount(str(FOLDER))


def names(prefix: str) -> list[str]:
    with suppress(FileNotFoundError):
        return sorted(entry.name for entry in FOLDER.iterdir() if entry.name.startswith(prefix))
    return []


def inside(name: str, work: Callable[[], _T]) -> _T:
    """Run `work` in the namespace, in a thread of its own: the calling thread stays where it is."""

    def enter_and_work() -> _T:
        podinit.set_netns(str(path(name)))
        return work()

    return in_thread(enter_and_work)


def in_thread(work: Callable[[], _T]) -> _T:
    """Like calling it, in a fresh thread that then ends. A pool's thread would keep the namespace."""
    results: list[_T] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    thread = Thread(target=body, name="netns")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def processes(names: Iterable[str]) -> list[int]:
    """Process ids whose network namespace is one of these; never our own."""
    wanted = set(filter(None, (_identity(path(name)) for name in names)))
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in pids if pid != os.getpid() and _identity(Path(f"/proc/{pid}/ns/net")) in wanted]


def end_processes(names: Iterable[str], *, grace_s: float) -> int:
    """SIGTERM to all inside, SIGKILL to who is left after `grace_s`. Returns how many there were."""
    names = list(names)
    first = processes(names)
    _signal(first, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := processes(names)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for _ in range(50):  # a process may fork while it is being looked for
        if not left:
            break
        _signal(left, signal.SIGKILL)
        time.sleep(0.02)
        left = processes(names)
    return len(first)


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _bind_new(target: Path) -> None:
    podinit.unshare(podinit.CLONE_NEWNET)
    podinit.mount("/proc/thread-self/ns/net", str(target), "none", podinit.MS_BIND)


def _share_folder() -> None:
    """As `ip netns add` does: unmounting must reach every other mount namespace."""
    FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        podinit.mount("", str(FOLDER), "none", _MS_SHARED | podinit.MS_REC)
    except OSError:  # not a mount point yet
        podinit.mount(str(FOLDER), str(FOLDER), "none", podinit.MS_BIND | podinit.MS_REC)
        podinit.mount("", str(FOLDER), "none", _MS_SHARED | podinit.MS_REC)
