"""The commands of Pods: started inside, output to a file each, ended with the lab."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from juneau.app import netns, podinit
from juneau.app.tasks import finish
from juneau.control.plan import ContainerPlan, PodPlan

log = logging.getLogger(__name__)

_KEPT_ENV: Final = ("PATH", "LANG", "LC_ALL", "TZ")


@dataclass(slots=True)
class Container:
    pod: PodPlan
    plan: ContainerPlan
    log_path: Path
    process: Process | None = None
    """None: nothing to run."""

    @property
    def state(self) -> str:
        if self.process is None:
            return "no command"
        code = self.process.returncode
        return "running" if code is None else f"exited {code}"


class Containers:
    """All commands of a lab."""

    def __init__(self) -> None:
        self.all: list[Container] = []

    async def start(
        self, pod: PodPlan, plan: ContainerPlan, *, log_path: Path, resolv_conf: Path | None
    ) -> None:
        container = Container(pod, plan, log_path)
        self.all.append(container)
        if plan.argv:
            spawn = _spawn(pod, plan, log_path, resolv_conf)
            await finish(spawn, then=lambda process: setattr(container, "process", process))
            log.info("pod %s: container %s runs %s", pod.key, plan.name, " ".join(plan.argv))

    async def stop(self, *, grace_s: float) -> None:
        """End every process inside the Pods, the commands' own children included."""
        running = [c.process for c in self.all if c.process is not None and c.process.returncode is None]
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        await asyncio.to_thread(netns.end_processes, {c.pod.netns for c in self.all}, grace_s=grace_s)
        await asyncio.gather(*(process.wait() for process in running))

    def states(self, pod: PodPlan) -> dict[str, str]:
        return {c.plan.name: c.state for c in self.all if c.pod is pod}


async def _spawn(pod: PodPlan, plan: ContainerPlan, log_path: Path, resolv_conf: Path | None) -> Process:
    program = (sys.executable, "-I", "-S", podinit.__file__)
    entry = (str(netns.path(pod.netns)), str(resolv_conf or ""), pod.hostname, plan.cwd)
    with log_path.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *program,
            *entry,
            *plan.argv,
            stdin=DEVNULL,
            stdout=output,
            stderr=STDOUT,
            env=_env(pod, plan.env),
            start_new_session=True,
        )


def _env(pod: PodPlan, given: Iterable[tuple[str, str]]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_ENV if name in os.environ}
    return kept | {"HOSTNAME": pod.hostname, "HOME": "/root", "POD_IP": str(pod.ip)} | dict(given)
