"""The one DSN parser: its forms, the database it selects, and that it quotes no password."""

from __future__ import annotations

import traceback
from pathlib import Path

import click
import pytest
from psycopg.conninfo import conninfo_to_dict

from memfold import AsyncMemfold, Memfold
from memfold.client import errors
from memfold.client._dsn import describe_dsn, psql_environment, read_dsn
from memfold.client._text import mask_keys
from memfold.tools.admin import server
from memfold.tools.cli._shared import resolve

# with a length and characters that no other word has
PASSWORD = "Tr0ub4dor-3"
MEANT = {"host": "db", "user": "u", "password": PASSWORD, "dbname": "agents"}


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://u:{PASSWORD}@db/agents",
        f"postgres://u:{PASSWORD}@db/agents",
        f"postgresql+psycopg://u:{PASSWORD}@db/agents",
        f"postgresql+asyncpg://u:{PASSWORD}@db/agents",
        f"POSTGRES+psycopg2://u:{PASSWORD}@db/agents",
        f"host=db user=u password={PASSWORD} dbname=agents",
        f" host=db user=u password = '{PASSWORD}' dbname=agents\n",
    ],
)
def test_every_form_means_the_same(dsn: str) -> None:
    assert conninfo_to_dict(read_dsn(dsn)) == MEANT
    assert conninfo_to_dict(describe_dsn(dsn)) == {n: v for n, v in MEANT.items() if n != "password"}
    for made in (Memfold(dsn), AsyncMemfold(dsn)):
        assert conninfo_to_dict(made._options["conninfo"]) == MEANT


def test_a_service_and_the_environment_are_left_to_libpq() -> None:
    assert read_dsn("service=agents") == "service=agents"
    assert read_dsn("") == ""


# What libpq says of each quotes a part of it, or takes a part of the password for a host or a port.
UNREADABLE = [
    f"mysql://u:{PASSWORD}@db/agents",
    f"postgresql+psycopg:/u:{PASSWORD}@db/agents",
    f"host=db password={PASSWORD[:4]} {PASSWORD[4:]}",
    f"host=db passwort={PASSWORD}",
    f"host=db\udcff password={PASSWORD}",
    f"postgresql://u:{PASSWORD[:4]}@{PASSWORD[4:]}@db/agents",
    f"postgresql://u:{PASSWORD[:4]}/{PASSWORD[4:]}@db/agents",
    f"postgresql://u:%{PASSWORD}@db/agents",
    f"postgresql://u@db/agents?passwort={PASSWORD}",
    PASSWORD,
]


@pytest.mark.parametrize("dsn", UNREADABLE)
def test_an_unreadable_dsn_is_refused_and_not_quoted(dsn: str) -> None:
    with pytest.raises(errors.InvalidDsnError) as caught:
        Memfold(dsn)
    told = "".join(traceback.format_exception(caught.value))
    for part in (PASSWORD, PASSWORD[:4], PASSWORD[4:]):
        assert part not in told
    assert "HINT: A DSN is postgresql://" in told


@pytest.mark.parametrize(
    "text",
    [
        f"could not reach postgresql://u:{PASSWORD}@db/agents",
        f"said password={PASSWORD} dbname=agents",
        f"said password = '{PASSWORD} and more'",
        f"said postgresql://db/agents?sslpassword={PASSWORD}&sslmode=require",
    ],
)
def test_errors_that_quote_a_dsn_are_masked(text: str) -> None:
    assert PASSWORD not in mask_keys(text)
    assert "***" in mask_keys(text)


def test_a_password_that_was_read_is_masked_wherever_it_is() -> None:
    read_dsn("host=db password=an-unusual-secret")
    assert mask_keys("no an-unusual-secret here") == "no *** here"


def test_which_database(monkeypatch: pytest.MonkeyPatch) -> None:
    """--dsn, MEMFOLD_DSN, libpq's variables, the embedded server: in this order."""
    for name in ("MEMFOLD_DSN", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(server, "status", lambda: server.Status(Path("/nowhere"), running=False))
    with pytest.raises(click.UsageError, match="memfold up"):
        resolve(None)
    running = server.Status(Path("/nowhere"), running=True, dsn="host=/nowhere")
    monkeypatch.setattr(server, "status", lambda: running)
    assert resolve(None) == "host=/nowhere"
    monkeypatch.setenv("PGUSER", "somebody")
    assert resolve(None) == "host=/nowhere"
    monkeypatch.setenv("PGSERVICE", "agents")
    assert resolve(None) == ""
    monkeypatch.setenv("MEMFOLD_DSN", "postgresql+psycopg://db/agents")
    assert resolve(None) == "postgresql://db/agents"
    assert resolve("host=given") == "host=given"


def test_arguments_of_psql() -> None:
    given = {"host": "db", "password": PASSWORD, "options": "-c search_path=memfold", "keepalives_idle": "30"}
    made = psql_environment(given)
    assert made == {"PGHOST": "db", "PGPASSWORD": PASSWORD, "PGOPTIONS": "-c search_path=memfold"}
    with pytest.raises(errors.InvalidDsnError, match="sslpassword"):
        psql_environment({"sslpassword": PASSWORD})
