"""Document 002, a hash that goes before any vector, replayed with its numbers.

Vectors are made to have the cosine that the document states.
"""

from __future__ import annotations

import pytest

from tests.support.judging import answer
from tests.support.memories import check, ingest, statuses, vector
from tests.support.queries import DB

# The tests of the functions cover each server.
pytestmark = pytest.mark.one_server


@pytest.fixture
def hash_first(db: DB) -> DB:
    """The key is the content alone; from 0.95 on a judge says what the pair is, nothing merges by itself."""
    db.execute("select register_embedding_model('m', 4, 0.92, 0.85)")
    db.execute("select set_policy('acme', preset => 'hash_first')")
    return db


def test_monday_and_thursday(hash_first: DB) -> None:
    """The second store only returns the first memory's id; an equal fact in another bucket is another fact."""
    monday = ingest(hash_first, "User prefers dark mode")
    thursday = ingest(hash_first, "user prefers   dark mode!", subject="User", predicate="theme")
    assert (thursday.action, thursday.tier, thursday.memory_id) == ("merged", 1, monday.memory_id)
    assert ingest(hash_first, "User prefers dark mode", bucket_id="other").memory_id != monday.memory_id
    assert ingest(hash_first, "User prefers dark mode", tenant_id="globex").memory_id != monday.memory_id
    check(hash_first)


def test_what_the_canonicalizer_leaves_alone(hash_first: DB) -> None:
    texts = [
        "3 cats", "three cats", "$5", "5", "user does not like dogs", "user does like dogs", "user likes dogs",
    ]  # fmt: skip
    assert [ingest(hash_first, text).action for text in texts] == ["inserted"] * len(texts)
    for same in ("User Likes Dogs.", "user likes  dogs!", " user likes dogs?"):
        assert ingest(hash_first, same).action == "merged"
    assert (
        ingest(hash_first, "user likes dogs..").action == "inserted"
    )  # one terminal mark is stripped, not all


def test_nothing_merges_without_a_verdict(hash_first: DB) -> None:
    """From 0.95 on a pair is a candidate duplicate, not a confirmed one; 0.943 is missed, as the document says."""
    old = ingest(hash_first, "User prefers dark mode", **vector(1.0))
    below = ingest(hash_first, "the user strongly prefers dark mode", **vector(0.943))
    assert (below.action, below.judgement_id) == ("inserted", None)
    asked = ingest(
        hash_first, "dark mode is preferred by the user", bucket_id="default", **vector(0.9998, axis=2)
    )
    assert asked.action == "escalated"
    found = answer(hash_first, "duplicate", 0.9)
    assert found[2:4] == ("merged", old.memory_id)  # a paraphrase: merge, keep the older memory's id
    again = ingest(hash_first, "Dark mode is preferred by the user.")
    assert (again.action, again.tier, again.memory_id) == ("merged", 1, old.memory_id)
    check(hash_first)


@pytest.mark.parametrize(
    ("bucket", "conflict", "expected"),
    [
        ("default", None, ["superseded", "active"]),
        ("settings", "keep_existing", ["active", "rejected"]),
        ("debates", "keep_both", ["active", "active"]),
        ("legal", "review", ["active", "active"]),
    ],
)
def test_a_contradiction_at_0_96(
    hash_first: DB, bucket: str, conflict: str | None, expected: list[str]
) -> None:
    """Newest wins by default, with overrides per bucket."""
    if conflict is not None:
        hash_first.execute("select set_policy('acme', %s, conflict => %s)", [bucket, conflict])
    old = ingest(hash_first, "user likes Python", bucket_id=bucket, **vector(1.0))
    new = ingest(hash_first, "user dislikes Python", bucket_id=bucket, **vector(0.96))
    assert (new.action, new.similarity) == ("escalated", pytest.approx(0.96))
    answer(hash_first, "contradiction", 0.95)
    assert statuses(hash_first, old, new) == expected
    kinds = hash_first.execute("select kind from judgements where status = 'open'").fetchall()
    assert kinds == ([("review",)] if conflict == "review" else [])
    check(hash_first)


def test_distinct_facts_that_embed_close(hash_first: DB) -> None:
    old = ingest(hash_first, "The Berlin office is large", **vector(1.0))
    new = ingest(hash_first, "The Munich office is large", **vector(0.97))
    assert new.action == "escalated"
    answer(hash_first, "distinct", 0.95)
    assert statuses(hash_first, old, new) == ["active", "active"]
    # the two are never asked about again
    assert ingest(hash_first, "The Munich office is large", **vector(0.97)).action == "merged"
    assert hash_first.execute("select count(*) from judgements").fetchone() == (1,)
    check(hash_first)


def test_metadata_that_diverges(hash_first: DB) -> None:
    """From a settings screen, then from a chat: the richer metadata of the second store is kept."""
    first = ingest(hash_first, "user prefers dark mode", metadata={"from": "settings", "by": "user"})
    ingest(hash_first, "user prefers dark mode", metadata={"from": "chat", "turn": 7})
    assert hash_first.execute(
        "select metadata from memories where memory_id = %s", [first.memory_id]
    ).fetchone() == ({"from": "chat", "by": "user", "turn": 7},)
    # or a key of the hash, where a bucket wants that
    hash_first.execute("select set_policy('acme', 'by source', metadata_keys => '{from}')")
    ids = {
        ingest(
            hash_first, "user prefers dark mode", bucket_id="by source", metadata={"from": place}
        ).memory_id
        for place in ("settings", "chat", "settings")
    }
    assert len(ids) == 2
    check(hash_first)


def test_code_keeps_its_white_space(hash_first: DB) -> None:
    hash_first.execute("select set_policy('acme', 'code', canonicalizer => 'code')")
    snippets = ["if x:\n    y()", "if x:\n  y()", "IF x:\n    y()"]
    assert [ingest(hash_first, s, bucket_id="code").action for s in snippets] == ["inserted"] * 3
    assert ingest(hash_first, "if x:\r\n    y()", bucket_id="code").action == "merged"
