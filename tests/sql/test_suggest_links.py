"""suggest_links: which names may mean one, and the effect on a store of linking them."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.links import link, shown, state
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

PEOPLE = ["Georg Maier", "Maria Maier", "Hans Huber", "Anna Schmidt", "Peter Wolf"]
TOLD = [
    "plays chess", "has a dog", "drinks tea", "speaks Dutch", "reads novels", "collects stamps", "owns a boat",
    "hates noise", "sings well", "rides a bike",
]  # fmt: skip


def spellings(person: str) -> list[str | None]:
    first, last = person.split()
    return [first, person, f"{first[0]}. {last}", None]


def tell(db: DB, bucket: str, *, one_name: bool) -> None:
    """200 facts: ten about each person, under four names each."""
    for number, fact in enumerate(TOLD):
        for person in PEOPLE:
            for name in spellings(person):
                ingest(
                    db, f"{person} {fact}", subject=person if one_name else name, bucket_id=bucket,
                    source_turn_ids=[f"turn {number} {name}"], observed_at=f"2026-01-{number + 1:02}",
                )  # fmt: skip


def suggested(db: DB, bucket: str = "default") -> list[tuple[str, str | None, str, float, list[str]]]:
    return db.execute(
        "select kind, alias, name, score, reasons from suggest_links('acme', %s)", [bucket]
    ).fetchall()


def pairs(db: DB) -> set[tuple[str | None, str]]:
    return {(alias, name) for _, alias, name, _, _ in suggested(db)}


def test_five_people_by_four_names(db: DB) -> None:
    tell(db, "one", one_name=True)
    tell(db, "default", one_name=False)
    expected = shown(db, "one")
    assert (len(expected), len(shown(db))) == (50, 200)
    found = suggested(db)
    who = {name: person for person in PEOPLE for name in spellings(person) if name is not None}
    right = [row for row in found if row[1] is None or who[row[1]] == who[row[2]]]
    aliases = {(name, person) for person in PEOPLE for name in spellings(person) if name != person}
    precision = len(right) / len(found)
    recall = len(aliases & pairs(db)) / len(aliases)
    assert (precision, recall) == (1.0, 1.0), found
    before = state(db)
    # some are implied by earlier links
    runs = list(dict.fromkeys(link(db, alias, name) for _, alias, name, _, _ in found))
    assert shown(db) == expected
    assert suggested(db) == []
    check(db)
    for run in reversed(runs):
        db.execute("select undo_run(%s, 'acme')", [run])
    assert state(db) == before
    check(db)


def test_nothing_is_linked_unasked(db: DB) -> None:
    tell(db, "default", one_name=False)
    before = state(db)
    assert suggested(db) != []
    assert db.execute("select count(*) from links").fetchone() == (0,)
    assert state(db) == before


@pytest.mark.core
def test_name_that_may_be_two_is_not_suggested_without_facts(db: DB) -> None:
    for name in ("Georg", "Georg Maier", "Georg Huber"):
        ingest(db, f"is {name}", subject=name)
    assert suggested(db) == []
    for number in range(2):
        for name in ("Georg", "Georg Maier"):
            ingest(db, f"has the number {number}", subject=name)
    assert [row[1:] for row in suggested(db)] == [
        ("Georg", "Georg Maier", pytest.approx(0.7), ["contained", "facts", "ambiguous"])
    ]


def test_name_that_can_be_only_one_is_not_ambiguous(db: DB) -> None:
    for name in ("Georg", "Georg Maier"):
        ingest(db, "has a dog", subject=name)
    assert [row[1:] for row in suggested(db)] == [
        ("Georg", "Georg Maier", pytest.approx(0.8), ["contained", "facts"])
    ]


def test_names_that_the_guard_tells_apart_are_not_suggested(db: DB) -> None:
    """However much they have in common."""
    for number in range(6):
        for name in ("Georg Maier", "Georg Huber", "Anna", "Hans", "room 1", "room 2"):
            ingest(db, f"has the number {number}", subject=name)
    assert suggested(db) == []


def test_dissimilar_names_are_suggested_by_their_facts(db: DB) -> None:
    model(db)
    for axis, text in enumerate(("likes tea", "owns a boat", "sings well")):
        ingest(db, f"Georg Maier {text}", subject="Georg Maier", **vector(0.0, axis=axis + 1))
    for text in ("likes tea", "owns a boat"):
        ingest(db, f"my boss {text}", subject="my boss")
    ingest(db, "my neighbour likes tea", subject="my neighbour")
    assert pairs(db) == {("my boss", "Georg Maier")}


@pytest.mark.parametrize(("names", "found"), [(20, True), (21, False)])
def test_facts_stated_of_many_names_are_not_evidence(db: DB, names: int, found: bool) -> None:
    firsts, lasts = ("Ann", "Bea", "Cy", "Dan", "Eve"), ("Fox", "Gray", "Hall", "Iles", "Jones")
    people = [f"{first} {last}" for first in firsts for last in lasts]
    for text in ("likes tea", "owns a boat"):
        for name in ["my boss", *people][:names]:
            ingest(db, f"{name} {text}", subject=name)
            ingest(db, f"my boss {text}", subject=name)
    assert (pairs(db) != set()) is found


def test_near_facts_count_where_the_guard_is_clean(db: DB) -> None:
    model(db)
    for axis, (one, other) in enumerate(
        (("likes tea", "likes tea a lot"), ("owns a boat", "owns a boat now"), ("has 2 dogs", "has 3 dogs")),
        1,
    ):
        ingest(db, one, subject="my boss", **vector(0.0, axis=axis))
        ingest(db, other, subject="the chief", **vector(0.04, axis=axis))
    row = db.execute("select alias, name, evidence ->> 'shared' from suggest_links('acme')").fetchone()
    guarded = db.execute(
        "select memfold_internal._guard('acme', 'has 2 dogs', 'has 3 dogs') <> '{}',"
        " memfold_internal._guard('acme', 'likes tea', 'likes tea a lot') = '{}'"
    ).fetchone()
    assert guarded == (True, True)
    assert row == ("my boss", "the chief", "2")


def test_predicates_of_the_same_slots_and_objects(db: DB) -> None:
    for number in range(4):
        person = f"person {'abcd'[number]}"
        ingest(db, f"{person} at VW {number}", subject=person, predicate="works_at", object=f"VW {number}")
        ingest(
            db,
            f"{person} has employer VW {number}",
            subject=person,
            predicate="employer",
            object=f"VW {number}",
        )
        if number < 3:
            ingest(
                db,
                f"{person} likes VW {number}",
                subject=person,
                predicate="likes",
                object=f"VW {number % 2}",
            )
            ingest(
                db, f"{person} dislikes VW {number}", subject=person, predicate="does not like", object="VW 0"
            )
    found = [row[:3] for row in suggested(db) if row[0] == "predicate"]
    assert ("predicate", "employer", "works_at") in found
    assert not any("like" in (row[1] or "") and "like" in row[2] for row in found)


def test_bad_arguments(db: DB) -> None:
    for arguments, code in (
        ("'acme', ''", "MF003"),
        ("'acme', 'b', 0", "MF022"),
        ("'acme', 'b', null", "MF022"),
    ):
        with pytest.raises(psycopg.Error) as error:
            db.execute(f"select suggest_links({arguments})".encode())
        assert error.value.sqlstate == code


def test_names_that_were_unlinked_are_not_suggested_again(db: DB) -> None:
    model(db)
    for text in ("likes tea", "owns a boat"):
        for name in ("my boss", "Georg Maier"):
            ingest(db, f"my boss {text}", subject=name)
    ((_, alias, name, _, _),) = suggested(db)
    link(db, alias, name)
    db.execute("select unlink_subject(%s, 'acme')", [alias])
    assert suggested(db) == []
