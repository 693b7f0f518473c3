"""Choosing options for a model: block sizes of attention, streams and strategy.

`tune` searches them one after the other under the device's limits and says what each choice
gains; `options_text` is the file that ``--assign`` takes.
"""

from gecompiler.tuning.options_file import options_text
from gecompiler.tuning.tune import Choice, Tuning, tune

__all__ = ["Choice", "Tuning", "options_text", "tune"]
