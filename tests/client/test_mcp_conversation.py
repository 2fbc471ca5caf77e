"""A whole conversation over MCP, by the SDK's client: remember, change, correct, forget, tell again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.mcp_clients import call, embeddings, over_stdio, refused, run
from tests.support.memories import check
from tests.support.queries import DB

pytestmark = pytest.mark.one_server


def home(place: str) -> dict[str, Any]:
    return {
        "content": f"The user lives in {place}.", "subject": "user", "predicate": "lives_in", "object": place,
    }  # fmt: skip


def contents(answer: dict[str, Any], name: str = "memories") -> list[str]:
    return [one["content"] for one in answer[name]]


def test_a_conversation(dsn: str, db: DB) -> None:
    async def work() -> None:
        async with over_stdio(dsn) as client:
            # remember and change: no rule says that a home is one value at a time
            lyon = await call(client, "remember", **home("Lyon"))
            paris = await call(client, "remember", **home("Paris"))
            assert "open_questions" in paris["note"]
            found = (await call(client, "recall", query="Where does the user live?"))["memories"]
            assert [one["object"] for one in found] == ["Paris", "Lyon"]
            assert [one["disputed_by"] for one in found] == [[lyon["memory_id"]], [paris["memory_id"]]]
            (question,) = (await call(client, "open_questions"))["questions"]
            assert (question["verdicts"], question["for_user"]) == (["one", "many"], True)
            await call(
                client, "answer", question_id=question["question_id"], verdict="one", decided_by="user"
            )
            assert contents(await call(client, "recall", query="user")) == ["The user lives in Paris."]
            # what was true on a day, in the formats that models use
            assert contents(await call(client, "recall", query="user", as_of="2020-01-01")) == []
            # correct
            asthma = await call(
                client, "remember", content="The user has astma.", subject="user", predicate="illness"
            )
            await call(client, "correct", memory_id=asthma["memory_id"], content="The user has asthma.")
            await call(
                client, "remember", content="The user uses an asthma spray.", subject="user", predicate="uses"
            )
            profile = await call(client, "profile", subject="User")
            assert contents(profile, "facts") == [
                "The user has asthma.", "The user lives in Paris.", "The user uses an asthma spray.",
            ]  # fmt: skip
            # forget a topic: look, then name them
            seen = await call(client, "forget", about="asthma", subject="user")
            assert sorted(contents(seen)) == ["The user has asthma.", "The user uses an asthma spray."]
            assert {one["action"] for one in seen["memories"]} == {"preview"}
            assert len((await call(client, "profile", subject="user"))["facts"]) == 3
            gone = await call(client, "forget", memory_ids=[one["memory_id"] for one in seen["memories"]])
            assert {one["action"] for one in gone["memories"]} == {"rejected"}
            assert contents(await call(client, "recall", query="asthma")) == []
            # forget a value: the receipt names the former one, and a look at the slot shows both
            only = await call(client, "forget", memory_ids=[paris["memory_id"]])
            assert contents(only, "current_again") == ["The user lives in Lyon."]
            await call(client, "undo", event_id=only["memories"][0]["event_id"])
            both = await call(client, "forget", subject="user", predicate="lives_in")
            assert sorted(contents(both)) == ["The user lives in Lyon.", "The user lives in Paris."]
            ids = [one["memory_id"] for one in both["memories"]]
            assert (await call(client, "forget", memory_ids=ids))["current_again"] == []
            assert (await call(client, "profile", subject="user"))["facts"] == []
            # tell again, in the same words and in others: the answer says how
            for told in (home("Paris"), {**home("Paris"), "content": "The user's home is Paris."}):
                for more in ({}, {"recalled": False}):
                    again = await call(client, "remember", **told, **more)
                    assert again["action"] == "rejected"
                    assert "had this forgotten on 20" in again["note"]
            event = again["note"].partition("undo(")[2].partition(")")[0]
            await call(client, "undo", event_id=event)
            assert contents(await call(client, "profile", subject="user"), "facts") == [
                "The user lives in Paris."
            ]
            assert "MF022: " in await refused(client, "forget", predicate="lives_in")

    run(work)
    check(db)


def test_by_meaning_and_with_days(dsn: str, db: DB) -> None:
    async def work() -> None:
        with embeddings() as endpoint:
            async with over_stdio(dsn, **endpoint.env) as client:
                made = await call(
                    client, "remember", content="Alice has a cat", subject="Alice", valid_until="2999-12-31"
                )
                await call(client, "remember", content="Bob resides in Berlin", subject="Bob")
                seen = await call(client, "forget", about="alice has a feline")
                assert contents(seen)[0] == "Alice has a cat"
                assert seen["memories"][0]["similarity"] > 0.3
                assert (await call(client, "forget", about="alice has a feline", subject="Carol"))[
                    "memories"
                ] == []
                await call(client, "forget", memory_ids=[made["memory_id"]])
                assert contents(await call(client, "forget", about="alice has a feline")) == [
                    text for text in contents(seen) if text != "Alice has a cat"
                ]

    run(work)
    rows = db.execute(
        "select extract(year from valid_until at time zone 'UTC') from memory_totals where valid_until is not null"
    )
    assert rows.fetchall() == [(2999,)]
