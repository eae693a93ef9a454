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

KEPT: Final = 0.5
"""Free lists fill up; one object left behind by each packet would be 1."""
SLACK: Final = Counts(0, 0, 0, 0, 0, calls=0.1, c_calls=0.1, blocks=0.1, copies=0.1, kept=0)
"""Added to what was measured. Events are exact; how they come about may differ a little."""

# As measured, by Python 3.11, the larger of both loops. What is what: Counts.
# fmt: off
MEASURED: Final = {name: Counts(*row, kept=KEPT) for name, row in {
    # name                        reads  empty  sends   soon timers  calls      C blocks copies
    "superframe up, streams"     : (     2,     1,     1,     2,     0,    53,    41,139.59,     1),
    "superframe up, Protocol"    : (     2,     1,     1,     1,     0,    48,    37,124.39,     1),
    "superframe up, 8 a batch"   : (  1.12,  0.12,  0.12,   0.5,     0, 20.25, 32.62, 83.25,     1),
    "superframe down, streams"   : (     2,     1,     1,   1.6,  0.05, 72.88, 59.43,189.47,     0),
    "superframe down, Protocol"  : (     2,     1,     1,     1,  0.05, 71.29, 59.43,181.97,     0),
    "1-byte round trip"          : (     2,     1,     1,     2,   0.1, 65.75,  44.7,130.86,     0),
    "connect-request-close"      : (     9,     4,     3,     7,   0.4, 312.2,   186,592.59,     0),
    "datagram echo"              : (     2,     1,     1,     1,     0,    49,    58,  94.4,     0),
    "datagram echo, 16 a batch"  : (  1.06,  0.06,  0.06,  0.06,     0, 13.38, 26.12, 40.52,     0),
    "DNS hot answer"             : (     2,     1,     1,     1,     0,    51,    62,  98.4,     0),
    "DNS hot answer, 16 a batch" : (  1.06,  0.06,  0.06,  0.06,     0,  15.5, 29.88, 49.09,     0),
}.items()}
# fmt: on


def limits(name: str) -> Counts:
    return Counts(*(value * (1 + slack) for value, slack in zip(MEASURED[name], SLACK, strict=True)))


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
