"""`juneau lab`: VPCs, Pods and services on this machine, from manifests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from juneau.cli.output import (
    FAILED,
    Format,
    OutputOption,
    Progress,
    emit_json,
    emit_table,
    fail,
    handled,
    need_root,
    warnings_to_stderr,
)

if TYPE_CHECKING:
    from juneau.app.lab import Lab
    from juneau.app.settings import LabSettings
    from juneau.control.plan import LabPlan
    from juneau.services.framework import VirtualService

app = typer.Typer(help="VPCs, Pods and services on this machine, from manifests.", no_args_is_help=True)

Files = Annotated[
    list[Path], typer.Option("--file", "-f", help="Manifest, or folder of manifests; may be repeated.")
]
Services = Annotated[
    list[str] | None,
    typer.Option(
        "--service", metavar="FILE:NAME", help="A VirtualService to run besides the installed ones."
    ),
]
Name = Annotated[str, typer.Option("--name", envvar="JUNEAU_LAB", help="Which lab; several can be up.")]
NoOffload = Annotated[bool, typer.Option("--no-offload", help="No superframes, no checksum offload.")]
_COMMAND_FOLLOWS = {"allow_interspersed_args": False}


@app.command()
@handled
def up(
    files: Files,
    more: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE|DIR]...", help="Further manifests.")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once it is up.")] = False,
    services: Services = None,
    no_offload: NoOffload = False,
    name: Name = "lab",
    output: OutputOption = Format.table,
    ready_fd: Annotated[int, typer.Option(hidden=True)] = -1,
) -> None:
    """Bring a lab up; Ctrl-C takes it down."""
    need_root("lab up")
    settings = named(name, no_offload)
    paths = [*files, *(more or [])]
    if detach:
        status = _detached(_up_arguments(paths, services or [], no_offload, name))
        _show_up(status, output, name)
        return
    progress = _progress(ready_fd)
    lab = _lab(settings, _plan(paths, settings), _services(services), progress)

    async def main(lab: Lab) -> int:
        from juneau.app.lab import wait_for_signal

        progress("")
        if isinstance(progress, _PipeProgress):
            progress.ready(lab)
        else:
            _show_up(lab.status(), output, name)
        return await wait_for_signal(lab)

    raise typer.Exit(_run(lab, main))


@app.command(context_settings=_COMMAND_FOLLOWS)
@handled
def run(
    files: Files,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Runs on the host.")],
    services: Services = None,
    no_offload: NoOffload = False,
    name: Name = "lab",
) -> None:
    """Bring a lab up, run CMD on the host, tear down.

    Exits with CMD's status.
    """
    need_root("lab run")
    argv = _after_dashes(command)
    settings = named(name, no_offload)
    progress = _progress()
    lab = _lab(settings, _plan(files, settings), _services(services), progress)

    async def main(lab: Lab) -> int:
        from juneau.app.foreground import run_on_host

        progress("")
        return await run_on_host(argv, lab)

    raise typer.Exit(_run(lab, main))


@app.command(name="exec", context_settings=_COMMAND_FOLLOWS)
@handled
def exec_(
    pod: Annotated[str, typer.Argument(help="NAME or NAMESPACE/NAME.")],
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...")],
    name: Name = "lab",
) -> None:
    """Run CMD in a Pod, on this terminal.

    Exits with CMD's status; 126: it cannot be run, 127: it was not found.
    """
    need_root("lab exec")
    argv = _after_dashes(command)
    from juneau.app import netns, podinit
    from juneau.app.state import find, find_pod

    record = find_pod(find(named(name)), pod)
    os.environ["HOSTNAME"] = record.hostname
    entry = (str(netns.path(record.netns)), record.resolv_conf, record.hostname, "")
    raise typer.Exit(podinit.main([*entry, *argv]))


@app.command()
@handled
def status(name: Name = "lab", output: OutputOption = Format.table) -> None:
    """What is up: Pods, their commands, and services."""
    from juneau.app.client import get
    from juneau.app.state import StateDir, find

    need_root("lab status")
    settings = named(name)
    find(settings)
    _show(get(StateDir(settings.state_dir).control, "status"), output)


@app.command()
@handled
def down(name: Name = "lab", output: OutputOption = Format.table) -> None:
    """Take a lab down, or clear up after one that crashed."""
    need_root("lab down")
    from juneau.app import lab

    progress = Progress()
    removed = lab.down(named(name), report=progress)
    progress("")
    if output is Format.json:
        emit_json({"lab": name, "removed": removed})
    else:
        print(
            "\n".join(f"removed {what}" for what in removed)
            or f"lab {name!r} is not up, and nothing of it is left"
        )


def named(name: str, no_offload: bool = False) -> LabSettings:
    from juneau.app.settings import lab_settings

    try:
        return lab_settings(name, offload=not no_offload)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--name") from None


def _plan(paths: Sequence[Path], settings: LabSettings) -> LabPlan:
    """Raises ManifestError; nothing has been touched by then."""
    from juneau.control import admission, manifests, plan

    found = manifests.load(paths)
    admission.admit(found)
    return plan.make_plan(found, lab=settings.name, mtu=settings.node.mtu)


def _services(references: Sequence[str] | None) -> list[VirtualService]:
    from juneau.services.load import load_services

    return load_services(references or ())


def _after_dashes(command: list[str]) -> list[str]:
    """A `--` behind the first argument reaches us as part of the command."""
    rest = command[1:] if command[:1] == ["--"] else command
    if not rest:
        raise typer.BadParameter("missing", param_hint="CMD")
    return rest


def _progress(ready_fd: int = -1) -> Progress:
    if ready_fd >= 0:
        return _PipeProgress(ready_fd)
    warnings_to_stderr()
    return Progress()


def _lab(settings: LabSettings, plan: LabPlan, services: list[VirtualService], progress: Progress) -> Lab:
    from juneau.app.lab import Lab

    return Lab(settings, plan, services, report=progress)


def _run(lab: Lab, main: Any) -> int:
    from juneau.app import lab as lab_module

    try:
        return lab_module.run(lab, main)
    finally:
        lab.report("")


# --- detached: the same command again in a session of its own, which tells how far it is over a pipe --------


class _PipeProgress(Progress):
    def __init__(self, fd: int) -> None:
        super().__init__()
        self._pipe = os.fdopen(fd, "w")

    def __call__(self, text: str) -> None:
        if not self._pipe.closed:
            self._tell({"step": text})

    def ready(self, lab: Lab) -> None:
        """From here on nobody listens: output goes to the lab's log."""
        self._tell({"ready": lab.status()})
        self._pipe.close()
        with lab.state.log.open("ab") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            print(json.dumps(message), file=self._pipe, flush=True)
        except BrokenPipeError:  # who started us has gone away; the lab stays
            pass


def _up_arguments(paths: Sequence[Path], services: Sequence[str], no_offload: bool, name: str) -> list[str]:
    arguments = ["lab", "up", "--name", name]
    arguments += [part for path in paths for part in ("-f", str(path))]
    arguments += [part for service in services for part in ("--service", service)]
    return arguments + (["--no-offload"] if no_offload else [])


def _detached(arguments: Sequence[str]) -> dict[str, Any]:
    """Start the daemon; its status once it is up. Exits with its status if it ends first."""
    reading, writing = os.pipe()
    program = [sys.executable, "-P", "-m", "juneau.cli.main", *arguments, "--ready-fd", str(writing)]
    child = subprocess.Popen(
        program,
        pass_fds=(writing,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(writing)
    progress = Progress()
    try:
        with os.fdopen(reading) as pipe:
            for line in pipe:
                message: dict[str, Any] = json.loads(line)
                if "ready" in message:
                    ready: dict[str, Any] = message["ready"]
                    return ready
                progress(message["step"])
        code = child.wait()
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise
    finally:
        progress("")
    if code < 0:
        fail(f"lab up: ended by signal {-code}", FAILED)
    raise typer.Exit(code or FAILED)


# --- tables -------------------------------------------------------------------------------------------------


def _show_up(status: dict[str, Any], output: Format, name: str) -> None:
    _show(status, output)
    if output is Format.table:
        option = "" if name == "lab" else f" --name {name}"
        pod = status["pods"][0]["name"] if status["pods"] else "POD"
        print(
            f"\nenter a Pod:  juneau lab exec{option} {pod} -- sh\ntake it down: juneau lab down{option}",
            flush=True,
        )


def _show(status: dict[str, Any], output: Format) -> None:
    if output is Format.json:
        emit_json(status)
        return
    print(f"lab {status['lab']}: {status['phase']}, pid {status['pid']}, since {status['since']}")
    print(f"log: {status['log']}\n")
    pods = [
        (f"{p['namespace']}/{p['name']}", p["vpc"], p["subnet"], p["ip"], _containers(p["containers"]))
        for p in status["pods"]
    ]
    emit_table(("POD", "VPC", "SUBNET", "ADDRESS", "COMMAND"), pods)
    print()
    rows = [
        (s["service"], s["vpc"], s["subnet"], s["address"], s["error"] or "bound") for s in status["services"]
    ]
    emit_table(("SERVICE", "VPC", "SUBNET", "ADDRESS", "STATE"), rows)
    for endpoint in status["vpcEndpoints"]:
        print(f"\nVpcEndpoint {endpoint['name']} of Vpc {endpoint['vpc']}: {endpoint['message']}")


def _containers(containers: dict[str, dict[str, str]]) -> str:
    return ", ".join(f"{name}: {container['state']}" for name, container in containers.items()) or "-"
