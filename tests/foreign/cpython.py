"""CPython's own asyncio tests (Debian: libpython3.11-testsuite) on a network in a process.

python tests/foreign/cpython.py [-v] [--why] [MODULE…] [-k SUBSTRING]
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from adapt import Exclusions, Tally, install_asyncio, run_suite

MODULES = {
    "test_streams": "",
    "test_server": "",
    "test_buffered_proto": "",
    "test_sslproto": "",
    "test_ssl": "",
    "test_sock_lowlevel": "",
    "test_sendfile": "",
    "test_events": "",
}
"""Those that open connections."""

EXCLUDED: Exclusions = []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*", default=list(MODULES))
    parser.add_argument("-k", dest="only", default="", metavar="SUBSTRING")
    parser.add_argument("-v", action="store_true", help="name each test as it runs")
    parser.add_argument("--why", action="store_true", help="show failures in full, and each exclusion")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    install_asyncio()
    total = Tally()
    for name in args.modules:
        module = importlib.import_module(f"test.test_asyncio.{name}")
        suite = unittest.defaultTestLoader.loadTestsFromModule(module)
        tally = run_suite(suite, EXCLUDED, only=args.only, verbose=args.v)
        print(tally.line(name), flush=True)
        total.add(tally)
    print(total.line("cpython asyncio"))
    for test, text in total.failed.items():
        last = text.strip().splitlines()[-1] if text.strip() else ""
        print(f"  FAILED {test}: {last[:150]}")
        if args.why:
            print(text)
    if args.why:
        for test, reason in total.excluded.items():
            print(f"  excluded {test}: {reason}")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
