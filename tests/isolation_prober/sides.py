"""The tenants, their words, and the ids of their things."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field


@dataclass
class Side:
    """A tenant, its word, and the ids of its things: what calls name."""

    letter: str
    word: str
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    @property
    def tenant(self) -> str:
        return f"{self.word}-tenant"

    @property
    def bucket(self) -> str:
        return f"{self.word} bucket"

    def say(self, text: str) -> str:
        return f"{self.word} {text}"

    def id(self, name: str) -> uuid.UUID:
        # invented: above every id of the database, because some functions continue from an id
        return self.ids.setdefault(name, uuid.UUID(int=uuid.uuid4().int | 0xF << 124))


def sides() -> tuple[Side, Side, Side]:
    """The caller, the tenant it asks for, and one that does not exist: words of one shape, so that nothing else
    differs."""
    return Side("a", "alderwood"), Side("b", "birchwood"), Side("c", "cedarwood")
