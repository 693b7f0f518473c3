"""Reading what profilers measured on real cards.

`read_capture` takes msprof's ``op_summary_*.csv`` and torch_npu's ``kernel_details.csv``;
`modelled` turns a measured operator into the op whose cost the device model predicts.
"""

from gecompiler.captures.read import Capture, MeasuredOp, read_capture
from gecompiler.captures.translate import Modelled, modelled

__all__ = ["Capture", "MeasuredOp", "Modelled", "modelled", "read_capture"]
