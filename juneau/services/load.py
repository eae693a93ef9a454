"""Finds services: installed ones by entry point, others by `FILE_OR_MODULE:NAME`."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from juneau.services.framework import FIRST_FREE_OFFSET, FunctionService, VirtualService

GROUP: Final = "juneau.services"

Settings = Mapping[str, Mapping[str, Any]]
"""Keyword arguments of service classes, by service name."""


class LoadError(Exception):
    """A service that could not be loaded: what, why, and what to try."""


def load_services(
    references: Sequence[str] = (), *, settings: Settings | None = None, installed: bool = True
) -> list[VirtualService]:
    """All installed services, then those that `references` name. Raises LoadError."""
    settings = settings or {}
    found = _installed() if installed else {}
    services = [_make(f"entry point {name}", target, settings) for name, target in found.items()]
    return services + [load_service(reference, settings=settings) for reference in references]


def load_service(
    reference: str,
    *,
    tcp_ports: tuple[int, ...] = (),
    udp_ports: tuple[int, ...] = (),
    offset: int = FIRST_FREE_OFFSET,
    settings: Settings | None = None,
) -> VirtualService:
    """`FILE_OR_MODULE:NAME` → a service. A function needs ports; a VirtualService brings its own.

    Raises LoadError.
    """
    target = _resolve(reference)
    if inspect.isclass(target) or isinstance(target, VirtualService):
        if tcp_ports or udp_ports:
            raise LoadError(
                f"load {reference}: a VirtualService has ports of its own (leave --tcp and --udp out)"
            )
        return _make(reference, target, settings or {})
    if not callable(target):
        raise LoadError(
            f"load {reference}: {type(target).__name__} is neither a handler nor a VirtualService"
        )
    if bool(tcp_ports) == bool(udp_ports):
        raise LoadError(f"load {reference}: a handler needs ports of one kind (--tcp PORT or --udp PORT)")
    name = Path(reference.rpartition(":")[0]).stem.rpartition(".")[2]
    return FunctionService(target, name=name, tcp_ports=tcp_ports, udp_ports=udp_ports, offset=offset)


def _installed() -> dict[str, Any]:
    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found[point.name] = point.load()
        except Exception as error:
            raise LoadError(
                f"load entry point {point.name} = {point.value}: {_short(error)}"
                " (reinstall or remove its package)"
            ) from error
    return found


def _make(reference: str, target: Any, settings: Settings) -> VirtualService:
    if isinstance(target, VirtualService):
        return target
    if not (inspect.isclass(target) and issubclass(target, VirtualService)):
        raise LoadError(f"load {reference}: {target!r} is no VirtualService (derive it from that class)")
    options = settings.get(target.name, {})
    try:
        return target(**options)
    except Exception as error:
        raise LoadError(
            f"load {reference}: {target.__name__}({_options(options)}): {_short(error)}"
        ) from error


def _resolve(reference: str) -> Any:
    where, colon, name = reference.rpartition(":")
    if not colon or not where or not name:
        raise LoadError(
            f"load {reference!r}: no NAME in it (write FILE_OR_MODULE:NAME, such as hello.py:handle)"
        )
    module = _import_file(reference, Path(where)) if _is_file(where) else _import_module(reference, where)
    target: Any = module
    for part in name.split("."):
        if not hasattr(target, part):
            raise LoadError(f"load {reference}: no {name!r} in {where}{_suggest(name, module)}")
        target = getattr(target, part)
    return target


def _is_file(where: str) -> bool:
    return where.endswith(".py") or "/" in where


def _import_file(reference: str, path: Path) -> ModuleType:
    """Import a file under a name of its own; its folder is importable, as for a script."""
    path = path.expanduser().absolute()
    if not path.is_file():
        raise LoadError(f"load {reference}: no file {path}")
    name = f"_juneau_{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"load {reference}: {path} is no Python source (name it {path.stem}.py)")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise LoadError(f"load {reference}: {_short(error)}") from error
    return module


def _import_module(reference: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise LoadError(
                f"load {reference}: no module {name} (a file needs its .py: {name}.py)"
            ) from error
        raise LoadError(f"load {reference}: {_short(error)}") from error
    except Exception as error:
        raise LoadError(f"load {reference}: {_short(error)}") from error


def _suggest(name: str, module: ModuleType) -> str:
    own = [n for n, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    if close := difflib.get_close_matches(name, own, n=1):
        return f" (did you mean {close[0]}?)"
    return f" (it has: {', '.join(own)})" if own else ""


def _short(error: BaseException) -> str:
    """The error and where it is, in one line."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}, line {error.lineno})"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})" if trace else ""
    return f"{type(error).__name__}: {error}{place}"


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in options.items())
