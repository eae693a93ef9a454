"""What one binding may use. Enforced outside the handler, so that no handler can forget it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TcpLimits:
    connections: int = 1024
    """Open at once per binding; the next one is reset. A stream costs about 6 KiB idle."""
    connections_per_client: int = 256
    """Of those, from one Pod: one Pod cannot take them all."""
    idle_s: float = 600.0
    """No byte either way for this long: reset. Longer than the 350 s of cloud endpoints, and what
    quiet protocols such as syslog expect. 0: never."""
    backlog: int = 128
    """Handshakes done and not yet accepted."""


@dataclass(frozen=True, slots=True)
class UdpLimits:
    workers: int = 128
    """Asynchronous handlers running at once per tenant."""
    queue: int = 1024
    """Requests waiting for a worker; the next one is dropped."""
    timeout_s: float = 30.0
    """A handler that takes longer is cancelled: no UDP client waits that long."""


STOP_GRACE_S = 5.0
"""How long `unregister` waits for cancelled handlers to end before it goes on without them."""
