import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tcp_kit import ISS

PAIRS = [(ISS[0], 5_000), *((iss, iss) for iss in ISS[1:]), (5_000, 2**32 - 2), (2**32 - 2, 5_000)]


@pytest.fixture(params=PAIRS, ids=lambda pair: f"iss{pair[0]:x}-{pair[1]:x}")
def isns(request: pytest.FixtureRequest) -> dict[str, int]:
    """Both ISNs, usual ones and ones around the wrap: `established(**isns)`."""
    return {"host_iss": request.param[0], "peer_iss": request.param[1]}
