"""Links in random histories: the state matches the ledger, no statement is lost, and no text is stored under an
alias."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.memories import check, model, vector
from tests.support.queries import DB, one
from tests.support.rehashing import History
from tests.support.rounds import seeds

SUBJECTS = ["a", "b", "c", None]
PREDICATES = ["is", "was", "has", None]
UNDER_AN_ALIAS = """
select m.subject, m.predicate from memfold.memories as m join memfold.links as l
    on l.tenant_id = m.tenant_id and l.bucket_id in (m.bucket_id, '*')
    and (l.kind = 'subject' and l.alias = m.subject or l.kind = 'predicate' and l.alias = m.predicate
        or l.kind = 'beginning' and m.subject is null and starts_with(m.content, l.alias || ' '))
"""


class Links(History):
    """Links and rehashes among the calls."""

    def step(self) -> None:
        pick = self.random.random()
        if pick < 0.55:
            self.ingest()
        elif pick < 0.65:
            self.hand(["a x", "y", "new"])
        elif pick < 0.75:
            self.undo()
        elif pick < 0.77:
            self.db.execute(
                "call rehash_bucket('acme', 'default', canonicalizer => %s)",
                [self.random.choice(["flat", "prose"])],
            )
        else:
            self.link()

    def link(self) -> None:
        kind, names = self.random.choice([("subject", SUBJECTS), ("predicate", PREDICATES[:3])])
        alias, name = self.random.choice(names), self.random.choice(names[:3])
        bucket = self.random.choice(["default", "default", "*"])
        if self.random.random() < 0.6:
            call, given = f"link_{kind}(%s, %s, 'acme', %s)", [alias, name, bucket]
        elif kind == "subject":
            call, given = "unlink_subject(%s, 'acme', %s, subject => %s)", [alias, bucket, name]
        else:
            call, given = "unlink_predicate(%s, 'acme', %s)", [alias, bucket]
        try:
            self.db.execute(f"select {call}".encode(), given)
        except psycopg.Error as error:
            assert error.sqlstate in {"MF063", "MF064"}, error  # noqa: PT017
            return
        if self.random.random() < 0.7:
            self.db.execute("call take_up_links('acme', batch_size => 2)")
            assert self.db.execute(UNDER_AN_ALIAS).fetchall() == []

    def ingest(self) -> None:
        text = self.random.choice(["a x", "b x", "x", "X.", "a y", "y", "z", "+"])
        single = self.random.random() < 0.4
        arguments: dict[str, Any] = {
            "subject": self.random.choice(SUBJECTS),
            "predicate": self.random.choice(PREDICATES[:2]) if single else self.random.choice(PREDICATES),
            "object": self.random.choice(["1", "2", None]) if single else None,
            "source_turn_ids": [f"t{self.random.randrange(5)}"] if self.random.random() < 0.5 else [],
            "observed_at": f"2025-01-{self.random.randrange(1, 28):02}",
        }
        if self.random.random() < 0.3:
            arguments |= vector(self.random.choice([0.3, 0.95, 0.99]), self.random.choice([1, 2]))
        self.tell(text, arguments)


@pytest.mark.parametrize("seed", seeds(3, 30))
def test_at_random(db: DB, seed: int) -> None:
    model(db)
    db.execute("select set_predicate('is', 'acme'), set_predicate('was', 'acme')")
    history = Links(db, seed)
    for _ in range(50):
        history.step()
        check(db)
    db.execute("call take_up_links('acme')")
    assert db.execute(UNDER_AN_ALIAS).fetchall() == []
    check(db)
    assert db.execute("select sum(observations) from memory_totals").fetchone() == (history.accepted,)
    tombstones = "select count(*) from memory_events where action = 'rejected' and method = 'tombstone'"
    refused: int = one(db, tombstones)
    for bucket, kind, alias in db.execute("select bucket_id, kind, alias from links").fetchall():
        what = "predicate" if kind == "predicate" else "subject"
        subject = {"beginning": f", subject => '{alias}'"}.get(kind, "")
        db.execute(
            f"select unlink_{what}(%s, 'acme', %s{subject})".encode(),
            [None if kind == "beginning" else alias, bucket],
        )
        check(db)
    # every text is under the name with which it first came
    moved = db.execute(
        "select m.memory_id, m.subject, e.subject, m.predicate, e.predicate from memories m cross join lateral ("
        " select e.subject, e.predicate from memory_events e"
        " where e.tenant_id = m.tenant_id and e.memory_id = m.memory_id and e.observation"
        " order by e.event_id limit 1) e where (m.subject, m.predicate) is distinct from (e.subject, e.predicate)"
    ).fetchall()
    assert moved == []
    # under its own name, the text may be forgotten
    left = history.accepted + refused - one(db, tombstones)
    assert one(db, "select sum(observations) from memory_totals") == left
