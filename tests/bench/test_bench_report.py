"""Ratios, targets and the table: what the bench says of samples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_samples import found

from bench import plots, report
from bench.model import COMPILED, JUNEAU, UVLOOP, Target
from bench.targets import TARGETS
from bench.workloads import WORKLOADS


def test_the_ratio_is_the_median_of_the_rounds_own_ratios():
    """Not the ratio of the medians, 2.0 here: a round in which all were slow says as much as a fast one."""
    samples = found(up={JUNEAU: [10, 2, 40], UVLOOP: [5, 2, 10]})
    [row] = report.rows(samples, [])
    assert (row.median, row.against_median) == (10, 5)
    assert row.ratio == 2.0
    assert row.spread == (1.0, 4.0)
    samples = found(up={JUNEAU: [10, 30, 10], UVLOOP: [10, 10, 5]})
    assert report.rows(samples, [])[0].ratio == 2.0  # of the medians: 1.0


def test_a_round_that_failed_for_one_counts_for_neither():
    [row] = report.rows(found(up={JUNEAU: [10, None, 30], UVLOOP: [5, 1, None]}), [])
    assert row.ratio == 2.0
    assert row.median == 20
    assert row.raw == [10, None, 30]


@pytest.mark.parametrize(
    ("at_least", "at_most", "value", "held"),
    [
        (2.0, None, 2.0, True),
        (2.0, None, 1.99, False),
        (None, 2.0, 2.0, True),
        (None, 2.0, 2.01, False),
        (1.0, 2.0, 3.0, False),
    ],
)
def test_a_bound_holds_at_its_very_value(
    at_least: float | None, at_most: float | None, value: float, held: bool
):
    assert Target(workload="up", at_least=at_least, at_most=at_most).held(value) is held


def test_a_target_judges_its_own_row_only():
    samples = found(up={JUNEAU: [3, 3], "a": [1, 1], "b": [2, 2]})
    rows = {r.against: r for r in report.rows(samples, [Target(workload="up", against="b", at_least=2)])}
    assert (rows["a"].held, rows["a"].target) == (None, "")
    assert (rows["b"].held, rows["b"].target) == (False, "≥ 2")


def test_a_target_against_another_metric_and_a_plain_bound():
    samples = found(beside={JUNEAU: [8, 9, 7]}, alone={JUNEAU: [1, 1, 1]})
    targets = [
        Target(workload="beside", against="alone", at_most=10),
        Target(workload="beside", at_most=5),
    ]
    ratio, bound = report.rows(samples, targets)
    assert (ratio.against, ratio.ratio, ratio.held) == ("alone", 8, True)
    assert (bound.against, bound.ratio, bound.median, bound.held) == ("", None, 8, False)
    assert bound.spread == (7, 9)


def test_a_figure_without_anything_to_compare_is_a_row_all_the_same():
    [row] = report.rows(found(register={JUNEAU: [3]}), [])
    assert (row.workload, row.median, row.against, row.held) == ("register", 3, "", None)


def test_a_target_of_another_peer_than_juneau_is_one_row():
    samples = found(packet={JUNEAU: [10, 10], "many": [12, 12]})
    [row] = report.rows(samples, [Target(workload="packet", of="many", against=JUNEAU, at_most=1.1)])
    assert (row.of, row.against, row.ratio, row.held) == ("many", JUNEAU, 1.2, False)


def test_the_compiled_stack_is_shown_beside_the_target_but_not_judged():
    samples = found(up={JUNEAU: [3, 3], COMPILED: [6, 6], UVLOOP: [2, 2], "a": [1, 1]})
    targets = [Target(workload="up", against=UVLOOP, at_least=2)]
    rows = {(row.of, row.against): row for row in report.rows(samples, targets)}
    assert rows.keys() == {(JUNEAU, UVLOOP), (JUNEAU, "a"), (COMPILED, JUNEAU), (COMPILED, UVLOOP)}
    ours, compiled = rows[JUNEAU, UVLOOP], rows[COMPILED, UVLOOP]
    assert (ours.held, ours.judged) == (False, True)
    assert (compiled.ratio, compiled.target, compiled.held, compiled.judged) == (3, "≥ 2", True, False)
    assert rows[COMPILED, JUNEAU].ratio == 2
    assert report.table([compiled]).endswith(
        "| up | 6 u (juneau, compiled) | kernel, uvloop | 2 u | 3 | 3..3 | ≥ 2 | (yes) |"
    )
    del samples.samples["up"][JUNEAU]
    assert report.unmeasured(samples, targets), "the compiled stack's figure stands for nobody else's"


def test_what_was_not_measured_is_never_held():
    samples = found(up={JUNEAU: [None], UVLOOP: [5]})
    targets = [Target(workload="up", against=UVLOOP, at_least=0), Target(workload="dns", against="unbound")]
    [row] = report.rows(samples, targets)
    assert row.held is None
    assert "not measured" in report.table([row])
    assert [line.partition(":")[0] for line in report.unmeasured(samples, targets)] == [
        f"up against {UVLOOP}",
        "dns against unbound",
    ]


def test_the_table_is_markdown_and_names_a_miss():
    samples = found(up={JUNEAU: [12_345.6], UVLOOP: [10_000]})
    table = report.table(report.rows(samples, [Target(workload="up", against=UVLOOP, at_least=3.5)]))
    head, rule, line = table.splitlines()
    assert head.count("|") == rule.count("|") == line.count("|")
    assert line == "| up | 12,346 u | kernel, uvloop | 10,000 u | 1.23 | 1.23..1.23 | ≥ 3.5 | **no** |"


def test_the_document_is_json_with_every_sample(tmp_path: Path):
    samples = found(up={JUNEAU: [2, None], UVLOOP: [1, 1]})
    rows = report.rows(samples, [Target(workload="up", against=UVLOOP, at_least=1)])
    path = report.write(tmp_path / "results", report.document(samples, rows, {"cpu": "x"}))
    document = json.loads(path.read_text())
    assert path.name == "latest.json"
    assert document["samples"] == {"up": {JUNEAU: [2, None], UVLOOP: [1, 1]}}
    [row] = document["rows"]
    wanted = ("workload", "against", "ratio", "target", "held", "median", "against_median", "spread", "raw")
    assert [row[key] for key in wanted] == ["up", UVLOOP, 2, "≥ 1", True, 2, 1, [2, 2], [2, None]]


def test_pictures(tmp_path: Path):
    pytest.importorskip("matplotlib")
    samples = found(up={JUNEAU: [2, 3], UVLOOP: [1, 1]}, idle_wakeups={JUNEAU: [0]})
    rows = report.rows(samples, [Target(workload="up", against=UVLOOP, at_least=1)])
    drawn = plots.draw(tmp_path, samples, rows)
    assert [path.name for path in drawn] == ["ratios.png", "samples.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)


def test_every_target_names_what_is_measured():
    metrics = {metric.name for workload in WORKLOADS for metric in workload.metrics()}
    metrics |= {"memory", "memory-before"}
    peers = {peer for workload in WORKLOADS for peer in workload.peers}
    assert {target.workload for target in TARGETS} <= metrics
    assert {target.against for target in TARGETS} <= metrics | peers | {""}
    assert {target.of for target in TARGETS} <= peers


def test_names_are_unique():
    names = [metric.name for workload in WORKLOADS for metric in workload.metrics()]
    assert len(names) == len(set(names))
