"""What the user reads, in English or Chinese.

Messages, warnings, findings and refusals are made in English, where something happens, and are
data: ``report.json``, exceptions and logs stay English whatever the language. They are put
into Chinese where they are shown:

- `say` makes a text of a template with named holes: ``say("{n} waits", n=3)``;
- `translate` turns a finished English text round, recognising it by its template;
- `error_text` does so for an error.

`gecompiler.lang.zh` holds the Chinese texts. To add one, write the English template (an
f-string's with ``{}`` for each hole) and the Chinese one into the dictionary of its part there;
``{1}`` names a hole that comes in another order. A test finds what has none.
"""

from __future__ import annotations

from gecompiler.lang.catalogue import error_text, say, translate
from gecompiler.lang.choice import LANGUAGES, language, set_language, use_language

__all__ = [
    "LANGUAGES",
    "error_text",
    "language",
    "say",
    "set_language",
    "translate",
    "use_language",
]
