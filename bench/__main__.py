"""`make bench`: juneau and its peers side by side in one run, rounds alternating; prints ratios.

Needs root. A whole run writes latest.json and pictures to bench/results; a part of one (--only, --peers)
only where --results says so.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench import machine, plots, report
from bench.model import JUNEAU, ROOT, BenchError, PeerFactory, Settings, Workload
from bench.peers import PEERS
from bench.run import Found, chosen, run
from bench.targets import TARGETS
from bench.workloads import WORKLOADS

RESULTS: Final = ROOT / "bench" / "results"
ROUNDS, SECONDS = 5, 2.0
QUICK_SECONDS: Final = 0.4
BUSY: Final = 1.0
"""Load average above which somebody else is using the CPUs that are measured."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if os.geteuid():
        print(
            "bench: needs root (it makes network namespaces and loads BPF): sudo make bench", file=sys.stderr
        )
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):  # what was brought up is taken down, as for Ctrl-C
        signal.signal(number, lambda received, _: sys.exit(128 + received))
    try:
        workloads, peers = _choose(options)
        load = os.getloadavg()[0]
        if load > BUSY:
            print(f"bench: the machine is busy (load {load:.1f}): do not trust the figures", file=sys.stderr)
        seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
        settings = Settings(pin=not options.no_pin, offload=not options.no_offload)
        found = run(peers, workloads, settings, rounds=options.rounds, seconds=seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    about = {
        **machine.describe(),
        "rounds": options.rounds,
        "seconds a measurement": seconds,
        "pinned": bool(settings.server()),
        "offload": settings.offload,
        "load average before": round(load, 2),
    }
    _tell(found, about)
    if folder := _folder(options):
        _write(folder, found, about)
    failed = JUNEAU in found.missing or any(f", {JUNEAU}: " in failure for failure in found.failed)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--rounds", type=_positive, default=ROUNDS, help=f"default {ROUNDS}")
    parser.add_argument("--seconds", type=float, help=f"of each measurement; default {SECONDS:g}")
    parser.add_argument(
        "--quick", action="store_true", help="shorter measurements: under five minutes in all"
    )
    parser.add_argument("--only", metavar="WORKLOAD,…", help=", ".join(w.name for w in WORKLOADS))
    parser.add_argument("--peers", metavar="NAME,…", help=f"besides {JUNEAU}: " + "; ".join(PEERS))
    parser.add_argument("--results", type=Path, metavar="DIR", help="default bench/results")
    parser.add_argument("--no-pin", action="store_true", help="leave the CPUs to the scheduler")
    parser.add_argument("--no-offload", action="store_true", help="a juneau that segments in Python")
    return parser


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError("allowed 1 and up")
    return value


def _choose(options: argparse.Namespace) -> tuple[list[Workload], dict[str, PeerFactory]]:
    workloads, peers = list(WORKLOADS), dict(PEERS)
    if options.only:
        only = chosen(_names(options.only), (w.name for w in WORKLOADS), "workload")
        workloads = [workload for workload in WORKLOADS if workload.name in only]
    if options.peers:
        named = chosen(_names(options.peers), PEERS, "peer") | {JUNEAU}
        peers = {name: factory for name, factory in PEERS.items() if name in named}
    return workloads, peers


def _names(text: str) -> list[str]:
    """Separated by commas; one before a space belongs to a peer's name."""
    return [name.strip() for name in re.split(r",(?! )", text) if name.strip()]


def _folder(options: argparse.Namespace) -> Path | None:
    if options.results:
        return Path(options.results)
    return None if options.only or options.peers or options.no_offload else RESULTS


def _tell(found: Found, about: dict[str, object]) -> None:
    print(f"\n{machine.line(about)}; {found.seconds:.0f} s in all\n")
    print(report.table(report.rows(found, TARGETS)))
    for name, reason in found.missing.items():
        print(f"\nwithout {name}: {reason}")
    for failure in found.failed:
        print(f"\nfailed: {failure}")
    if left := report.unmeasured(found, TARGETS):
        print("\ntargets not judged in this run:\n  " + "\n  ".join(left))


def _write(folder: Path, found: Found, about: dict[str, object]) -> None:
    rows = report.rows(found, TARGETS)
    written = [report.write(folder, report.document(found, rows, about))]
    try:
        written += plots.draw(folder, found, rows)
    except ImportError:
        print("\nno pictures: matplotlib is missing (bench/prepare installs it)")
    print("\nwrote " + ", ".join(str(path) for path in written))


if __name__ == "__main__":
    sys.exit(main())
