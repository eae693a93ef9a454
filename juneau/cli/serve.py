"""`juneau serve`: one handler in a throw-away VPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from juneau.cli.lab import NoOffload
from juneau.cli.output import Progress, handled, need_root, warnings_to_stderr

if TYPE_CHECKING:
    from juneau.app.lab import Lab

Ports = Annotated[list[int] | None, typer.Option(min=1, max=65535, help="May be repeated.")]


def register(app: typer.Typer) -> None:
    app.command()(serve)


@handled
def serve(
    handler: Annotated[
        str, typer.Argument(metavar="MODULE_OR_FILE:CALLABLE", help="A handler, or a VirtualService.")
    ],
    tcp: Ports = None,
    udp: Ports = None,
    exec_: Annotated[
        str | None,
        typer.Option("--exec", metavar="CMD", help="Shell command to run in the Pod; its status is ours."),
    ] = None,
    vip_offset: Annotated[
        int, typer.Option(min=2, max=254, help="The VIP's host number in 10.80.0.0/24.")
    ] = 3,
    name: Annotated[str, typer.Option("--name", help="Name of the lab it runs in.")] = "serve",
    no_offload: NoOffload = False,
) -> None:
    """Serve a handler to a Pod in a throw-away VPC.

    The VPC is 10.80.0.0/24, its Pod 10.80.0.10, the handler answers at 10.80.0.3. Without --exec it
    serves until Ctrl-C.
    """
    need_root("serve")
    from juneau.app import lab as lab_module
    from juneau.app.serve import CIDR, POD, POD_ADDRESS, make_plan
    from juneau.app.settings import lab_settings
    from juneau.services.load import load_service, load_services

    vip = CIDR.network_address + vip_offset
    if vip == POD_ADDRESS:
        raise typer.BadParameter(f"{vip} is the Pod's own address", param_hint="--vip-offset")
    ports = (tuple(tcp or ()), tuple(udp or ()))
    service = load_service(handler, tcp_ports=ports[0], udp_ports=ports[1], offset=vip_offset)
    settings = lab_settings(name, offload=not no_offload)
    progress = Progress()
    warnings_to_stderr()
    plan = make_plan(lab=name, mtu=settings.node.mtu)
    lab = lab_module.Lab(settings, plan, [*load_services(), service], report=progress)

    async def main(lab: Lab) -> int:
        from juneau.app.foreground import run_in_pod

        progress("")
        where = ", ".join(lab.addresses_of(service.name))
        if exec_ is not None:
            return await run_in_pod(["sh", "-c", exec_], lab.record.pods[0])
        print(
            f"{service.name} answers at {where}; from its Pod: juneau lab exec --name {name} {POD} -- CMD",
            flush=True,
        )
        return await lab_module.wait_for_signal(lab)

    raise typer.Exit(lab_module.run(lab, main))
