"""Commands that run on the user's terminal while a lab is up."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from juneau.app import netns, podinit
from juneau.app.state import PodRecord
from juneau.app.tasks import finish

if TYPE_CHECKING:
    from juneau.app.lab import Lab

_END_GRACE_S: Final = 5.0
"""Seconds a command has to end after a signal that ends the lab."""


async def run_on_host(command: Sequence[str], lab: Lab) -> int:
    """Exit status of `command`: 127 not found, 126 cannot be run, 128+n ended by signal n.

    It finds the lab by JUNEAU_LAB and JUNEAU_STATE_DIR, and `juneau` in its PATH.
    """
    env = dict(os.environ)
    env |= {"JUNEAU_LAB": lab.settings.name, "JUNEAU_STATE_DIR": str(lab.settings.state_base)}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    return await _run(command, env)


async def run_in_pod(command: Sequence[str], pod: PodRecord) -> int:
    """The same, inside `pod`."""
    entry = (str(netns.path(pod.netns)), pod.resolv_conf, pod.hostname, "")
    return await _run([sys.executable, "-I", "-S", podinit.__file__, *entry, *command], os.environ)


async def _run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    started: list[Process] = []
    try:
        spawn = asyncio.create_subprocess_exec(*argv, env=dict(env))  # uvloop wants a dict
        process = await finish(spawn, then=started.append)
        code = await process.wait()
    except FileNotFoundError:
        print(f"error: run {argv[0]}: not found", file=sys.stderr)
        return podinit.NOT_FOUND
    except OSError as error:
        print(f"error: run {argv[0]}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        return podinit.CANNOT_RUN
    except asyncio.CancelledError:  # a signal ends the lab: the command's status is still the answer
        if not started:
            raise
        code = await _end(started[0])
    return code if code >= 0 else 128 - code


async def _end(process: Process) -> int:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        return await asyncio.wait_for(process.wait(), _END_GRACE_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        return await process.wait()
