"""Public suites, where `scripts/packetdrill-suites` put them: as many pass as docs/packetdrill.md says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from juneau.testing.packetdrill import run_script

CACHE = Path(os.environ.get("JUNEAU_PACKETDRILL_SUITES") or Path.home() / ".cache" / "juneau-packetdrill")
LINUX = Path(__file__).parents[3] / "scripts" / "packetdrill-linux.txt"
GOOGLE = CACHE / "packetdrill" / "gtests" / "net" / "tcp"
FREEBSD = CACHE / "tcp-testsuite"

pytestmark = pytest.mark.skipif(
    not GOOGLE.is_dir(), reason="no suites (fetch them by scripts/packetdrill-suites)"
)


def scripts(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.pkt")) if "ipv6" not in path.name]


def linux() -> list[Path]:
    return [GOOGLE / name for name in LINUX.read_text().splitlines() if not name.startswith("#")]


SUITES = [
    ("gvisor", lambda: scripts(CACHE / "gvisor"), {"tolerance_us": 100_000}, 8, 8),
    ("google", linux, {}, 40, 48),
    ("rcv-data-segments", lambda: scripts(FREEBSD / "rcv-data-segments"), {"profile": "freebsd"}, 217, 217),
    ("state-event-engine", lambda: scripts(FREEBSD / "state-event-engine"), {"profile": "freebsd"}, 297, 307),
]


@pytest.mark.parametrize("iss", [None, 2**32 - 1, 2**32 - 300])
@pytest.mark.parametrize(
    ("name", "find", "options", "least", "count"), SUITES, ids=[suite[0] for suite in SUITES]
)
def test_suite(name, find, options, least, count, iss):
    results = [run_script(path, iss=iss, shift=iss or 0, **options) for path in find()]
    failed = [result.one_line() for result in results if not result.passed]
    assert len(results) == count
    assert count - len(failed) >= least, "\n".join(failed)
