"""What all readers of measured files share: records, devices by name, reasons to leave rows out."""

from __future__ import annotations

import math
import re

from gecompiler.ir.types import DType

Record = dict[str, str]
HEAD = 128
"""The dimension of a head in all of these files, where no column gives it."""

DEVICES = (
    ("a100", "a100"),
    ("h100", "h100"),
    ("h200", "h200"),
    ("h800", "h800"),
    (r"ascend310p\b", "ascend310p"),
    (r"ascend910b1\b", "ascend910b"),
    (r"ascend910b2\b", "ascend910b2"),
    (r"ascend910b3\b", "ascend910b3"),
    (r"ascend910b4\b", "ascend910b4"),
    (r"ascend910b x8\b", "ascend910b2"),
    (r"ascend910b$", "ascend910b"),
    (r"ascend910c\b", "ascend910c"),
    (r"ascenda3\b", "ascend910c"),
    (r"ascend910a?$", "ascend910"),
)
"""By what a device's name begins with, without its maker, dashes and case."""
OTHERS = ("pcie", "nvl", "40gb", "pairwise", "pair")
"""Cards of the same chip, but with other memory, links or power; they are not these profiles. Pairs
of cards with a bridge between them are PCIe cards (only those take bridges)."""


class LeaveOut(Exception):  # noqa: N818 - a reason, not an error
    """Why a row is not predicted."""


def device_of(name: str) -> str:
    """The profile for a device's name; LeaveOut when there is none."""
    words = re.sub(r"[-_]", " ", name.lower().replace("nvlink", "")).split()
    if not any(word in OTHERS for word in words):
        plain = re.sub(r"^(nvidia |huawei )?(ascend )?", _joined, " ".join(words))
        for start, profile in DEVICES:
            if re.match(rf"{start}(?![0-9])", plain):
                return profile
    raise LeaveOut(f"no profile of {name or 'a device without a name'}")


def _joined(maker: re.Match[str]) -> str:
    return "ascend" if maker[2] else ""


MOST = 1 << 40
"""No size of a measured op is larger."""


def count(r: Record, column: str) -> int:
    """A size: a whole number of at least one."""
    value = float(r[column])
    if not (1 <= value <= MOST and value == int(value)):
        raise ValueError(column)
    return int(value)


def microseconds(r: Record, column: str, factor: float = 1.0) -> float:
    """A time in units of ``factor`` microseconds."""
    value = float(r[column]) * factor
    if not math.isfinite(value):
        raise ValueError(column)
    return value


FLOATS = {
    DType.F16: ("float16", "fp16", "half"),
    DType.BF16: ("bfloat16", "bf16"),
    DType.F32: ("float32", "fp32", "float", "tf32"),
    DType.F8E4M3FN: ("fp8", "fp8_e4m3", "float8_e4m3fn", "fp8_block"),
    DType.I8: ("int8", "i8"),
}
"""Element types of the operands, as files name them."""
NATIVE_F8 = ("h100", "h200", "h800")


def dtype_of(name: str, device: str) -> DType:
    """The element type of that name; LeaveOut where the device or the formulas lack it."""
    found = next((d for d, names in FLOATS.items() if name.lower() in names), None)
    if found is None or (found is DType.F8E4M3FN and device not in NATIVE_F8):
        raise LeaveOut(f"element type {name or 'not given'}")
    return found
