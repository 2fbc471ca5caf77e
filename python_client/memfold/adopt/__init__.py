"""Adopts a user's table: adds hashes, resolves duplicates, builds a unique index, all without stopping its writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfold.adopt.options import Options
from memfold.client._extras import needs

if TYPE_CHECKING:
    from memfold.adopt.adoption import Adopter
    from memfold.adopt.conflicts import conflict_of, conflict_of_async
    from memfold.adopt.importing import Rows

__all__ = ["Adopter", "Options", "Rows", "conflict_of", "conflict_of_async"]


def __getattr__(name: str) -> Any:
    # sqlglot takes as long to import as all of memfold, so it is loaded only for adoptions
    with needs("adopt"):
        if name == "Rows":
            from memfold.adopt import importing

            return importing.Rows
        if name == "Adopter":
            from memfold.adopt import adoption

            return adoption.Adopter
        if name in __all__:
            from memfold.adopt import conflicts

            return getattr(conflicts, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
