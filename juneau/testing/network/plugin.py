"""For pytest: the fixture `juneau_network`, run once for each of `--juneau-seeds`.

Put `pytest_plugins = ["juneau.testing.network.plugin"]` into the top conftest.py. A failing test's
name holds its seed, so that `pytest -k` runs just that one again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from juneau.testing.network.network import Network


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--juneau-seeds",
        default="0",
        metavar="N|A-B",
        help="seed or range of seeds with which each test of a network in a process runs (default: 0)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "juneau_network" in metafunc.fixturenames:
        first, _, last = metafunc.config.getoption("--juneau-seeds").partition("-")
        seeds = range(int(first), int(last or first) + 1)
        metafunc.parametrize("juneau_network", seeds, indirect=True, ids=lambda seed: f"seed{seed}")


@pytest.fixture
def juneau_network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """A network without hosts, closed after the test."""
    with Network(seed=request.param) as network:
        yield network
