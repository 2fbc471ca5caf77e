"""memfold web over plain HTTP: looking up memories, and changing one of them."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from memfold import Embedder
from memfold.tools.web import browse
from memfold.tools.web.timeline import drawn
from tests.conftest import Connect
from tests.support.judging import pair
from tests.support.memories import check, ingest, model, status, vector
from tests.support.queries import DB
from tests.support.web_pages import Site, form_of, links_of, persons, served, text_of

pytestmark = pytest.mark.one_server


@pytest.fixture
def login(dsn: str, app: Connect) -> str:
    """The database as an application's login, which row-level security binds."""
    return f"{dsn} user={app().info.user}"


def stored(db: DB, *args: Any, **given: Any) -> UUID:
    made = ingest(db, *args, **given).memory_id
    assert made is not None
    return made


def written(db: DB) -> object:
    return db.execute(
        "select (select count(*) from memfold.memory_events), (select count(*) from memfold.memories)"
    ).fetchone()


def linked(page: str, path: str) -> list[str]:
    """The values of the first argument of the links to a path, in their order on the page."""
    return [link.partition("=")[2] for link in links_of(page) if link.startswith(f"{path}?")]


# browsing --------------------------------------------------------------------------------------------------------


def test_buckets_are_searched_sorted_and_paged(db: DB, login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "SIZE", 3)
    for number, name in enumerate(("ann", "bob", "cid", "dan")):
        for other in range(number + 1):
            ingest(db, f"{name} has {other} dogs", bucket_id=name, observed_at=f"20{24 - number}-05-01Z")
    with served(login) as site:
        page = site.get("/buckets")
        assert linked(page, "/bucket") == ["ann", "bob", "cid"]
        assert "1 to 3 of 4" in text_of(page)
        (following,) = [link for link in links_of(page) if "page=2" in link and "sql" not in link]
        page = site.get(following)
        assert linked(page, "/bucket") == ["dan"]
        assert "dan 4 – 2021-05-01 00:00" in text_of(page)
        assert linked(site.get("/buckets?sort=memories"), "/bucket") == ["dan", "cid", "bob"]
        assert linked(site.get("/buckets?sort=seen"), "/bucket") == ["ann", "bob", "cid"]
        assert linked(site.get("/buckets?name=AN"), "/bucket") == ["ann", "dan"]
        assert "Show all buckets" in site.get("/buckets?name=%25")
        assert linked(site.get("/buckets?sort=;&page=x"), "/bucket") == ["ann", "bob", "cid"]
        model(db)
        pair(db, bucket_id="cid")
        assert linked(site.get("/buckets?sort=questions"), "/bucket") == ["cid", "ann", "bob"]


def test_a_bucket_lists_its_memories_by_subject_current_ones_first(db: DB, login: str) -> None:
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    for city in ("Rome", "Oslo"):
        ingest(db, f"Bob lives in {city}.", bucket_id="b/1", subject="Bob", predicate="lives_in", object=city)
    ingest(db, "Bob sells cars.", bucket_id="b/1", subject="Bob", predicate="sells")
    ingest(db, "Ann sails.", bucket_id="b/1", subject="Ann")
    ingest(db, "ann sails", bucket_id="b/1", subject="Ann")
    joke = stored(db, "Ann flies.", bucket_id="b/1", subject="Ann")
    db.execute("select memfold.reject_memory(%s, 'acme')", [joke])
    ingest(db, "Cid swims.", subject="Cid")
    with served(login) as site:
        (link,) = [one for one in links_of(site.get("/buckets")) if "b%2F1" in one and "/bucket?" in one]
        page = text_of(site.get(link))
        listed = page[page.index("Ann Ann sails.") :]
        assert re.match(
            r"Ann Ann sails. said twice, last [\d: -]+ Bob Bob lives in Oslo. lives_in said once, last [\d: -]+"
            r" Bob sells cars. sells said once, last [\d: -]+ Bob lives in Rome. former lives_in said once", listed
        )  # fmt: skip
        assert "flies" not in page
        assert "Cid" not in page
        assert "Ann flies. forgotten" in text_of(site.get(f"{link}&show=all"))
        page = site.get(f"{link}&show=current&text=OSLO")
        assert "Bob lives in Oslo." in text_of(page)
        assert "Ann sails." not in page
        (memory,) = [one for one in links_of(page) if one.startswith("/memory/")]
        assert "Bob lives in Oslo." in text_of(site.get(memory))
        assert "look among forgotten" in text_of(site.get(f"{link}&text=flies"))


def test_search_covers_all_buckets_some_or_one(db: DB, login: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for bucket in ("user:1", "user:2", "team"):
        ingest(db, f"{bucket} has a dog.", bucket_id=bucket)

    def found(site: Site, query: str) -> list[str]:
        page = site.get(f"/search?q={query}")
        return sorted(re.findall(r"bucket </span><bdi>([^<]+)<", page))

    with served(login) as site:
        assert found(site, "dog") == ["team", "user:1", "user:2"]
        assert found(site, "dog&bucket=user:*") == ["user:1", "user:2"]
        assert found(site, "dog&bucket=team") == ["team"]
        page = site.get("/search?q=dog&bucket=nobody")
        assert "Search all buckets" in page
        assert "/search?q=dog" in links_of(page)
        assert "a thousand buckets" not in site.get("/search?q=dog")
        monkeypatch.setattr(browse, "_MOST_BUCKETS", 2)
        assert found(site, "dog") == ["team", "user:2"]
        assert "a thousand buckets" in site.get("/search?q=dog")


def test_open_questions_are_listed_filtered_and_sorted(
    db: DB, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browse, "SIZE", 2)
    persons(db)
    for name, cosine in (("ann", 0.9), ("bob", 0.95), ("cid", 0.85)):
        ingest(db, f"{name} has a cat.", bucket_id=name, subject=name, **vector(1))
        made = ingest(db, f"{name} has got a cat at home.", bucket_id=name, subject=name, **vector(cosine))
        assert made.action == "escalated"

    def listed(site: Site, path: str) -> list[str]:
        return re.findall(r'<bdi class="tag">(\w+)</bdi>', site.get(path))

    with served(login) as site:
        (link,) = [one for one in links_of(site.get("/queue")) if one.startswith("/queue/list")]
        assert "3 questions." in text_of(site.get(link))
        assert listed(site, link) == ["ann", "bob"]
        assert listed(site, f"{link}?page=2") == ["cid"]
        assert listed(site, f"{link}?sort=newest") == ["cid", "bob"]
        assert listed(site, f"{link}?sort=most+similar") == ["bob", "ann"]
        assert listed(site, f"{link}?sort=least+similar") == ["cid", "ann"]
        assert listed(site, f"{link}?text=BOB&kind=review") == listed(site, f"{link}?bucket=bob") == ["bob"]
        assert "Show all" in site.get(f"{link}?kind=identity")
        (question,) = [one for one in links_of(site.get(f"{link}?bucket=cid")) if "judgement=" in one]
        assert "cid has got a cat at home ." in text_of(site.get(question))


# changing --------------------------------------------------------------------------------------------------------


def test_a_text_is_corrected_after_a_preview_and_the_correction_undone(db: DB, login: str) -> None:
    old = stored(db, "Bob has a \u200fdog.", subject="Bob")
    with served(login) as site:
        page = site.get(f"/memory/{old}/correct")
        assert "What will happen" not in page
        assert "Bob has a \u200fdog.</textarea>" in page  # not as an escape, which would become the text
        before = written(db)
        page = site.post(
            form_of(page, f"/memory/{old}/correct"), content="Bob has\r\na cat.", reason="he <said> so"
        )
        assert "After: Bob has a cat ." in text_of(page)
        assert "You can undo it" in page
        assert written(db) == before
        fields = dict(re.findall(r'type="hidden" name="(content|object|reason)" value="([^"]*)"', page))
        page = site.post(form_of(page, f"/memory/{old}/correct/apply"), **{
            name: html.unescape(value) for name, value in fields.items()})  # fmt: skip
        assert "Corrected." in text_of(page)
        assert "he <said> so" in text_of(page)
        row = db.execute("select content from memfold.current_memory(%s, 'acme')", [old]).fetchone()
        assert row == ("Bob has\na cat.",)
        page = site.post(form_of(page, "/undo"))
        assert "Undone" in text_of(page)
        assert status(db, old) == "active"
        assert "MF034" in text_of(site.post(f"/memory/{old}/correct/preview", content="Bob has a \u200fdog."))
        assert "is missing" in text_of(site.post(f"/memory/{old}/correct/apply", 400, content=" "))
    check(db)


def test_a_correction_that_says_what_another_memory_says_is_undone_as_a_whole(db: DB, login: str) -> None:
    model(db)
    cat = stored(db, "Bob has a cat.", subject="Bob", **vector(1))
    dog = stored(db, "Bob has a dog.", subject="Bob", **vector(0, 2))
    embedder = Embedder(embed=lambda texts: [[1.0, 0.01, 0, 0] for _ in texts], model="m")
    with served(login, embedder=embedder) as site:
        before = written(db)
        page = site.post(form_of(site.get(f"/memory/{dog}/correct"), "/memory/"), content="Bob owns a cat.")
        assert "a memory with that text; the two become one: Bob has a cat." in text_of(page)
        assert written(db) == before
        page = site.post(form_of(page, f"/memory/{dog}/correct/apply"), content="Bob owns a cat.")
        row = db.execute("select memory_id from memfold.current_memory(%s, 'acme')", [dog]).fetchone()
        assert row == (cat,)
        site.post(form_of(page, "/undo"))
    assert (status(db, cat), status(db, dog)) == ("active", "active")
    row = db.execute("select root_id from memfold.memories where memory_id = %s", [dog]).fetchone()
    assert row == (None,)
    check(db)


def test_a_memory_is_merged_into_one_that_is_searched(db: DB, login: str) -> None:
    one = stored(db, "Bob has a dog.", subject="Bob")
    other = stored(db, "Bob owns a dog.", subject="Bob")
    far = stored(db, "Rome is old.")
    with served(login) as site:
        page = site.get(f"/memory/{one}/merge")
        assert linked(page, f"/memory/{one}/merge")[0] == str(other)
        assert f"into={far}" in site.get(f"/memory/{one}/merge?q=rome")
        before = written(db)
        page = site.get(f"/memory/{one}/merge?into={other}")
        assert "It becomes an alias of Bob owns a dog." in text_of(page)
        assert written(db) == before
        page = site.post(form_of(page, f"/memory/{one}/merge/apply"), into=str(other))
        assert "Merged: this memory counts for both." in text_of(page)
        assert "said twice" in text_of(page)
        assert status(db, one) == "merged"
        assert f"/memory/{one}/correct" not in site.get(f"/memory/{one}")
        site.post(form_of(page, "/undo"))
        assert status(db, one) == "active"
        assert "MF034" in text_of(site.get(f"/memory/{one}/merge?into={one}"))
    check(db)


def test_forgetting_names_what_is_current_again_and_is_undone(db: DB, login: str) -> None:
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    rome, oslo = (
        stored(db, f"Bob lives in {city}.", subject="Bob", predicate="lives_in", object=city)
        for city in ("Rome", "Oslo")
    )
    with served(login) as site:
        page = site.get(f"/memory/{oslo}/forget?sql")
        assert "Current again: Bob lives in Rome." in text_of(page)
        assert "begin; select * from memfold.reject_memory(" in text_of(page)
        assert "rollback;" in page
        assert (status(db, rome), status(db, oslo)) == ("superseded", "active")
        page = site.post(form_of(page, f"/memory/{oslo}/forget/apply"), reason="a joke")
        assert "Forgotten" in text_of(page)
        assert (status(db, rome), status(db, oslo)) == ("active", "rejected")
        assert f"/memory/{oslo}/forget" not in page
        site.post(form_of(page, "/undo"))
        assert (status(db, rome), status(db, oslo)) == ("superseded", "active")
    check(db)


def test_erasing_needs_a_second_confirmation_and_is_final(db: DB, login: str) -> None:
    one = stored(db, "Bob has a dog.", bucket_id="notes")
    with served(login) as site:
        before = written(db)
        page = site.get(f"/memory/{one}/erase")
        assert "1 text and 1 ledger row are erased" in text_of(page)
        assert "This is final" in text_of(page)
        path = form_of(page, f"/memory/{one}/erase/apply")
        assert "not confirmed" in text_of(site.post(path, 400, reason="request 7"))
        assert written(db) == before
        page = site.post(path, confirmed="yes", reason="request 7")
        assert "Erased for good: 1 text." in text_of(page)
        assert "/undo" not in page
        site.get(f"/memory/{one}", 404)
    assert db.execute("select reason from memfold.memory_events").fetchall() == [("request 7",)]


def test_no_other_tenants_memory_is_changed_and_no_other_way(db: DB, login: str) -> None:
    mine = stored(db, "Bob has a dog.")
    theirs = stored(db, "Eve has a secret.", tenant_id="globex")
    with served(login) as site:
        site.get(f"/memory/{mine}/forget?tenant=globex")
        before = written(db)
        for kind in ("correct", "merge", "forget", "erase"):
            site.get(f"/memory/{theirs}/{kind}?tenant=globex", 404)
            fields = {"content": "Eve has none.", "into": str(mine), "confirmed": "yes"}
            page = site.post(f"/memory/{theirs}/{kind}/apply?tenant=globex", 404, **fields)
            assert "secret" not in page
        assert "Not found" in text_of(site.get(f"/memory/{mine}/drop", 404))
        site.post(f"/memory/{mine}/drop/apply", 404)
        assert written(db) == before


# the timeline ----------------------------------------------------------------------------------------------------


def test_a_timeline_is_drawn_in_percent_of_its_width() -> None:
    def day(number: int) -> datetime:
        return datetime(2026, 1, number, tzinfo=UTC)

    one, other = uuid4(), uuid4()
    memory = {"memory_id": one, "content": "Rome", "status": "active", "first_seen": day(1)}
    rows = [
        {"memory_id": one, "content": "Rome", "status": "active", "valid_from": day(1), "valid_to": day(3)},
        {
            "memory_id": other,
            "content": "Oslo",
            "status": "superseded",
            "valid_from": day(3),
            "valid_to": day(6),
        },
        {"memory_id": one, "content": "Rome", "status": "active", "valid_from": day(6), "valid_to": None},
    ]
    said = [{"memory_id": other, "observed_at": day(3)}, {"memory_id": uuid4(), "observed_at": day(2)}]
    made = drawn(memory, rows, said, day(11))
    assert made is not None
    assert (made.begin, made.end) == (day(1), day(11))
    assert [(value.content, value.bars) for value in made.values] == [
        ("Rome", [(0, 20), (50, 50)]), ("Oslo", [(20, 30)]),
    ]  # fmt: skip
    assert [place for value in made.values for place, _ in value.dots] == [20]
    # without intervals it is current since it was first said, if it is current at all; one moment is a line too
    made = drawn(memory, [], [], day(1))
    assert made is not None
    assert [value.bars for value in made.values] == [[(0, 0.3)]]
    assert drawn(memory | {"status": "rejected"}, [], [], day(1)) is None


def test_the_values_of_a_slot_are_drawn_with_what_was_said(db: DB, login: str) -> None:
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    for year, city in ((2020, "Rome"), (2022, "Oslo")):
        ingest(db, f"Bob lives in {city}.", subject="Bob", predicate="lives_in", object=city, session_id=f"s{year}",
               observed_at=f"{year}-01-01Z")  # fmt: skip
    rome = db.execute("select memory_id from memfold.memories where object = 'Rome'").fetchone()
    assert rome is not None
    with served(login) as site:
        page = site.get(f"/memory/{rome[0]}")
        assert len(re.findall(r'<rect class="bar"', page)) == 2
        assert "<title>2022-01-01 00:00:00 UTC: Bob lives in Oslo., session s2022, by " in page
        text = text_of(page)
        assert "Bob lives in Rome. current from 2020-01-01 00:00 to 2022-01-01 00:00" in text
        assert "2022-01-01 00:00:00 Bob lives in Oslo. s2022" in text
