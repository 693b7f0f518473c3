"""What all readers of measured files share: records, devices by name, reasons to leave rows out."""

from __future__ import annotations

Record = dict[str, str]
HEAD = 128
"""The dimension of a head in all of these files, where no column gives it."""

DEVICES = (
    ("h100_pair", None),
    ("a100_pair", None),
    ("a100", "a100"),
    ("h100", "h100"),
    ("h200", "h200"),
    ("h800", "h800"),
    ("ascend910b1", "ascend910b"),
    ("ascend910b2", "ascend910b2"),
    ("ascend910b3", "ascend910b3"),
    ("ascend910b4", "ascend910b4"),
    ("ascend910b x8", "ascend910b2"),
    ("ascend-a3", "ascend910c"),
)
"""By the beginning of a device's name, without regard to case. Pairs of cards with a bridge between
them are PCIe cards (only those take bridges), of which there is no profile."""


class LeaveOut(Exception):  # noqa: N818 - a reason, not an error
    """Why a row is not predicted."""


OTHERS = ("pcie", "nvl", "40gb")
"""Cards of the same chip, but with other memory, links or power; they are not these profiles."""


def device_of(name: str) -> str:
    """The profile for a device's name; LeaveOut when there is none."""
    words = name.lower().replace("nvlink", "").replace("-", " ").replace("_", " ").split()
    if any(word in OTHERS for word in words):
        raise LeaveOut(f"no profile of {name}")
    for start, profile in DEVICES:
        if name.lower().startswith(start) and profile:
            return profile
        if name.lower().startswith(start):
            break
    raise LeaveOut(f"no profile of {name}")
