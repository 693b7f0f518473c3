"""Where strategies of users' own come from: entry points of installed packages, Python files.

A package adds one by an entry point in the group ``gecompiler.stream_strategies``, whose name is
the strategy's and whose value a subclass of `StreamAssignStrategy`. A Python file is run only
where the user names it on the command line; no option file and no model can do that.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from gecompiler.ir.errors import GecError, UsageError, nearest
from gecompiler.passes.streams.custom import StreamAssignStrategy
from gecompiler.passes.time_limit import StrangersError, TimeUpError, run_limited

GROUP = "gecompiler.stream_strategies"


def custom_strategies() -> dict[str, EntryPoint]:
    """The strategies of installed packages by name; of two with one name the first by value."""
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda p: (p.name, p.value)):
        found.setdefault(point.name, point)
    return found


def load_custom(name: str) -> StreamAssignStrategy:
    """An instance of the strategy that a package adds under ``name``; UsageError if broken."""
    point = custom_strategies()[name]
    package = point.dist.name if point.dist else point.module
    where = f"stream strategy {name!r} of package {package!r}"
    kind = _guarded(point.load, where, f"{point.value} cannot be loaded", _repair(package))
    return _instance(kind, where)


def _repair(package: str) -> str:
    return f"repair or uninstall {package}; the other strategies are not affected"


def is_strategy_file(text: str) -> bool:
    """Whether a command line's ``--strategy`` names a Python file: ``FILE.py[:Class]``."""
    path, colon, name = text.rpartition(":")
    return text.endswith(".py") or bool(colon and path.endswith(".py") and name)


def load_strategy_file(text: str) -> StreamAssignStrategy:
    """An instance of the strategy in ``FILE.py[:Class]``, whose code is run.

    Without a class the file must define exactly one. UsageError names the file and the fault.
    """
    path, name = (text, "") if text.endswith(".py") else text.rsplit(":", 1)
    if not Path(path).is_file():
        raise UsageError("there is no such file", where=f"--strategy {path}")
    module = _run_file(Path(path))
    own = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, StreamAssignStrategy)
        and value.__module__ == module.__name__
    }
    if not name and len(own) != 1:
        said = f"{len(own)} classes derive" if own else "no class derives"
        raise UsageError(
            f"{said} from StreamAssignStrategy{': ' + ', '.join(own) if own else ''}",
            where=f"--strategy {path}",
            hint=f"say which: {path}:{next(iter(own))}"
            if own
            else "class My(ge.StreamAssignStrategy) with a method assign(self, op_graph)",
        )
    if name and name not in vars(module):
        raise UsageError(
            f"the file has no class {name!r}", where=f"--strategy {path}", hint=nearest(name, own)
        )
    return _instance(vars(module)[name or next(iter(own))], f"--strategy {path}")


def _run_file(path: Path) -> ModuleType:
    name = f"gecompiler_strategy_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError("this is no Python file", where=f"--strategy {path}")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up there
    loader = spec.loader
    try:
        _guarded(lambda: loader.exec_module(module), f"--strategy {path}", "the file fails")
    except UsageError:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        raise
    return module


def _instance(kind: Any, where: str) -> StreamAssignStrategy:
    if not (isinstance(kind, type) and issubclass(kind, StreamAssignStrategy)):
        raise UsageError(
            f"expected a subclass of StreamAssignStrategy, found {kind!r}",
            where=where,
            hint="derive the class from gecompiler.StreamAssignStrategy",
        )
    made: StreamAssignStrategy = _guarded(kind, where, f"{kind.__name__}() fails")
    return made


def _guarded(call: Callable[[], Any], where: str, what: str, hint: str = "") -> Any:
    """What foreign code returns; whatever it raises is told as the user's mistake."""
    try:
        return run_limited(call)
    except (TimeUpError, StrangersError, GecError) as error:
        raise UsageError(
            f"{what}: {error}", where=where, hint=hint or "--debug shows where"
        ) from error.__cause__
