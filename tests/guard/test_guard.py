"""What a superframe or a small packet costs, counted: not a stopwatch, so that it holds on any machine.

`python tests/guard/test_guard.py` measures and prints the table anew. Whoever makes something cheaper
lowers the figures; to raise one needs a reason in the commit.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest
from guard_allocations import Allocations, build, lacking
from guard_counts import Counts, measure
from guard_rig import LOOPS
from guard_work import WORK

SLACK: Final = 0.10
KEPT: Final = 0.5
"""Free lists fill up; one object left behind by each packet would be 1."""

# As measured, by Python 3.11, the larger of both loops. What is what: Counts.
# fmt: off
MEASURED: Final = {name: Counts(*row, kept=KEPT) for name, row in {
    # name                        reads  empty  sends   soon timers  calls      C blocks copies
    "superframe up, streams"     : (     2,     1,     1,     2,     0,    61,    42, 149.6,     3),
    "superframe up, Protocol"    : (     2,     1,     1,     1,     0,    60,    42, 133.4,     1),
    "superframe up, 8 a batch"   : (  1.12,  0.12,  0.12,  0.62,     0, 20.38, 21.25, 78.16,  5.63),
    "superframe down, streams"   : (     2,     1,     1,  1.64,  0.05, 74.65, 60.37,191.62,     0),
    "superframe down, Protocol"  : (     2,     1,     1,     1,  0.05, 73.04, 60.37, 183.8,     0),
    "1-byte round trip"          : (     2,     1,     1,     2,   0.1, 73.65,  49.8,152.85,     0),
    "connect-request-close"      : (     9,     4,     3,     7,   0.4, 317.8, 189.4,613.96,     0),
    "datagram echo"              : (     2,     1,     1,     1,     0,    62,    63, 120.4,     0),
    "datagram echo, 16 a batch"  : (  1.06,  0.06,  0.06,  0.06,     0, 20.75, 28.31, 47.77,     0),
    "DNS hot answer"             : (     2,     1,     1,     1,     0,    68,    67, 124.4,     0),
    "DNS hot answer, 16 a batch" : (  1.06,  0.06,  0.06,  0.06,     0, 26.75, 32.31, 55.34,     0),
}.items()}
# fmt: on
SLICED_BY_READER: Final = {"superframe up, streams", "superframe up, 8 a batch"}
"""Until Python 3.12 `StreamReader.read` sliced its buffer before it made bytes of the slice: a copy more."""


def limits(name: str) -> Counts:
    row = Counts(*(value * (1 + SLACK) for value in MEASURED[name]))
    spared = sys.version_info >= (3, 12) and name in SLICED_BY_READER
    return row._replace(copies=row.copies - spared, kept=KEPT)


def exceeded(name: str, found: Counts) -> dict[str, tuple[float, float]]:
    """What costs more than it may: found, allowed."""
    rows = zip(Counts._fields, found, limits(name), strict=True)
    return {field: (value, limit) for field, value, limit in rows if value > limit}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", WORK)
def test_cost(name: str, loop: str, allocations: Allocations) -> None:
    assert exceeded(name, measure(WORK[name], loop, allocations)) == {}


@pytest.mark.parametrize("name", ["superframe up, streams", "connect-request-close"])
def test_the_same_each_time(name: str, allocations: Allocations) -> None:
    first, again = (measure(WORK[name], "uvloop", allocations) for _ in range(2))
    assert again[:-3] == first[:-3]
    assert again[-3:] == pytest.approx(first[-3:], rel=0.01, abs=0.1)


def show() -> None:
    with tempfile.TemporaryDirectory() as folder:
        allocations = Allocations(build(Path(folder)))
        for name in WORK:
            both = [measure(WORK[name], loop, allocations) for loop in LOOPS]
            *row, _kept = [max(pair) for pair in zip(*both, strict=True)]
            print(f"    {json.dumps(name):29}: ({','.join(f'{value:6g}' for value in row)}),")


if __name__ == "__main__":
    sys.exit(lacking() or show())
