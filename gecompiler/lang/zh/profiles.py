"""Chinese."""

TEXTS: dict[str, str] = {}
