"""link_subject and similar methods of both clients."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from memfold import Answer, AsyncMemfold, LinkSuggestion, Memfold, Question
from memfold.client import errors
from memfold.client.judging import protocol
from tests.conftest import Connect
from tests.support.queries import DB

pytestmark = pytest.mark.one_server


@pytest.fixture
def client(dsn: str) -> Iterator[Memfold]:
    with Memfold(dsn, "t") as made:
        yield made


def tell(client: Memfold) -> None:
    for name in ("Georg", "Georg Maier"):
        for text in ("plays chess", "has a dog"):
            client.ingest(text, subject=name)


def subjects(db: DB) -> set[str | None]:
    return {row[0] for row in db.execute("select subject from memfold.memories").fetchall()}


def test_subjects_are_suggested_linked_and_unlinked(client: Memfold, db: DB) -> None:
    tell(client)
    [found] = client.suggest_links()
    assert isinstance(found, LinkSuggestion)
    assert (found.kind, found.alias, found.name, found.reasons) == (
        "subject", "Georg", "Georg Maier", ("contained", "facts")
    )  # fmt: skip
    assert 0 < found.score <= 1
    assert found.evidence["shared"] == 2
    run_id = client.link_subject("Georg", "Georg Maier")
    assert db.execute("select kind from memfold.runs where run_id = %s", [run_id]).fetchone() == ("link",)
    assert subjects(db) == {"Georg Maier"}
    assert client.ingest("plays chess", subject="georg").action == "merged"
    assert client.unlink_subject("Georg") == 2
    assert subjects(db) == {"Georg", "Georg Maier"}
    assert client.suggest_links() == ()
    with pytest.raises(errors.UnknownLinkError):
        client.unlink_subject("Georg")
    with pytest.raises(errors.LinkError):
        client.link_subject("Georg", "GEORG")


def test_predicates_and_texts_without_a_subject(client: Memfold, db: DB) -> None:
    client.link_predicate("employer", "works at", "notes")
    client.link_subject(None, "Georg Maier", "notes")
    found = client.ingest("Georg Maier is at VW", predicate="employer", bucket_id="notes")
    row = db.execute(
        "select subject, predicate from memfold.memories where memory_id = %s", [found.memory_id]
    ).fetchone()
    assert row == ("Georg Maier", "works at")
    assert client.unlink_predicate("employer", "notes") == 1
    assert client.unlink_subject(None, "notes", subject="Georg Maier") == 1


def test_texts_left_by_a_link_are_moved_later(
    client: Memfold, db: DB, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(client)
    client.ingest("rides a bike", subject="Georg", bucket_id="other")
    client.link_subject("Georg", "Georg Maier", "*")
    assert subjects(db) == {"Georg", "Georg Maier"}
    monkeypatch.setattr("memfold.client.calls.names._PATIENCE", 1)
    other = connect()
    other.execute("begin")
    other.execute("select from memfold.memories where subject = 'Georg' for update")
    with pytest.raises(errors.MemfoldError, match="others hold the locks"):
        client.take_up_links()
    other.execute("rollback")
    assert client.take_up_links() == 3
    assert subjects(db) == {"Georg Maier"}
    assert client.take_up_links() == 0


class Certain:
    """Answers that names are one, and remembers what it was shown."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    async def judge(self, question: Question) -> Answer:
        self.asked.append(question)
        return Answer("duplicate", 0.9)


def test_a_question_about_names_reaches_a_judge(dsn: str, db: DB) -> None:
    judge = Certain()
    with Memfold(dsn, "t", judge=judge) as client:
        tell(client)
        assert client.ask_links(max_questions=5) == 1
        assert client.ask_links() == 0
        question = client._drive(client._core.claim("t", 60))
        assert question is not None
        answer = asyncio.run(judge.judge(question))
        [row] = client._drive(client._core.call(protocol.resolve(judge, question, answer)))
    assert row["action"] == "linked"
    names = judge.asked[0].names
    assert names is not None
    assert (names.kind, names.alias, names.name) == ("subject", "Georg", "Georg Maier")
    assert set(names.told) == {"plays chess", "has a dog"} == set(names.name_told)
    assert judge.asked[0].verdicts == ("duplicate", "distinct")
    assert subjects(db) == {"Georg Maier"}


def test_the_asynchronous_client_does_the_same(dsn: str, db: DB) -> None:
    async def work() -> None:
        async with AsyncMemfold(dsn, "t") as client:
            for name in ("Georg", "Georg Maier"):
                for text in ("plays chess", "has a dog"):
                    await client.ingest(text, subject=name, predicate="does")
            assert [found.alias for found in await client.suggest_links()] == ["Georg"]
            assert await client.ask_links() == 1
            await client.link_subject("Georg", "Georg Maier")
            await client.link_predicate("does", "doing")
            assert await client.take_up_links() == 0
            assert await client.unlink_predicate("does") == 4
            assert await client.unlink_subject("Georg") == 2

    asyncio.run(work())
    assert subjects(db) == {"Georg", "Georg Maier"}
