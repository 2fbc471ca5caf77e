"""The one place that reads and shows DSNs. No message quotes a DSN as it was given, because it may contain a
password."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo

from memfold.client._text import remember_key
from memfold.client.errors import InvalidDsnError

FORMS = (
    "A DSN is postgresql://user@host:5432/database (postgres:// and SQLAlchemy's postgresql+psycopg:// too),"
    " or host=... dbname=... user=..., or service=...; in a URI, @ / ? # % of a password are percent-encoded."
)
# libpq's variables that name a database; PGUSER and PGPASSWORD alone do not.
_VARIABLES = ("PGSERVICE", "PGHOST", "PGHOSTADDR", "PGDATABASE")
_DRIVER = re.compile(r"(?i)\A(?:postgres(?:ql)?)(?:\+\w+)?://")
_NOTICE = ("keepalives", "tcp_user_timeout")
_SECRET = ("password", "sslpassword", "oauth_client_secret")


def read_dsn(dsn: str) -> str:
    """Convert a DSN, in any form that memfold accepts, to libpq's. Raises InvalidDsnError, which does not quote it.

    An SQLAlchemy driver is removed. Empty: libpq's environment variables decide.
    """
    if not isinstance(dsn, str):
        raise TypeError(f"a DSN is a str, not {type(dsn).__name__}")
    text = dsn.strip()
    if _DRIVER.match(text):
        text = _DRIVER.sub("postgresql://", text)
        authority, _, path = text.removeprefix("postgresql://").partition("/")
        # libpq would take part of the password for a host or port, and quote it
        if authority.count("@") > 1 or ("@" in path.partition("?")[0] and "@" not in authority):
            raise _invalid("There is an @ or / in its user or password that is not percent-encoded.")
    try:
        given = conninfo_to_dict(text)
    except UnicodeEncodeError:  # the error quotes the whole DSN
        raise _invalid("It is not valid UTF-8.") from None
    except psycopg.Error:
        raise _invalid("It is neither a URI nor a list of libpq options.") from None
    for name in _SECRET:
        remember_key(given.get(name))  # type: ignore[arg-type]
    return text


def _invalid(detail: str) -> InvalidDsnError:
    return InvalidDsnError("the DSN cannot be read", detail=detail, hint=FORMS)


def environment_dsn() -> str | None:
    """The DSN from the environment: MEMFOLD_DSN, else libpq's own variables (the DSN is then empty); None: not set."""
    if given := os.environ.get("MEMFOLD_DSN"):
        return given
    return "" if any(os.environ.get(name) for name in _VARIABLES) else None


def describe_dsn(dsn: str) -> str:
    """The DSN without passwords, for display."""
    given = {name: value for name, value in conninfo_to_dict(read_dsn(dsn)).items() if name not in _SECRET}
    return make_conninfo("", **given)


def psql_environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment variables with which psql, or any other libpq program, connects as these libpq options do.

    They keep passwords off the command line, where other users of the machine can see them. Options that only determine
    how soon a lost connection is noticed have no variable, and are left out. Raises InvalidDsnError for any other option
    without a variable.
    """
    variables = {
        one.keyword.decode(): one.envvar.decode() for one in Conninfo.get_defaults() if one.envvar is not None
    }
    given = {name: value for name, value in given.items() if not name.startswith(_NOTICE)}
    if unknown := sorted(given.keys() - variables.keys()):
        raise InvalidDsnError(
            "the DSN cannot be passed on by environment variables",
            detail=f"libpq has none for {', '.join(unknown)}.",
            hint="Put it into a service file, and give service=NAME.",
        )
    return {variables[name]: value for name, value in given.items()}
