"""Options: the settings that recall and maintenance read, next to the policies that decide."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support.judging import raises
from tests.support.maintenance import angle, policy, set_options, storing
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB, rows

App = Callable[..., DB]

# The least and the greatest allowed values, and invalid ones.
BOUNDS: dict[str, tuple[list[Any], list[Any]]] = {
    "min_confidence": ([0, 1], [-0.01, 1.01, "NaN"]),
    "search_threshold": ([0, 1], [-0.01, 1.01, "NaN"]),
    "rank_confidence": ([0, 0.9], [-0.01, 0.91, 1.01, "NaN"]),
    "rank_feedback": ([0, 0.9], [-0.01, 0.91, 1.01, "NaN"]),
    "consolidate_threshold": ([0, 1], [-0.01, 1.01, "NaN"]),
    "max_cluster_size": ([2, 10], [1, 11]),
    "consolidate_budget": ([1, 1000000], [0, 1000001]),
    "decay_rate": ([0, 0.999999], [-0.01, 1, "NaN"]),
    "decay_floor": ([0, 1], [-0.01, 1.01, "NaN"]),
    "decay_interval": (["0", "1000 years"], ["-1 second", "1001 years", "2000000000 months"]),
    "key_retention": (["1 hour", "1000 years"], ["0", "59 minutes", "1001 years", "2000000000 months"]),
    **{
        f"{task}_interval": (
            ["0", "1 minute", "1000 years"],
            ["-1 day", "59 seconds", "1001 years", "2000000000 months"],
        )
        for task in ("consolidate", "sweep", "prune", "link")
    },
}
UNBOUNDED: dict[str, list[Any]] = {
    "touch": [True, False], "protected_types": [[], ["gotcha"]], "text_search": ["english", "simple"],
}  # fmt: skip
# What only presets set.
OF_PRESETS = {"session_threshold", "protected_confidence"}
KEY = ("tenant_id", "bucket_id", "memory_type")
DEFAULTS: dict[str, Any] = {
    "min_confidence": 0, "search_threshold": None, "touch": False, "rank_confidence": 0.1, "rank_feedback": 0.1,
    "consolidate_threshold": 0.75, "max_cluster_size": 10, "session_threshold": 0.5, "protected_types": [],
    "protected_confidence": None, "decay_rate": 0, "decay_floor": 0.05, "decay_interval": "1 day",
    "key_retention": "30 days", "text_search": "simple",
    "consolidate_interval": "1 day", "consolidate_budget": 5, "sweep_interval": "00:00:00", "prune_interval": "00:00:00",
    "link_interval": "00:00:00",
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "three_tier": {},
    "store_and_load": {"search_threshold": 0.6, "touch": True, "consolidate_threshold": 0.65},
    "hash_first": {},
    "replace_newer": {"consolidate_threshold": 0.9},
    "robotics": {
        "min_confidence": 0.3, "touch": True, "protected_confidence": 0.95, "decay_rate": 0.01,
        "protected_types": ["constraint", "postmortem", "gotcha", "perception"],
    },
}  # fmt: skip


def stored(db: DB, table: str, *key: str) -> dict[str, Any] | None:
    """The row of a key, as JSON; null: it has no row."""
    found = db.execute(
        f"select to_jsonb(t) from memfold.{table} as t where (tenant_id, bucket_id, memory_type) = (%s, %s, %s)".encode(),
        key,
    ).fetchone()
    return found and {name: value for name, value in found[0].items() if name not in (*KEY, "updated_at")}


def applied(db: DB, function: str, *key: str) -> dict[str, Any]:
    row = db.execute(f"select to_jsonb(memfold_internal.{function}(%s, %s, %s))".encode(), key).fetchone()
    assert row is not None
    found: dict[str, Any] = row[0]
    return found


def test_every_option_is_listed_here(db: DB) -> None:
    columns = {row["name"] for row in rows(db, "select attname as name from pg_attribute"
        " where attrelid = 'memfold.options'::regclass and attnum > 0")}  # fmt: skip
    arguments = db.execute(
        "select proargnames from pg_proc where oid = to_regproc('memfold.set_options')"
    ).fetchone()
    assert columns - {*KEY, "updated_at"} == {*BOUNDS, *UNBOUNDED, *OF_PRESETS} == set(DEFAULTS)
    assert arguments is not None
    assert set(arguments[0]) == columns - {"updated_at", *OF_PRESETS}
    assert stored(db, "options", "*", "*", "*") == DEFAULTS


@pytest.mark.parametrize("name", [*BOUNDS, *UNBOUNDED])
def test_bounds(db: DB, name: str) -> None:
    allowed, refused = BOUNDS.get(name) or (UNBOUNDED[name], [])
    for value in allowed:
        row = db.execute(
            f"select {name} = %s from memfold.set_options('acme', 'b', {name} => %s)".encode(), [value, value]
        ).fetchone()
        assert row == (True,), value
    kept = stored(db, "options", "acme", "b", "*")
    for value in refused:
        raises("MF017", db.execute, f"select set_options('acme', 'b', {name} => %s)".encode(), [value])
    assert stored(db, "options", "acme", "b", "*") == kept


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("set_options('')", "MF001"),
        ("set_options(null)", "MF001"),
        ("set_options('acme', '')", "MF003"),
        ("set_options('acme', null)", "MF003"),
        ("set_options('acme', 'b', '')", "MF003"),
    ],
)
def test_the_key_is_checked(db: DB, call: str, code: str) -> None:
    raises(code, db.execute, f"select {call}".encode())


def test_omitted_options_stay_or_are_inherited(db: DB) -> None:
    db.execute("select set_options('acme', touch => true, decay_rate => 0.2)")
    db.execute("select set_options('acme', 'b', decay_floor => 0.3)")
    db.execute("select set_options('acme', 'b', 'rumour', min_confidence => 0.4)")
    db.execute("select set_options('acme', 'b', decay_rate => 0.1)")
    assert stored(db, "options", "acme", "b", "*") == {
        **DEFAULTS,
        "touch": True,
        "decay_rate": 0.1,
        "decay_floor": 0.3,
    }
    # a row wins as a whole: later, less specific settings do not affect it
    kind = {**DEFAULTS, "touch": True, "decay_rate": 0.2, "decay_floor": 0.3, "min_confidence": 0.4}
    assert stored(db, "options", "acme", "b", "rumour") == kind
    assert [applied(db, "_options", *key)["decay_rate"] for key in (
        ("acme", "b", "rumour"), ("acme", "b", "fact"), ("acme", "c", "rumour"), ("globex", "b", "rumour"),
    )] == [0.2, 0.1, 0.2, 0]  # fmt: skip


def test_a_policy_and_options_go_by_one_rule(db: DB) -> None:
    """Whichever keys have a row, the same one wins in both tables: the most specific."""
    keys = list(itertools.product(("acme", "*"), ("b", "*"), ("fact", "*")))
    shuffle = random.Random(7)
    for _ in range(20):
        there = shuffle.sample(keys[:-1], shuffle.randint(0, 7))
        with db.transaction(force_rollback=True):
            for key in there:
                db.execute("select set_policy(%s, %s, %s), set_options(%s, %s, %s)", [*key, *key])
            for asked in keys:
                fit = [k for k in (*there, keys[-1]) if all(k[i] in (asked[i], "*") for i in range(3))]
                best = min(fit, key=keys.index)
                for function in ("_policy", "_options"):
                    found = applied(db, function, *asked)
                    assert tuple(found[name] for name in KEY) == best, (function, there, asked)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_resets_both(db: DB, preset: str) -> None:
    db.execute("select set_options('acme', touch => true, decay_floor => 0.9)")
    db.execute("select set_policy('acme', neighbours => 7)")
    db.execute("select set_options('acme', 'b', key_retention => '1 year')")
    db.execute("select set_policy('acme', 'b', preset => %s)", [preset])
    assert stored(db, "options", "acme", "b", "*") == {**DEFAULTS, **PRESETS[preset]}
    rules = stored(db, "policies", "acme", "b", "*")
    assert rules is not None
    assert (rules["preset"], rules["neighbours"] == 7) == (preset, False)
    # the key's alone
    tenant = stored(db, "options", "acme", "*", "*")
    assert tenant is not None
    assert (tenant["touch"], tenant["decay_floor"]) == (True, 0.9)


def test_an_unknown_preset_changes_neither(db: DB) -> None:
    db.execute("select set_options('acme', touch => true)")
    raises("MF017", db.execute, "select set_policy('acme', preset => 'four_tier')")
    kept = stored(db, "options", "acme", "*", "*")
    assert kept == {**DEFAULTS, "touch": True}
    assert stored(db, "policies", "acme", "*", "*") is None


def test_policies_and_options_write_separate_tables(db: DB) -> None:
    db.execute("select set_policy('acme', 'b', neighbours => 7)")
    db.execute("select set_options('acme', 'c', touch => true)")
    assert stored(db, "options", "acme", "b", "*") is None
    assert stored(db, "policies", "acme", "c", "*") is None


def test_preview_and_search_read_the_row_of_the_type(db: DB) -> None:
    """One type has a policy, another options, a third neither."""
    model(db)
    storing(db)
    db.execute(
        "select set_policy('acme', 'default', 'rule', merge_threshold => 0.9, judge_threshold => 0.9, guard => 'off')"
    )
    db.execute("select set_options('acme', 'default', 'rumour', min_confidence => 0.9)")
    kinds = ("rule", "rumour", "fact")
    for axis, kind in enumerate(kinds, start=1):
        ingest(
            db,
            f"Known {kind}",
            memory_type=kind,
            source_confidence=0.5,
            extractor_confidence=0.5,
            **vector(0.7, axis=axis),
        )
    found = db.execute(
        "select memory_type from memfold.search_memories('[1,0,0,0]', 'm', 'acme', deduplicate => false)"
    ).fetchall()
    assert sorted(found) == [("fact",), ("rule",)]
    seen = {
        kind: ingest(
            db, f"Another {kind}", function="preview_memory", memory_type=kind, **vector(0.7, axis=axis)
        )
        for axis, kind in enumerate(kinds, start=1)
    }
    assert {kind: result.action for kind, result in seen.items()} == {
        "rule": "merged", "rumour": "inserted", "fact": "inserted",
    }  # fmt: skip


def test_ingest_reads_no_options(db: DB) -> None:
    """Neither a replay, nor a new fact, nor a merge reads the table."""
    model(db)
    set_options(db, touch=True)
    with db.transaction():
        before = db.execute(SCANS).fetchone()
        for content, turn in (("User likes tea", "a"), ("User likes tea", "b"), ("User loves tea", "c")):
            ingest(db, content, source_turn_ids=[turn], **vector(0.97 if turn == "c" else 1.0))
        assert db.execute(SCANS).fetchone() == before
        db.execute("select * from memfold.search_memories('[1,0,0,0]', 'm', 'acme')")
        assert db.execute(SCANS).fetchone() != before


SCANS = """
select sum(pg_stat_get_xact_numscans(i.oid))
from (
    select indexrelid as oid from pg_index where indrelid = 'memfold.options'::regclass
    union all
    select 'memfold.options'::regclass
) as i"""


def test_the_smallest_max_cluster_size_of_the_types_applies(db: DB) -> None:
    """Types with one policy are compared with one another, whatever their options."""
    model(db)
    storing(db)
    for n in range(6):
        ingest(db, f"Text number {n}", memory_type=("fact", "rumour")[n % 2], **angle(n))
    db.execute("select set_options('acme', 'default', 'rumour', max_cluster_size => 3)")
    policy(db, preset="three_tier", scope="bucket", merge_threshold=1, judge_threshold=0.9, guard="off")
    rows(db, "select * from sweep_duplicates('acme', 'default', dry_run => false)")
    asked = rows(db, "select cardinality(member_ids) as size from judgements where status = 'open'")
    assert [question["size"] for question in asked] == [3, 3]


def test_a_plan_is_made_by_options_too(db: DB) -> None:
    """A run that has planned and then waited checks whether they have changed."""
    stamp = "select memfold_internal._rules_stamp('acme', 'b')"
    db.execute("select set_options('acme', 'b', consolidate_threshold => 0.8)")
    before = db.execute(stamp).fetchone()
    db.execute("select set_options('acme', 'c', touch => true)")
    assert db.execute(stamp).fetchone() == before
    db.execute("select set_options('acme', 'b', consolidate_threshold => 0.9)")
    assert db.execute(stamp).fetchone() != before


@pytest.mark.core
def test_a_tenant_sees_and_writes_its_own(db: DB, app: App) -> None:
    for tenant in ("acme", "globex"):
        db.execute("select set_options(%s, touch => true)", [tenant])
    mine = app("acme")
    seen = mine.execute("select tenant_id from memfold.options order by 1").fetchall()
    assert seen == [("*",), ("acme",)]
    mine.execute("select set_options('acme', decay_rate => 0.1)")
    for tenant in ("globex", "*"):
        raises("MF002", mine.execute, "select set_options(%s, touch => false)", [tenant])
    for statement in ("update memfold.options set touch = false", "delete from memfold.options"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            mine.execute(statement.encode())
    assert db.execute("select json_agg(touch order by tenant_id) from memfold.options").fetchone() == (
        json.loads("[false, true, true]"),
    )
