"""A lab of its own for each test, of which nothing may be left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from labcli import LabCli


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabCli]:
    cli = LabCli(tmp_path)
    yield cli
    cli.run("lab", "down")
    assert cli.leftovers() == []
