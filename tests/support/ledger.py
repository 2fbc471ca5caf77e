"""The state by the ledger, computed independently and compared with the tables; and a random history of one bucket."""

from __future__ import annotations

import json
import math
import random
from collections import defaultdict
from typing import Any
from uuid import UUID

import psycopg

from tests.reference_model.derivation import derive
from tests.reference_model.records import Event, Memory, Scope, Text
from tests.support.memories import Result, ingest, vector
from tests.support.queries import DB, Row, rows

State = dict[UUID, Row]


def recomputed(db: DB, bucket: str) -> State:
    """Every memory of a bucket from its ledger rows in force, by the reference model."""
    events = rows(
        db,
        "select * from memory_events where tenant_id = 'acme' and bucket_id = %s order by event_id",
        bucket,
    )
    memories = rows(
        db,
        "select memory_id, memory_type, object, predicate, scope_key::text as scope"
        " from memories m where tenant_id = 'acme' and bucket_id = %s order by memory_id",
        bucket,
    )
    kinds = {(m["memory_type"], m["predicate"]) for m in memories}
    is_slot = {
        # not in a query over memories: on Citus a function that reads tables cannot be part of one
        kind: rows(db, "select memfold_internal._is_slot('acme', %s, %s, %s) as found", bucket, *kind)[0][
            "found"
        ]
        for kind in kinds
    }
    given = [e[key] for e in events for key in ("observed_at", "valid_from", "valid_until") if e[key]]
    times = {at.timestamp(): at for at in given}
    scopes = {
        m["scope"]: Scope(
            m["scope"],
            bucket,
            m["predicate"] or "",
            is_slot[m["memory_type"], m["predicate"]],
            "newest_wins",
            "",
            "",
            "merge",
            "",
            (),
        )
        for m in memories
    }
    ids = [m["memory_id"] for m in memories]
    number = {m: i for i, m in enumerate(ids)}
    event_number = {e["event_id"]: i for i, e in enumerate(events)}

    def seconds(at: Any) -> float | None:
        return None if at is None else float(at.timestamp())

    found = derive(
        [
            Memory(i, scopes[m["scope"]], Text("", ()), "", m["object"], False) for i, m in enumerate(memories)
        ],
        [
            Event(
                e["action"], number.get(e["memory_id"]), e["tier"], e["method"], number.get(e["target_id"]),
                observation=e["observation"], verdict=e["verdict"], undoes=event_number.get(e["undoes"]),
                turns=tuple(e["source_turn_ids"]), source=e["source_confidence"], extractor=e["extractor_confidence"],
                metadata=e["metadata"] or {}, at=seconds(e["observed_at"]),
                valid=(seconds(e["valid_from"]), seconds(e["valid_until"])), number=i,
            )
            for i, e in enumerate(events)
        ],
    )  # fmt: skip
    state: State = {}
    for i, m in enumerate(ids):
        k = found.counters.get(i, {})
        state[m] = {
            "status": found.status[i],
            "merged_into": ids[found.parent[i]] if i in found.parent else None,
            "root_id": ids[found.root(i)] if i in found.parent else None,
            "on_timeline": i in found.on_timeline,
            "aliases": k.get("aliases", 0),
            "observations": k.get("observations", 0),
            "independent": k.get("independent", 0),
            "source_confidence": k.get("source", 0),
            "extractor_confidence": k.get("extractor", 0),
            "first_seen": times.get(k.get("first_seen")),
            "last_seen": times.get(k.get("last_seen")),
            "metadata": found.metadata.get(i, {}),
            "sources": {t for of, t in found.sources if of == i},
            "intervals": {
                (times[since], times.get(until)) for since, of, until in found.intervals if of == i
            },
        }
    return state


def stored(db: DB, bucket: str) -> State:
    """The same from the tables."""
    found = {
        row.pop("memory_id"): row
        for row in rows(
            db,
            "select m.memory_id, m.status, m.merged_into, m.root_id, coalesce(k.on_timeline, false) as on_timeline,"
            " coalesce(k.aliases, 0) as aliases, coalesce(k.observations, 0) as observations,"
            " coalesce(k.independent, 0) as independent, coalesce(k.source_confidence, 0) as source_confidence,"
            " coalesce(k.extractor_confidence, 0) as extractor_confidence,"
            " nullif(k.first_seen, '-infinity') as first_seen, nullif(k.last_seen, '-infinity') as last_seen,"
            " m.metadata from memories m left join memory_totals k using (tenant_id, memory_id)"
            " where m.tenant_id = 'acme' and m.bucket_id = %s",
            bucket,
        )
    }
    for row in found.values():
        row["sources"], row["intervals"] = set(), set()
    for s in rows(db, "select memory_id, source_turn_id from memory_sources where tenant_id = 'acme'"):
        if s["memory_id"] in found:
            found[s["memory_id"]]["sources"].add(s["source_turn_id"])
    for i in rows(db, "select * from memory_intervals where tenant_id = 'acme'"):
        if i["memory_id"] in found:
            found[i["memory_id"]]["intervals"].add((i["valid_from"], i["valid_to"]))
    return found


def same(db: DB, bucket: str = "default") -> State:
    """The tables equal the state by the ledger, field by field."""
    expected, actual = recomputed(db, bucket), stored(db, bucket)
    differences = [
        (str(m), field, expected[m][field], value)
        for m, row in actual.items()
        for field, value in row.items()
        if value != expected[m][field]
    ]
    assert differences == []
    assert actual.keys() == expected.keys()
    return actual


UNDOABLE = (
    "select event_id from memory_events e where tenant_id = 'acme' and bucket_id = %s and ("
    " action in ('merged', 'replaced', 'superseded', 'historical') and tier >= 2"
    " or action = 'rejected' and tier = 3 or tier = 1 and observation)"
    " and (select action from memory_events u where u.tenant_id = e.tenant_id and u.undoes = e.event_id"
    " order by u.event_id desc limit 1) is distinct from 'undone' order by event_id"
)
# the last undo or restoration
UNDOS = (
    "select event_id from memory_events e where tenant_id = 'acme' and bucket_id = %s and undoes is not null"
    " and not exists (select from memory_events l where l.tenant_id = e.tenant_id and l.undoes = e.undoes"
    " and l.event_id > e.event_id)"
    " order by event_id"
)
SAYS = [1, 0.97, 0.95, 0.89, 0.87, 0.5, 0.45, 0.1, 0.05, 0.93]


class History:
    """A random history of one bucket, made with every function that changes a memory."""

    def __init__(self, db: DB, bucket: str, seed: int) -> None:
        self.db = db
        self.bucket = bucket
        self.random = random.Random(seed)
        self.done: defaultdict[str, int] = defaultdict(int)
        conflict = self.random.choice([*["newest_wins"] * 3, "keep_existing", "keep_both", "review"])
        db.execute("select set_policy('acme', %s, conflict => %s)", [bucket, conflict])

    def run(self, steps: int) -> None:
        moves = {
            self.ingest: 48, self.answer: 20, self.ask: 6, self.merge: 5, self.supersede: 7, self.reject: 3,
            self.update: 5, self.undo: 6, self.undo_an_undo: 4, self.embed: 4,
        }  # fmt: skip
        for _ in range(steps):
            move = self.random.choices(list(moves), list(moves.values()))[0]
            try:
                move()
                self.done[move.__name__] += 1
            except psycopg.Error as error:
                # what the state does not allow: the same memory, a rejected one, a closed judgement, a circle
                if error.sqlstate not in ("MF019", "MF027", "MF032", "MF033", "MF034"):
                    raise

    def ingest(self) -> Result:
        kind = self.random.choice(["slot", "slot", "many", "many", "free"])
        arguments: dict[str, Any]
        if kind == "slot":
            place = self.random.randrange(4)
            form = self.random.randrange(3)
            content = ["Ann works at {}", "Ann is employed by {}", "{} has Ann on the payroll"][form]
            content = content.format(["VW", "Stripe", "BMW", "Audi"][place])
            angle = 0.15 * form
            embedding = [0.0] * 4
            embedding[place], embedding[(place + 1) % 4] = math.cos(angle), math.sin(angle)
            arguments = {
                "subject": "Ann", "predicate": "works_at", "object": ["VW", "Stripe", "BMW", "Audi"][place],
                "embedding": json.dumps(embedding), "embedding_model": "m",
            }  # fmt: skip
        else:
            i = self.random.randrange(len(SAYS))
            content = "so " * i + ("Ann says it" if kind == "many" else "it is said")
            # one in six comes without its vector, which may follow
            arguments = vector(SAYS[i]) if self.random.randrange(6) else {}
            arguments |= {"subject": "Ann", "predicate": "says"} if kind == "many" else {}
        if self.random.random() < 0.2:
            arguments |= {"metadata": {self.random.choice("ab"): self.random.randrange(9)}}
        return ingest(
            self.db, content, bucket_id=self.bucket,
            source_turn_ids=sorted({f"t{self.random.randrange(8)}" for _ in range(self.random.randrange(3))}),
            source_confidence=self.random.choice([0.3, 0.5, 0.9]),
            extractor_confidence=self.random.choice([0.2, 0.8]),
            observed_at=f"2026-01-{self.random.randrange(1, 29):02}",
            origin=self.random.choice(["observed"] * 9 + ["recalled"]), **arguments,
        )  # fmt: skip

    def pick(self, query: str) -> Any:
        found = self.db.execute(query, [self.bucket]).fetchall()
        return self.random.choice(found)[0] if found else None

    def memory(self) -> UUID | None:
        # any text: ids of aliases stand for their roots
        found: UUID | None = self.pick(
            "select memory_id from memories where bucket_id = %s order by memory_id"
        )
        return found

    def answer(self) -> None:
        judgement = self.pick(
            "select judgement_id from judgements where bucket_id = %s and status = 'open' order by judgement_id"
        )
        if judgement is not None:
            self.db.execute(
                "select resolve_judgement(%s, %s, confidence => %s, merged_text => %s, model => %s, tenant_id => 'acme')",
                [
                    judgement,
                    self.random.choice(["duplicate", *["refinement", "contradiction"] * 2, "distinct"]),
                    self.random.choice([0.95, 0.95, 0.4]),
                    self.random.choice([None, "", f"both say it, {self.random.randrange(3)}", "so so Ann says it"]),
                    self.random.choice([None, "a model"]),
                ],
            )  # fmt: skip

    def ask(self) -> None:
        self.db.execute(
            "insert into judgements (tenant_id, bucket_id, scope_key, kind, memory_id, other_id)"
            " select 'acme', bucket_id, scope_key, %s, greatest(a, b), least(a, b) from ("
            "  select bucket_id, scope_key, memory_id as a, lead(memory_id) over (order by md5(content || %s)) as b"
            "  from memories where tenant_id = 'acme' and bucket_id = %s and status = 'active') as pairs"
            " where b is not null limit 1 on conflict do nothing",
            [
                self.random.choice(["consolidation", "synthesis", "write"]),
                str(self.random.random()),
                self.bucket,
            ],
        )

    def embed(self) -> None:
        late = self.pick(
            "select memory_id from memories where bucket_id = %s and embedding_pending order by memory_id"
        )
        if late is not None:
            embedding = vector(self.random.choice(SAYS))["embedding"]
            self.db.execute("select attach_embedding(%s, %s, 'm', 'acme')", [late, embedding])

    def merge(self) -> None:
        if (m := self.memory()) is not None:
            self.db.execute("select merge_memories(%s, %s, tenant_id => 'acme')", [m, self.memory()])

    def supersede(self) -> None:
        if (m := self.memory()) is not None:
            self.db.execute("select supersede_memory(%s, %s, tenant_id => 'acme')", [m, self.memory()])

    def reject(self) -> None:
        if (m := self.memory()) is not None:
            self.db.execute("select reject_memory(%s, tenant_id => 'acme')", [m])

    def update(self) -> None:
        if (m := self.memory()) is not None:
            text = self.random.choice(
                ["Ann said so", "so Ann says it", "Ann works at BMW", f"said {self.random.random()}"]
            )
            self.db.execute("select update_memory(%s, %s, tenant_id => 'acme')", [m, text])

    def undo(self) -> None:
        if (event := self.pick(UNDOABLE)) is not None:
            undo(self.db, event)

    def undo_an_undo(self) -> None:
        if (event := self.pick(UNDOS)) is not None:
            undo(self.db, event)


def undo(db: DB, event_id: UUID | None, reason: str | None = None) -> list[tuple[Any, ...]]:
    """Undo an event; returns (memory_id, status, content) of its memories."""
    found = db.execute(
        "select * from undo(%s, reason => %s, tenant_id => 'acme')", [event_id, reason]
    ).fetchall()
    assert len({row[0] for row in found}) == 1
    return [row[1:4] for row in found]
