"""The report as one HTML file that people open offline: timeline, curves, table, advice.

`data` turns a Timeline, its Schedule and the report into compact plain data; `page` puts that
data, the style sheet and the scripts of this folder into one page that loads nothing from
anywhere and runs no script but its own (a content security policy names them by hash).
"""

from __future__ import annotations

from gecompiler.html_report.compilation import compilation_page, compilation_subject
from gecompiler.html_report.data import Subject, page_data
from gecompiler.html_report.page import LANGUAGES, render_page

__all__ = [
    "LANGUAGES",
    "Subject",
    "compilation_page",
    "compilation_subject",
    "page_data",
    "render_page",
]
