"""Profiles that real cards' profilers wrote, opened as timelines.

`open_profile` takes msprof's and torch_npu's folders and single files. What it gives holds a
`Timeline` and a `Schedule` like those of a compiled model, so that reports, pages and trace
writers take either.
"""

from gecompiler.profiles.profile import Profile, open_profile

__all__ = ["Profile", "open_profile"]
