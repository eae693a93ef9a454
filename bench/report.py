"""Rows of ratios out of samples: as a Markdown table, and with all samples as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.model import COMPILED, JUNEAU, Metric, Target
from bench.run import Found

Samples = Sequence[float | None]


@dataclass(frozen=True)
class Row:
    """One comparison. A ratio is the median of the rounds' own ratios, the spread their extremes."""

    workload: str
    unit: str
    better: str
    of: str
    against: str
    """A peer, another metric of the same peer, or empty: `target` then bounds the median itself."""
    median: float | None
    against_median: float | None
    ratio: float | None
    spread: tuple[float, float] | None
    """Of the ratio, or where there is none of the figure itself."""
    target: str
    note: str
    held: bool | None
    """None: no target, or nothing measured."""
    judged: bool
    """False: a figure beside the target, which is another's."""
    raw: Samples
    against_raw: Samples


def rows(found: Found, targets: Sequence[Target]) -> list[Row]:
    """Every metric of juneau against every other peer, and every target, in the order measured.

    The compiled juneau is shown against juneau, and beside juneau's targets."""
    return [row for metric in found.metrics.values() for row in _rows_of(found, metric, targets)]


def _rows_of(found: Found, metric: Metric, targets: Sequence[Target]) -> list[Row]:
    compared = [*_against_peers(found, metric, targets), *_other_targets(found, metric, targets)]
    in_another_row = any(target.against == metric.name for target in targets)
    if compared or in_another_row or JUNEAU not in found.samples[metric.name]:
        return compared
    return [_row(metric, JUNEAU, found.samples[metric.name][JUNEAU], "", [], None)]


def _against_peers(found: Found, metric: Metric, targets: Sequence[Target]) -> Iterator[Row]:
    peers = found.samples[metric.name]
    for of in (JUNEAU, COMPILED):
        for peer, theirs in peers.items():
            if of not in peers or peer in (of, COMPILED) or _judged(targets, metric.name, peer, of):
                continue
            target = _judged(targets, metric.name, JUNEAU, peer)
            if of == JUNEAU or peer == JUNEAU or target:
                yield _row(metric, of, peers[of], peer, theirs, target)


def _other_targets(found: Found, metric: Metric, targets: Sequence[Target]) -> Iterator[Row]:
    """Bounds, comparisons with another metric, and targets of others than juneau."""
    peers = found.samples[metric.name]
    for target in targets:
        if target.workload != metric.name or target.of not in peers:
            continue
        ours = peers[target.of]
        if target.against in found.samples and target.of in found.samples[target.against]:
            theirs = found.samples[target.against][target.of]
            yield _row(metric, target.of, ours, target.against, theirs, target)
        elif not target.against:
            yield _row(metric, target.of, ours, "", [], target)
        elif target.of != JUNEAU and target.against in peers:
            yield _row(metric, target.of, ours, target.against, peers[target.against], target)


def _judged(targets: Sequence[Target], workload: str, of: str, against: str) -> Target | None:
    same = (t for t in targets if (t.workload, t.of, t.against) == (workload, of, against))
    return next(same, None)


def _row(metric: Metric, of: str, ours: Samples, against: str, theirs: Samples, target: Target | None) -> Row:
    ratios = ratios_of(ours, theirs)
    median, ratio = median_of(ours), median_of(ratios)
    judged = ratio if against else median
    return Row(
        workload=metric.name,
        unit=metric.unit,
        better=metric.better,
        of=of,
        against=against,
        median=median,
        against_median=median_of(theirs),
        ratio=ratio,
        spread=_spread(ratios if against else ours),
        target=target.text() if target else "",
        note=target.note if target else "",
        held=None if target is None or judged is None else target.held(judged),
        judged=target is not None and target.of == of,
        raw=ours,
        against_raw=theirs,
    )


def ratios_of(ours: Samples, theirs: Samples) -> list[float]:
    """Of the rounds in which both were measured."""
    pairs = zip(ours, theirs, strict=False)
    return [our / their for our, their in pairs if our is not None and their]


def median_of(samples: Samples) -> float | None:
    known = _known(samples)
    return statistics.median(known) if known else None


def _spread(samples: Samples) -> tuple[float, float] | None:
    known = _known(samples)
    return (min(known), max(known)) if known else None


def _known(samples: Samples) -> list[float]:
    return [sample for sample in samples if sample is not None]


# --- what people read ---------------------------------------------------------------------------------------


def table(found: Sequence[Row]) -> str:
    head = ("workload", "juneau", "against", "its figure", "ratio", "min..max", "target", "held")
    lines = [head, ("---",) * len(head), *(_cells(row) for row in found)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    figure = f"{number(row.median)} {row.unit}"
    own = row.of == JUNEAU
    held = {True: "yes", False: "**no**", None: "not measured" if row.target else ""}[row.held]
    return (
        row.workload,
        figure if own else f"{figure} ({row.of})",
        row.against or ("(a bound)" if row.target else ""),
        f"{number(row.against_median)} {row.unit}" if row.against else "",
        number(row.ratio) if row.against else "",
        "..".join(number(end) for end in row.spread) if row.spread else "",
        row.target,
        held if row.judged or not row.target else f"({held.strip('*')})",
    )


def number(value: float | None) -> str:
    """Three digits, or all of a large one."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def unmeasured(found: Found, targets: Sequence[Target]) -> list[str]:
    """Targets that no row judges, as a line each."""
    judged = {(row.workload, row.of, row.against) for row in rows(found, targets) if row.held is not None}
    left = (t for t in targets if (t.workload, t.of, t.against) not in judged)
    return [f"{t.workload}{f' against {t.against}' if t.against else ''}: {t.text()}" for t in left]


def document(found: Found, found_rows: Sequence[Row], machine: Mapping[str, Any]) -> dict[str, Any]:
    """What `latest.json` holds."""
    return {
        "machine": dict(machine),
        "seconds": round(found.seconds, 1),
        "rows": [asdict(row) for row in found_rows],
        "samples": found.samples,
        "units": {metric.name: metric.unit for metric in found.metrics.values()},
        "missing_peers": found.missing,
        "failed": found.failed,
    }


def write(folder: Path, contents: Mapping[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "latest.json"
    path.write_text(json.dumps(contents, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path
