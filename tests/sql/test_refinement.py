"""A newer text that says all that the older says, and more: it replaces it, or a judge is asked, by on_refinement."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB, one

SHORT, RICH = "Runs and cycles", "Runs, cycles, and does yoga"


def texts(db: DB) -> list[tuple[str, str | None]]:
    """Each text, with the one that it leads to."""
    return db.execute(
        "select m.content, r.content from memfold.memories as m left join memfold.memories as r"
        " on r.tenant_id = m.tenant_id and r.memory_id = m.root_id where m.tenant_id = 'acme' order by m.content"
    ).fetchall()


def policy(db: DB, **options: Any) -> None:
    named = ", ".join(f"{name} => %s" for name in options)
    db.execute(f"select memfold.set_policy('acme', {named})".encode(), list(options.values()))


@pytest.mark.parametrize(
    ("content", "other", "more"),
    [
        (RICH, SHORT, True),
        (SHORT, RICH, False),
        (SHORT, SHORT, False),
        ("User likes hiking", "Likes hiking in the Alps", False),
        ("Likes hiking in the Alps", "User likes hiking", True),
        ("The user likes hiking a lot", "Likes hiking", True),
        ("User likes hiking", "Likes hiking", False),  # who it is goes without saying
        ("She likes a hike in the Alps", "Likes hikes", True),  # a form of the word
        ("Works as a nurse in a clinic", "Works as a doctor", False),
        ("Ann keeps 2 cats", "Ann has 2 cats", False),
        ("Has two dogs and a cat", "Has 2 dogs", True),
        ("喜欢跑步和游泳", "喜欢跑步", True),
        ("喜欢跑步", "喜欢跑步和游泳", False),
        ("喜欢绿色茶", "喜欢茶", True),
        ("喜欢热茶", "喜欢茶", False),  # one ideograph may be half a word
        ("Mag Tee mit Honig", "Mag Tee", True),
        ("x" * 9000, "x", False),  # longer than the limit of comparisons
        ("", "", False),
    ],
)
def test_what_says_more(db: DB, content: str, other: str, more: bool) -> None:
    assert one(db, "select memfold_internal._says_more(%s, %s)", content, other) is more


def test_the_richer_text_leads(db: DB) -> None:
    model(db)
    short = ingest(db, SHORT, **vector(1), source_turn_ids=["a"])
    told = ingest(db, RICH, function="preview_memory", **vector(0.95))
    rich = ingest(db, RICH, **vector(0.95), source_turn_ids=["b"])
    assert (rich.action, rich.tier, rich.method) == ("replaced", 2, "vector")
    assert (told.action, told.similarity) == (rich.action, rich.similarity)
    assert texts(db) == [(SHORT, RICH), (RICH, None)]
    assert (
        one(db, "select reason from memfold.memory_events where event_id = %s", rich.event_id) == "refinement"
    )
    assert (
        one(db, "select memory_id from memfold.current_memory(%s, 'acme')", short.memory_id) == rich.memory_id
    )
    assert one(db, "select observations from memfold.memory_totals where memory_id = %s", rich.memory_id) == 2
    # the older text is known: its next arrival is a tier-1 hit on the richer one
    again = ingest(db, SHORT, source_turn_ids=["c"])
    assert (again.action, again.tier, again.memory_id) == ("merged", 1, rich.memory_id)
    db.execute("select memfold.undo(%s, 'acme')", [rich.event_id])
    assert texts(db) == [(SHORT, None), (RICH, None)]
    check(db)


def test_an_older_text_that_says_more_keeps_the_lead(db: DB) -> None:
    model(db)
    rich = ingest(db, RICH, **vector(1))
    short = ingest(db, SHORT, **vector(0.95))
    assert (short.action, short.memory_id) == ("merged", rich.memory_id)
    assert texts(db) == [(SHORT, RICH), (RICH, None)]
    check(db)


def test_what_changes_a_fact_is_not_a_refinement(db: DB) -> None:
    """The guard is asked first: the addition must be clean."""
    model(db)
    ingest(db, "Runs and cycles", **vector(1))
    told = ingest(db, "Never runs and cycles with friends", **vector(0.95))
    assert told.action == "escalated"
    check(db)


@pytest.mark.parametrize(
    ("on_ambiguous", "kind"), [("judge", "write"), ("review", "review"), ("insert", "review")]
)
def test_a_policy_asks(db: DB, on_ambiguous: str, kind: str) -> None:
    model(db)
    policy(db, on_refinement="escalate", on_ambiguous=on_ambiguous)
    short = ingest(db, SHORT, **vector(1))
    rich = ingest(db, RICH, **vector(0.95))
    assert (rich.action, [s["memory_id"] for s in rich.similar]) == ("escalated", [str(short.memory_id)])
    row = db.execute(
        "select kind, other_id from memfold.judgements where judgement_id = %s", [rich.judgement_id]
    ).fetchone()
    assert row == (kind, short.memory_id)
    check(db)


@pytest.mark.parametrize("options", [{"on_refinement": "merge"}, {"guard": "off"}])
def test_a_policy_merges_as_before(db: DB, options: dict[str, str]) -> None:
    model(db)
    policy(db, **options)
    ingest(db, SHORT, **vector(1))
    assert ingest(db, RICH, **vector(0.95)).action == "merged"
    assert texts(db) == [(SHORT, None), (RICH, SHORT)]
    check(db)


def test_recalled_text_replaces_nothing(db: DB) -> None:
    model(db)
    ingest(db, SHORT, **vector(1))
    assert ingest(db, RICH, **vector(0.95), origin="recalled").action == "merged"
    assert texts(db) == [(SHORT, None), (RICH, SHORT)]
    check(db)


def test_words_alone(db: DB) -> None:
    policy(db, lexical_threshold=0.5)
    ingest(db, "Drinks green tea every morning", subject="Ida")
    rich = ingest(db, "Drinks green tea every morning with honey", subject="Ida")
    assert (rich.action, rich.method) == ("replaced", "lexical")
    check(db)


@pytest.mark.parametrize("on_refinement", ["replace", "escalate"])
@pytest.mark.parametrize("last", ["short", "rich"])
def test_vectors_that_come_later(db: DB, on_refinement: str, last: str) -> None:
    """It makes no difference which of the two gets its vector last."""
    model(db)
    policy(db, on_refinement=on_refinement)
    said = {"short": ingest(db, SHORT), "rich": ingest(db, RICH)}
    given = {"short": vector(1), "rich": vector(0.95)}

    def attach(which: str) -> Result:
        row = db.execute(
            "select * from memfold.attach_embedding(%s, %s, %s, 'acme')",
            [said[which].memory_id, *given[which].values()],
        ).fetchone()
        assert row is not None
        return Result(*row)

    assert attach("rich" if last == "short" else "short").action == "embedded"
    done = attach(last)
    if on_refinement == "replace":
        assert (done.action, done.memory_id) == ("replaced", said["rich"].memory_id)
        assert texts(db) == [(SHORT, RICH), (RICH, None)]
    else:
        assert (done.action, done.judgement_id is not None) == ("escalated", True)
        assert texts(db) == [(SHORT, None), (RICH, None)]
    check(db)


def test_a_batch_does_the_same(db: DB) -> None:
    model(db)
    made = db.execute(
        "select action from memfold.ingest_memories(jsonb_build_array("
        "jsonb_build_object('content', %s::text, 'embedding_model', 'm'),"
        "jsonb_build_object('content', %s::text, 'embedding_model', 'm')), 'acme', embeddings => array[%s, %s]::vector[])",
        [SHORT, RICH, vector(1)["embedding"], vector(0.95)["embedding"]],
    ).fetchall()
    assert made == [("inserted",), ("replaced",)]
    assert texts(db) == [(SHORT, RICH), (RICH, None)]
    check(db)


@pytest.mark.parametrize(
    ("on_refinement", "action"), [("replace", "replace"), ("escalate", "ask"), ("merge", "merge")]
)
def test_a_sweep_does_the_same(db: DB, on_refinement: str, action: str) -> None:
    model(db)
    policy(db, merge_threshold=1, judge_threshold=1, on_ambiguous="insert")
    for text, cosine in ((SHORT, 1.0), ("Cycles and runs", 0.99), (RICH, 0.95)):
        ingest(db, text, **vector(cosine))
    policy(db, preset="three_tier", on_refinement=on_refinement)
    done = db.execute(
        "select content, representative_content, action, run_id from memfold.sweep_duplicates('acme', dry_run => false)"
    ).fetchall()
    assert action in {row[2] for row in done}
    roots = {root or text for text, root in texts(db)}
    assert roots == {"replace": {RICH}, "escalate": {SHORT, RICH}, "merge": {SHORT}}[on_refinement]
    check(db)
    db.execute("select memfold.undo_run(%s, 'acme')", [done[0][3]])
    assert {root for _, root in texts(db)} == {None}
    check(db)


def test_calibration_takes_it_for_a_refinement(db: DB) -> None:
    model(db)
    ingest(db, SHORT, **vector(1))
    ingest(db, RICH, **vector(0.95))
    assert one(db, "select label from memfold_internal._past_decisions('acme', null)") == "refinement"
