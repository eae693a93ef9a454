"""Compile and load the programs with bcc. The only importer of bcc."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from juneau.packetplane.bpf import bpffs, headers
from juneau.packetplane.types import PlaneError, PlaneSettings

PROGRAM: Final = "pod_egress"
STEERING: Final = "tap_queue"


class LoadedProgram:
    """The loaded programs' file descriptors, until `close`. What they are attached to keeps them loaded."""

    def __init__(self, fd: int, steering_fd: int) -> None:
        self.fd = fd
        self.steering_fd = steering_fd
        """Chooses the queue of the TAP."""

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            os.close(self.steering_fd)
            self.fd = self.steering_fd = -1


def source_folder() -> Path:
    """The C sources: inside the installed package, or `bpf/` of the checkout."""
    packaged = Path(__file__).parent / "src"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "bpf"


def load(settings: PlaneSettings) -> LoadedProgram:
    """Compile, pin the maps (those of an earlier run are taken over) and load. About half a second.

    Raises PlaneError, with the compiler's or the verifier's last lines.
    """
    bcc = _import_bcc()
    headers.prepare(settings.cache_path)
    bpffs.ensure_folder(settings.pin_path)
    bpffs.remove_misfits(settings.pin_path, settings.flow_entries)
    folder = settings.bpf_source or source_folder()
    source = folder / f"{PROGRAM}.c"
    flags = [
        f"-I{folder / 'include'}",
        f'-DPIN_PATH="{settings.pin_path}"',
        f"-DFLOW_ENTRIES={settings.flow_entries}",
        "-Wno-macro-redefined",  # bcc's own headers against the kernel's
    ]
    with _stderr_of_c() as log:
        try:
            module = bcc.BPF(text=source.read_bytes(), cflags=flags)
            egress = module.load_func(PROGRAM.encode(), bcc.BPF.SCHED_CLS)
            steering = module.load_func(STEERING.encode(), bcc.BPF.SOCKET_FILTER)
            loaded = LoadedProgram(os.dup(egress.fd), os.dup(steering.fd))
            module.cleanup()  # the compiler's memory and its descriptors; ours stay, the pins too
            return loaded
        except OSError as err:
            raise PlaneError(f"read {source}: {err.strerror} (is the installation complete?)") from err
        except Exception as err:  # bcc raises nothing more exact
            raise PlaneError(f"load {source}: {err} (needs root){_tail(log)}") from err


def _import_bcc() -> Any:
    try:
        import bcc
    except ImportError as err:
        raise PlaneError(
            f"import bcc: {err} (apt install python3-bpfcc, and make the environment with"
            " /usr/bin/python3 -m venv --system-site-packages; PyPI's bcc is another package)"
        ) from err
    if not hasattr(bcc, "BPF"):
        raise PlaneError(
            f"import bcc: {bcc.__file__} is another package (pip uninstall bcc; apt install python3-bpfcc)"
        )
    return bcc


@contextmanager
def _stderr_of_c() -> Iterator[IO[bytes]]:
    """Catch what clang and the verifier write to file descriptor 2, for the error text."""
    with tempfile.TemporaryFile() as log:
        saved = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            yield log
        finally:
            os.dup2(saved, 2)
            os.close(saved)


def _tail(log: IO[bytes], lines: int = 30) -> str:
    log.seek(0)
    text = log.read().decode(errors="replace").splitlines()[-lines:]
    return "".join(f"\n  {line}" for line in text)
