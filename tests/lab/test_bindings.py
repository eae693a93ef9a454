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
from juneau.services.framework import VirtualService
from juneau.services.load import load_services

pytestmark = pytest.mark.root

HANDLERS = Path(__file__).with_name("handlers.py")
PODS = pod("blue", "blue", "10.80.0.10") + pod("green", "green", "10.80.0.10")


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
