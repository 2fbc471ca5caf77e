"""The Python side of the extension memfold_py, called through PL/Python: lemmas, embeddings, tokens of CJK text.

Nothing here needs a database; ``memfold_py.server`` is what the SQL functions call.
"""

from __future__ import annotations

__version__ = "1.0.0"


class UnknownLanguageError(ValueError):
    """The language is not supported; the message names those that are."""
