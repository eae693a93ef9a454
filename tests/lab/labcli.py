"""`juneau lab` as a test uses it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from juneau.app import netns
from juneau.app.settings import lab_settings
from juneau.app.state import StateDir
from juneau.control.plan import netns_prefix

TIMEOUT_S = 60
JUNEAU = [sys.executable, "-P", "-m", "juneau.cli.main"]

TWO_VPCS = """
apiVersion: juneau.loutres.me/v1alpha1
kind: Vpc
metadata: {name: blue}
spec: {service: {consume: true}}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Subnet
metadata: {name: blue}
spec: {vpc: blue, cidr: 10.80.0.0/24}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Vpc
metadata: {name: green}
---
apiVersion: juneau.loutres.me/v1alpha1
kind: Subnet
metadata: {name: green}
spec: {vpc: green, cidr: 10.80.0.0/24}
"""


def pod(name: str, subnet: str, address: str = "", command: Sequence[str] = ()) -> str:
    notes = {"juneau.loutres.me/subnet": subnet} | ({"juneau.loutres.me/address": address} if address else {})
    spec = {"containers": [{"name": "main", "image": "none", "command": list(command)}]}
    return "---\n" + json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}
    ) + "\n"  # fmt: skip


class LabCli:
    """`juneau` on the command line, with a lab name and state folder nobody else uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.env = os.environ | {
            "JUNEAU_STATE_DIR": str(folder / "state"),
            "JUNEAU_LAB": f"t{secrets.token_hex(4)}",
        }
        self.settings = lab_settings(self.env["JUNEAU_LAB"], self.env)
        self.state = StateDir(self.settings.state_dir)

    def write(self, text: str, name: str = "lab.yaml") -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def run(self, *args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        options: dict[str, Any] = {
            "timeout": TIMEOUT_S,
            "capture_output": True,
            "text": True,
            "env": self.env,
        }
        return subprocess.run([*JUNEAU, *args], **(options | kwargs))

    def start(self, *args: str, **kwargs: Any) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
            "env": self.env,
        }
        return subprocess.Popen([*JUNEAU, *args], **(pipes | kwargs))

    def ok(self, *args: str, **kwargs: Any) -> str:
        done = self.run(*args, **kwargs)
        assert done.returncode == 0, (
            f"juneau {' '.join(args)}: {done.returncode}\n{done.stdout}{done.stderr}{self.log()}"
        )
        return str(done.stdout)

    def json(self, *args: str) -> Any:
        return json.loads(self.ok(*args, "--output", "json"))

    def up(self, text: str, *args: str) -> Any:
        """Detached; the status of the lab."""
        return self.json("lab", "up", "-f", self.write(text), "--detach", *args)

    def in_pod(self, name: str, *command: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return self.run("lab", "exec", name, "--", *command, **kwargs)

    def log(self) -> str:
        return self.state.log.read_text() if self.state.log.exists() else ""

    def leftovers(self) -> list[str]:
        """Everything of this lab that the machine still has."""
        found = [str(netns.path(name)) for name in netns.names(netns_prefix(self.settings.name))]
        for link in Path("/sys/class/net").iterdir():
            alias = link / "ifalias"
            mine = alias.exists() and alias.read_text().startswith(f"juneau {self.settings.name} ")
            if mine or link.name == self.settings.node.tap_name:
                found.append(f"interface {link.name}")
        paths = (Path(self.settings.node.pin_path), self.state.path)
        return found + [str(path) for path in paths if path.exists()]


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)
