"""A pytest plugin (-p pytest_adapter) that gives each test of a foreign suite a network of its own.

JUNEAU_FOREIGN_SUITE names the suite, whose exclusions and adaptations are in `suites`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import suites
from adapt import NETWORKS, Tally, excluded, install_asyncio

SUITE = suites.SUITES[os.environ["JUNEAU_FOREIGN_SUITE"]]
TALLY = Tally()


def pytest_configure(config: pytest.Config) -> None:
    install_asyncio()
    SUITE.adapt()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = []
    for item in items:
        reason = excluded(item.nodeid, SUITE.exclusions)
        if reason is None:
            kept.append(item)
        else:
            TALLY.excluded[item.nodeid] = reason
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    with NETWORKS.test():
        return (yield)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid
    if report.failed:
        TALLY.failed[name] = str(report.longrepr)
        if name in TALLY.passed:
            TALLY.passed.remove(name)
    elif report.skipped:
        TALLY.skipped[name] = str(report.longrepr)
    elif report.when == "call":
        TALLY.passed.append(name)


def pytest_sessionfinish(session: pytest.Session) -> None:
    Path(os.environ["JUNEAU_FOREIGN_RESULT"]).write_text(json.dumps(vars(TALLY)))
