"""Graph to Graph, then Graph to Schedule: the passes and their manager.

Names are loaded on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

_HOME = {
    "AttentionSite": "attention.site",
    "DependencyAnalyzer": "dependency_analyzer",
    "PASSES": "registry",
    "Pass": "pass_base",
    "PassContext": "pass_base",
    "PassError": "manager",
    "PassRegistry": "registry",
    "PassStats": "manager",
    "Pipeline": "pipeline",
    "pass_table": "registry",
}

__all__ = sorted(_HOME)  # noqa: PLE0605  (built from the table above)

if TYPE_CHECKING:
    from gecompiler.passes.attention.site import AttentionSite as AttentionSite
    from gecompiler.passes.dependency_analyzer import DependencyAnalyzer as DependencyAnalyzer
    from gecompiler.passes.manager import PassError as PassError
    from gecompiler.passes.manager import PassStats as PassStats
    from gecompiler.passes.pass_base import Pass as Pass
    from gecompiler.passes.pass_base import PassContext as PassContext
    from gecompiler.passes.pipeline import Pipeline as Pipeline
    from gecompiler.passes.registry import PASSES as PASSES
    from gecompiler.passes.registry import PassRegistry as PassRegistry
    from gecompiler.passes.registry import pass_table as pass_table


def __getattr__(name: str) -> object:
    if name in _HOME:
        module = importlib.import_module(f"gecompiler.passes.{_HOME[name]}")
        value = getattr(module, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'gecompiler.passes' has no attribute {name!r}")
