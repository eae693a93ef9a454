"""Two pictures: ratios against their targets, and every sample by workload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.model import JUNEAU
from bench.report import Row
from bench.run import Found

_HELD, _MISSED, _TARGET = "#2a7f62", "#b3443c", "#222222"
_COLUMNS: Final = 4


def draw(folder: Path, found: Found, rows: Sequence[Row]) -> list[Path]:
    """Raises ImportError where matplotlib is not installed."""
    import matplotlib as mpl

    mpl.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    return [*_ratios(folder / "ratios.png", rows), *_samples(folder / "samples.png", found)]


def _ratios(path: Path, rows: Sequence[Row]) -> list[Path]:
    """A bar a target, whiskers from the lowest to the highest round, a mark where the target is."""
    from matplotlib import pyplot

    judged = [row for row in rows if row.ratio and row.judged and row.spread][::-1]
    if not judged:
        return []
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.42 * len(judged)), layout="constrained")
    for at, row in enumerate(judged):
        ratio, spread = row.ratio or 0.0, row.spread or (0.0, 0.0)
        whiskers = [[max(ratio - spread[0], 0)], [max(spread[1] - ratio, 0)]]
        color = _HELD if row.held else _MISSED
        axes.barh(at, ratio, xerr=whiskers, color=color, height=0.6, error_kw={"lw": 1, "capsize": 3})
        axes.plot(float(row.target.split()[-1]), at, marker="|", markersize=18, mew=2, color=_TARGET)
    labels = [f"{row.workload}, {row.target}\nagainst {row.against}" for row in judged]
    axes.set_yticks(range(len(judged)), labels, fontsize=7)
    axes.set_xscale("log")
    axes.set_title("ratio (log scale); green: held; the mark: the target; whiskers: rounds", fontsize=9)
    return _save(figure, path)


def _samples(path: Path, found: Found) -> list[Path]:
    from matplotlib import pyplot

    metrics = [metric for metric in found.metrics.values() if metric.name in found.samples]
    if not metrics:
        return []
    height = -(-len(metrics) // _COLUMNS)
    figure, grid = pyplot.subplots(
        height, _COLUMNS, figsize=(3.4 * _COLUMNS, 2.4 * height), squeeze=False, layout="constrained"
    )
    for axes, metric in zip(grid.flat, metrics, strict=False):
        _points(axes, found.samples[metric.name])
        axes.set_title(f"{metric.name}, {metric.unit} ({metric.better} is better)", fontsize=8)
    for axes in grid.flat[len(metrics) :]:
        axes.set_axis_off()
    return _save(figure, path)


def _points(axes: Any, by_peer: dict[str, list[float | None]]) -> None:
    for at, (peer, samples) in enumerate(by_peer.items()):
        known = [sample for sample in samples if sample is not None]
        axes.plot(
            [at] * len(known), known, "o", ms=4, alpha=0.7, color=_HELD if peer == JUNEAU else "#555555"
        )
    axes.set_xticks(range(len(by_peer)), [peer.replace(", ", "\n") for peer in by_peer], fontsize=6)
    axes.set_xlim(-0.6, len(by_peer) - 0.4)
    axes.set_ylim(0, 1.1 * max([sample for by in by_peer.values() for sample in by if sample], default=1))
    axes.tick_params(axis="y", labelsize=7)


def _save(figure: Any, path: Path) -> list[Path]:
    from matplotlib import pyplot

    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return [path]
