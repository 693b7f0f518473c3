"""The device that an operator or a profiler is asked for."""

from __future__ import annotations

import os
import re

from gecompiler.backends.device import Device
from gecompiler.ir.errors import UsageError

_CARD = re.compile(r"npu(:\d+)?")
"""How torch_npu names a card; which one it is makes no difference to a model of it."""


def device_named(device: str | os.PathLike[str] | Device | None) -> Device:
    """The device given, by name, profile file or itself.

    By default, and for ``"npu"`` or ``"npu:0"``, that of the default session. UsageError for
    anything else.
    """
    if isinstance(device, Device):
        return device
    if device is None or (isinstance(device, str) and _CARD.fullmatch(device)):
        from gecompiler import default_session

        return default_session().device()
    if isinstance(device, str | os.PathLike):
        from gecompiler.backends.device import load_device

        return load_device(os.fspath(device))
    raise UsageError(
        f"a device is a name, a profile file or a Device, found {device!r}",
        where="device",
        hint="such as 'ascend910b'; gecompiler.set_option('device', name) sets the default",
    )
