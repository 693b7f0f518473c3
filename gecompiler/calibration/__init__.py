"""Fitting a device profile to what a profiler measured on the real card.

`calibrate` reads a capture, predicts each operator with the cost model, fits the few figures
of the profile that the data determine, and says of the others what data would; `write_profile`
makes the profile that ``--device`` takes.
"""

from gecompiler.calibration.calibrator import Calibration, calibrate
from gecompiler.calibration.profile_file import write_profile

__all__ = ["Calibration", "calibrate", "write_profile"]
