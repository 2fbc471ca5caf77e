"""What every error of memfold is, and those that the client raises by itself."""

from __future__ import annotations

from typing import Any


class MemfoldError(Exception):
    """Any error of memfold, and of the database under it."""

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
        # a quoted text must not look like a DETAIL or HINT of its own
        return "\n".join(part.replace("\n", "\n    ") for part in parts)


class RetryableError(MemfoldError):
    """Serialization failure (40001) or deadlock (40P01), again and again; the call left nothing behind."""


class ConnectionLostError(MemfoldError):
    """The database cannot be reached, or was lost before COMMIT; the call left nothing behind."""


class AuthenticationError(MemfoldError):
    """The server refused the role or its password, or none was given. Trying again does not help."""


class InvalidDsnError(MemfoldError):
    """The DSN cannot be read. The error quotes nothing of it."""


class NotInstalledError(MemfoldError):
    """The database has no memfold, or not the version that this client speaks to."""


class EmbedderError(MemfoldError):
    """The embedder is not one: ``embed`` takes a list of texts and gives a list of vectors. Nothing was stored."""


class OutcomeUnknownError(ConnectionLostError):
    """The connection was lost during COMMIT: the call may or may not have been written."""


class EndpointError(MemfoldError):
    """An embedder's endpoint gave no usable vectors. The text is memfold's own: it quotes neither texts, nor keys, nor
    the endpoint."""

    speaks_plainly = True


class InstallError(MemfoldError):
    """memfold cannot be installed in this database."""


class MissingExtraError(MemfoldError, ImportError):
    """A package is not installed that an extra of memfold brings. ``extra`` names the extra, ``name`` the package."""

    def __init__(self, extra: str, name: str) -> None:
        super().__init__(
            f"the Python package {name} is not installed", hint=f"Run: pip install 'memfold[{extra}]'"
        )
        self.extra = extra
        self.name = name


class AdoptError(MemfoldError):
    """A table cannot be adopted, or a step of its adoption cannot go on. Nothing is half done."""


class MemoryHashConflict(MemfoldError):  # noqa: N818 (its name is part of the contract)
    """A plain INSERT met the unique index: the bucket holds this text."""

    code = "23505"

    def __init__(
        self,
        content_hash: bytes | None,
        existing_id: Any,
        *,
        hint: str = "Call ingest instead: it counts the observation.",
    ) -> None:
        """existing_id: a UUID; of an adopted table whatever its key is, several columns as a tuple."""
        super().__init__(
            "the bucket has a memory of this content",
            detail=f"It is memory {existing_id}."
            if existing_id is not None
            else "It is not visible to this session.",
            hint=hint,
        )
        self.content_hash = content_hash
        self.existing_id = existing_id
