"""Whether a schedule is safe to run, judged from the Schedule alone.

What must hold is execution-model.md's: every dependency is ordered, memory is used again only
after all who used it before, nothing waits in a circle, and the device's limits are kept. No
code is shared with the planner. Near-linear in tasks, events and buffers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gecompiler.ir.errors import ScheduleError
from gecompiler.ir.schedule_verify.collectives import check_collectives
from gecompiler.ir.schedule_verify.cores import check_cores
from gecompiler.ir.schedule_verify.finding import Finding
from gecompiler.ir.schedule_verify.limits import check_event_ids, check_limits
from gecompiler.ir.schedule_verify.memory import check_memory
from gecompiler.ir.schedule_verify.order import HappensBefore, check_structure
from gecompiler.ir.schedule_verify.tensors import Versions, check_dependencies

if TYPE_CHECKING:
    from gecompiler.ir.schedule import Schedule

__all__ = ["Finding", "raise_on_findings", "verify_schedule"]


def verify_schedule(schedule: Schedule) -> list[Finding]:
    """All findings; empty when the schedule is safe. Never raises for a wrong schedule.

    Where the records contradict each other, or tasks wait in a circle, the checks that need an
    order are left out, since there is none.
    """
    found = [*check_structure(schedule), *check_limits(schedule)]
    if any(f.code == "malformed" for f in found):
        return found
    order = HappensBefore(schedule)
    found += order.deadlocks
    found += check_collectives(schedule, order)
    if order.deadlocks:
        return found
    found += check_cores(schedule, order)
    versions = Versions(schedule)
    found += versions.findings
    found += check_dependencies(schedule, versions, order)
    found += check_memory(schedule, versions, order)
    found += check_event_ids(schedule, order)
    return found


def raise_on_findings(schedule: Schedule) -> None:
    """ScheduleError with the first findings and their number, when there are any."""
    found = verify_schedule(schedule)
    if not found:
        return
    shown = "; ".join(f"{f.code}: {f.message}" for f in found[:3])
    more = f" (and {len(found) - 3} more)" if len(found) > 3 else ""
    raise ScheduleError(f"{shown}{more}", where=schedule.model, hint=found[0].fix)
