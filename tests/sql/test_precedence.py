"""A setting for one place wins over one for all ('*'), in whichever order they were set."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, product

import pytest

from tests.support.memories import ingest
from tests.support.queries import DB, one

Place = tuple[str, str, str]
# From the most general to the most specific, by tenant, then bucket, then type.
PLACES: list[Place] = list(product(("*", "acme"), ("*", "default"), ("*", "fact")))


def conflict_of_a_predicate(db: DB, names: list[str]) -> str:
    """The action of a second value, after rules of those tenants were set."""
    for name in names:
        rule = "keep_both" if name == "*" else "newest_wins"
        db.execute("select set_predicate('lives_in', %s, conflict => %s)", [name, rule])
    ingest(db, "Bob lives in Rome", subject="Bob", predicate="lives_in", object="Rome")
    return ingest(db, "Bob lives in Oslo", subject="Bob", predicate="lives_in", object="Oslo").action


def cardinality_of_a_predicate(db: DB, names: list[str]) -> str:
    for name in names:
        db.execute("select set_predicate('visits', %s, %s)", [name, "many" if name == "*" else "one"])
    ingest(db, "Bob visits Rome", subject="Bob", predicate="visits", object="Rome")
    return ingest(db, "Bob visits Oslo", subject="Bob", predicate="visits", object="Oslo").action


def link_of_a_subject(db: DB, names: list[str]) -> str:
    for name in names:
        link(db, "subject", "bob", f"Robert of {name}", name)
    return str(
        one(
            db,
            "select subject from memories where memory_id = %s",
            ingest(db, "Bob sings", subject="Bob").memory_id,
        )
    )


def link_of_a_beginning(db: DB, names: list[str]) -> str:
    for name in names:
        link(db, "beginning", "bob", f"Robert of {name}", name)
    return str(
        one(db, "select subject from memories where memory_id = %s", ingest(db, "Bob sings").memory_id)
    )


def link_of_a_predicate(db: DB, names: list[str]) -> str:
    for name in names:
        link(db, "predicate", "home", "base" if name == "*" else "lives_in", name)
    stored = ingest(db, "Bob lives in Rome", subject="Bob", predicate="home", object="Rome").memory_id
    return str(one(db, "select predicate from memories where memory_id = %s", stored))


def link(db: DB, kind: str, alias: str, name: str, bucket_id: str) -> None:
    """As a row: the functions refuse the bucket's own link after one for all (MF063), but not the reverse."""
    db.execute(
        "insert into links (tenant_id, bucket_id, kind, alias, name) values ('acme', %s, %s, %s, %s)",
        [bucket_id, kind, alias, name],
    )


# By table: what the own rule leads to, the name of its place, and how to see it.
RULES: dict[str, dict[str, tuple[str, str, Callable[[DB, list[str]], str]]]] = {
    "predicates": {
        "conflict": ("superseded", "acme", conflict_of_a_predicate),
        "cardinality": ("superseded", "acme", cardinality_of_a_predicate),
    },
    "links": {
        "subject": ("Robert of default", "default", link_of_a_subject),
        "beginning": ("Robert of default", "default", link_of_a_beginning),
        "predicate": ("lives_in", "default", link_of_a_predicate),
    },
}
OF_PLACES = {"policies": "judge_threshold", "options": "decay_rate"}


def test_every_table_with_rules_for_all_is_tested(db: DB) -> None:
    found = db.execute(
        "select distinct c.relname::text from pg_attrdef as d join pg_class as c on c.oid = d.adrelid"
        " where c.relnamespace = 'memfold'::regnamespace and pg_get_expr(d.adbin, d.adrelid) like '''*''%'"
    ).fetchall()
    # the words of antonyms add up: those of a tenant, and those of all
    assert {name for (name,) in found} == {*RULES, *OF_PLACES, "antonyms"}


@pytest.mark.parametrize("own_is_last", [True, False], ids=["own_last", "own_first"])
@pytest.mark.parametrize(
    ("expected", "place", "see"),
    [case for cases in RULES.values() for case in cases.values()],
    ids=[f"{table}-{name}" for table, cases in RULES.items() for name in cases],
)
def test_the_own_rule_wins(
    db: DB, expected: str, place: str, see: Callable[[DB, list[str]], str], own_is_last: bool
) -> None:
    assert see(db, ["*", place] if own_is_last else [place, "*"]) == expected


@pytest.mark.parametrize("table", OF_PLACES)
@pytest.mark.parametrize("own_is_last", [True, False], ids=["own_last", "own_first"])
def test_the_most_specific_place_wins(db: DB, table: str, own_is_last: bool) -> None:
    setter, reader = {"policies": ("set_policy", "_policy"), "options": ("set_options", "_options")}[table]
    column = OF_PLACES[table]
    for general, specific in combinations(PLACES, 2):
        with db.transaction(force_rollback=True):
            for place in (general, specific) if own_is_last else (specific, general):
                value = 0.4 if place == specific else 0.3
                db.execute(f"select {setter}(%s, %s, %s, {column} => %s)".encode(), [*place, value])
            read = f"select ({reader}).{column} from memfold_internal.{reader}('acme', 'default', 'fact')"
            assert one(db, read) == 0.4, (general, specific)


def test_the_longer_beginning_wins(db: DB) -> None:
    for n, alias in enumerate(["alice smith", "alice", "alice smith junior"]):
        link(db, "beginning", alias, f"{n}", "default")
    for text, name in (
        ("Alice Smith likes tea", "0"),
        ("Alice likes tea", "1"),
        ("Alice Smithson likes tea", "1"),
    ):
        assert (
            one(db, "select subject from memories where memory_id = %s", ingest(db, text).memory_id) == name
        )


def test_a_link_of_all_leaves_a_bucket_with_its_own(db: DB) -> None:
    for bucket in ("default", "other"):
        ingest(db, "Bob likes tea", subject="Bob", bucket_id=bucket)
    link(db, "subject", "bob", "Robert of default", "default")  # the texts are not moved yet
    db.execute("select link_subject('Bob', 'Robert of all', 'acme', '*')")
    db.execute("call take_up_links('acme', '*')")
    assert db.execute(
        "select bucket_id, subject from memories where tenant_id = 'acme' order by 1"
    ).fetchall() == [
        ("default", "Bob"),
        ("other", "Robert of all"),
    ]
