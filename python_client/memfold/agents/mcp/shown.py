"""Texts recently shown from memory, so that they are recognized when they come back."""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from collections.abc import Iterable

MAX_TEXTS = 1_000
MAX_SESSIONS = 1_000


def _same_text(text: str) -> str:
    """Equal for texts that differ only in letter case, white space or a final full stop."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".!?。 ")


class Shown:
    """The last texts shown to each session: a thousand for each of a thousand sessions. Clients without one share one."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()

    def add(self, session: str, texts: Iterable[str]) -> None:
        known = self._sessions.setdefault(session, OrderedDict())
        self._sessions.move_to_end(session)
        for text in map(_same_text, texts):
            known[text] = None
            known.move_to_end(text)
        while len(known) > MAX_TEXTS:
            known.popitem(last=False)
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)

    def __contains__(self, shown: tuple[str, str]) -> bool:
        session, text = shown
        return _same_text(text) in self._sessions.get(session, ())
