"""A pytest plugin: a fresh database per test, a client, and an embedder and a judge without a model.

pytest finds it if memfold is installed. The server is the embedded one (``memfold[server]``), or that of
``MEMFOLD_TEST_DSN``: a role that may create databases and roles. It starts with the first test that asks for it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import tempfile
import uuid
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from memfold.client.calls import Memfold
    from memfold.client.judging import Answer, Question
    from memfold.client.judging.questions import Verdict

__all__ = ["TENANT", "Databases", "FakeEmbedder", "FakeJudge"]

TENANT: Final = "test"
"""The tenant of the fixture ``memfold``."""
_DIMENSIONS: Final = 256
# The thresholds of FakeEmbedder: texts with the same words merge, and those that differ in one of four are asked about.
_MERGE_THRESHOLD, _JUDGE_THRESHOLD = 0.85, 0.7


class FakeEmbedder:
    """The words of a text, hashed into a vector: texts that share most of their words are near. Knows no synonyms."""

    model = "fake"
    dimensions = _DIMENSIONS

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector per text, in order."""
        return [_vector(text) for text in texts]


def _vector(text: str) -> list[float]:
    values = [0.0] * _DIMENSIONS
    for word in re.findall(r"\w+", text.lower()) or [text]:
        values[zlib.crc32(word.encode()) % _DIMENSIONS] += 1
    length = math.hypot(*values)
    return [value / length for value in values]


@dataclass
class FakeJudge:
    """Answers by ``answer``, a function that takes the question and returns a verdict or an ``Answer``.

    ``questions`` are those it was asked, in order. Without ``answer`` it fails like a judge that is down.
    """

    answer: Callable[[Question], Answer | Verdict] | None = None
    questions: list[Question] = field(default_factory=list)
    model: str = "fake"

    async def judge(self, question: Question) -> Answer:
        """Answer one question."""
        from memfold.client.judging import Answer, JudgeError

        self.questions.append(question)
        if self.answer is None:
            raise JudgeError("the test gave the fake judge no answer", transient=False)
        found = self.answer(question)
        return found if isinstance(found, Answer) else Answer(found, 1.0)


@dataclass(frozen=True)
class Databases:
    """The databases of one server: ``admin`` copies ``template``, ``login`` is the role that tests use."""

    admin: str
    login: str
    template: str

    def create(self) -> str:
        """Create a database with memfold; returns its name."""
        name = f"memfold_test_{uuid.uuid4().hex[:12]}"
        _execute(self.admin, f'create database {name} template "{self.template}"')
        return name

    def drop(self, name: str) -> None:
        """Drop a database, no matter who is connected to it."""
        _execute(self.admin, f"drop database if exists {name} with (force)")


@pytest.fixture(scope="session")
def memfold_server() -> Iterator[Databases]:
    """The server of the session."""
    given = os.environ.get("MEMFOLD_TEST_DSN")
    with _given(given) if given else _embedded() as server:
        yield server


@pytest.fixture
def memfold_dsn(memfold_server: Databases) -> Iterator[str]:
    """The DSN of a database with memfold, separate for each test."""
    name = memfold_server.create()
    yield _dsn(memfold_server.login, name)
    memfold_server.drop(name)


@pytest.fixture
def fake_embedder() -> FakeEmbedder:
    """An embedder without a model."""
    return FakeEmbedder()


@pytest.fixture
def fake_judge() -> FakeJudge:
    """A judge without a model: set ``fake_judge.answer``."""
    return FakeJudge()


@pytest.fixture
def memfold(memfold_dsn: str, fake_embedder: FakeEmbedder, fake_judge: FakeJudge) -> Iterator[Memfold]:
    """A client of that database, with the fake embedder and the fake judge."""
    from memfold.client.calls import Memfold

    with Memfold(memfold_dsn, TENANT, fake_embedder, judge=fake_judge) as client:
        yield client


@contextlib.contextmanager
def _embedded() -> Iterator[Databases]:
    from memfold.tools.admin import server

    # Not pytest's own directory: root's is closed to the account that runs the server.
    with tempfile.TemporaryDirectory(prefix="memfold-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        try:
            admin = server.start(home)
            off = [
                f"alter system set {name} = off"
                for name in ("fsync", "full_page_writes", "synchronous_commit")
            ]
            _execute(admin, *off, "select pg_reload_conf()")
            _install(admin)
            yield Databases(_dsn(admin, "postgres"), server.login(home), server.DATABASE)
        finally:
            server.down(home, crash=True)


@contextlib.contextmanager
def _given(dsn: str) -> Iterator[Databases]:
    server = Databases(dsn, dsn, "template1")
    template = server.create()
    try:
        made = _dsn(dsn, template)
        _execute(made, "create extension if not exists vector")
        _install(made)
        yield Databases(dsn, dsn, template)
    finally:
        server.drop(template)


def _install(dsn: str) -> None:
    from memfold.tools.admin import migrate

    migrate.install(dsn)
    _execute(
        dsn,
        f"select memfold.register_embedding_model('{FakeEmbedder.model}', {_DIMENSIONS}, {_MERGE_THRESHOLD},"
        f" {_JUDGE_THRESHOLD})",
    )


def _execute(dsn: str, *statements: str) -> None:
    import psycopg

    from memfold.client._dsn import read_dsn

    with psycopg.connect(read_dsn(dsn), autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def _dsn(dsn: str, database: str) -> str:
    from psycopg.conninfo import make_conninfo

    from memfold.client._dsn import read_dsn

    return make_conninfo(read_dsn(dsn), dbname=database)
