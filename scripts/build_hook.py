"""hatchling's build hook that compiles part of the package by mypyc; the wheel is for one Python then.

Off unless HATCH_BUILD_HOOK_ENABLE_CUSTOM is 1, as for `make compile`. pyproject.toml says which modules,
docs/decisions/0008-compiled.md why these. Nothing is written to the checkout.
"""

from __future__ import annotations

import os
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

GROUP = "juneau"
"""mypyc puts all modules into one library, `juneau__mypyc`, and a stub for each beside its source."""


class CompileHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # stays what its sources say
            return
        self._needs_headers()
        self._folder = tempfile.TemporaryDirectory(prefix="juneau-compile-")
        built = _compiled(Path(self.root), self._modules(), Path(self._folder.name))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(built)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()

    def _modules(self) -> list[str]:
        """Sources, relative to the root."""
        root = Path(self.root)
        found = {path for pattern in self.config["modules"] for path in root.glob(pattern)}
        left = {root / name for name in self.config["interpreted"]}
        if missing := sorted(str(path) for path in left if not path.exists()):
            raise FileNotFoundError(f"pyproject.toml leaves out what is not there: {', '.join(missing)}")
        return sorted(str(path.relative_to(root)) for path in found - left if path.stat().st_size)

    @staticmethod
    def _needs_headers() -> None:
        header = Path(sysconfig.get_path("include"), "Python.h")
        if not header.exists():
            raise FileNotFoundError(f"no {header}: install python3-dev and gcc (scripts/setup compile)")


def _compiled(root: Path, modules: list[str], folder: Path) -> dict[str, str]:
    """By the path of what was built, where it belongs in the wheel."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    before = Path.cwd()
    os.chdir(root)  # names of modules are their paths from here
    try:
        extensions = mypycify(
            ["--config-file=pyproject.toml", f"--cache-dir={folder / 'mypy'}", *modules],
            opt_level="3",
            debug_level="0",
            target_dir=str(folder / "c"),
            group_name=GROUP,
        )
        command = Distribution({"name": "juneau", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(folder / "lib"), str(folder / "o")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    lib = folder / "lib"
    return {str(path): str(path.relative_to(lib)) for path in lib.rglob("*.so")}
