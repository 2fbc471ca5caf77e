"""Erasure is exact by provenance: what a source stated is gone everywhere, what others stated stays as it was."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tests.support.judging import answer, raises
from tests.support.memories import check, counters, ingest, model, status, vector
from tests.support.queries import DB, rows
from tests.support.rounds import seeds

App = Callable[..., DB]


def found(db: DB, *marks: str) -> list[tuple[str, str]]:
    """Tables of memfold that contain a mark, in any column of any row, with that mark; including the planner's
    samples."""
    tables = db.execute(
        "select c.oid::regclass::text from pg_class as c"
        " where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'p', 'm')"
        " and c.relname <> 'lexicon' order by 1"  # words that memfold ships, and nothing else
    ).fetchall()
    assert len(tables) > 15
    at = []
    for (table,) in tables:
        db.execute(f"analyze {table}".encode())
        # but not in the words that memfold ships
        own = "tenant_id <> '*' and" if table.endswith("antonyms") else ""
        for mark in marks:
            query = f"select count(*) from {table} as x where {own} strpos(x::text, %s) > 0"
            if db.execute(query.encode(), [mark]).fetchone() != (0,):
                at.append((table, mark))
    for mark in marks:
        query = (
            "select count(*) from pg_statistic as s"
            " where starelid <> all(array['memfold.antonyms', 'memfold.lexicon']::regclass[]) and strpos(s::text, %s) > 0"
            # of a table that is empty by now ANALYZE leaves what there was
            " and exists (select from pg_stat_user_tables as t where t.relid = s.starelid and n_live_tup > 0)"
        )
        if db.execute(query.encode(), [mark]).fetchone() != (0,):
            at.append(("pg_statistic", mark))
    return at


def erase(db: DB, turn: str, **more: Any) -> Any:
    names = "".join(f", {name} => %s" for name in more)
    return db.execute(
        f"select * from memfold.erase_source(%s, 'acme'{names})".encode(), [turn, *more.values()]
    ).fetchone()


def erase_memory(db: DB, memory_id: UUID | None) -> Any:
    return db.execute("select * from memfold.erase_memory(%s, tenant_id => 'acme')", [memory_id]).fetchone()


def stubs(db: DB) -> list[tuple[Any, ...]]:
    return db.execute(
        "select method, memory_id, target_id, cause from memfold.memory_events where action = 'erased'"
        " order by event_id"
    ).fetchall()


def leads_to(db: DB, memory_id: UUID | None) -> Any:
    return db.execute("select * from memfold.current_memory(%s, 'acme')", [memory_id]).fetchone()


def content(db: DB, memory_id: UUID | None) -> str:
    row = db.execute("select content from memfold.memories where memory_id = %s", [memory_id]).fetchone()
    assert row is not None
    return str(row[0])


# a source -----------------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_statements_of_one_source(db: DB) -> None:
    model(db)
    alone = ingest(
        db,
        "Zebra crossings scare Ann",
        **vector(1.0),
        subject="Quagga",
        object="Okapi",
        source_turn_ids=["turn-1"],
        session_id="session-1",
        metadata={"mood": "zorse"},
        idempotency_key="key-1",
    )
    shared = ingest(db, "Ann  LIKES tea.", source_turn_ids=["turn-1"], metadata={"a": "zorse", "b": 1})
    assert ingest(db, "ann likes tea", source_turn_ids=["turn-2"], metadata={"b": 2}).action == "merged"
    both = ingest(db, "Ann has a cat", source_turn_ids=["turn-1", "turn-2"])
    other = ingest(db, "Bob likes coffee", source_turn_ids=["turn-2"])
    assert erase(db, "turn-1") == (1, 2, 2, 0, [])

    assert found(db, "turn-1", "ebra", "uagga", "kapi", "session-1", "zorse", "key-1", "LIKES") == []
    assert content(db, shared.memory_id) == "ann likes tea"
    assert counters(db, shared.memory_id)["observations"] == 1
    assert rows(db, "select metadata from memfold.memories where memory_id = %s", shared.memory_id) == [
        {"metadata": {"b": 2}}
    ]
    assert content(db, both.memory_id) == "Ann has a cat"
    assert counters(db, both.memory_id)["independent"] == 1
    assert status(db, other) == "active"
    assert leads_to(db, alone.memory_id) is None
    assert {stub[:3] for stub in stubs(db)} == {
        ("source", alone.memory_id, None),
        ("source", shared.memory_id, None),
        ("source", both.memory_id, None),
    }
    check(db)
    assert erase(db, "turn-1") == (0, 0, 0, 0, [])
    again = ingest(db, "Zebra crossings scare Ann", **vector(1.0), subject="Quagga")
    assert again.action == "inserted"
    assert again.memory_id != alone.memory_id
    check(db)


@pytest.mark.core
def test_a_root_that_others_were_merged_into(db: DB) -> None:
    model(db)
    root = ingest(db, "Zebra prefers dark mode", **vector(1.0), source_turn_ids=["turn-1"])
    first = ingest(db, "She prefers the dark mode", **vector(0.95), source_turn_ids=["turn-2"])
    second = ingest(db, "Her preference: dark mode", **vector(0.96, 2), source_turn_ids=["turn-3"])
    beside = ingest(db, "She hates dark mode", **vector(0.9, 3), source_turn_ids=["turn-4"])
    assert [first.action, second.action, beside.action] == ["merged", "merged", "escalated"]
    texts = rows(
        db, "select memory_id, content from memfold.memories where merged_into is not null order by 2"
    )
    second_id, first_id = (row["memory_id"] for row in texts)
    assert erase(db, "turn-1")[0] == 1

    assert found(db, "turn-1", "ebra") == []
    assert status(db, first_id) == "active"
    assert status(db, second_id) == "merged"
    assert leads_to(db, root.memory_id)[0] == first_id  # any id ever handed out keeps its meaning
    assert leads_to(db, second_id)[0] == first_id
    assert counters(db, first_id)["observations"] == 2
    assert stubs(db) == [("source", root.memory_id, first_id, "the text, 1 ledger row")]
    check(db)
    # the fold is one that can be undone still
    (event,) = db.execute(
        "select event_id from memfold.memory_events where memory_id = %s and action = 'merged'", [second_id]
    ).fetchall()
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", event)
    assert status(db, second_id) == "active"
    check(db)


def test_a_chain_of_merges(db: DB) -> None:
    """Newer text after newer text took the place of the older: those in the middle go, and the ends stay one."""
    model(db)
    db.execute("select memfold.set_policy('acme', on_merge => 'replace', guard => 'off')")
    texts = []
    words = ["alpha", "beta", "gamma", "delta"]
    for number, (word, cosine) in enumerate(zip(words, (1.0, 0.99, 0.98, 0.97), strict=True)):
        ingest(db, f"wording {word}", **vector(cosine, 1 + number % 3), source_turn_ids=[f"turn-{number}"])
        texts.append(
            db.execute("select memory_id from memfold.memories where content = %s", [f"wording {word}"])
        )
    ids = [t.fetchone()[0] for t in texts]  # type: ignore[index]
    assert [status(db, i) for i in ids] == ["merged"] * 3 + ["active"]
    erase(db, "turn-2")
    check(db)
    assert [status(db, i) for i in (ids[0], ids[1], ids[3])] == ["merged", "merged", "active"]
    erase(db, "turn-3")
    check(db)
    assert found(db, "gamma", "delta", "turn-2", "turn-3") == []
    # the oldest of those that are left has none above it
    assert {status(db, i) for i in (ids[0], ids[1])} == {"merged", "active"}
    assert leads_to(db, ids[3]) == leads_to(db, ids[0])
    assert counters(db, leads_to(db, ids[3])[0])["observations"] == 2


def test_a_fact_of_many_wordings(db: DB) -> None:
    """State is derived in parts of 200 memories; trees are never divided."""
    model(db)
    db.execute("select set_policy('acme', guard => 'off')")
    letters = [a + b for a in "abcdefghijklmno" for b in "abcdefghijklmno"]
    for number, word in enumerate(letters):
        result = ingest(
            db, f"the lamp is qu{word}", **vector(0.99, 1 + number % 3), source_turn_ids=[f"turn-{number}"]
        )
        assert result.action == ("merged" if number else "inserted")
    for number in (100, 0):
        assert erase(db, f"turn-{number}")[0] == 1
        check(db)
    ((observations, aliases),) = db.execute(
        "select observations, aliases from memfold.memory_totals where observations > 0"
    ).fetchall()
    assert (observations, aliases) == (len(letters) - 2, len(letters) - 3)


def test_a_judges_text_is_erased_with_its_source(db: DB) -> None:
    model(db)
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'synthesise')")
    ingest(db, "Zebra rides a bike", **vector(1.0), source_turn_ids=["turn-1"])
    other = ingest(db, "Ann rides a red bike", **vector(0.9), source_turn_ids=["turn-2"])
    made = answer(
        db, "duplicate", 0.9, merged_text="Zebra Ann rides a red bike", reason="both ride zebra bikes"
    )
    assert made[2] == "replaced"
    assert erase(db, "turn-1")[:2] == (2, 0)
    assert found(db, "turn-1", "ebra") == []
    assert status(db, other) == "active"
    assert leads_to(db, made[3])[0] == other.memory_id
    check(db)


def test_what_a_person_wrote_stays(db: DB) -> None:
    memory = ingest(db, "Zebra rides a bike", source_turn_ids=["turn-1"])
    ingest(db, "zebra rides a bike", source_turn_ids=["turn-2"])
    new = db.execute(
        "select memory_id from memfold.update_memory(%s, 'She rides a red bike', tenant_id => 'acme')",
        [memory.memory_id],
    ).fetchone()
    assert new is not None
    erase(db, "turn-1")
    assert content(db, new[0]) == "She rides a red bike"
    check(db)
    # but not without any support
    erase(db, "turn-2")
    assert found(db, "bike") == []
    assert leads_to(db, new[0]) is None
    check(db)


def test_a_persons_text_stays_when_a_restatement_is_erased(db: DB) -> None:
    """An update is not undone just because somebody has stated the same since."""
    memory = ingest(db, "Ann rides a bike", source_turn_ids=["turn-2"])
    (new,) = db.execute(
        "select memory_id from memfold.update_memory(%s, 'Ann rides a red bike', tenant_id => 'acme')",
        [memory.memory_id],
    ).fetchall()
    assert ingest(db, "Ann rides a RED bike", source_turn_ids=["turn-1"]).action == "merged"
    assert erase(db, "turn-1")[:2] == (0, 1)
    assert found(db, "turn-1", "RED") == []
    assert leads_to(db, memory.memory_id) == (new[0], "Ann rides a red bike", "active")
    assert counters(db, new[0])["observations"] == 1
    check(db)
    erase(db, "turn-2")
    assert found(db, "bike") == []


def test_timelines_close_up(db: DB) -> None:
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    for turn, place, day in ((1, "Berlin", 1), (2, "Lyon", 2), (1, "Berlin", 3), (3, "Oslo", 4)):
        ingest(
            db,
            f"Ann lives in {place}",
            subject="Ann",
            predicate="lives_in",
            object=place,
            source_turn_ids=[f"turn-{turn}"],
            observed_at=f"2026-01-0{day}",
        )
    said = "select m.object, i.valid_from::date::text from memfold.memory_intervals i join memfold.memories m"
    said += " using (tenant_id, memory_id) order by valid_from"
    assert [row[0] for row in db.execute(said).fetchall()] == ["Berlin", "Lyon", "Berlin", "Oslo"]
    assert erase(db, "turn-3")[0] == 1
    check(db)
    # as if never stated: Berlin is current again
    assert db.execute("select object from memfold.memories where status = 'active'").fetchall() == [
        ("Berlin",)
    ]
    erase(db, "turn-1")
    assert db.execute(said).fetchall() == [("Lyon", "2026-01-02")]
    assert found(db, "Berlin", "Oslo", "berlin", "turn-1", "turn-3") == []
    check(db)


def test_intervals_that_an_erased_value_ended(db: DB) -> None:
    """A value that arrived when its slot had none names no other in the ledger, but it still ended the neighbouring
    ones."""
    db.execute("select memfold.set_predicate('lives_in', 'acme')")

    def lives(place: str, turn: str) -> UUID | None:
        return ingest(
            db, f"Zoe lives in {place}", subject="Zoe", predicate="lives_in", object=place, source_turn_ids=[turn]
        ).memory_id  # fmt: skip

    lima = lives("Lima", "turn-1")
    chess = ingest(db, "Ann plays chess", subject="Ann").memory_id
    go = ingest(db, "Bob plays go", subject="Bob").memory_id
    db.execute("select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [lima, chess])
    kyiv = lives("Kyiv", "turn-2")
    db.execute("select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [go, kyiv])
    check_all(db)
    erase(db, "turn-2")
    assert found(db, "Kyiv", "turn-2") == []
    check_all(db)
    rows = db.execute(
        "select memory_id from memfold.memories where tenant_id = 'acme' and status = 'active' order by 1"
    ).fetchall()
    assert [row[0] for row in rows] == [chess, go]


@pytest.mark.parametrize("whole", [True, False], ids=["memory", "source"])
def test_a_slot_of_which_nothing_is_current_for_ever(db: DB, whole: bool) -> None:
    """Of two wordings of a value the one stated last is shown, until its validity ends; without it the other is."""
    db.execute("select memfold.set_predicate('lives_in', 'acme')")

    def lives(content: str, turn: str, **more: str) -> UUID | None:
        where = {"subject": "Zoe", "predicate": "lives_in", "object": "Lima", "observed_at": "2026-01-03"}
        return ingest(db, content, source_turn_ids=[turn], **{**where, **more}).memory_id

    lima = lives("Zoe lives in Lima", "turn-1")
    moved = lives("Zoe moved to Lima", "turn-2", valid_until="2026-01-05")
    shown = "select memory_id, valid_to is null from memfold.memory_intervals where tenant_id = 'acme'"
    assert db.execute(shown.encode()).fetchall() == [(moved, False)]
    check_all(db)
    if whole:
        erase_memory(db, moved)
    else:
        erase(db, "turn-2")
    assert db.execute(shown.encode()).fetchall() == [(lima, True)]
    check_all(db)


def test_the_statement_of_a_supersession_goes_with_what_it_superseded(db: DB) -> None:
    """A text that the same source supports, and that stays."""
    likes = ingest(db, "Ann likes tea", source_turn_ids=["turn-1"]).memory_id
    ingest(db, "Ann likes tea", source_turn_ids=["turn-2"])
    hates = ingest(db, "Ann hates tea", source_turn_ids=["turn-2"]).memory_id
    db.execute("select memfold.supersede_memory(%s, %s, tenant_id => 'acme')", [hates, likes])
    last = "select last_seen = first_seen from memfold.memory_counters where memory_id = %s"
    assert db.execute(last.encode(), [likes]).fetchone() == (False,)
    erase(db, "turn-2")
    assert db.execute(last.encode(), [likes]).fetchone() == (True,)
    check(db)


def test_a_contradiction_stays_with_the_fact(db: DB) -> None:
    """Another wording still supports the fact, so a judge's verdict about it and another fact stays."""
    model(db)
    old = ingest(db, "The office closes at five", **vector(1.0), source_turn_ids=["turn-1"])
    ingest(db, "Office hours end at five", **vector(0.99, 2), source_turn_ids=["turn-2"])
    new = ingest(db, "The office closes at seven", **vector(0.9, 3), source_turn_ids=["turn-3"])
    assert new.action == "escalated"
    assert answer(db, "contradiction", 0.9)[2] == "superseded"
    assert status(db, new) == "active"
    erase(db, "turn-1")
    check(db)
    left = leads_to(db, old.memory_id)
    assert left[1:] == ("Office hours end at five", "superseded")
    erase(db, "turn-3")
    check(db)
    assert leads_to(db, old.memory_id)[2] == "active"


def test_the_guards_words(db: DB) -> None:
    """They are in rows of other memories: in the guard's output, and in the list of similar memories."""
    model(db)
    ingest(db, "The captain Zebra likes tea", **vector(1.0), source_turn_ids=["turn-1"])
    ingest(db, "The captain Zebra loves tea", **vector(0.99, 2), source_turn_ids=["turn-2"])
    for name, cosine in (("Quentin", 0.95), ("Okonkwo", 0.94)):
        late = ingest(db, f"The captain {name} likes tea", **vector(cosine, 3), source_turn_ids=["turn-3"])
        assert late.action == "escalated"
    assert db.execute("select guard from memfold.judgements where guard::text like '%zebra%'").rowcount
    assert db.execute(
        "select from memfold.memory_events where similar_memories::text like '%zebra%'"
    ).rowcount
    erase(db, "turn-1")
    assert ("memories", "Zebra") in found(db, "Zebra")  # the other wording is its own source's
    erase(db, "turn-2")
    assert found(db, "zebra", "Zebra", "turn-1", "turn-2") == []
    check(db)


def test_recalled_and_refused_text(db: DB) -> None:
    model(db)
    db.execute("select memfold.set_predicate('lives_in', 'acme', conflict => 'keep_existing')")
    ingest(db, "Zebra lives in Berlin", source_turn_ids=["turn-0"])
    # refused: nothing but the ledger has it
    ingest(db, "Quagga says hello", origin="recalled", source_turn_ids=["turn-1"])
    ingest(db, "Zebra lives in Berlin", origin="recalled", source_turn_ids=["turn-1"])
    slot = {"subject": "Ann", "predicate": "lives_in"}
    ingest(db, "Ann lives in Lyon", object="Lyon", **slot, source_turn_ids=["turn-2"])
    refused = ingest(db, "Ann lives in Okapi", object="Okapi", **slot, source_turn_ids=["turn-1"])
    assert refused.action == "rejected"
    gone = ingest(db, "Ann has a Zorse", source_turn_ids=["turn-1"])
    db.execute("select memfold.reject_memory(%s, tenant_id => 'acme')", [gone.memory_id])
    assert ingest(db, "Ann has a zorse", source_turn_ids=["turn-1"]).action == "rejected"
    erase(db, "turn-1")
    assert found(db, "uagga", "kapi", "orse", "turn-1") == []
    assert erase(db, "turn-0")[0] == 1
    assert found(db, "ebra") == []
    check(db)


def test_a_refused_text_keeps_the_words_of_the_remaining_source(db: DB) -> None:
    """A tombstone hit is not an observation. It still leads to the rejected memory, without any row of the erased
    one."""
    model(db)
    root = ingest(db, "Ann likes dark mode", **vector(1.0), source_turn_ids=["turn-3"])
    alias = {"content": "Ann  LIKES the dark mode", "source_turn_ids": ["turn-1"], "session_id": "session-1"}
    assert ingest(db, **alias, origin="recalled", **vector(0.99)).action == "merged"
    db.execute("select memfold.reject_memory(%s, tenant_id => 'acme')", [root.memory_id])
    for _ in range(2):
        again = ingest(db, "ann likes the dark mode", source_turn_ids=["turn-2"], session_id="session-2")
        assert (again.action, again.method) == ("rejected", "tombstone")
        erase(db, "turn-1")
        assert found(db, "turn-1", "session-1", "LIKES") == []
        check(db)
    erase(db, "turn-2")
    assert found(db, "the dark mode", "session-2", "turn-2") == []
    assert status(db, root) == "rejected"
    check(db)


def test_a_merge_stays_without_the_observation_that_made_it(db: DB) -> None:
    """While both texts do. Rejected with its root, a text does not come back by being erased."""
    model(db)
    root = ingest(db, "Ann likes dark mode", **vector(1.0), source_turn_ids=["turn-3"])
    for turn in ("turn-1", "turn-2"):
        said = ingest(db, "She prefers the dark mode", **vector(0.97), source_turn_ids=[turn])
        assert (said.action, said.memory_id) == ("merged", root.memory_id)
    db.execute("select memfold.reject_memory(%s, tenant_id => 'acme')", [root.memory_id])
    erase(db, "turn-1")
    check(db)
    assert db.execute("select count(*) from memfold.memories where status = 'active'").fetchone() == (0,)
    assert counters(db, root.memory_id)["observations"] == 2
    ((event, alias),) = db.execute(
        "select event_id, memory_id from memfold.memory_events where method = 'erasure'"
    ).fetchall()
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [event])
    assert (status(db, root), status(db, alias)) == ("rejected", "active")
    check(db)


@pytest.mark.parametrize("again", ["observed", "recalled"])
def test_a_value_stays_current_without_its_first_source(db: DB, again: str) -> None:
    """Another source also states it, later; recalled text does not count as a statement."""
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    berlin = ingest(db, "Ann lives in Berlin", object="Berlin", **slot, source_turn_ids=["turn-3"])
    lyon = ingest(db, "Ann lives in Lyon", object="Lyon", **slot, source_turn_ids=["turn-1"])
    ingest(db, "Ann lives in Lyon", object="Lyon", **slot, source_turn_ids=["turn-2"], origin=again)
    erase(db, "turn-1")
    check(db)
    stays = again == "observed"
    assert (status(db, berlin), leads_to(db, lyon.memory_id) is None) == (
        ("superseded", False) if stays else ("active", True)
    )
    erase(db, "turn-3")
    check(db)
    oslo = ingest(db, "Ann lives in Oslo", object="Oslo", **slot)
    assert oslo.superseded_id == (lyon.memory_id if stays else None)
    check(db)


def test_words_of_an_erased_spelling_are_removed(db: DB) -> None:
    """Spellings of one canonical form may have other words, which the lexical tier keeps."""
    db.execute("select set_policy('acme', canonicalizer => 'flat', lexical_threshold => 0.9)")
    ingest(db, "Ann likes Zebra-cake", source_turn_ids=["turn-1"])
    assert ingest(db, "Ann likes zebracake", source_turn_ids=["turn-2"]).action == "merged"
    assert ("memory_tokens", "zebra-cake") in found(db, "zebra-cake")
    erase(db, "turn-1")
    assert found(db, "ebra-cake") == []
    assert ("zebracake",) in db.execute("select token from memfold.memory_tokens").fetchall()
    check(db)


def test_undoing_a_statement_whose_superseded_memory_was_erased(db: DB) -> None:
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    ingest(db, "Ann lives in Berlin", object="Berlin", **slot, source_turn_ids=["turn-1"])
    lyon = ingest(db, "Ann lives in Lyon", object="Lyon", **slot, source_turn_ids=["turn-2"])
    assert lyon.action == "superseded"
    erase(db, "turn-1")
    # as if it were the first
    raises("MF032", db.execute, "select memfold.undo(%s, tenant_id => 'acme')", [lyon.event_id])
    assert status(db, lyon) == "active"
    check(db)


def test_a_late_vector_where_what_was_superseded_is_gone(db: DB) -> None:
    model(db)
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    ingest(db, "Ann lives in Berlin", **slot, source_turn_ids=["turn-1"])
    lyon = ingest(db, "Ann lives in Lyon", **slot, source_turn_ids=["turn-2"])
    assert (lyon.action, lyon.method) == ("superseded", "predicate")
    erase(db, "turn-1")
    late = vector(1.0)
    db.execute(
        "select memfold.attach_embedding(%s, %s, %s, 'acme')",
        [lyon.memory_id, late["embedding"], late["embedding_model"]],
    )
    assert status(db, lyon) == "active"
    check(db)


def test_withdrawn_observations(db: DB) -> None:
    """An observation that was undone supports nothing, and its row in the ledger has the text still."""
    kept = ingest(db, "Ann likes tea", source_turn_ids=["turn-2"])
    again = ingest(db, "ANN likes TEA", source_turn_ids=["turn-1"])
    db.execute("select memfold.undo(%s, tenant_id => 'acme')", [again.event_id])
    erase(db, "turn-1")
    assert found(db, "ANN likes", "turn-1") == []
    assert status(db, kept) == "active"
    check(db)


def test_other_tables(db: DB) -> None:
    model(db)
    a = ingest(db, "Zebra drinks tea", **vector(1.0), source_turn_ids=["turn-1"])
    b = ingest(db, "Ann drinks tea", **vector(0.9), source_turn_ids=["turn-2"])
    assert answer(db, "distinct", 0.9, reason="a zebra is no Ann")[2] == "judged"
    db.execute("select memfold.add_labelled_pair('Zebra drinks tea', 'She drinks', 'distinct', 'acme')")
    assert found(db, "ebra")
    erase(db, "turn-1", reason="request 17")
    assert found(db, "ebra", "turn-1") == []
    assert status(db, b) == "active"
    assert leads_to(db, a.memory_id) is None
    assert db.execute(
        "select reason, actor from memfold.memory_events where action = 'erased'"
    ).fetchall() == [("request 17", "postgres")]
    check(db)


@pytest.mark.parametrize("what", ["source", "memory"])
def test_only_the_same_scope_waits(db: DB, connect: Callable[..., DB], what: str) -> None:
    """Without a lock another's fold could lead to what is gone; with the bucket's everybody would wait."""
    ann = ingest(db, "Ann likes tea", subject="Ann", source_turn_ids=["turn-1"]).memory_id
    eraser, writer = connect(), connect()
    writer.execute("set lock_timeout = '300ms'")
    with eraser.transaction():
        if what == "source":
            assert erase(eraser, "turn-1")[0] == 1
        else:
            assert erase_memory(eraser, ann)[0] == 1
        assert ingest(writer, "Bob likes chess", subject="Bob").action == "inserted"
        with pytest.raises(psycopg.errors.LockNotAvailable):
            ingest(writer, "Ann likes chess", subject="Ann")
    assert ingest(writer, "Ann likes chess", subject="Ann").action == "inserted"
    check_all(db)


def test_the_planner_keeps_no_texts(db: DB) -> None:
    """Samples would outlive what was erased, until the next analyze."""
    for number in range(30):
        ingest(db, f"Fact {number % 10} of Ann", subject="Ann", object="tea", metadata={"n": number})
    db.execute("analyze")
    kept = db.execute(
        "select s.starelid::regclass::text, a.attname::text from pg_statistic as s"
        " join pg_attribute as a on a.attrelid = s.starelid and a.attnum = s.staattnum"
        " join pg_class as c on c.oid = s.starelid where c.relnamespace = 'memfold'::regnamespace"
    ).fetchall()
    assert "subject" in {name for _, name in kept}
    texts = {
        "content",
        "object",
        "metadata",
        "guard",
        "similar_memories",
        "reason",
        "cause",
        "merged_text",
        "content_a",
    }
    # a policy's guard is one of two words
    assert [one for one in kept if one[1] in texts and one[0].split(".")[-1] != "policies"] == []


def test_several_calls(db: DB) -> None:
    for number in range(7):
        bucket = f"b{number % 3}"
        ingest(db, f"Fact {number}", bucket_id=bucket, source_turn_ids=["turn-1"])
        ingest(db, f"Fact {number + 100}", bucket_id=bucket, source_turn_ids=["turn-2"])
    erased, calls = 0, 0
    while True:
        part = erase(db, "turn-1", max_memories=2)
        erased += part[0]
        calls += 1
        assert part[0] <= 2
        assert part[3] == 7 - erased
        check(db)
        if part[3] == 0:
            break
    assert (erased, calls) == (7, 4)
    assert db.execute("select count(*) from memfold.memories").fetchone() == (7,)


# any history --------------------------------------------------------------------------------------------------------

TURNS = 5
WORDINGS = [
    ("alpha", 1.0, 1), ("alpha beta", 0.97, 1), ("alpha gamma", 0.95, 2), ("alpha delta", 0.89, 3),
    ("epsilon", 0.2, 1), ("zeta", 0.25, 2), ("zeta eta", 0.26, 2),
]  # fmt: skip


class History:
    """Random calls, each from one or two turns. Each turn has its own spelling, metadata, sessions and keys."""

    def __init__(self, db: DB, seed: int) -> None:
        self.db = db
        self.random = random.Random(seed)
        self.number = 0
        self.bucket = f"bucket {seed}"

    def call(self) -> None:
        chance = self.random.random()
        if chance < 0.65:
            self.say()
        elif chance < 0.8:
            self.judge()
        elif chance < 0.9:
            self.undo()
        else:
            self.person()

    def say(self) -> None:
        self.number += 1
        text, cosine, axis = self.random.choice(WORDINGS)
        turns = sorted(self.random.sample(range(TURNS), self.random.choice((1, 1, 1, 2))))
        turn = turns[0]
        slot = text.startswith(("e", "z"))
        more: dict[str, Any] = {
            "bucket_id": self.bucket,
            "source_turn_ids": [f"turn-{t}" for t in turns],
            "metadata": {"by": f"meta-{turn}"} if self.random.random() < 0.5 and len(turns) == 1 else {},
            "origin": self.random.choice(("observed", "observed", "observed", "recalled")),
        }
        if len(turns) == 1:
            more |= {"session_id": f"session-{turn}", "idempotency_key": f"key-{turn}-{self.number}"}
        if slot:
            more |= {"subject": "Ann", "predicate": "lives_in", "object": text.split()[0]}
            more["observed_at"] = f"2026-01-{self.random.randrange(1, 28):02}"
            if self.random.random() < 0.3:
                more["valid_until"] = f"2026-01-{self.random.randrange(1, 28):02}"
        # as many blanks as tell the turn; they are one in canonical form
        spelling = ("the" + " " * (turn + 2) + text) if len(turns) == 1 else f"the {text}"
        ingest(self.db, spelling, **vector(cosine, axis), **more)

    def some(self, query: str) -> Any:
        found = self.db.execute(query.encode(), [self.bucket]).fetchall()
        return self.random.choice(found) if found else None

    def judge(self) -> None:
        waiting = self.some(
            "select judgement_id from memfold.judgements where bucket_id = %s and status in ('open', 'leased')"
            " order by judgement_id"
        )
        if waiting:
            verdict = self.random.choice(("duplicate", "refinement", "contradiction", "distinct"))
            self.db.execute(
                "select memfold.resolve_judgement(%s, %s, confidence => 0.9, reason => 'reasons', tenant_id => 'acme')",
                [*waiting, verdict],
            )

    def undo(self) -> None:
        event = self.some(
            "select event_id from memfold.ledger where bucket_id = %s and not undone"
            " and memfold_internal._is_undoable(action, tier, observation) order by event_id"
        )
        if event:
            self.db.execute("select memfold.undo(%s, tenant_id => 'acme')", event)

    def person(self) -> None:
        roots = "select memory_id from memfold.memories where bucket_id = %s and status = 'active' order by memory_id"
        one, two = self.some(roots), self.some(roots)
        if not one or one == two:
            return
        what = self.random.choice(("merge_memories(%s, %s", "supersede_memory(%s, %s", "reject_memory(%s"))
        given = [one[0], two[0]][: what.count("%s")]
        self.db.execute(f"select memfold.{what}, tenant_id => 'acme')".encode(), given)

    def said_by_others(self, turn: str) -> list[tuple[Any, ...]]:
        return self.db.execute(
            "select event_id, content, metadata, observed_at, observation from memfold.ledger"
            " where bucket_id = %s and origin is not null and origin <> 'recalled' and not source_turn_ids <@ array[%s]"
            " order by event_id",
            [self.bucket, turn],
        ).fetchall()


@pytest.mark.parametrize("seed", seeds(2, 24))
def test_erasure_after_random_histories(db: DB, seed: int) -> None:
    model(db)
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    if seed % 2:
        # on, it tells beta and gamma apart
        db.execute("select set_policy('acme', guard => 'off')")
    history = History(db, seed)
    for _ in range(45):
        history.call()
    check(db)
    turns = list(range(TURNS))
    history.random.shuffle(turns)
    for turn in turns:
        before = history.said_by_others(f"turn-{turn}")
        erase(db, f"turn-{turn}")
        marks = [f"turn-{turn}", f"meta-{turn}", f"session-{turn}", f"key-{turn}-"]
        marks += [f"the{' ' * (turn + 2)}{text[0]}" for text, _, _ in WORDINGS]
        assert found(db, *marks) == []
        check(db)
        assert history.said_by_others(f"turn-{turn}") == before
        for _ in range(4):
            history.call()
        erase(db, f"turn-{turn}")
        check(db)
    for turn in turns:
        erase(db, f"turn-{turn}")
    check(db)
    assert db.execute("select distinct action from memfold.ledger").fetchall() == [("erased",)]
    for table in (
        "memories",
        "memory_vectors",
        "memory_sources",
        "memory_counters",
        "judgements",
        "memory_intervals",
    ):
        assert db.execute(f"select count(*) from memfold.{table}".encode()).fetchone() == (0,), table


# a memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.core
def test_a_memory_with_all_its_wordings(db: DB) -> None:
    model(db)
    root = ingest(db, "Zebra prefers dark mode", **vector(1.0), source_turn_ids=["turn-1"])
    ingest(db, "Zebra likes the dark mode best", **vector(0.95), source_turn_ids=["turn-2"])
    other = ingest(db, "Ann hates dark mode", **vector(0.9, 2), source_turn_ids=["turn-2"])
    (alias,) = db.execute("select memory_id from memfold.memories where merged_into is not null").fetchall()
    assert erase_memory(db, alias[0])[:2] == (2, 0)
    assert found(db, "ebra", "turn-1") == []
    assert status(db, other) == "active"
    assert counters(db, other.memory_id)["observations"] == 1
    assert leads_to(db, root.memory_id) is None
    raises("MF018", erase_memory, db, root.memory_id)
    raises("MF018", erase_memory, db, uuid4())
    check(db)


def test_memories_it_superseded_are_current_again(db: DB) -> None:
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    slot = {"subject": "Ann", "predicate": "lives_in"}
    old = ingest(db, "Ann lives in Berlin", object="Berlin", **slot)
    new = ingest(db, "Ann lives in Lyon", object="Lyon", **slot)
    assert status(db, old) == "superseded"
    erase_memory(db, new.memory_id)
    assert status(db, old) == "active"
    check(db)


def test_a_row_of_a_plain_insert(db: DB) -> None:
    (row,) = db.execute(
        "insert into memfold.memories (tenant_id, content) values ('acme', 'Zebra') returning memory_id"
    ).fetchall()
    assert erase_memory(db, row[0])[0] == 1
    assert found(db, "ebra") == []
    check(db)


# a bucket, a tenant -------------------------------------------------------------------------------------------------


def check_all(db: DB) -> None:
    """Like check(), except for rows of a plain INSERT that nobody has ingested."""
    for tenant in ("acme", "globex"):
        query = "select * from memfold.check_invariants(%s) where memory_id not in"
        query += " (select memory_id from memfold.memories where not is_ingested)"
        assert db.execute(query.encode(), [tenant]).fetchall() == []


def fill(db: DB, tenant: str, bucket: str) -> None:
    """Something in every table that has texts, all with the marks of tenant and bucket."""
    mark = f"{tenant}-{bucket}"
    common = {"tenant_id": tenant, "bucket_id": bucket, "session_id": f"session {mark}"}
    db.execute("select memfold.set_policy(%s, %s, lexical_threshold => 0.9)", [tenant, bucket])
    db.execute("select memfold.set_options(%s, protected_types => %s)", [tenant, [f"type {tenant}"]])
    ids = []
    for number in range(6):
        result = ingest(
            db,
            f"Fact {number} of {mark}",
            **vector(0.2 + number / 10, 1 + number % 3),
            subject=f"subject {mark} {number}",
            source_turn_ids=[f"turn {mark} {number}"],
            metadata={"mark": mark},
            idempotency_key=f"key {mark} {number}",
            **common,
        )
        ids.append(result.memory_id)
    ingest(db, f"Quite like {mark}", **vector(1.0), **common)
    ingest(db, f"Quite alike {mark}", **vector(0.95), **common)
    ingest(db, f"Somewhat like {mark}", **vector(0.9, 2), **common)
    ingest(db, f"Recalled {mark}", origin="recalled", **common)
    db.execute("select memfold.add_labelled_pair(%s, 'other', 'distinct', %s)", [f"Fact 0 of {mark}", tenant])
    db.execute(
        "select memfold.set_predicate(tenant_id => %s, predicate => %s)", [tenant, f"predicate {tenant}"]
    )
    slot = {"subject": "Ann", "predicate": f"predicate {tenant}"}
    for place in ("Berlin", "Lyon"):
        ingest(db, f"{place} {mark}", object=f"{place} {mark}", **slot, **common)
    db.execute(
        "insert into memfold.memories (tenant_id, bucket_id, content) values (%s, %s, %s)",
        [tenant, bucket, f"plain {mark}"],
    )
    db.execute("select memfold.prune_memories(%s, %s, 1, '0 days', 1, false)", [tenant, bucket])
    for alias in ("linked", "unlinked"):
        db.execute(
            "select memfold.link_subject(%s, %s, %s, %s)", [f"{alias} {mark}", f"name {mark}", tenant, bucket]
        )
    db.execute("select memfold.unlink_subject(%s, %s, %s)", [f"unlinked {mark}", tenant, bucket])


def dump(db: DB, tenants: str) -> dict[str, list[Any]]:
    tables = db.execute(
        "select c.relname from pg_class as c join pg_attribute as a on a.attrelid = c.oid and a.attname = 'tenant_id'"
        " where c.relnamespace = 'memfold'::regnamespace and c.relkind = 'r' order by 1"
    ).fetchall()
    return {
        name: db.execute(
            f"select x::text from memfold.{name} as x where {tenants} order by 1".encode()
        ).fetchall()
        for (name,) in tables
    }


@pytest.mark.one_server
def test_names_of_links_are_left_to_the_bucket(db: DB) -> None:
    """They are rules: docs/operations.md says where they stay, and until when."""
    ingest(db, "Likes tea", subject="Quimby", source_turn_ids=["t1"])
    ingest(db, "Likes milk", subject="Zorgo", source_turn_ids=["t2"])
    for alias in ("Zorgo", "Zorgo B"):
        db.execute("select link_subject(%s, 'Quimby', 'acme')", [alias])
    db.execute("select unlink_subject('Zorgo B', 'acme')")
    erase(db, "t1")
    erase_memory(db, ingest(db, "Likes milk", subject="Zorgo").memory_id)
    assert db.execute("select count(*) from memories").fetchone() == (0,)
    tables = {
        table.rsplit(".", 1)[-1] for table, _ in found(db, "Zorgo", "zorgo", "Quimby") if "pg_" not in table
    }
    assert tables == {"links", "runs", "judgements"}
    assert db.execute("select distinct kind from runs").fetchall() == [("link",)]
    assert db.execute("select distinct kind from judgements").fetchall() == [("identity",)]
    db.execute("select erase_bucket('acme', 'default')")
    assert found(db, "Zorgo", "zorgo", "Quimby") == []


@pytest.mark.core
def test_a_bucket(db: DB) -> None:
    model(db)
    for tenant, bucket in (("acme", "one"), ("acme", "two"), ("globex", "one")):
        fill(db, tenant, bucket)
    others = dump(db, "tenant_id = 'globex'")
    beside = dump(db, "tenant_id = 'acme' and strpos(x::text, 'acme-two') > 0")
    calls = 0
    while True:
        row = db.execute("select * from memfold.erase_bucket('acme', 'one', 'bye', 3)").fetchone()
        assert row is not None
        calls += 1
        check_all(db)
        if row[3] == 0:
            break
    assert calls > 3
    assert found(db, "acme-one") == []
    assert dump(db, "tenant_id = 'globex'") == others
    assert dump(db, "tenant_id = 'acme' and strpos(x::text, 'acme-two') > 0") == beside
    run, stub = (
        db.execute(query).fetchall()
        for query in (
            "select bucket_id, status, arguments, report ->> 'erased', actor from memfold.runs where kind = 'erasure'",
            "select bucket_id, method, reason, cause, actor from memfold.memory_events where action = 'erased'",
        )
    )
    assert run == [("one", "done", {"reason": "bye"}, "12", "postgres")]
    assert [row[:3] for row in stub] == [("one", "bucket", "bye")]
    assert stub[0][3].startswith("12 texts, ")
    assert ingest(db, "Fact 0 of acme-one", bucket_id="one").action == "inserted"
    check_all(db)


def test_a_bucket_of_many_calls_with_keys(db: DB) -> None:
    """More keys than one call may remove."""
    for number in range(25):
        ingest(db, "User likes tea", idempotency_key=f"key-{number}", bucket_id="one")
    remaining = [1]
    while remaining[-1]:
        row = db.execute("select remaining from memfold.erase_bucket('acme', 'one', 'bye', 1)").fetchone()
        assert row is not None
        remaining.append(row[0])
        check_all(db)
    assert remaining == [1, 1, 0]
    assert found(db, "key-", "likes tea") == []


@pytest.mark.parametrize("whole", ["bucket", "tenant"])
@pytest.mark.parametrize(("refused", "calls"), [(19, 1), (20, 2), (40, 3)])
def test_nothing_remains_when_a_call_reports_no_rest(db: DB, whole: str, refused: int, calls: int) -> None:
    """A call removes twenty rows without a memory: the rest is left to the next call, and if it cannot tell, it
    reports a rest."""
    for number in range(refused):
        assert ingest(db, f"Recalled {number}", origin="recalled", bucket_id="one").action == "rejected"
    ingest(db, "User likes tea", bucket_id="one")
    call = "erase_bucket('acme', 'one', 'bye', 1)" if whole == "bucket" else "erase_tenant('acme', 'bye', 1)"
    remaining = [1]
    while remaining[-1]:
        row = db.execute(f"select remaining from memfold.{call}".encode()).fetchone()
        assert row is not None
        remaining.append(row[0])
    assert found(db, "Recalled", "likes tea") == []
    assert len(remaining) - 1 == calls


@pytest.mark.core
def test_a_tenant(db: DB, app: App) -> None:
    model(db)
    for tenant, bucket in (("acme", "one"), ("acme", "two"), ("globex", "one")):
        fill(db, tenant, bucket)
    others = dump(db, "tenant_id = 'globex'")
    db.execute(
        "insert into memfold.antonyms (tenant_id, word, antonym) values ('acme', 'acme-up', 'acme-down')"
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        app("acme").execute("select memfold.erase_tenant('acme')")
    while True:
        row = db.execute("select * from memfold.erase_tenant('acme', max_memories => 5)").fetchone()
        assert row is not None
        check_all(db)
        if row[3] == 0:
            break
    assert found(db, "acme-", "predicate acme") == []
    assert dump(db, "tenant_id = 'globex'") == others
    left = {name for name, found_rows in dump(db, "tenant_id = 'acme'").items() if found_rows}
    assert left == {"runs", "memory_events"}
    assert stubs(db)[0][0] == "tenant"


def test_the_application_may_forget_its_own(db: DB, app: App) -> None:
    model(db)
    for tenant in ("acme", "globex"):
        ingest(db, "Zebra", tenant_id=tenant, source_turn_ids=["turn-1"])
    theirs = db.execute("select memory_id from memfold.memories where tenant_id = 'globex'").fetchone()
    before = dump(db, "tenant_id = 'globex'")
    mine = app("acme")
    for call, code in (
        ("erase_source('turn-1', 'globex')", "MF002"),
        ("erase_bucket('globex', 'default')", "MF002"),
        ("erase_memory(%s)", "MF018"),
        ("erase_source(null, 'acme')", "MF022"),
        ("erase_source('turn-1', 'acme', max_memories => 0)", "MF022"),
        ("erase_bucket('acme', 'default', max_memories => 0)", "MF022"),
        ("erase_bucket('acme', '')", "MF003"),
    ):
        raises(code, mine.execute, f"select memfold.{call}".encode(), theirs if "%s" in call else None)
    mine.execute("select memfold.erase_source('turn-1', 'acme')")
    assert dump(db, "tenant_id = 'globex'") == before
    assert json.dumps(stubs(db)[0][0]) == '"source"'


def test_maintenance_leaves_erasure_runs_alone(db: DB) -> None:
    """It cannot be undone, and it is not done while more calls are needed."""
    for n in range(3):
        ingest(db, f"Fact {n}")
    db.execute("select erase_bucket('acme', 'default', max_memories => 1)")
    db.execute("update runs set started_at = now() - interval '1 hour'")
    db.execute("select run_maintenance('acme')")
    [run] = rows(db, "select run_id, status from runs where kind = 'erasure'")
    assert run["status"] == "open"
    raises("MF039", db.execute, "select undo_run(%s, tenant_id => 'acme')", [run["run_id"]])
