"""Schedules of several ranks: each template once, then all ranks in one Schedule.

`template` schedules what equal ranks run, with collectives on streams of their own; `merge` puts
ranks together and names their communicators; `figures` reads from the timeline what was computed,
what communication showed, and what was idle; `volume` counts the bytes that collectives send.
"""

from gecompiler.passes.rank_schedules.figures import RankFigures, rank_figures
from gecompiler.passes.rank_schedules.merge import by_template, merge, representatives
from gecompiler.passes.rank_schedules.template import TemplateSchedule, schedule_template
from gecompiler.passes.rank_schedules.volume import sent_bytes, volume_by_axes

__all__ = [
    "RankFigures",
    "TemplateSchedule",
    "by_template",
    "merge",
    "rank_figures",
    "representatives",
    "schedule_template",
    "sent_bytes",
    "volume_by_axes",
]
