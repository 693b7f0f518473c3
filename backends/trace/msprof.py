"""A folder as Ascend's profiler writes it, which MindStudio Insight opens: one per card.

Insight chooses a parser by a file's name before it looks inside, so names follow its patterns:
``PROF_<number>_<digits>_<letters>/mindstudio_profiler_output`` with ``msprof_<digits>.json``,
``op_summary_<digits>.csv`` and so on. The digits are a date; a simulated clock begins with 1970.
"""

from __future__ import annotations

import json

from gecompiler.backends.trace import msprof_tables as tables
from gecompiler.backends.trace.msprof_communication import communication
from gecompiler.backends.trace.msprof_rows import CardRows, card_rows
from gecompiler.backends.trace.msprof_timeline import timeline_events
from gecompiler.backends.trace.recording import Recording

STAMP = "19700101000000"
"""YYYYMMDDhhmmss of the files' names."""


def msprof_folder(rank: int) -> str:
    """The folder of one card."""
    return f"PROF_{rank + 1:06d}_{STAMP}000_GECOMPILER/mindstudio_profiler_output"


def msprof_files(recording: Recording) -> dict[str, str]:
    """The texts of all cards' files, by path."""
    found: dict[str, str] = {}
    for rank in recording.ranks or [0]:
        folder = msprof_folder(rank)
        for name, text in _card(recording, card_rows(recording, rank)).items():
            found[f"{folder}/{name}"] = text
    return found


def _card(recording: Recording, rows: CardRows) -> dict[str, str]:
    events = (json.dumps(e, allow_nan=False) for e in timeline_events(recording, rows))
    files = {
        f"msprof_{STAMP}.json": "[" + ",\n".join(events) + "]\n",
        f"op_summary_{STAMP}.csv": tables.op_summary(rows),
        f"op_statistic_{STAMP}.csv": tables.op_statistic(rows),
        f"task_time_{STAMP}.csv": tables.task_time(rows),
        "step_trace_time.csv": tables.step_trace_time(rows, recording.step),
        "communication.json": json.dumps(communication(rows, recording.step), indent=1) + "\n",
    }
    if rows.collectives:
        files[f"communication_statistic_{STAMP}.csv"] = tables.communication_statistic(rows)
    return files
