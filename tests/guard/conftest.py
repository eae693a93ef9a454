"""The counter of allocations, compiled once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from guard_allocations import Allocations, build, lacking


@pytest.fixture(scope="session")
def _allocations(tmp_path_factory: pytest.TempPathFactory) -> Allocations | None:
    return None if lacking() else Allocations(build(tmp_path_factory.mktemp("allocations")))


@pytest.fixture
def allocations(_allocations: Allocations | None, require: Callable[[str], None]) -> Allocations:
    require(lacking())
    assert _allocations is not None
    return _allocations
