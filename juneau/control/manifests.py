"""YAML files and folders → resources that remember where they were written."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml
from pydantic import ValidationError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from juneau.control.resources import KINDS, Resource

SUFFIXES: Final = (".yaml", ".yml", ".json")
_MAX_DEPTH: Final = 64
_MAX_CHARACTERS: Final = 16 << 20
"""Of one file. Thousands of Pods need 1 MiB; a device does not end."""


class Problem(NamedTuple):
    """One thing wrong with the manifests; prints as one line."""

    where: str
    """path:line, or the path alone."""
    what: str
    """Kind and name, "" when the file could not be read that far."""
    cause: str
    hint: str = ""

    def __str__(self) -> str:
        parts = [part for part in (self.where, self.what, self.cause) if part]
        line = ": ".join(parts).replace("\n", " ") + (f" ({self.hint})" if self.hint else "")
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class ManifestError(Exception):
    """The manifests cannot be used; `problems` says why, one line each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class Manifest(NamedTuple):
    where: str
    resource: Resource

    def problem(self, cause: str, hint: str = "") -> Problem:
        return Problem(self.where, str(self.resource), cause, hint)


class _Document(NamedTuple):
    path: str
    node: Node
    data: Any

    def where(self, *loc: int | str) -> str:
        return f"{self.path}:{_line_of(self.node, loc)}"


def load(paths: Iterable[Path]) -> list[Manifest]:
    """Every resource of the files, and of the `*.yaml`, `*.yml` and `*.json` of the folders.

    Raises ManifestError with everything that is wrong, not only the first.
    """
    problems: list[Problem] = []
    found = [m for path in _files(paths, problems) for m in _load_file(path, problems)]
    if not found and not problems:
        problems.append(Problem(", ".join(map(str, paths)), "", "no resource in it"))
    if problems:
        raise ManifestError(problems)
    return found


def parse(text: str, path: str = "<text>") -> list[Manifest]:
    """Like `load`, for text that is already here."""
    problems: list[Problem] = []
    found = list(_parse(text, path, problems))
    if problems:
        raise ManifestError(problems)
    return found


def _files(paths: Iterable[Path], problems: list[Problem]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
        if not inside:
            problems.append(
                Problem(str(path), "", "no manifest in this folder", "files named *.yaml, *.yml or *.json")
            )
        yield from inside


def _load_file(path: Path, problems: list[Problem]) -> Iterator[Manifest]:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_MAX_CHARACTERS + 1)
    except OSError as error:
        problems.append(Problem(str(path), "", (error.strerror or str(error)).lower()))
    except UnicodeDecodeError:
        problems.append(Problem(str(path), "", "not UTF-8 text"))
    else:
        if len(text) > _MAX_CHARACTERS:
            problems.append(Problem(str(path), "", f"more than {_MAX_CHARACTERS} characters", "cut it up"))
            return
        yield from _parse(text, str(path), problems)


def _parse(text: str, path: str, problems: list[Problem]) -> Iterator[Manifest]:
    for document in _documents(text, path, problems):
        manifest = _resource(document, problems)
        if manifest is not None:
            yield manifest


def _documents(text: str, path: str, problems: list[Problem]) -> Iterator[_Document]:
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # check_node said so
            _check_keys(node, 0)
            data = loader.construct_document(node)
            if data is not None:
                yield from _items(_Document(path, node, data))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problems.append(Problem(f"{path}:{line}", "", f"not YAML: {error.problem}"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problems.append(Problem(path, "", f"not YAML: {str(error).splitlines()[0]}"))


def _items(document: _Document) -> Iterator[_Document]:
    """The document, or the items of a `v1` List."""
    data, node = document.data, document.node
    if not (isinstance(data, dict) and data.get("kind") == "List" and isinstance(data.get("items"), list)):
        yield document
        return
    for index, item in enumerate(data["items"]):
        child = _child(_child(node, "items"), index)
        yield _Document(document.path, child or node, item)


def _resource(document: _Document, problems: list[Problem]) -> Manifest | None:
    data = document.data
    if not isinstance(data, dict):
        cause = f"a resource is a mapping, this is {type(data).__name__}"
        problems.append(Problem(document.where(), "", cause))
        return None
    version, kind, what = data.get("apiVersion"), data.get("kind"), _what(data)
    model = KINDS.get((str(version), str(kind)))
    if model is None:
        problems.append(Problem(document.where("kind"), what, *_unknown_kind(version, kind)))
        return None
    try:
        return Manifest(document.where(), model.model_validate(data))
    except ValidationError as error:
        problems.extend(_explain(document, what, model, error))
        return None


def _what(data: dict[Any, Any]) -> str:
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return " ".join(str(part) for part in (data.get("kind"), name) if part)


def _unknown_kind(version: object, kind: object) -> tuple[str, str]:
    if not kind or not version:
        return f"no {'kind' if not kind else 'apiVersion'}", "every resource states apiVersion and kind"
    right = [v for v, k in KINDS if k == kind]
    if right:
        return f"apiVersion {version} has no kind {kind}", f"write apiVersion: {right[0]}"
    return f"unknown kind {kind} of {version}", "known: " + ", ".join(k for _, k in KINDS)


def _explain(
    document: _Document, what: str, model: type[Resource], error: ValidationError
) -> Iterator[Problem]:
    seen: set[tuple[int | str, ...]] = set()
    for item in error.errors(include_url=False):
        loc = tuple(part for part in item["loc"] if not (isinstance(part, str) and part in ("int", "str")))
        if loc in seen:  # each branch of a union reports the same field
            continue
        seen.add(loc)
        field, hint = ".".join(map(str, loc)), ""
        if item["type"] == "extra_forbidden":
            cause, hint = f"{field}: unknown field", _suggest(model, loc)
        elif item["type"] == "missing":
            cause = f"{field}: required"
        else:
            cause = f"{field}: {_lower(item['msg'].removeprefix('Value error, '))}"
        yield Problem(document.where(*loc), what, cause, hint)


def _suggest(model: type[Any], loc: tuple[int | str, ...]) -> str:
    """Names of the fields beside the unknown one, the likeliest if there is one."""
    for part in loc[:-1]:
        field = next((f for f in model.model_fields.values() if f.alias == part), None)
        inner = (
            [t for t in getattr(field.annotation, "__args__", (field.annotation,)) if t is not type(None)]
            if field
            else []
        )
        if not inner or not hasattr(inner[0], "model_fields"):
            return ""
        model = inner[0]
    names = [str(f.alias or name) for name, f in model.model_fields.items()]
    close = difflib.get_close_matches(str(loc[-1]), names, n=1)
    return f"did you mean {close[0]}?" if close else "known: " + ", ".join(names)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _check_keys(node: Node, depth: int) -> None:
    """Refuse a key given twice, which YAML readers settle by silently keeping the last."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"nested deeper than {_MAX_DEPTH} levels")
    if isinstance(node, SequenceNode):
        for item in node.value:
            _check_keys(item, depth + 1)
    elif isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value in seen and key.value != "<<":
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} given twice", problem_mark=key.start_mark
                )
            seen.add(str(key.value))
            _check_keys(value, depth + 1)


def _child(node: Node | None, part: int | str) -> Node | None:
    if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: Node = node.value[part]
        return child
    if isinstance(node, MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    return None


def _line_of(node: Node, loc: Sequence[int | str]) -> int:
    """Line of the deepest part of `loc` that was written; counted from 1."""
    line = int(node.start_mark.line)
    here: Node | None = node
    for part in loc:
        if isinstance(here, MappingNode):
            line = next((int(key.start_mark.line) for key, _ in here.value if key.value == part), line)
        here = _child(here, part)
        if isinstance(here, ScalarNode):
            line = int(here.start_mark.line)
    return line + 1
