"""What came of a script, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal
from xml.etree import ElementTree

from juneau.netstack.types import SECOND, Micros

Status = Literal["pass", "fail", "unsupported", "error"]
"""fail: the stack did something else; unsupported: the runner cannot; error: the script is wrong."""

RECENT: Final = 8


class Mismatch(Exception):
    """The stack did not do what the script says."""

    def __init__(self, what: str, expected: str = "", got: str = "") -> None:
        super().__init__(what)
        self.what, self.expected, self.got = what, expected, got


@dataclass(slots=True)
class Result:
    path: str
    status: Status = "pass"
    line: int = 0
    time: Micros = 0
    """When it ended, from the script's zero."""
    what: str = ""
    source: str = ""
    expected: str = ""
    got: str = ""
    notes: list[str] = field(default_factory=list)
    """What was ignored, and what packetdrill would not have noticed."""
    trace: list[str] = field(default_factory=list)
    """Every packet and call, in the script's own notation."""

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    def one_line(self) -> str:
        mark = {"pass": "ok", "fail": "FAIL", "unsupported": "UNSUPPORTED", "error": "ERROR"}[self.status]
        return f"{mark:12}{self.path}" + (f":{self.line}: {self.what}" if not self.passed else "")

    def diff(self) -> str:
        """The failing line, what was expected and got, and what went before."""
        if self.passed:
            return ""
        lines = [f"  at {self.time / SECOND:.6f} s, line {self.line}: {self.source}"]
        lines += [f"    {line}" for line in self.trace[-RECENT:]]
        lines += [f"  - {self.expected}"] if self.expected else []
        lines += [f"  + {self.got}"] if self.got else []
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "status": self.status,
            "line": self.line,
            "time_us": self.time,
            "message": self.what,
            "expected": self.expected,
            "got": self.got,
            "notes": self.notes,
        }


def summary(results: Sequence[Result]) -> str:
    counts = {status: sum(r.status == status for r in results) for status in ("fail", "unsupported", "error")}
    rest = "".join(f", {count} {status}" for status, count in counts.items() if count)
    return f"{sum(r.passed for r in results)} of {len(results)} passed{rest}"


def to_json(results: Iterable[Result]) -> str:
    return json.dumps([result.to_dict() for result in results], indent=2)


def to_junit(results: Sequence[Result]) -> str:
    """JUnit XML; what the runner cannot do counts as skipped."""
    suite = ElementTree.Element(
        "testsuite",
        name="packetdrill",
        tests=str(len(results)),
        failures=str(sum(r.status == "fail" for r in results)),
        errors=str(sum(r.status == "error" for r in results)),
        skipped=str(sum(r.status == "unsupported" for r in results)),
    )
    for result in results:
        case = ElementTree.SubElement(
            suite, "testcase", classname="packetdrill", name=result.path, time=f"{result.time / SECOND:.6f}"
        )
        if not result.passed:
            tag = {"fail": "failure", "unsupported": "skipped", "error": "error"}[result.status]
            ElementTree.SubElement(case, tag, message=result.what).text = result.diff()
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
