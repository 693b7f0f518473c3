"""Which passes there are: an explicit table, and what other packages add by entry point.

Classes are imported on first use, so that listing and parsing cost nothing. A package adds a
pass by an entry point in the group ``gecompiler.passes`` whose name is the pass's and whose
value is the class. One that cannot be loaded is named in `PassRegistry.broken` and harms
nothing until it is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from gecompiler.ir.errors import GecError, UsageError, nearest
from gecompiler.passes.pass_base import Pass
from gecompiler.passes.time_limit import StrangersError, TimeUpError, run_limited

GROUP = "gecompiler.passes"

BUILTIN: Mapping[str, str] = MappingProxyType(
    {
        "attention-layout": "layout.attention_layout:AbsorbLayout",
        "canonicalize": "canonical.canonicalize:Canonicalize",
        "common-subexpressions": "canonical.common_subexpressions:CommonSubexpressions",
        "constant-folding": "canonical.constant_folding:ConstantFolding",
        "convert-opset": "opset.convert:ConvertOpset",
        "dead-code": "canonical.dead_code:DeadCode",
        "expand-fused": "attention.expand:ExpandFused",
        "explicit-broadcast": "canonical.explicit_broadcast:ExplicitBroadcast",
        "fuse-attention": "attention.fuse:FuseAttention",
        "fuse-block": "block.fuse:FuseBlock",
        "identity-gathers": "canonical.identity_gathers:IdentityGathers",
        "inference-mode": "canonical.inference_mode:InferenceMode",
        "no-op-removal": "canonical.no_op_removal:NoOpRemoval",
        "reshape-merging": "canonical.reshape_merging:ReshapeMerging",
        "restore-derived": "canonical.derived_constants:RestoreDerived",
        "shape-folding": "canonical.shape_folding:ShapeFolding",
        "transpose-merging": "canonical.transpose_merging:TransposeMerging",
    }
)
"""Name of each pass of the product: where its class lies below ``gecompiler.passes``."""


class PassRegistry:
    """A table of passes by name. `PASSES` is the one everybody uses."""

    def __init__(self, builtin: Mapping[str, str] = BUILTIN, group: str = GROUP) -> None:
        self._builtin = dict(builtin)
        self._group = group
        self._classes: dict[str, type[Pass]] = {}
        self._points: dict[str, EntryPoint] | None = None
        self._broken: dict[str, str] = {}

    def register(self, cls: type[Pass]) -> type[Pass]:
        """Adds a pass class under its ``name``; also a decorator. UsageError when taken."""
        name = getattr(cls, "name", "")
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"pass class {cls.__name__} has no name",
                hint='give it a class attribute: name: ClassVar[str] = "my-pass"',
            )
        if name in self._builtin or name in self._classes or name in self._entry_points():
            raise UsageError(f"a pass named {name!r} exists already", hint="choose another name")
        self._classes[name] = cls
        return cls

    def names(self) -> tuple[str, ...]:
        """Every name that can be asked for, sorted."""
        return tuple(sorted({*self._builtin, *self._classes, *self._entry_points()}))

    @property
    def broken(self) -> Mapping[str, str]:
        """Entry points that could not be used so far: name, and why."""
        self._entry_points()
        return MappingProxyType(self._broken)

    def get(self, name: str) -> type[Pass]:
        """The class of that name. UsageError: unknown, or its package is broken."""
        if name in self._classes:
            return self._classes[name]
        if name in self._builtin:
            module, _, attribute = self._builtin[name].partition(":")
            found = getattr(importlib.import_module(f"gecompiler.passes.{module}"), attribute)
        elif name in self._entry_points():
            found = self._load(self._entry_points()[name])
        else:
            raise UsageError(f"no pass is named {name!r}", hint=nearest(name, self.names()))
        self._classes[name] = found
        return self._classes[name]

    def _load(self, point: EntryPoint) -> type[Pass]:
        reason = self._broken.get(point.name, "")
        if not reason:
            try:
                found: object = run_limited(point.load)
            except (TimeUpError, StrangersError, GecError) as error:
                reason = f"{point.value} cannot be loaded: {error}"
            else:
                if isinstance(found, type) and issubclass(found, Pass):
                    return found
                reason = f"{point.value} is no subclass of gecompiler.passes.pass_base.Pass"
        self._broken[point.name] = reason
        package = point.dist.name if point.dist else point.module
        raise UsageError(
            f"pass {point.name!r} of package {package!r} is broken: {reason}",
            hint=f"repair or uninstall {package}; the other passes are not affected",
        )

    def _entry_points(self) -> dict[str, EntryPoint]:
        if self._points is None:
            self._points = {}
            for point in sorted(entry_points(group=self._group), key=lambda p: (p.name, p.value)):
                if point.name in self._builtin or point.name in self._points:
                    self._broken[point.name] = f"{point.value} takes a name that is taken"
                else:
                    self._points[point.name] = point
        return self._points


PASSES = PassRegistry()
"""The registry behind `Pipeline.parse`, ``--disable-pass`` and ``gec passes``."""


def pass_table(registry: PassRegistry = PASSES) -> dict[str, type[Pass]]:
    """Every pass that can be loaded, by name; broken ones are in ``registry.broken`` after."""
    table: dict[str, type[Pass]] = {}
    for name in registry.names():
        try:
            table[name] = registry.get(name)
        except UsageError:
            continue
    return table
