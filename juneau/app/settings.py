"""Settings: each field with its unit, default and reason."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Final

from juneau.app.state import DEFAULT_BASE

DEFAULT_LAB: Final = "lab"
_LAB_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_IFNAME_MAX: Final = 15
_BUSY_POLL_US: Final = 50


@dataclass(frozen=True, slots=True)
class NodeSettings:
    tap_name: str = "juneau-svc0"
    pin_path: str = "/sys/fs/bpf/juneau"
    mtu: int = 1450
    """Bytes of an IPv4 packet: 1500 less VXLAN's 50."""
    offload: bool = True
    """False: no superframes and no checksum offload, for comparison and old kernels."""
    busy_poll_us: int = _BUSY_POLL_US
    """How long the loop stays awake after packets in close sequence; 0: never, which saves CPU time."""


@dataclass(frozen=True, slots=True)
class LabSettings:
    name: str = DEFAULT_LAB
    """Two labs with different names can be up at once."""
    state_base: Path = DEFAULT_BASE
    """Holds a folder per lab; /run is emptied by a reboot, as the kernel objects are."""
    node: NodeSettings = field(default_factory=NodeSettings)
    stop_grace_s: float = 2.0
    """Seconds a Pod's command has to end by itself after SIGTERM. Short: a lab is thrown away."""
    down_timeout_s: float = 20.0
    """Seconds `lab down` waits for a running lab to tear itself down before it does so itself."""

    @property
    def state_dir(self) -> Path:
        return self.state_base / self.name


def lab_settings(name: str, environ: Mapping[str, str] = os.environ, *, offload: bool = True) -> LabSettings:
    """Everything a lab owns carries its name. Raises ValueError for what cannot be one, or no number."""
    if not _LAB_NAME.fullmatch(name):
        raise ValueError(f"lab name {name!r}: at most 32 lower-case letters, digits and '-'")
    base = Path(environ.get("JUNEAU_STATE_DIR") or DEFAULT_BASE)
    node = NodeSettings(offload=offload, busy_poll_us=_busy_poll_us(environ))
    if name != DEFAULT_LAB:
        node = replace(node, tap_name=_tap_name(name), pin_path=f"/sys/fs/bpf/juneau-{name}")
    return LabSettings(name, base, node)


def _busy_poll_us(environ: Mapping[str, str]) -> int:
    text = environ.get("JUNEAU_BUSY_POLL_US") or str(_BUSY_POLL_US)
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise ValueError(f"JUNEAU_BUSY_POLL_US {text!r}: microseconds, 0..99999")
    return int(text)


def _tap_name(lab: str) -> str:
    name = f"jsvc-{lab}"
    return name if len(name) <= _IFNAME_MAX else "jsvc-" + blake2b(lab.encode(), digest_size=5).hexdigest()
