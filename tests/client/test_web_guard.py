"""memfold web: access control, errors, and how the command starts and ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx2
import psycopg
import pytest
from click.testing import CliRunner
from starlette.routing import Route

from memfold.tools.cli import main
from memfold.tools.web import Place, make_app
from tests.support.mcp_clients import COMMAND, environment
from tests.support.memories import ingest, model
from tests.support.queries import DB
from tests.support.web_pages import form_of, pairs, persons, served, text_of

pytestmark = pytest.mark.one_server

PATHS = {
    route.path.replace("{memory_id:uuid}", "01a20fe4-7d52-737a-a375-94a04ab385c3").replace(
        "{run_id:uuid}", "01a20fe4-7d52-737a-a375-94a04ab385c3"
    ): "POST" if "POST" in (route.methods or ()) else "GET"
    for route in make_app(Place("dbname=x"), "csrf").routes
    if isinstance(route, Route)
}  # fmt: skip


def written(db: DB) -> object:
    return db.execute(
        "select (select count(*) from memfold.memory_events), (select count(*) from memfold.runs),"
        " (select count(*) from memfold.judgements where status = 'open')"
    ).fetchone()


def test_without_the_cookie_nothing_is_shown_or_done(db: DB, dsn: str) -> None:
    persons(db)
    pairs(db, 1)
    before = written(db)
    assert sum(kind == "POST" for kind in PATHS.values()) == 8
    with served(dsn) as site:
        page = site.get("/queue")
        csrf = re.findall(r'name="csrf" value="(\w+)"', page)[0]
        own = site.client.cookies
        (name,) = own.keys()
        assert name == f"memfold_{urlsplit(site.url).port}"
        for cookies in ({}, {name: "guessed"}, {name: ""}, {name: site.token}, {"memfold": own[name]}):
            with httpx2.Client(base_url=site.url, cookies=cookies, verify=False) as stranger:
                for path, kind in PATHS.items():
                    answer = stranger.request(kind, path, data={"csrf": csrf} if kind == "POST" else None)
                    assert (answer.status_code, "Alice" in answer.text) == (401, False), path
                    assert answer.headers["cache-control"] == "no-store"
                # what the page is made of is no secret
                assert stranger.get("/static/style.css").status_code == 200
        with httpx2.Client(base_url=site.url, verify=False) as stranger:
            for given in ("wrong", site.token[:-1], site.token + "0", own[name], ""):
                answer = stranger.get("/", params={"token": given})
                assert answer.status_code in (401, 403)
                assert "set-cookie" not in answer.headers
            assert stranger.get(f"/?token={site.token}&token=x").status_code == 403
            answer = stranger.get(f"/?token={site.token}")
            assert (answer.status_code, answer.headers["location"]) == (303, "/")
            assert answer.headers["set-cookie"] == f"{name}={own[name]}; HttpOnly; SameSite=Strict; Path=/"
    assert written(db) == before


STRANGE: tuple[tuple[dict[str, str], int], ...] = (
    ({"Host": "evil.example"}, 421),
    ({"Host": "127.0.0.1.evil.example:80"}, 421),
    ({"Host": "127.0.0.1:80:80"}, 421),
    ({"Host": ""}, 421),
    ({"Origin": "http://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Origin": "http://127.0.0.1:1"}, 403),
    ({"Origin": ""}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Sec-Fetch-Site": "same-site"}, 403),
)


def test_another_name_or_page_is_refused(db: DB, dsn: str) -> None:
    persons(db)
    pairs(db, 1)
    with served(dsn) as site:
        path = form_of(site.get("/queue"), "/queue/answer")
        before = written(db)
        for headers, code in STRANGE:
            for place, kind in {**PATHS, path: "POST"}.items():
                if kind == "POST" or code == 421:
                    data = {"csrf": site.csrf, "verdict": "duplicate"} if kind == "POST" else None
                    answer = site.client.request(kind, place, headers=headers, data=data)
                    assert answer.status_code == code, (headers, place)
        assert written(db) == before
        site.post(path, verdict="duplicate")  # the same without them


def test_every_form_needs_what_its_page_carries(db: DB, dsn: str) -> None:
    persons(db)
    pairs(db, 1)
    with served(dsn) as site:
        site.get("/queue")
        before = written(db)
        for path, kind in PATHS.items():
            if kind == "POST":
                for csrf in (None, "", "0" * 64, site.token, "\udcff", site.csrf.upper()):
                    data = {} if csrf is None else {"csrf": csrf.encode("utf-8", "surrogateescape")}
                    answer = site.client.post(path, data=data, headers={"Origin": site.url})
                    assert (answer.status_code, "from another page" in answer.text) == (403, True), path
                assert site.client.get(path).status_code == 405
        assert written(db) == before


def test_headers_for_the_browser(db: DB, dsn: str) -> None:
    with served(dsn) as site:
        for path in ("/queue", "/static/keys.js", "/nowhere"):
            headers = site.client.get(path).headers
            policy = dict(
                part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
            )
            assert policy["default-src"] == "'none'"
            assert (policy["script-src"], policy["style-src"]) == ("'self'", "'self'")
            assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert policy["form-action"] == "'self'"
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "same-origin"
        page = site.get("/queue")
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', page)
        assert "server" not in site.client.get("/queue").headers


# what goes wrong ------------------------------------------------------------------------------------------------


def test_missing_objects_are_reported(db: DB, dsn: str) -> None:
    model(db)
    with served(dsn) as site:
        for path, code, part in (
            (f"/memory/{uuid4()}", 404, "no such memory"),
            (f"/runs/{uuid4()}", 404, "no such run"),
            (f"/queue?judgement={uuid4()}", 404, "no such judgement"),
            ("/queue?judgement=x%00<b>", 400, "judgement is not a UUID"),
            ("/search?q=%00", 400, "cannot be stored"),
            ("/runs/plan?kind=erasure", 400, "unknown kind of run"),
            ("/nowhere", 404, "Not Found"),
            ("/static/../app.py", 404, "Not Found"),
        ):
            assert part in text_of(site.get(path, code)), path
        assert "Nothing is waiting" in text_of(site.get("/queue"))
        db.execute("alter schema memfold rename to gone")
        try:
            page = text_of(site.get("/queue", 400))
            assert "memfold is not installed" in page
        finally:
            db.execute("alter schema gone rename to memfold")
    ingest(db, "Alice has a cat")
    with served(dsn, None) as site:
        # led back to the choice of a tenant
        assert "tenant=acme" in site.get("/queue?tenant=%00")


def test_an_unreachable_database_is_reported_without_its_address(
    db: DB, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served(dsn) as site:

        def refuse(*_: Any, **__: Any) -> None:
            raise psycopg.OperationalError("connection to db.internal refused")

        monkeypatch.setattr(psycopg, "connect", refuse)
        page = text_of(site.get("/queue", 503))
    assert "the database cannot be reached" in page
    assert "internal" not in page


# the command -----------------------------------------------------------------------------------------------------


def test_it_prints_its_url_serves_and_ends(db: DB, dsn: str) -> None:
    process = subprocess.Popen(
        [COMMAND, "web", "--port", "0"],
        env=environment(dsn),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", url)
        with httpx2.Client() as client:
            answer = client.get(url, follow_redirects=True)
            assert (answer.status_code, answer.url.path) == (200, "/buckets")
            with pytest.raises(httpx2.ConnectError):
                client.get(f"http://127.0.0.2:{answer.url.port}/")
    finally:
        process.send_signal(signal.SIGTERM)
        out, log = process.communicate(timeout=60)
    assert (process.returncode, out, log) == (-signal.SIGTERM, "", "")


def test_listening_for_other_machines_gives_a_warning(db: DB, dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for host, warned in (
            ("127.0.0.1", False),
            ("localhost", False),
            ("192.0.2.1", True),
            ("nowhere.invalid", True),
        ):
            done = CliRunner().invoke(
                main, ["web", "--dsn", dsn, "--tenant", "acme", "--port", port, "--host", host]
            )
            assert (done.exit_code, "cannot listen there" in done.output) == (1, True)
            assert ("other machines can reach" in done.output) == warned


def test_database_problems_are_reported(db: DB, dsn: str) -> None:
    for arguments, part in (
        (["--dsn", "host=/nowhere dbname=x"], "No such file or directory"),
        (
            ["--dsn", f"{dsn} dbname=template1", "--tenant", "acme"],
            "memfold is not installed in this database",
        ),
        (["--dsn", dsn], "no tenant"),
        (["--dsn", dsn, "--embed-url", "http://127.0.0.1:9/v1"], "--embed-url needs --embed-model"),
    ):
        done = CliRunner().invoke(main, ["web", *arguments], env={"MEMFOLD_TENANT": None})
        assert done.exit_code in (1, 2)
        assert part in done.output
        assert "token=" not in done.output
