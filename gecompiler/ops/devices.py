"""The device that an operator is asked for."""

from __future__ import annotations

from gecompiler.backends.device import Device


def device_named(device: str | Device | None) -> Device:
    """The device given, by name or itself; by default that of the default session."""
    if isinstance(device, Device):
        return device
    if device is not None:
        from gecompiler.backends.device import load_device

        return load_device(device)
    from gecompiler import default_session

    return default_session().device()
