"""``python -m gecompiler`` is ``gec``."""

from gecompiler.cli import main

main()
