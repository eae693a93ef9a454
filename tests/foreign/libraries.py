"""Libraries' own tests, from their source packages, on a network in a process.

    python tests/foreign/libraries.py [--why] [NAME…]

Packages are fetched by pip into $JUNEAU_CACHE (~/.cache/juneau) once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from adapt import Tally
from suites import SUITES, Suite

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("JUNEAU_CACHE", Path.home() / ".cache" / "juneau")) / "foreign"
PATIENCE = 900
"""Real seconds for one suite."""


def fetch(suite: Suite) -> Path:
    """The unpacked source; the library and what its tests need are installed beside it in `lib`."""
    folder = CACHE / f"{suite.name}-{suite.version}"
    done = folder / ".complete"
    source = folder / f"{suite.name}-{suite.version}"
    if done.exists():
        return source
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    wanted = f"{suite.name}=={suite.version}"
    subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", "-d", folder, wanted], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder)
    subprocess.run([*pip, "install", "--target", folder / "lib", wanted, *suite.needs], check=True)
    done.touch()
    return source


def run(suite: Suite, extra: list[str]) -> Tally:
    source = fetch(suite)
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(HERE), str(HERE.parent.parent), str(source.parent / "lib"))),
            "JUNEAU_FOREIGN_SUITE": suite.name,
            "JUNEAU_FOREIGN_RESULT": result.name,
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "pytest_adapter",
            "-p",
            "no:cacheprovider",
            "-q",
            "--no-header",
        ]
        options = ["-o", "addopts=", "-W", "ignore", "--tb=short", "--timeout=60"]
        done = subprocess.run(
            [*command, *options, *extra, suite.tests],
            cwd=source,
            env=environment,
            timeout=PATIENCE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        text = Path(result.name).read_text()
    if not text:
        raise SystemExit(f"{suite.name}: pytest ended with {done.returncode}\n{done.stdout[-4000:]}")
    return Tally(**json.loads(text))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SUITES), metavar="NAME")
    parser.add_argument("-k", dest="only", metavar="EXPRESSION")
    parser.add_argument("--why", action="store_true", help="show failures in full, and each exclusion")
    args = parser.parse_args()
    failed = False
    for name in args.names:
        suite = SUITES[name]
        tally = run(suite, ["-k", args.only] if args.only else [])
        failed = failed or bool(tally.failed)
        print(tally.line(f"{name} {suite.version}"), flush=True)
        print(tally.details(why=args.why), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
