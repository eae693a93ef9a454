"""Runs that never happened, for the report's tests."""

from __future__ import annotations

from bench.model import Metric
from bench.run import Found


def found(**metrics: dict[str, list[float | None]]) -> Found:
    """Samples by metric, then by peer; `_` in a metric's name stands for `-`."""
    result = Found()
    for name, peers in metrics.items():
        metric = Metric(name.replace("_", "-"), "u", "higher")
        for peer, samples in peers.items():
            for sample in samples:
                result.add(metric, peer, sample)
    return result
