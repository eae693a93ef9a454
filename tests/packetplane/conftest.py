"""A plane per module: compiling it takes longer than most tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from plane_town import Town, build
from plane_world import world


@pytest.fixture(scope="module")
def town() -> Iterator[Town]:
    with world() as made:
        yield build(made)
