"""Two timelines compared op by op: real against simulated, before against after."""

from gecompiler.diff.report import compare, comparison_text
from gecompiler.diff.sides import Side, load_side

__all__ = ["Side", "compare", "comparison_text", "load_side"]
