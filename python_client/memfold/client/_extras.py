"""Optional packages: if an import fails, the error names the extra and the command that installs it."""

from __future__ import annotations

import importlib.util
from types import TracebackType

from memfold.client.errors import MissingExtraError


class needs:  # noqa: N801 (read as a statement: with needs("adopt"): import sqlglot)
    """For imports of packages that belong to an extra. Raises MissingExtraError if one is not installed."""

    def __init__(self, extra: str) -> None:
        self._extra = extra

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ModuleNotFoundError) and error.name and error.name.split(".")[0] != "memfold":
            raise MissingExtraError(self._extra, error.name) from None


def check(extra: str, module: str) -> None:
    """The same for a module that is imported later because it takes long to load."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(extra, module)
