"""Shared by tests of the page: a server for a database, a client with its token, memories to look at."""

from __future__ import annotations

import contextlib
import html
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import httpx2
from psycopg.types.json import Jsonb

from memfold.client._http import listen
from memfold.tools.calibrate import calibrate_pairs
from memfold.tools.web import Place
from memfold.tools.web.serving import make_server
from tests.support.calibration import APART, normal
from tests.support.memories import ingest, model, vector
from tests.support.queries import DB

# What a browser must neither run nor obey: markup, an attribute's end, a template's, control and bidirectional characters.
HOSTILE = (
    "<script>window.owned=1</script><img src=x onerror=window.owned=1>\"'><a href=javascript:window.owned=1>"
    " {{ 7*7 }} {% raw %} \u202eevil\u202c \u200f \x07\x1b[31m \u05e9\u05dc\u05d5\u05dd &amp; end"
)


@dataclass
class Site:
    """A server, and a client that has opened its URL."""

    url: str
    token: str
    client: httpx2.Client

    csrf: str = ""
    """The CSRF token of the last page with a form."""

    def get(self, path: str, status: int = 200) -> str:
        return self._page(self.client.get(path, follow_redirects=True), status)

    def post(self, path: str, status: int = 200, **fields: Any) -> str:
        """Send a form as its page would, and follow the redirect."""
        data = {"csrf": self.csrf, **fields}
        headers = {"Origin": self.url}
        return self._page(self.client.post(path, data=data, headers=headers, follow_redirects=True), status)

    def _page(self, answer: httpx2.Response, status: int) -> str:
        assert answer.status_code == status, answer.text
        found = re.search(r'name="csrf" value="(\w+)"', answer.text)
        self.csrf = found[1] if found is not None else self.csrf
        return answer.text


@contextlib.contextmanager
def served(dsn: str, tenant: str | None = "acme", embedder: Any = None) -> Iterator[Site]:
    """The page of a tenant, served while the block runs, with a client that is let in."""
    with listen("127.0.0.1", 0) as listening:
        server, url = make_server(Place(dsn, tenant, embedder), listening, "127.0.0.1")
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        base = url.partition("/?")[0]
        try:
            with httpx2.Client(base_url=base, timeout=60, verify=False) as client:
                assert client.get(url).status_code == 303
                yield Site(base, parse_qs(urlsplit(url).query)["token"][0], client)
        finally:
            server.should_exit = True
            thread.join()


def persons(db: DB) -> None:
    """Unclear pairs are for a person."""
    model(db)
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'review')")


def pairs(db: DB, count: int) -> list[tuple[UUID, UUID]]:
    """Pairs that wait for a person, each of a separate subject: the older and the newer memory."""
    made = []
    for number in range(count):
        subject = f"Alice {number}"
        older = ingest(db, f"{subject} has a cat.", subject=subject, **vector(1))
        newer = ingest(db, f"{subject} has got a cat at home.", subject=subject, **vector(0.9))
        assert newer.action == "escalated"
        assert older.memory_id is not None
        assert newer.memory_id is not None
        made.append((older.memory_id, newer.memory_id))
    return made


def cluster(db: DB) -> list[UUID]:
    """Four memories that are near to each other, as one question for a person."""
    model(db)
    made = [
        ingest(db, f"Bob keeps {number} dogs.", subject="Bob", predicate=f"p{number}", **vector(1))
        for number in range(3)
    ]
    made.append(ingest(db, "Bob keeps a cat.", subject="Bob", predicate="p9", **vector(0.99, 2)))
    db.execute("select memfold.consolidate('acme', approval => 'person', dry_run => false)")
    return [one.memory_id for one in made if one.memory_id is not None]


def calibrated(db: DB) -> UUID:
    """A calibration of the model m, applied: what memfold calibrate --apply stores."""
    made = calibrate_pairs(normal(**APART), "m")
    row = db.execute(
        "insert into memfold.calibrations (model, merge_threshold, judge_threshold, report, fingerprint)"
        " values ('m', %s, %s, %s, %s) returning calibration_id",
        [made.bands.merge, made.bands.judge, Jsonb(made.report()), made.fingerprint],
    ).fetchone()
    assert row is not None
    db.execute("select memfold.apply_calibration(%s)", row)
    found: UUID = row[0]
    return found


def text_of(page: str) -> str:
    """The visible text of a page, on one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def form_of(page: str, path: str) -> str:
    """The address that a form of a page is sent to."""
    found = re.search(rf'<form method="post" action="({re.escape(path)}[^"]*)"', page)
    assert found is not None, page
    return html.unescape(found[1])


def links_of(page: str) -> list[str]:
    """Where the links of a page lead."""
    return [html.unescape(link) for link in re.findall(r'href="(/[^"]*)"', page)]
