"""Late vectors: in a single-valued slot they have the same result as vectors given at once."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.concurrent_calls import Call
from tests.support.memories import Result, check, ingest, model, vector
from tests.support.queries import DB

SLOT = {"subject": "Ida", "predicate": "lives_in"}
BONN, DAHEIM, NEAR, OSLO = vector(1.0), vector(0.97, 1), vector(0.88, 2), vector(0.1, 3)
PARAPHRASES = [("Ida wohnt in Bonn", BONN), ("Ida lebt in Bonn", DAHEIM)]
UNCLEAR = [("Ida wohnt in Bonn", BONN), ("Ida lebt bei Bonn", NEAR)]
# The decisions, without ids, times of writing and the ledger's intermediate steps.
STATE = """
select jsonb_build_object(
  'memories', (select jsonb_agg(jsonb_build_array(m.content, m.status, p.content, k.observations, k.on_timeline,
        v.is_live) order by m.content)
    from memfold.memories as m left join memfold.memories as p on p.tenant_id = m.tenant_id and p.memory_id = m.merged_into
        left join memfold.memory_totals as k on k.tenant_id = m.tenant_id and k.memory_id = m.memory_id
            and m.root_id is null
        left join memfold.memory_vectors as v on v.tenant_id = m.tenant_id and v.memory_id = m.memory_id
    where m.tenant_id = %(tenant)s),
  'intervals', (select jsonb_agg(jsonb_build_array(m.content, i.valid_from, i.valid_to) order by m.content, i.valid_from)
    from memfold.memory_intervals as i join memfold.memories as m using (tenant_id, memory_id)
    where i.tenant_id = %(tenant)s),
  'judgements', (select jsonb_agg(jsonb_build_array(j.kind, j.status, a.content, b.content, round(j.similarity::numeric, 4))
        order by j.judgement_id)
    from memfold.judgements as j join memfold.memories as a on a.tenant_id = j.tenant_id and a.memory_id = j.memory_id
        join memfold.memories as b on b.tenant_id = j.tenant_id and b.memory_id = j.other_id where j.tenant_id = %(tenant)s),
  'pending', (select count(*) from memfold.memories as m where m.tenant_id = %(tenant)s and m.embedding_pending))
"""


def state(db: DB, tenant: str) -> Any:
    row = db.execute(STATE.encode(), {"tenant": tenant}).fetchone()
    assert row is not None
    return row[0]


def prepare(db: DB, **policy: str) -> None:
    model(db)
    for tenant in ("acme", "at once"):
        db.execute("select set_predicate('lives_in', %s)", [tenant])
        if policy:
            db.execute(
                f"select set_policy(%s, 'default', {', '.join(f'{name} => %s' for name in policy)})".encode(),
                [tenant, *policy.values()],
            )


def say(db: DB, tenant: str, text: str, given: dict[str, Any], day: int) -> Result:
    return ingest(db, text, tenant_id=tenant, observed_at=f"2026-01-{day:02}", **SLOT, **given)


def attach(db: DB, memory: Result, given: dict[str, Any]) -> tuple[Any, ...]:
    row = db.execute(
        "select action, method, round(similarity::numeric, 4)::float8, judgement_id is not null"
        " from attach_embedding(%s, %s, %s, 'acme')",
        [memory.memory_id, *given.values()],
    ).fetchone()
    assert row is not None
    check(db)
    return tuple(row)


def both(
    db: DB, said: list[tuple[str, dict[str, Any], int]], order: tuple[int, ...]
) -> list[tuple[Any, ...]]:
    """Submit the same texts for two tenants: one gets vectors at once, the other later, in this order."""
    texts: dict[str, Result] = {}
    for text, given, day in said:
        say(db, "at once", text, given, day)
        result = say(db, "acme", text, {}, day)
        texts.setdefault(text, result)
    given_of = {text: given for text, given, _ in said}
    names = list(texts)
    results = [attach(db, texts[names[i]], given_of[names[i]]) for i in order]
    assert state(db, "acme") == state(db, "at once")
    return results


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_phrasings_of_one_value_are_one(db: DB, order: tuple[int, ...]) -> None:
    prepare(db)
    a, b = PARAPHRASES
    results = both(db, [(*a, 1), (*b, 2)], order)
    assert results == [("embedded", None, None, False), ("merged", "vector", 0.97, False)]
    rows = db.execute(
        "select e.action, e.tier, e.method, w.content, l.content, u.action, u.method from memfold.ledger as e"
        " join memories as w on w.tenant_id = e.tenant_id and w.memory_id = e.memory_id"
        " join memories as l on l.tenant_id = e.tenant_id and l.memory_id = e.target_id"
        " left join memory_events as u on u.tenant_id = e.tenant_id and u.event_id = e.undoes"
        " where e.tenant_id = 'acme' order by e.event_id"
    ).fetchall()
    new, old = PARAPHRASES[1][0], PARAPHRASES[0][0]
    assert rows == [
        ("superseded", 2, "predicate", new, old, None, None),
        ("merged", 2, "vector", new, old, None, None),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_three_phrasings(db: DB, order: tuple[int, ...]) -> None:
    prepare(db, guard="off")
    given = [BONN, DAHEIM, vector(0.99, 1)]
    both(
        db,
        [(f"Ida {verb} in Bonn", given[i], i + 1) for i, verb in enumerate(("wohnt", "lebt", "ist"))],
        (0, 1, 2),
    )
    texts = [
        row[0]
        for row in db.execute("select content from memories where tenant_id = 'acme' and status = 'active'")
    ]
    assert texts == ["Ida wohnt in Bonn"]
    # in another order the aliases may form a different tree, but it is still one memory
    db.execute("select set_predicate('lives_in', 'other'), set_policy('other', 'default', guard => 'off')")
    late = [say(db, "other", f"Ida ist {word}", {}, i + 1) for i, word in enumerate(("hier", "da", "dort"))]
    for i in order:
        db.execute("select attach_embedding(%s, %s, %s, 'other')", [late[i].memory_id, *given[i].values()])
        check(db)
    assert db.execute(
        "select m.content, k.observations from memories as m join memory_totals as k using (tenant_id, memory_id)"
        " where m.tenant_id = 'other' and m.root_id is null"
    ).fetchall() == [("Ida ist hier", 3)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_next_to_another_value(db: DB, order: tuple[int, ...], place: int) -> None:
    """Oslo before, between and after two phrasings of Bonn, or late."""
    prepare(db)
    a, b = ((*PARAPHRASES[0], 2), (*PARAPHRASES[1], 4))
    said = [a, b]
    said.insert(min(place, 2), ("Ida wohnt in Oslo", OSLO, (1, 3, 5, 1)[place]))
    both(db, said, order)


ORDERS = [
    ((0, 1), (1, 2), False), ((1, 0), (1, 2), True), ((0, 1), (2, 1), True), ((1, 0), (2, 1), False),
]  # fmt: skip
POLICIES: list[dict[str, str]] = [
    {}, {"on_merge": "replace"}, {"on_merge": "synthesise"}, {"on_ambiguous": "insert"}, {"on_ambiguous": "review"},
    {"scope": "bucket"},
]  # fmt: skip


def comes_out_as_at_once(name: str, policy: dict[str, str], days: tuple[int, int], restated: bool) -> bool:
    if days == (1, 2):
        return True
    # attaching does not ask which of the two was observed first
    if policy == {"on_merge": "replace"}:
        return False
    # see test_a_value_that_was_stated_again
    return not (restated and (name == "unclear" or policy == {"on_merge": "synthesise"}))


@pytest.mark.parametrize(("name", "policy", "order", "days", "restated"), [
    (name, policy, order, days, restated)
    for name in ("paraphrases", "unclear")
    for policy in POLICIES
    for order, days, restated in ORDERS
    if comes_out_as_at_once(name, policy, days, restated)
])  # fmt: skip
def test_late_vectors_have_the_result_of_vectors_given_at_once(
    db: DB, name: str, policy: dict[str, str], restated: bool, days: tuple[int, int], order: tuple[int, ...]
) -> None:
    pair = PARAPHRASES if name == "paraphrases" else UNCLEAR
    prepare(db, **policy)
    said = [(*pair[0], days[0]), (*pair[1], days[1])]
    if restated:
        said.append((*pair[1], 3))
    both(db, said, order)


def test_a_value_that_was_stated_again(db: DB) -> None:
    """Late at first, then current: its second statement supersedes the other value, whatever the first did."""
    prepare(db)
    a = say(db, "acme", UNCLEAR[0][0], {}, 2)
    b = say(db, "acme", UNCLEAR[1][0], {}, 1)
    again = say(db, "acme", UNCLEAR[1][0], {}, 3)
    assert (b.action, again.action, again.method) == ("historical", "superseded", "timeline")
    assert attach(db, a, BONN)[0] == "embedded"
    assert attach(db, b, NEAR)[0] == "escalated"
    assert [row[1] for row in state(db, "acme")["memories"]] == ["active", "superseded"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pairs_raised_by_the_guard_are_asked_about(db: DB, order: tuple[int, ...]) -> None:
    prepare(db)
    results = both(db, [("Ida wohnt in Bonn", BONN, 1), ("Ida wohnt nicht in Bonn", DAHEIM, 2)], order)
    assert [row[0] for row in results] == ["embedded", "escalated"]


def test_another_value_stays_another(db: DB) -> None:
    prepare(db)
    both(db, [("Ida wohnt in Bonn", BONN, 1), ("Ida wohnt in Oslo", OSLO, 2)], (0, 1))
    assert db.execute("select count(*) from memory_events where action = 'undone'").fetchone() == (0,)


def test_values_with_objects_stay_apart(db: DB) -> None:
    prepare(db)
    texts = [ingest(db, f"Ida lives in {place}", **SLOT, object=place) for place in ("Bonn", "Beuel")]
    for text, given in zip(texts, (BONN, DAHEIM), strict=True):
        assert attach(db, text, given)[0] == "embedded"
    assert db.execute("select count(*) from memories where status = 'superseded'").fetchone() == (1,)


def test_a_persons_decision_stays(db: DB) -> None:
    prepare(db)
    a, b = (say(db, "acme", text, {}, day + 1) for day, (text, _) in enumerate(PARAPHRASES))
    db.execute("select supersede_memory(%s, %s, tenant_id => 'acme')", [a.memory_id, b.memory_id])
    assert attach(db, a, BONN)[0] == "embedded"
    assert attach(db, b, DAHEIM)[0] == "embedded"


def test_a_merge_undone_by_a_person_is_not_asked_about(db: DB) -> None:
    prepare(db)
    a, b = (say(db, "acme", text, {}, day + 1) for day, (text, _) in enumerate(PARAPHRASES))
    db.execute("select undo(%s, tenant_id => 'acme')", [b.event_id])
    assert attach(db, a, BONN)[0] == "embedded"
    assert attach(db, b, DAHEIM)[0] == "embedded"
    assert db.execute("select kind, status from judgements").fetchall() == []


def test_the_merge_can_be_undone(db: DB) -> None:
    """Like a merge made at once: two memories, and the text stated last is current."""
    prepare(db)
    both(db, [(*PARAPHRASES[0], 1), (*PARAPHRASES[1], 2)], (0, 1))
    for tenant in ("acme", "at once"):
        db.execute(
            "select undo(event_id, tenant_id => %s) from memory_events where tenant_id = %s and action = 'merged'",
            [tenant, tenant],
        )
    check(db)
    assert state(db, "acme") == state(db, "at once")
    assert [row[1] for row in state(db, "acme")["memories"]] == ["active", "superseded"]


def test_the_next_value_after_an_unclear_one(db: DB) -> None:
    prepare(db)
    both(db, [(*UNCLEAR[0], 1), (*UNCLEAR[1], 2)], (0, 1))
    for tenant in ("acme", "at once"):
        db.execute(
            "select reject_memory(memory_id, tenant_id => %s) from memories where tenant_id = %s and content = %s",
            [tenant, tenant, UNCLEAR[0][0]],
        )
        result = say(db, tenant, "Ida wohnt in Oslo", OSLO, 5)
        assert result.action == "superseded"
    check(db)
    assert state(db, "acme") == state(db, "at once")


def test_a_vector_of_another_model(db: DB) -> None:
    prepare(db)
    model(db, "second")
    a, b = (
        say(db, "acme", text, given, day)
        for day, (text, given) in enumerate([PARAPHRASES[0], ("Ida lebt in Bonn", OSLO)], 1)
    )
    assert b.action == "superseded"
    assert attach(db, a, vector(1.0, name="second"))[0] == "embedded"
    assert attach(db, b, vector(0.97, name="second"))[0] == "merged"


def test_nothing_is_written_for_texts_that_are_not_alike(db: DB) -> None:
    prepare(db)
    a = say(db, "acme", "Ida wohnt in Bonn", {}, 1)
    b = say(db, "acme", "Ida wohnt in Oslo", {}, 2)
    attach(db, a, BONN)
    before = db.execute("select xmin, is_live from memory_vectors").fetchall()
    attach(db, b, OSLO)
    after = db.execute(
        "select xmin, is_live from memory_vectors where memory_id = %s", [a.memory_id]
    ).fetchall()
    assert before == after
    assert json.dumps(state(db, "acme")["judgements"]) == "null"


def test_the_neighbour_is_merged_meanwhile(db: DB, connect: Connect) -> None:
    """Its root is in another scope, whose lock the late vector does not hold: it must not merge into an alias."""
    model(db)
    db.execute("select set_policy('acme', merge_veto => 0)")
    root = ingest(db, "Runs on Sundays", subject="b", **vector(0.995))
    alias = ingest(db, "Goes running every Sunday", subject="a", **vector(1.0))
    db.execute("select merge_memories(%s, %s, 'acme')", [alias.memory_id, root.memory_id])
    late = ingest(db, "Runs on a Sunday", subject="a")
    other = connect()
    other.execute("begin")
    richer = ingest(other, "Runs on Sundays in the big park by the river", subject="b", **vector(0.99))
    assert richer.action == "replaced"
    call = Call(
        db,
        connect(),
        lambda c: c.execute(
            "select action from attach_embedding(%s, %s, 'm', 'acme')",
            [late.memory_id, vector(0.99)["embedding"]],
        ).fetchone(),
    ).waits_for(other)
    other.execute("commit")
    call.must_retry()
    check(db)
    db.execute("select attach_embedding(%s, %s, 'm', 'acme')", [late.memory_id, vector(0.99)["embedding"]])
    assert db.execute(
        "select count(distinct root_id) from memories where root_id is not null"
    ).fetchone() == (1,)
    check(db)
