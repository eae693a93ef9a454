"""What the README shows is what the repository holds, and its commands run."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.M | re.S)


def test_the_readmes_service_is_the_example():
    assert (ROOT / "examples/hello.py").read_text() in blocks(ROOT / "README.md", "python")


def test_the_readmes_service_has_about_20_lines():
    code = (ROOT / "examples/hello.py").read_text().split('"""', 2)[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.root
def test_the_readmes_serve_command_answers():
    command = next(block for block in blocks(ROOT / "README.md", "sh") if "juneau serve" in block)
    done = subprocess.run(
        f"{command.strip()} --name readme", shell=True, cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("hello 10.80.0.10, this is hello of serve ")
