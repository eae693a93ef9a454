"""A lab: manifests made real on one machine, and unmade again whatever happens.

The record on disk names everything before it exists; a crash therefore leaves nothing that
`down` cannot find.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyroute2.netlink.exceptions import NetlinkError

from juneau.app import collector, links, netns
from juneau.app.containers import Containers
from juneau.app.node import Node
from juneau.app.settings import LabSettings, NodeSettings
from juneau.app.state import Busy, LabError, PodRecord, Record, StateDir, command, started_at
from juneau.app.tasks import Report, attempt, contain_exits, in_worker, silent
from juneau.control.plan import LabPlan, PodPlan, netns_prefix
from juneau.packetplane import Nic, PacketPlane, PlaneSettings, cleanup
from juneau.services.framework import VirtualService

if TYPE_CHECKING:
    from juneau.app.api import ControlApi

log = logging.getLogger(__name__)

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Lab:
    """One lab while it is up. `up` once, `close` always."""

    def __init__(
        self,
        settings: LabSettings,
        plan: LabPlan,
        services: Sequence[VirtualService],
        *,
        report: Report = silent,
    ) -> None:
        self.settings, self.plan, self.services = settings, plan, services
        self.state = StateDir(settings.state_dir)
        self.record = _record(settings, plan, self.state)
        self.containers = Containers()
        self.node: Node | None = None
        self.report = report
        self._plane: PacketPlane | None = None
        self._api: ControlApi | None = None
        self._ifindex: dict[str, int] = {}

    async def up(self) -> None:
        self.state.write(self.record)
        self._write_resolv_conf()
        self.report("loading the packet plane")
        await in_worker(self._open_plane)
        assert self._plane is not None
        self.node = Node(self._plane, self.services)
        count = len(self.plan.pods)
        self.report(f"making {count} {'pod' if count == 1 else 'pods'}")
        await in_worker(self._make_links)
        await self.node.apply(self.plan.view, [self._nic(pod) for pod in self.plan.pods])
        self.report("starting commands")
        await self._start_containers()
        await self._serve_api()
        self._set_phase("ready")
        log.info("lab %s is up: %d pods", self.settings.name, len(self.plan.pods))

    async def close(self) -> None:
        """Tear down. One step's failure is logged and does not stop the next."""
        try:
            self._set_phase("stopping")
        except LabError as error:  # a full disk must not keep it up
            log.error("%s", error)
        self.report("tearing down")
        if self._api is not None:
            await attempt("stop the control socket", self._api.stop())
        grace = self.settings.stop_grace_s
        await attempt("stop the pods' commands", self.containers.stop(grace_s=grace))
        if self.node is not None:
            await self.node.close()
        elif self._plane is not None:
            await attempt("close the packet plane", in_worker(self._plane.close))
        await attempt("sweep", in_worker(lambda: sweep(self.settings, self.record)))
        self.state.remove()

    def addresses_of(self, service: str) -> list[str]:
        """Where `service` answers. Raises LabError when it should somewhere and cannot."""
        assert self.node is not None  # while it is up
        rows = [row for row in self.node.host.status() if row.service == service]
        for row in rows:
            if row.error:
                raise LabError(row.error)
        return [row.address for row in rows]

    def status(self) -> dict[str, Any]:
        assert self._api is not None  # while it is up
        return self._api.status()

    def _open_plane(self) -> None:
        self._plane = PacketPlane.open(plane_settings(self.settings.node))

    def _make_links(self) -> None:
        try:
            self._ifindex = links.make(self.plan.pods, lab=self.settings.name)
        except (OSError, NetlinkError) as error:
            raise LabError(f"make the pods' interfaces: {error} (juneau doctor may tell more)") from error

    def _nic(self, pod: PodPlan) -> Nic:
        view = self.plan.view
        tenant = view.tenant(view.subnets[pod.subnet])
        return Nic(self._ifindex[pod.host_ifname], pod.host_ifname, tenant, pod.ip, pod.mac)

    def _write_resolv_conf(self) -> None:
        for plan, record in zip(self.plan.pods, self.record.pods, strict=True):
            folder = self._pod_folder(plan)
            try:
                folder.mkdir(parents=True)
                if record.resolv_conf:
                    Path(record.resolv_conf).write_text(plan.resolv_conf)
            except OSError as error:
                raise LabError(f"write {folder}: {error.strerror} (JUNEAU_STATE_DIR moves it)") from error

    async def _start_containers(self) -> None:
        for plan, record in zip(self.plan.pods, self.record.pods, strict=True):
            resolv_conf = Path(record.resolv_conf) if record.resolv_conf else None
            for container in plan.containers:
                path = Path(record.logs[container.name])
                await self.containers.start(plan, container, log_path=path, resolv_conf=resolv_conf)

    async def _serve_api(self) -> None:
        from juneau.app.api import ControlApi

        self._api = ControlApi(self)
        await self._api.start(self.state.control)

    def _pod_folder(self, pod: PodPlan) -> Path:
        return _pod_folder(self.state, pod)

    def _set_phase(self, phase: str) -> None:
        self.record = replace(self.record, phase=phase)
        self.state.write(self.record)


def run(lab: Lab, main: Callable[[Lab], Awaitable[int]]) -> int:
    """Bring `lab` up, run `main`, tear down; returns main's status.

    SIGINT, SIGTERM and SIGHUP cancel `main` once; the tear-down itself is not interrupted. Raises
    LabError when the lab is up already.
    """
    import uvloop

    try:
        with lab.state.locked():
            _sweep_crashed(lab)
            with (
                _logging_to(lab.state.log),
                asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            ):
                return runner.run(_session(lab, main))
    except Busy:
        raise LabError(_already_up(lab.settings)) from None


@contextmanager
def _logging_to(path: Path) -> Iterator[None]:
    """Everything from INFO up; what the terminal sees is the command's business."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


async def _session(lab: Lab, main: Callable[[Lab], Awaitable[int]]) -> int:
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    contain_exits(loop)
    received: list[signal.Signals] = []

    def on_signal(number: signal.Signals) -> None:
        if not received and task is not None:
            task.cancel()
        received.append(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await lab.up()
        with collector.seldom():
            return await main(lab)
    except asyncio.CancelledError:
        if not received:
            raise
        return 0 if lab.record.phase == "ready" else 128 + received[0]
    finally:
        if received and task is not None:
            task.uncancel()  # or every timeout during the tear-down would count as a cancellation
        received.append(signal.SIGTERM)  # from here on signals change nothing
        await lab.close()


async def wait_for_signal(_: Lab) -> int:
    """A `main` that does nothing."""
    await asyncio.Event().wait()
    return 0


def down(settings: LabSettings, *, report: Report = silent) -> list[str]:
    """Stop the lab, or clear up after one that crashed. Says what it removed; empty: nothing was there."""
    state = StateDir(settings.state_dir)
    record = state.read()
    stopped: list[str] = []
    if state.busy:
        report(f"stopping lab {settings.name!r}")
        pid = _stop_daemon(state, settings)
        stopped = [f"lab {settings.name!r} (pid {pid})"]
    try:
        with state.locked():
            removed = sweep(settings, state.read() or record)
            state.remove()
    except Busy:
        holder = "another command, or a lab with another JUNEAU_STATE_DIR"
        raise LabError(f"take lab {settings.name!r} down: held by {holder}") from None
    return stopped + removed


def sweep(settings: LabSettings, record: Record | None) -> list[str]:
    """Remove everything a lab of this name can have made; blocking. Missing things are fine."""
    names = set(netns.names(netns_prefix(settings.name)))
    ifnames: list[str] = []
    if record is not None:
        names |= {pod.netns for pod in record.pods}
        ifnames = [pod.host_ifname for pod in record.pods]
    ended = netns.end_processes(names, grace_s=settings.stop_grace_s)
    removed = [f"{ended} processes in pods"] if ended else []
    removed += links.remove(sorted(names), ifnames)
    return removed + cleanup(plane_settings(settings.node))


def plane_settings(node: NodeSettings) -> PlaneSettings:
    return PlaneSettings(
        tap_name=node.tap_name,
        mtu=node.mtu,
        pin_path=node.pin_path,
        offload=node.offload,
        busy_poll_us=node.busy_poll_us,
    )


def _record(settings: LabSettings, plan: LabPlan, state: StateDir) -> Record:
    return Record(
        lab=settings.name,
        pid=os.getpid(),
        pid_started=started_at(os.getpid()),
        since=datetime.now().astimezone().isoformat(timespec="seconds"),
        phase="starting",
        tap=settings.node.tap_name,
        pin_path=settings.node.pin_path,
        pods=tuple(_pod_record(pod, plan, state) for pod in plan.pods),
    )


def _pod_record(pod: PodPlan, plan: LabPlan, state: StateDir) -> PodRecord:
    folder = _pod_folder(state, pod)
    return PodRecord(
        namespace=pod.namespace,
        name=pod.name,
        vpc=plan.view.subnets[pod.subnet].vpc,
        subnet=pod.subnet,
        ip=str(pod.ip),
        mac=str(pod.mac),
        hostname=pod.hostname,
        netns=pod.netns,
        host_ifname=pod.host_ifname,
        resolv_conf=str(folder / "resolv.conf") if pod.resolv_conf else "",
        logs={container.name: str(folder / f"{container.name}.log") for container in pod.containers},
    )


def _pod_folder(state: StateDir, pod: PodPlan) -> Path:
    return state.path / "pods" / pod.namespace / pod.name


def _sweep_crashed(lab: Lab) -> None:
    left = lab.state.read()
    if left is None and not netns.names(netns_prefix(lab.settings.name)):
        return
    pid = left.pid if left else "unknown"
    log.warning("lab %s (pid %s) died without tearing down: clearing up", lab.settings.name, pid)
    sweep(lab.settings, left)
    lab.state.remove_contents()


def _stop_daemon(state: StateDir, settings: LabSettings) -> int:
    """Its pid. It may only just have started, and not have written its record yet."""
    told: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGKILL):
        told.clear()
        deadline = time.monotonic() + settings.down_timeout_s
        while state.busy and time.monotonic() < deadline:
            record = state.read()
            if record is not None and record.alive and record.pid not in told:
                os.kill(record.pid, number)
                told.add(record.pid)
            time.sleep(0.02)
        if not state.busy:
            return max(told, default=0)
    raise LabError(f"stop lab {settings.name!r}: it does not end (look at {state.log})")


def _already_up(settings: LabSettings) -> str:
    record = StateDir(settings.state_dir).read()
    who = (
        f"pid {record.pid}, since {record.since}" if record else "with another JUNEAU_STATE_DIR, or only just"
    )
    return (
        f"lab {settings.name!r} is up already ({who}): "
        f"take it down with {command('down', settings)}, or give this one a name of its own with --name"
    )
