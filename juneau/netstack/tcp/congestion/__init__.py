"""Congestion control algorithms by name."""

from __future__ import annotations

from typing import Final

from juneau.netstack.tcp.congestion.base import CongestionControl
from juneau.netstack.tcp.congestion.cubic import Cubic
from juneau.netstack.tcp.congestion.reno import Reno

ALGORITHMS: Final[dict[str, type[CongestionControl]]] = {cc.name: cc for cc in (Reno, Cubic)}

__all__ = ["ALGORITHMS", "CongestionControl", "Cubic", "Reno"]
