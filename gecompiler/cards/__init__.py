"""Compiling for several cards: what is asked, the schedule of all ranks, its report, and runs.

`request` gathers the options, `compilation` cuts the model and schedules it, `schedule` merges and
simulates the ranks, `report` and `report_text` say what came of it, `run` executes them.
"""
