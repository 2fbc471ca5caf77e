"""The base class of memfold's errors, and the errors that the client itself raises."""

from __future__ import annotations

from typing import Any


class MemfoldError(Exception):
    """Any error of memfold or of its database."""

    code: str | None = None
    """The SQLSTATE that stands for this class."""

    def __init__(
        self, message: str, *, sqlstate: str | None = None, detail: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate or self.code
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        parts = [str(self.message) if self.sqlstate is None else f"{self.sqlstate}: {self.message}"]
        if self.detail:
            parts.append(f"DETAIL: {self.detail}")
        if self.hint:
            parts.append(f"HINT: {self.hint}")
        # a quoted text must not look like a separate DETAIL or HINT
        return "\n".join(part.replace("\n", "\n    ") for part in parts)


class RetryableError(MemfoldError):
    """Repeated serialization failures (40001) or deadlocks (40P01); nothing was written."""


class ConnectionLostError(MemfoldError):
    """The database cannot be reached, or was lost between calls; nothing was written."""


class AuthenticationError(MemfoldError):
    """The server refused the role or its password, or no password was given. Retrying does not help."""


class InvalidDsnError(MemfoldError):
    """The DSN cannot be read. The error does not quote it."""


class NotInstalledError(MemfoldError):
    """The database has no memfold, or not the version that this client needs."""


class EmbedderError(MemfoldError):
    """The embedder is unusable: ``embed`` must take a list of texts and return a list of vectors. Nothing was stored."""


class OutcomeUnknownError(ConnectionLostError):
    """The connection was lost while the server had the call: it may or may not have been written."""


class EndpointError(MemfoldError):
    """An embedder's endpoint returned no usable vectors. The message is memfold's own: it quotes no texts, keys or
    words of the endpoint."""

    speaks_plainly = True


class InstallError(MemfoldError):
    """memfold cannot be installed in this database."""


class MissingExtraError(MemfoldError, ImportError):
    """A package that belongs to an extra of memfold is not installed. ``extra`` names the extra, ``name`` the
    package."""

    def __init__(self, extra: str, name: str) -> None:
        super().__init__(
            f"the Python package {name} is not installed", hint=f"Run: pip install 'memfold[{extra}]'"
        )
        self.extra = extra
        self.name = name


class AdoptError(MemfoldError):
    """A table cannot be adopted, or a step of its adoption cannot continue. Nothing is half done."""


class MemoryHashConflict(MemfoldError):  # noqa: N818 (its name is part of the contract)
    """A plain INSERT violated the unique index: the bucket already holds this text."""

    code = "23505"

    def __init__(
        self,
        content_hash: bytes | None,
        existing_id: Any,
        *,
        hint: str = "Call ingest instead: it counts the observation.",
    ) -> None:
        """existing_id: a UUID; for an adopted table its key, a tuple if there are several columns."""
        super().__init__(
            "the bucket has a memory of this content",
            detail=f"It is memory {existing_id}."
            if existing_id is not None
            else "It is not visible to this session.",
            hint=hint,
        )
        self.content_hash = content_hash
        self.existing_id = existing_id
