"""end_session: repeated statements of a session are merged, compared by their words."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.maintenance import policy, store
from tests.support.memories import check, counters, model
from tests.support.queries import DB, rows


def end(db: DB, **options: Any) -> dict[str, Any]:
    names = "".join(f", {name} => %s" for name in options)
    [row] = rows(db, f"select * from end_session('s', 'acme'{names})", *options.values())
    return row


def say(db: DB, content: str, confidence: float = 0.5, **arguments: Any) -> UUID:
    return store(
        db,
        content,
        **{"session_id": "s", "source_confidence": confidence, "memory_type": "observation", **arguments},
    )


def roots(db: DB, ids: list[UUID]) -> list[int | None]:
    found = {r["memory_id"]: r["root_id"] for r in rows(db, "select memory_id, root_id from memories")}
    return [None if found[i] is None else ids.index(found[i]) for i in ids]


@pytest.fixture
def robot(db: DB) -> DB:
    model(db)
    policy(db, preset="robotics", lexical_threshold=1)
    return db


def test_clusters_merge_into_the_most_confident(robot: DB) -> None:
    db = robot
    ids = [
        say(db, "grip force works for cups", 0.85),
        say(db, "grip force works for small cups", 0.8),
        say(db, "grip force works well for cups", 0.9),
        say(db, "red objects need more force", 0.85),
        say(db, "grip force works for cups always", 0.5, memory_type="constraint"),
        say(db, "grip force works for cups, surely", 0.95),
        say(db, "grip force works for cups elsewhere", 0.85, session_id="another"),
    ]
    plan = end(db, dry_run=True)
    assert plan == {
        "run_id": None, "merged_groups": 1, "superseded_count": 2, "compression_ratio": 0.5, "considered": 4,
        "avg_similarity": pytest.approx((4 / 5 + 4 / 5 + 4 / 6) / 3),
    }  # fmt: skip
    assert roots(db, ids) == [None] * 7
    done = end(db)
    assert {**done, "run_id": None} == plan
    assert roots(db, ids) == [2, 2, None, None, None, None, None]
    assert counters(db, ids[2])["observations"] == 3
    events = rows(db, "select action, tier, method from memory_events where run_id = %s", done["run_id"])
    assert events == [{"action": "merged", "tier": 2, "method": "lexical"}] * 2
    assert rows(db, "select kind, status, report ->> 'considered' as n from runs") == [
        {"kind": "session", "status": "done", "n": "4"}
    ]
    check(db)
    db.execute("select undo_run(%s, tenant_id => 'acme')", [done["run_id"]])
    assert roots(db, ids) == [None] * 7
    check(db)


@pytest.fixture
def made_up(robot: DB) -> DB:
    """For words of no language, which the guard would keep apart."""
    policy(robot, preset="robotics", lexical_threshold=1, guard="off")
    return robot


def test_all_pairs_must_be_near(made_up: DB) -> None:
    """Each shares three of four words with the next: the first and the third share two of six, and are not a cluster."""
    robot = made_up
    ids = [say(robot, text) for text in ("aa bb cc dd", "bb cc dd ee", "cc dd ee ff", "zz")]
    done = end(robot)
    assert (done["merged_groups"], done["superseded_count"], done["avg_similarity"]) == (1, 1, 0.6)
    assert roots(robot, ids) == [1, None, None, None], "of equals the newest stays"


def test_the_most_often_recalled_stays(made_up: DB) -> None:
    robot = made_up
    ids = [say(robot, f"aa bb cc dd {word}") for word in ("xx", "yy", "zz")]
    robot.execute("update memory_counters set access_count = 5 where memory_id = %s", [ids[1]])
    assert end(robot)["superseded_count"] == 2
    assert roots(robot, ids) == [1, None, 1]


def test_two_memories_are_not_a_session_and_the_guard_keeps_apart(robot: DB) -> None:
    for text in ("aa bb cc dd", "aa bb cc dd ee"):
        say(robot, text)
    nothing = {"merged_groups": 0, "superseded_count": 0, "compression_ratio": 0, "avg_similarity": 0}
    assert end(robot, dry_run=True) == {**nothing, "run_id": None, "considered": 2}
    assert end(robot, bucket_id="none", dry_run=True) == {**nothing, "run_id": None, "considered": 0}
    for n in (3, 4, 5):
        say(robot, f"the gripper waits {n} seconds before it closes", memory_type="number")
    done = end(robot)
    assert done["superseded_count"] == 1
    assert done["considered"] == 5
    policy(robot, guard="off")
    assert end(robot)["superseded_count"] == 2


def test_subjects_keep_apart_where_the_policy_says(db: DB) -> None:
    for subject in ("Ann", "Bob", "ann"):
        store(
            db, f"likes tea with milk {subject.lower() * (subject == 'ann')}", subject=subject, session_id="s"
        )
    assert end(db)["superseded_count"] == 1
    check(db)
    with pytest.raises(psycopg.Error) as error:
        rows(db, "select * from end_session('', 'acme')")
    assert error.value.sqlstate == "MF003"
    with pytest.raises(psycopg.Error) as error:
        end(db, dry_run=None)
    assert error.value.sqlstate == "MF022"
