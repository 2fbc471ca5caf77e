"""Maps psycopg's errors to classes, and says which can be retried: only by SQLSTATE, never by the text."""

from __future__ import annotations

import re

import psycopg

from memfold.client.errors.base import AuthenticationError, ConnectionLostError, MemfoldError, RetryableError
from memfold.client.errors.server import CLASSES

RETRYABLE = frozenset({"40001", "40P01"})
PASSING = RETRYABLE | {"55P03"}
"""The same, and a lock timeout: a later attempt may succeed."""
BETWEEN_VERSIONS = frozenset({"42703", "42883"})
"""Errors that a call may get once if an upgrade commits while it runs and it sees functions of both versions."""
NO_SUCH_OBJECT = frozenset({"3F000", "42P01"}) | BETWEEN_VERSIONS
"""A schema, table, column or function does not exist: there is no memfold in this database, or another version."""
HASH_KEY = "memories_content_hash_key"
# Without a connection libpq passes on no SQLSTATE, so only the server's message is left. If that is in another
# language, a refusal is recognized only if no password was given.
_REFUSED = re.compile(
    r"(?i)authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects"
    r'|role ".*" (?:does not exist|is not permitted to log in)'
)


def is_refused(error: psycopg.Error) -> bool:
    """Whether the server refused the role or its password."""
    if error.sqlstate is not None:
        return error.sqlstate.startswith("28")
    if not isinstance(error, psycopg.OperationalError):
        return False
    return bool(error.pgconn and error.pgconn.needs_password) or _REFUSED.search(str(error)) is not None


def is_connection_lost(error: psycopg.Error) -> bool:
    """Whether the error ended the connection, or the connection could not be opened."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError) and not is_refused(error)
    return state.startswith("08") or state in {"57P01", "57P02", "57P03", "57P05"}


def is_outcome_unknown(error: psycopg.Error) -> bool:
    """Whether the connection was lost so that a COMMIT on its way may have succeeded.

    A server that ends the session on request reports it only if it has not committed.
    """
    return is_connection_lost(error) and error.sqlstate not in {"57P01", "57P05"}


def translate(error: psycopg.Error) -> MemfoldError:
    """The exception for an error of the database."""
    diagnosis = error.diag
    state = error.sqlstate
    message = diagnosis.message_primary or str(error)
    detail, hint = diagnosis.message_detail, diagnosis.message_hint
    cls: type[MemfoldError] = MemfoldError
    if state in RETRYABLE:
        cls = RetryableError
    elif is_refused(error):
        cls = AuthenticationError
        hint = hint or (
            "Check user and password of the DSN; a password can also come from PGPASSWORD or ~/.pgpass."
            " The server's pg_hba.conf says which roles may connect from where."
        )
    elif state == "42501":
        hint = hint or (
            "An application's role is a member of memfold_app; what belongs to all tenants is for members of"
            " memfold_owner. docs/security.md lists the privileges of each."
        )
    elif is_connection_lost(error):
        cls = ConnectionLostError
    elif state is not None:
        cls = CLASSES.get(state, MemfoldError)
    return cls(message, sqlstate=state, detail=detail, hint=hint)


def is_hash_conflict(error: psycopg.Error) -> bool:
    """Whether a plain INSERT violated the index of tier 1."""
    # on Citus it is the index of a shard, with its number, and only the message names it
    named = error.diag.constraint_name or error.diag.message_primary or ""
    return error.sqlstate == "23505" and re.search(rf"\b{HASH_KEY}(_\d+)?\b", named) is not None
