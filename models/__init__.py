"""Weight-free models of real size, built from YAML specs.

`build` makes a `gecompiler.ir.Graph` of a named model, `names` lists them, `spec` says what
one is, `build_spec` builds from a spec of the user's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["ModelSpec", "build", "build_spec", "check_sizes", "names", "spec"]

if TYPE_CHECKING:
    from gecompiler.models.model_spec import ModelSpec as ModelSpec
    from gecompiler.models.registry import build as build
    from gecompiler.models.registry import build_spec as build_spec
    from gecompiler.models.registry import check_sizes as check_sizes
    from gecompiler.models.registry import names as names
    from gecompiler.models.registry import spec as spec


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'gecompiler.models' has no attribute {name!r}")
    from gecompiler.models import registry

    value = getattr(registry, name)
    globals()[name] = value
    return value
