"""memfold web over plain HTTP, without a browser: pages and forms."""

from __future__ import annotations

import html
import re
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.rows import dict_row

from memfold import Embedder
from memfold.client import errors
from memfold.tools.web import Place, statements
from memfold.tools.web.database import as_sql, resolve_tenant
from tests.conftest import Connect
from tests.support.maintenance import policy, storing
from tests.support.memories import check, ingest, model, status, vector
from tests.support.queries import DB
from tests.support.web_pages import (
    HOSTILE,
    calibrated,
    cluster,
    form_of,
    links_of,
    pairs,
    persons,
    served,
    text_of,
)

pytestmark = pytest.mark.one_server


@pytest.fixture
def login(db: DB, dsn: str, app: Connect) -> str:
    """The database as an application's login, which row level security binds."""
    return f"{dsn} user={app().info.user}"


def counts(db: DB) -> tuple[Any, ...]:
    row = db.execute(
        "select (select count(*) from memfold.memory_events), (select count(*) from memfold.judgements),"
        " (select count(*) from memfold.runs), (select sum(access_count) from memfold.memory_counters)"
    ).fetchone()
    assert row is not None
    return row


def results(reader: DB, sql: str) -> list[tuple[Any, ...]]:
    """The rows of a page's SQL, which may be several statements."""
    cursor = reader.execute(sql.encode())
    rows = []
    more: bool | None = True
    while more:
        rows += cursor.fetchall() if cursor.description is not None else []
        more = cursor.nextset()
    return rows


# looking ---------------------------------------------------------------------------------------------------------


def test_all_pages_are_read_without_a_word_written_and_their_sql_gives_what_they_show(
    db: DB, login: str, app: Connect
) -> None:
    persons(db)
    pairs(db, 2)
    for text in ("Bob has a dog.", "Bob's dog", "bob has a dog"):
        ingest(db, text, subject="Bob", source_turn_ids=["turn 1"], session_id="session 1", **vector(1, 2))
    reader = app("acme")
    before = counts(db)
    seen: set[str] = set()
    statements = 0
    with served(login) as site:
        waiting = [
            "/",
            "/queue",
            "/search?q=has",
            *(f"/runs/plan?kind={kind}" for kind in ("consolidation", "sweep", "pruning")),
        ]
        while waiting:
            path = waiting.pop()
            if path in seen or path.startswith("/static/"):
                continue
            seen.add(path)
            page = site.get(path)
            assert re.search(r"<(?:script|style)>|<[^>]* (?:style|on\w+)=|javascript:", page) is None
            waiting += links_of(page)
            if "sql" in path.partition("?")[2]:
                for sql in re.findall(r'<pre tabindex="0">(.*?)</pre>', page, re.S):
                    rows = results(reader, html.unescape(sql))
                    statements += 1
                    shown = [value for row in rows for value in row if value == "Bob has a dog."]
                    assert not shown or "Bob has a dog." in text_of(page)
    assert len(seen) > 25
    assert statements > 50
    assert counts(db) == before


def test_a_calibration_is_shown_with_its_picture_and_rates(db: DB, login: str) -> None:
    model(db)
    applied = calibrated(db)
    bare = db.execute(
        "insert into memfold.calibrations (model, merge_threshold, judge_threshold, report, fingerprint)"
        " values ('m', 0.9, 0.8, '{}', '') returning calibration_id"
    ).fetchone()
    assert bare is not None
    with served(login) as site:
        listed = site.get("/calibrations")
        assert [str(bare[0]), str(applied)] == re.findall(r'href="/calibrations/([^"?]+)"', listed)
        assert text_of(listed).count("in force") == 1
        page = site.get(f"/calibrations/{applied}")
        shown = text_of(page)
        drawn = re.findall(r'class="outline (\w+)" d="M0 200((?:V[\d.]+H[\d.]+){60})V200"', page)
        assert [label for label, _ in drawn] == ["contradiction", "distinct", "duplicate"]
        # the tallest bin fills the height, and no bin is taller
        assert min(float(top) for _, path in drawn for top in re.findall(r"V([\d.]+)", path)) == 0
        row = db.execute(
            "select merge_threshold, judge_threshold, report #> '{held_out,with_guard,escalation}'"
            " from memfold.calibrations where calibration_id = %s", [applied]
        ).fetchone()  # fmt: skip
        assert row is not None
        for told in (
            f"cosine {row[0]:.4f}",
            f"cosine {row[1]:.4f}",
            f"{100 * row[2]['rate']:.1f} %",
            "(400)",
        ):
            assert told in shown
        assert "<svg" not in site.get(f"/calibrations/{bare[0]}")
        assert "there is no such calibration" in site.get(f"/calibrations/{UUID(int=7)}", 404)


def test_a_memory_is_shown_with_its_aliases_timeline_sources_and_ledger(db: DB, login: str) -> None:
    model(db)
    db.execute("select memfold.set_predicate('lives_in', 'acme')")
    one = ingest(db, "Bob has a dog.", source_turn_ids=["turn 7"], session_id="session 9", **vector(1))
    ingest(db, "Bob owns a dog.", source_turn_ids=["turn 8"], **vector(0.999))
    city = ingest(db, "Bob lives in Rome.", subject="Bob", predicate="lives_in", object="Rome")
    with served(login) as site:
        page = text_of(site.get(f"/memory/{one.memory_id}"))
        for part in ("Bob has a dog.", "Aliases", "Bob owns a dog.", "Sources", "turn 7", "session 9",
                     "said twice, by 2 independent sources",
                     "Ledger", "tier 2 vector", "cosine 0.999"):  # fmt: skip
            assert part in page
        assert "Bob lives in Rome. current from" in text_of(site.get(f"/memory/{city.memory_id}"))


def test_statistics_tell_rates_warnings_costs_and_runaways(db: DB, login: str) -> None:
    model(db)
    ingest(db, "Bob has a dog.", bucket_id="notes", **vector(1))
    for _ in range(25):
        ingest(db, "bob has a dog", bucket_id="notes", source_turn_ids=["turn 1"])
    ingest(db, "Bob has got a dog at home.", bucket_id="notes", **vector(0.9))
    db.execute(
        "update memfold.judgements set created_at = now() - interval '50 hours', resolved_at = now(), cost = 0.25,"
        " attempts = 3"
    )
    with served(login) as site:
        page = site.get("/statistics")
        db.execute("update memfold.judgements set created_at = now() - interval '1 hour'")
        assert "has waited" not in site.get("/statistics")
    text = text_of(page)
    today = f"{datetime.now(UTC).date()} so far:"
    for part in ("notes", "92.6 %", "1 question has waited for 2 days", "said 26 times",
                 f"{today} 2 new text, 25 known text", f"{today} 0 open", "Judge's cost 0.2500 in 30 days"):  # fmt: skip
        assert part in text
    # a day's known texts are stacked on its new ones; nothing was merged, so there is no bar
    assert '<rect class="series-0" x="29.1" y="92.6" width="0.8" height="7.4"/>' in page
    assert '<rect class="series-1" x="29.1" y="0.0" width="0.8" height="92.6"/>' in page
    assert "Merges 0 in 30 days none" in text


def age(db: DB, days: int) -> None:
    """Move everything recorded so far to an earlier day."""
    at = datetime.combine(datetime.now(UTC).date() - timedelta(days), time(12), UTC)
    new = "> now() - interval '1 minute'"
    with db.transaction():
        db.execute("set local session_replication_role = replica")
        for table, column, key in (
            ("memory_events", "recorded_at", "event_id"),
            ("judgements", "created_at", "judgement_id"),
        ):
            moved = f"(left(memfold_internal._first_id(%s)::text, 13) || right({key}::text, 23))::uuid"
            db.execute(
                f"update memfold.{table} set {column} = %s, {key} = {moved} where {column} {new}", [at, at]
            )
        db.execute(f"update memfold.judgements set resolved_at = %s where resolved_at {new}", [at])


def test_statistics_by_day(db: DB, app: Connect) -> None:
    model(db)
    ingest(db, "Bob has a dog.", tenant_id="globex")
    db.execute("select set_config('memfold.tenant_id', 'acme', false)")
    pairs(db, 4)
    age(db, 40)
    for verdict in ("duplicate", "distinct"):
        db.execute(
            "select memfold.resolve_judgement(judgement_id, %s, model => 'a judge', cost => 0.5)"
            " from memfold.judgements where status = 'open' limit 1",
            [verdict],
        )
    db.execute("update memfold.judgements set attempts = 2 where status = 'done'")
    left = "(select judgement_id from memfold.judgements where status = 'open' limit 1)"
    db.execute(
        f"update memfold.judgements set status = 'obsolete', resolved_at = now() where judgement_id = {left}"
    )
    ingest(db, "Bob has a dog.", **vector(1))
    ingest(db, "bob has a dog", source_turn_ids=["turn 1"])
    ingest(db, "bob has a dog", origin="recalled")
    ingest(db, "Bob owns a dog.", **vector(0.999))
    age(db, 29)
    ingest(db, "Eve has a cat.", subject="Eve", **vector(1))
    ingest(db, "Eve has got a cat at home.", subject="Eve", **vector(0.9))
    ingest(db, "Bob has a dog.", bucket_id="notes")
    age(db, 1)
    reader = app("acme")

    def shown(days: int, bucket_id: str | None = None) -> dict[date, dict[str, Any]]:
        given = {"tenant_id": "acme", "bucket_id": bucket_id, "days": days}
        with reader.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(as_sql(statements.DAYS, given).encode()).fetchall()
        return {row.pop("day"): row for row in rows}

    found = shown(30)
    today = datetime.now(UTC).date()
    assert list(found) == [today - timedelta(back) for back in range(29, -1, -1)]
    first, *between, yesterday, last = found.values()
    nothing = dict.fromkeys(last, 0)
    assert first == nothing | {
        "observations": 3, "known": 1, "new": 2, "tier_2": 1, "tier_3": 1, "answered": 2, "open": 1, "calls": 4, "cost": 1,
    }  # fmt: skip
    assert between == [nothing | {"open": 1}] * 27
    assert yesterday == nothing | {"observations": 3, "new": 3, "asked": 1, "open": 2}
    assert last == nothing | {"open": 2}
    assert shown(30, "notes")[today - timedelta(1)] == nothing | {"observations": 1, "new": 1}
    assert shown(30, "notes")[today] == nothing
    # the sums are those of the views
    found = shown(90)
    sums = {name: sum(row[name] for row in found.values()) for name in nothing}
    assert db.execute(
        "select sum(observations), sum(tier_2_merges), sum(tier_3_merges), sum(open_judgements) from memfold.dedup_stats"
        " where tenant_id = 'acme'"
    ).fetchone() == (sums["observations"], sums["tier_2"], sums["tier_3"], found[today]["open"])
    assert db.execute("select calls, cost from memfold.judge_costs where calls > 0").fetchall() == [
        (sums["calls"], sums["cost"])
    ]


def test_a_cluster_is_one_question_of_the_statistics(db: DB, login: str) -> None:
    cluster(db)
    with served(login) as site:
        text = text_of(site.get("/statistics?days=90"))
    for part in ("Open questions 1 now", "Questions asked 1 in 90 days", "Judge's calls 0 in 90 days none"):
        assert part in text


def test_statistics_leave_out_what_a_login_may_not_read(db: DB, login: str) -> None:
    ingest(db, "Bob has a dog.")
    for _ in range(20):
        ingest(db, "bob has a dog", source_turn_ids=["turn 1"])
    db.execute("revoke select on memfold.memory_events from memfold_app")
    try:
        with served(login) as site:
            text = text_of(site.get("/statistics"))
    finally:
        db.execute("grant select on memfold.memory_events to memfold_app")
    refused = "This login may not read the rows that these figures count."
    assert f"90 days {refused} Buckets {refused} Runaway memories" in text
    assert "said 21 times" in text


def test_hostile_texts_are_text(db: DB, login: str) -> None:
    persons(db)
    text = HOSTILE.replace("\x1b", "")  # no bucket may have this name
    bucket = "b<script>\u202e'\""
    first = ingest(
        db, HOSTILE, bucket_id=bucket, subject=text, session_id=text, source_turn_ids=[text], **vector(1)
    )
    second = ingest(db, HOSTILE + " more words", bucket_id=bucket, subject=text, **vector(0.9))
    assert second.action == "escalated"
    with served(login) as site:
        for path in ("/queue?sql", f"/memory/{first.memory_id}?sql", "/buckets", "/statistics", "/runs",
                     "/search?q=end&bucket=b%3Cscript%3E%E2%80%AE%27%22",
                     "/queue?bucket=%22%3E%3Cscript%3E%E2%80%AE"):  # fmt: skip
            page = site.get(path)
            assert not re.search(
                r"<script(?! src=\"/static/\w+(?:\.min)?\.js\" defer>)|<img|<a href=javascript", page
            ), path
            assert not set("\u202e\u202c\u200f\x07\x1b") & set(page), path
        shown = text_of(site.get(f"/memory/{first.memory_id}"))
        assert r"\u202eevil\u202c" in shown
        assert "{{ 7*7 }} {% raw %}" in shown
        assert "&amp; end" in shown
        # a link's target is named exactly, whatever its name
        links = {one for one in links_of(site.get("/buckets")) if "bucket=" in one and "sql" not in one}
        assert {link.partition("?")[0] for link in links} == {"/bucket", "/queue"}
        assert all("window.owned" in site.get(link) for link in links)


def test_search_by_words_and_by_meaning(db: DB, login: str) -> None:
    model(db)
    ingest(db, "Bob has a dog.", **vector(1))
    ingest(db, "Rome is old.", **vector(0, 2))
    words = {"pets": [1.0, 0, 0, 0]}
    down = False

    def embed(texts: list[str]) -> list[list[float]]:
        if down:
            raise ConnectionError("sk-secret-key-of-somebody")
        return [words[text] for text in texts]

    with served(login) as site:
        page = text_of(site.get("/search?q=DOG"))
        assert "Searched by words only" in page
        assert "Bob has a dog." in page
        assert "Rome" not in page
        assert "Nothing found" in text_of(site.get("/search?q=100%25_"))
    with served(login, embedder=Embedder(embed=embed, model="m")) as site:
        page = text_of(site.get("/search?q=pets&sql"))
        assert "Bob has a dog. bucket default fact · said once" in page
        assert "touch => false" in page
        down = True
        page = text_of(site.get("/search?q=dog"))
        assert "No vector for the query" in page
        assert "secret" not in page
        assert "Bob has a dog." in page


# judging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "older", "newer", "said"),
    [
        ("duplicate", "active", "merged", "duplicate: merged, A stands for both"),
        ("refinement", "merged", "active", "refinement: merged, B stands for both"),
        ("contradiction", "superseded", "active", "contradiction: superseded, B is current and the other is history"),
        ("distinct", "active", "active", "distinct: both are kept"),
    ],
)  # fmt: skip
def test_an_answer_is_applied_and_undone(
    db: DB, login: str, verdict: str, older: str, newer: str, said: str
) -> None:
    persons(db)
    ((one, other),) = pairs(db, 1)
    with served(login) as site:
        done = site.post(form_of(site.get("/queue"), "/queue/answer"), verdict=verdict)
        assert said in text_of(done)
        assert "Nothing is waiting" in text_of(done)
        assert (status(db, one), status(db, other)) == (older, newer)
        again = site.post(form_of(done, "/queue/undo"))
        assert "undone, all are kept" in text_of(again)
        assert (status(db, one), status(db, other)) == ("active", "active")
        # the same pair, answered differently, and undone again
        done = site.post(form_of(again, "/queue/answer"), verdict="duplicate")
        assert "duplicate: merged, A stands for both" in text_of(done)
        assert status(db, other) == "merged"
        site.post(form_of(done, "/queue/undo"))
        assert (status(db, one), status(db, other)) == ("active", "active")
    check(db)


def test_a_question_closed_in_the_meantime_is_reported(db: DB, login: str) -> None:
    persons(db)
    pairs(db, 2)
    with served(login) as site:
        page = site.get("/queue")
        path = form_of(page, "/queue/answer")
        site.post(path, verdict="duplicate")
        told = text_of(site.post(path, 409, verdict="distinct"))
        assert "MF027" in told
        assert "done: duplicate" in told
        assert "unknown verdict" in text_of(site.post(path, 400, verdict="perhaps"))


def test_the_queue_goes_on_behind_what_is_skipped_and_a_person_comes_first(db: DB, login: str) -> None:
    model(db)
    ingest(db, "Bob has a dog.", subject="Bob", **vector(1))
    ingest(db, "Bob has got a dog at home.", subject="Bob", **vector(0.9))  # for a model
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'review')")
    pairs(db, 2)
    with served(login) as site:
        page = site.get("/queue")
        assert "3 open questions: 2 for a person, 1 that a model can answer, or you can." in text_of(page)
        seen = []
        while "Nothing is left after" not in page:
            seen.append(re.findall(r"(Alice \d|Bob) has", text_of(page))[0])
            (skip,) = {link for link in links_of(page) if "after=" in link and "sql" not in link and link.endswith(
                re.findall(r"judgement=([0-9a-f-]+)", page)[-1])}  # fmt: skip
            page = site.get(skip)
        assert seen == ["Alice 0", "Alice 1", "Bob"]


def test_the_named_memories_of_a_cluster_are_merged(db: DB, login: str) -> None:
    ids = cluster(db)
    with served(login) as site:
        page = site.get("/queue")
        path = form_of(page, "/queue/answer")
        assert len(re.findall(r'name="member"', page)) == 4
        assert "at least two" in text_of(site.post(path, 400, verdict="duplicate", member=str(ids[0])))
        done = site.post(path, verdict="duplicate", member=[str(one) for one in ids[:3]])
        assert "stands for those named" in text_of(done)
        assert [status(db, one) for one in ids] == ["active", "merged", "merged", "active"]
        site.post(form_of(done, "/queue/undo"))
        assert [status(db, one) for one in ids] == ["active"] * 4
    check(db)


def test_each_row_of_the_ledger_can_be_undone(db: DB, login: str) -> None:
    model(db)
    one = ingest(db, "Bob has a dog.", **vector(1))
    other = ingest(db, "Bob owns a dog.", **vector(0.999))
    assert other.action == "merged"
    alias = db.execute("select memory_id from memfold.memories where status = 'merged'").fetchone()
    assert alias is not None
    with served(login) as site:
        path = form_of(site.get(f"/memory/{one.memory_id}"), "/undo")
        page = text_of(site.post(path))
        assert "Aliases" not in page
        assert "undone" in page
        assert status(db, alias[0]) == "active"
        assert "MF033" in text_of(site.post(path, 409))
    check(db)


# runs ------------------------------------------------------------------------------------------------------------


def test_a_run_is_previewed_executed_approved_and_undone(db: DB, login: str) -> None:
    ids = cluster(db)
    db.execute("select memfold.undo_run(run_id, 'acme') from memfold.runs")
    db.execute("delete from memfold.judgements")
    with served(login) as site:
        page = site.get("/runs/plan?kind=consolidation")
        assert "Nothing has been written yet. It would ask 3." in text_of(page)
        assert "both, until question 1 is answered" in text_of(page)
        page = site.post(form_of(page, "/runs/start"))
        assert "1 waiting" in text_of(page)
        assert "Bob keeps a cat" in text_of(page)
        approve, undo = form_of(page, "/runs/").replace("/undo", "/approve"), form_of(page, "/runs/")
        page = site.post(approve, verdict="duplicate")
        assert "3 merged" in text_of(page)
        assert [status(db, one) for one in ids] == ["active", "merged", "merged", "merged"]
        page = text_of(site.post(undo))
        assert "Undo the run" not in page
        assert [status(db, one) for one in ids] == ["active"] * 4
        assert "MF039" in text_of(site.post(undo, 409))
        assert "undone" in text_of(site.get("/runs"))
    check(db)


@pytest.mark.parametrize("kind", ["sweep", "pruning"])
def test_a_dry_run_says_what_the_run_does(db: DB, login: str, kind: str) -> None:
    model(db)
    storing(db)
    ingest(db, "Bob has a dog.", subject="Bob", observed_at="2020-01-01Z", source_confidence=0.1, **vector(1))
    ingest(
        db,
        "Bob owns a dog.",
        subject="Bob",
        observed_at="2020-01-02Z",
        source_confidence=0.1,
        **vector(0.999),
    )
    policy(db, preset="three_tier")
    told = {"sweep": "It would merge 1", "pruning": "It would withdraw 2"}[kind]
    with served(login) as site:
        page = site.get(f"/runs/plan?kind={kind}")
        assert told in text_of(page)
        site.post(form_of(page, "/runs/start"))
        statuses = [
            row[0] for row in db.execute("select status from memfold.memories order by memory_id").fetchall()
        ]
        assert statuses == {"sweep": ["active", "merged"], "pruning": ["withdrawn"] * 2}[kind]
        assert "nothing to do" in text_of(site.get(f"/runs/plan?kind={kind}"))


# whose memories --------------------------------------------------------------------------------------------------


def test_a_login_sees_its_tenants_and_no_other(db: DB, dsn: str, login: str, app: Connect) -> None:
    model(db)
    mine = ingest(db, "Bob has a dog.")
    theirs = ingest(db, "Eve has a secret.", tenant_id="globex")
    with served(login) as site:
        assert "secret" not in site.get("/search?q=secret&tenant=globex").replace("q=secret", "").replace(
            'value="secret"', ""
        )
        site.get(f"/memory/{theirs.memory_id}?tenant=globex", 404)
        site.get(f"/memory/{mine.memory_id}?tenant=globex")
    # a login that sees all tenants chooses one
    with served(dsn, None) as site:
        page = site.get("/")
        assert [link for link in links_of(page) if "tenant=" in link and "sql" not in link] == [
            "/buckets?tenant=acme", "/buckets?tenant=globex",
        ]  # fmt: skip
        assert "Eve has a secret." in text_of(site.get(f"/memory/{theirs.memory_id}?tenant=globex"))
        site.get(f"/memory/{mine.memory_id}?tenant=globex", 404)
        assert "Whose memories?" in text_of(site.get("/queue"))
    # a pooled login must name its tenant; a bound one has no choice
    with pytest.raises(errors.TenantMissingError):
        resolve_tenant(Place(login))
    role = app().info.user
    db.execute(f"grant memfold_tenant to {role}")
    db.execute("insert into memfold.tenant_roles (role_name, tenant_id) values (%s, 'globex')", [role])
    with served(login, None) as site:
        site.get(f"/memory/{theirs.memory_id}")
        site.get(f"/memory/{mine.memory_id}?tenant=acme", 404)


def test_a_role_that_may_only_read_can_read(db: DB, dsn: str) -> None:
    persons(db)
    pairs(db, 1)
    role = f"auditor_{db.info.dbname}"
    db.execute(f"create role {role} login in role memfold_auditor")
    try:
        with served(f"{dsn} user={role}") as site:
            page = site.get("/queue")
            assert "Alice 0" in text_of(page)
            site.get(links_of(page)[-3])
            told = site.client.post(
                form_of(page, "/queue/answer"),
                data={"verdict": "duplicate", "csrf": re.findall(r'name="csrf" value="(\w+)"', page)[0]},
            )
            assert told.status_code == 403
            assert "permission denied" in told.text
    finally:
        db.execute(f"drop role {role}")


# names -----------------------------------------------------------------------------------------------------------


def test_two_names_are_shown_side_by_side_linked_and_unlinked(db: DB, login: str) -> None:
    for name in ("Georg", f"Georg {HOSTILE[:60]}"):
        for text in ("plays chess", "has a dog"):
            ingest(db, text, subject=name)
    assert db.execute("select memfold.ask_links('acme')").fetchone() == (1,)

    def subjects() -> int:
        row = db.execute("select count(distinct subject) from memfold.memories").fetchone()
        assert row is not None
        return int(row[0])

    with served(login) as site:
        page = site.get("/queue")
        shown = text_of(page)
        assert "subject noticed: contained, facts" in shown
        assert "A name" in shown
        assert "B alias" in shown
        assert "told plays chess" in shown
        assert "Refinement" not in shown
        assert "<script>window" not in page
        page = site.post(form_of(page, "/queue/answer"), verdict="duplicate")
        assert "duplicate: linked, A is stored in place of B" in text_of(page)
        assert subjects() == 1
        page = site.post(form_of(page, "/queue/undo"))
        assert "unlinked, the two names are kept apart" in text_of(page)
        assert subjects() == 2
        assert "Nothing is waiting" in text_of(site.get("/queue"))
    check(db)


def test_two_names_are_kept_apart(db: DB, login: str) -> None:
    for name in ("Georg", "Georg Maier"):
        for text in ("plays chess", "has a dog"):
            ingest(db, text, subject=name)
    db.execute("select memfold.ask_links('acme')")
    with served(login) as site:
        path = form_of(site.get("/queue"), "/queue/answer")
        assert "unknown verdict" in text_of(site.post(path, 400, verdict="refinement"))
        page = site.post(path, verdict="distinct")
        assert "distinct: both stay" in text_of(page)
        assert "/queue/undo" not in page
    assert db.execute("select count(*) from memfold.links").fetchone() == (0,)


def test_a_predicate_is_declared_and_the_declaration_undone(db: DB, login: str) -> None:
    for home in ("Lyon", "Paris"):
        ingest(db, f"Alice lives in {home}", subject="Alice", predicate="lives_in", object=home)

    def active() -> int:
        row = db.execute("select count(*) from memfold.memories where status = 'active'").fetchone()
        assert row is not None
        return int(row[0])

    with served(login) as site:
        page = site.get("/queue")
        shown = text_of(page)
        assert "cardinality" in shown
        assert "predicate lives_in" in shown
        assert "Duplicate" not in shown
        path = form_of(page, "/queue/answer")
        assert "unknown verdict" in text_of(site.post(path, 400, verdict="duplicate"))
        page = site.post(path, verdict="one")
        assert "one: lives_in has one value at a time" in text_of(page)
        assert active() == 1
        page = site.post(form_of(page, "/queue/undo"))
        assert "undone, nothing is declared about lives_in" in text_of(page)
        assert active() == 2
    check(db)
