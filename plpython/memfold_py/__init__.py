"""What the extension memfold_py calls through PL/Python: lemmas, embeddings, tokens of CJK text.

Nothing here needs a database; ``memfold_py.server`` is what the SQL functions call.
"""

from __future__ import annotations

__version__ = "1.0.0"


class UnknownLanguageError(ValueError):
    """There is nothing here for that language; the message names those that there are."""
