"""Which machine it was: figures without that mean nothing."""

from __future__ import annotations

import os
import platform
import re
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.model import ROOT, BenchError, run
from juneau.app.doctor import build


def describe() -> dict[str, Any]:
    lscpu = _said("lscpu")
    return {
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "revision": _revision(),
        "cpu": _field(lscpu, "Model name") or platform.machine(),
        "cores": os.cpu_count(),
        "hypervisor": _field(lscpu, "Hypervisor vendor") or "none",
        "kernel": platform.release(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "juneau": build(),
        "uvloop": _version("uvloop"),
        "client's congestion control": _congestion_control(),
    }


def line(machine: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in machine.items())


def _revision() -> str:
    revision = _said("git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD").strip()
    changed = _said(
        "git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no", "--", "juneau", "bpf"
    )
    return (revision or "unknown") + (" with changes" if changed else "")


def _congestion_control() -> str:
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "unknown"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _field(text: str, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def _said(*command: str) -> str:
    try:
        return run(*command)
    except BenchError:
        return ""
