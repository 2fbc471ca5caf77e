"""The guard and names that a bucket has linked: one person wherever two texts may merge. Other names stay two."""

from __future__ import annotations

import json
from typing import Any

from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

LINKS = {"Georg": "Georg Maier", "G. Maier": "Georg Maier", "my boss": "Georg Maier", "Zoë": "Zoë Éluard"}

ONE = [
    ("Georg works at Acme", "Georg Maier works at Acme"),
    ("georg works at acme.", "Georg Maier works at Acme"),
    ("G. Maier works at Acme", "Georg works at Acme"),
    ("GEORG MAIER works at Acme", "G. Maier works at Acme"),
    ("My boss works at Acme", "Georg works at Acme"),
    ("Every morning my boss drinks tea", "Georg Maier drinks tea every morning"),
    ("Anna knows Georg.", "Anna knows Georg Maier"),
    ("Georg's cat sleeps (says Georg)", "Georg Maier's cat sleeps (says Georg Maier)"),
    ("zoë works at Acme", "Zoë Éluard works at Acme"),
]

TWO = [
    # nobody has linked these
    ("Georg Huber works at Acme", "Georg Maier works at Acme"),
    ("Georg works at Acme", "Georg Huber works at Acme"),
    ("georg huber works at acme", "georg maier works at acme"),
    ("georg huber knows anna maier", "georg maier knows anna huber"),
    ("Georg huber works at Acme", "Georg Maier works at Acme"),
    ("Hans Georg works at Acme", "Georg Maier works at Acme"),
    ("Huber, Georg works at Acme", "Georg Maier works at Acme"),
    ("Georg Maier Huber works at Acme", "G. Maier works at Acme"),
    ("Georg works at Acme", "Anna works at Acme"),
    ("Georgia works at Acme", "Georg Maier works at Acme"),
    ("Zoë works at Acme", "Georg Maier works at Acme"),
    # one name, and another difference
    ("Georg works at Acme", "Georg Maier works at VW"),
    ("Georg does not work at Acme", "Georg Maier works at Acme"),
    ("Georg has 3 cats", "Georg Maier has 4 cats"),
    ("Georg told Anna", "Anna told Georg Maier"),
]


def link(db: DB, bucket: str, links: dict[str, str] = LINKS) -> None:
    for alias, name in links.items():
        db.execute("select link_subject(%s, %s, 'acme', %s)", [alias, name, bucket])


def guard(db: DB, a: str, b: str, bucket: str | None = "default", *objects: str) -> list[str]:
    row = db.execute(
        "select memfold_internal._guard_pair('acme', %s, %s, %s, %s, %s)",
        [a, b, *(objects or (None, None)), bucket],
    ).fetchone()
    assert row is not None
    return list(row[0])


def test_linked_names_are_one_to_the_guard(db: DB) -> None:
    link(db, "default")
    link(db, "*", {"Anna": "Anna Roth"})
    wrong = []
    for a, b in [*ONE, ("Anna likes tea", "Anna Roth likes tea")]:
        for one, other in ((a, b), (b, a)):
            if guard(db, one, other):
                wrong.append((one, other, guard(db, one, other)))
    for a, b in TWO:
        for one, other in ((a, b), (b, a)):
            if not guard(db, one, other):
                wrong.append((one, other, []))
    assert wrong == []
    # (the guard keeps most of these apart where no name is linked)
    apart = [guard(db, a, b, "another") != [] for a, b in ONE]
    assert sum(apart) >= 5


def test_the_number_of_compared_names_is_bounded(db: DB) -> None:
    """A page of names is not compared name by name while others wait: it is asked about, as without links."""
    link(db, "default")
    changed = "select is_changed, content from memfold_internal._under_one_name('acme', 'default', %s, %s)"
    for more, expected in (("word " * 190, True), ("word " * 200, False), ("w " * 4000, False)):
        row = db.execute(changed, [f"{more}and Georg", f"{more}and Georg Maier"]).fetchone()
        assert row is not None
        assert row[0] is expected
    # only the first ten names of a text
    row = db.execute(changed, ["Georg drinks " * 60, "G. Maier drinks " * 60]).fetchone()
    assert row is not None
    assert row[1].count("Georg Maier") == 10


def test_objects_are_linked_names_too(db: DB) -> None:
    link(db, "default")
    said = "She knows him", "She knows him"
    assert guard(db, *said, "default", "Georg", "G. Maier") == []
    assert guard(db, *said, "default", "Georg", "Anna") == ["object: georg maier <> anna"]
    assert guard(db, *said, "another", "Georg", "G. Maier") == ["object: georg <> g. maier"]


def test_every_way_that_merges_knows_the_names(db: DB) -> None:
    model(db)
    db.execute("select set_policy('acme', merge_veto => 0, on_refinement => 'merge')")
    db.execute(
        "select set_policy('acme', 'words', lexical_threshold => 0.6, merge_veto => 0, on_refinement => 'merge')"
    )
    alias, name = "Georg works at Acme", "Georg Maier works at Acme"
    for number, bucket in enumerate(("ingest", "preview", "batch", "in batch", "late", "words", "unlinked")):
        if bucket != "unlinked":
            link(db, bucket, {"Georg": "Georg Maier"})
        near = {} if bucket == "words" else vector(0.99)
        told = {"bucket_id": bucket, "subject": "Georg"}
        if bucket != "in batch":
            ingest(
                db,
                name,
                bucket_id=bucket,
                subject="Georg Maier" if bucket != "unlinked" else "Georg",
                **vector(1.0),
            )
        if bucket == "late":
            late = ingest(db, alias, **told)
            db.execute(
                "select attach_embedding(%s, %s::vector, %s, 'acme')",
                [late.memory_id, near["embedding"], near["embedding_model"]],
            )
        elif bucket.endswith("batch"):
            facts: list[dict[str, Any]] = [
                {"content": alias, "bucket_id": bucket, "subject": "Georg", **near}
            ]
            if bucket == "in batch":
                facts.append({"content": name, "bucket_id": bucket, "subject": "Georg Maier", **vector(1.0)})
            for fact in facts:
                fact["embedding"] = json.loads(fact["embedding"])
            db.execute("select ingest_memories(%s, 'acme')", [json.dumps(facts)])
        else:
            function = "preview_memory" if bucket == "preview" else "ingest_memory"
            result = ingest(db, alias, function=function, **told, **near)
            assert (bucket, result.action) == (bucket, "escalated" if bucket == "unlinked" else "merged")
            if bucket == "preview":
                continue
        assert (bucket, number, active(db, bucket)) == (bucket, number, 2 if bucket == "unlinked" else 1)
    check(db)


def test_a_sweep_merges_texts_stored_before_the_link(db: DB) -> None:
    model(db)
    db.execute(
        "select set_policy('acme', merge_veto => 0, on_refinement => 'merge', on_ambiguous => 'insert')"
    )
    ingest(db, "Georg Maier works at Acme", subject="Georg Maier", **vector(1.0))
    ingest(db, "Georg works at Acme", subject="Georg", **vector(0.99))
    ingest(db, "Georg Huber works at Acme", subject="Georg Maier", **vector(0.99, 2))
    sweep = "select action, guard from sweep_duplicates('acme', dry_run => false)"
    assert "merge" not in [row[0] for row in db.execute(sweep).fetchall()]
    link(db, "default", {"Georg": "Georg Maier"})
    # recall shows them as one even before the sweep
    found = db.execute(
        "select content from search_memories(%s::vector, 'm', 'acme')", [vector(1.0)["embedding"]]
    ).fetchall()
    assert len(found) == 2
    assert [row for row in db.execute(sweep).fetchall() if row[0] == "merge"] == [("merge", [])]
    assert active(db, "default") == 2
    check(db)


def active(db: DB, bucket: str) -> int:
    row = db.execute(
        "select count(*) from memories where tenant_id = 'acme' and bucket_id = %s and status = 'active'",
        [bucket],
    ).fetchone()
    assert row is not None
    return int(row[0])
