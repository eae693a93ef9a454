"""A lab in this process: bindings come and go while its Pods talk."""

from __future__ import annotations

import asyncio
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from labcli import TWO_VPCS, pod

from juneau.app import netns, podinit
from juneau.app.lab import Lab
from juneau.app.settings import lab_settings
from juneau.control import admission, manifests
from juneau.control.plan import make_plan
from juneau.netstack.aio import AsyncStack
from juneau.services.framework import VirtualService
from juneau.services.load import load_services

pytestmark = pytest.mark.root

HANDLERS = Path(__file__).with_name("handlers.py")
SAYS_ITS_NAME = """
import socket
server = socket.create_server(("", 8000))
while True:
    client, _ = server.accept()
    client.recv(1)
    client.sendall(socket.gethostname().encode())
    client.close()
"""
COMMAND = [sys.executable, "-I", "-c", SAYS_ITS_NAME]
PODS = pod("blue", "blue", "10.80.0.10", COMMAND) + pod("green", "green", "10.80.0.10", COMMAND)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = manifests.parse(TWO_VPCS + PODS)
    admission.admit(found)
    settings = lab_settings(f"t{secrets.token_hex(4)}", {"JUNEAU_STATE_DIR": str(tmp_path)})
    services: list[VirtualService] = load_services(
        [f"{HANDLERS}:{name}" for name in ("Handlers", "Blue", "Green")]
    )
    lab = Lab(settings, make_plan(found, lab=settings.name), services)
    with lab.state.locked():
        try:
            await lab.up()
            yield lab
        finally:
            await lab.close()


async def ask(lab: Lab, where: str, port: int) -> tuple[int, str]:
    entry = lab.record.pod(where)
    assert entry is not None
    url = f"http://10.80.0.3:{port}/"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", podinit.__file__, str(netns.path(entry.netns)), "", where, "",
        "curl", "-sS", "--max-time", "10", url, stdout=pipe, stderr=pipe,
    )  # fmt: skip
    out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_a_binding_removed_in_one_vpc_keeps_the_other(lab: Lab):
    assert lab.node is not None
    assert await ask(lab, "blue", 9000) == (0, "I am blue\n")
    assert await ask(lab, "green", 9000) == (0, "I am green\n")
    (blue,) = (b for b in lab.node.registry.bindings() if b.name == "blue")
    await blue.unregister()
    refused = 7
    assert (await ask(lab, "blue", 9000))[0] == refused
    assert await ask(lab, "green", 9000) == (0, "I am green\n")
    assert (await ask(lab, "blue", 8001))[0] == 0, "the VIP stays: another service has it"


async def test_the_node_dials_pods_of_either_vpc(lab: Lab):
    """By the stack, from an address of the Pod's own Subnet: how a probe would."""
    assert lab.node is not None
    for vpc_id, stack in lab.node.stacks():
        reader, writer = await dial(stack, "10.80.0.10", 8000)
        writer.write(b"?")
        reply = await asyncio.wait_for(reader.read(), 10)
        assert reply.decode() == lab.plan.view.vpc_by_id[vpc_id].name
        assert writer.get_extra_info("sockname")[0] == "10.80.0.1"
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.wait_for(stack.open_connection("10.80.0.10", 81), 10)


async def dial(stack: AsyncStack, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The Pod's server may still be starting."""
    for _ in range(100):
        try:
            return await asyncio.wait_for(stack.open_connection(host, port), 10)
        except ConnectionRefusedError:
            await asyncio.sleep(0.1)
    raise AssertionError(f"nobody listens on {host}:{port}")
