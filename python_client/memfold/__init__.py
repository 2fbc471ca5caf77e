"""memfold folds duplicate memories of AI agents into one, inside PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memfold.client.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # Loaded with the first name, because pytest imports its plugins, memfold.testing too, in projects that never use them.
    from memfold.client import public

    return getattr(public, name)


def __dir__() -> list[str]:
    from memfold.client import public

    return [*globals(), *public.__all__]
