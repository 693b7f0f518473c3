"""The documentation site: ``make docs`` builds it, and a warning is an error."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parent.parent)]

project = "gecompiler"
author = "the gecompiler authors"
project_copyright = author
release = version = version_of("gecompiler")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_click",
    "sphinx_copybutton",
    "product_tables",
]
exclude_patterns = ["_build"]
default_role = "code"
smartquotes = False
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True

html_theme = "furo"
html_title = "gecompiler"
html_static_path: list[str] = []
html_theme_options = {"navigation_with_keys": True}
