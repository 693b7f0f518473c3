"""One thing that is wrong with a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Category = Literal["race", "deadlock", "limit"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, with both tasks, the tensor and address at stake, and the shortest fix.

    Codes: ``missing_order`` (a dependency that nothing orders), ``race`` (memory used again too
    early), ``overwritten`` (content that must last is lost), ``unwritten`` (read or handed out,
    but made by nobody), ``written_twice``, ``moved_view``, ``event_reuse``; ``deadlock``,
    ``collective_order``, ``collective_missing`` (a rank left out), ``collective_mismatch`` (parts
    that want different things), ``core_oversubscription`` (communication kernels that hold cores
    which others wait for); ``limit``; ``malformed`` (records that contradict each other).
    """

    code: str
    category: Category
    message: str
    tasks: tuple[str, ...] = ()
    tensor: str = ""
    address: tuple[int, int] | None = None
    """First byte, and the byte after the last."""
    fix: str = ""
    missing: str = ""
    """The path that would have to lead from the first task to the second, and where it ends."""

    def as_dict(self) -> dict[str, object]:
        """The finding as plain data, for JSON."""
        return {
            "code": self.code,
            "category": self.category,
            "message": self.message,
            "tasks": list(self.tasks),
            "tensor": self.tensor,
            "address": None if self.address is None else list(self.address),
            "missing": self.missing,
            "fix": self.fix,
        }


def sync_fix(before: str, after: str, sync_type: str) -> str:
    """The call that orders two tasks."""
    return f'add_sync_point("{before}", "{after}", "{sync_type}")'
