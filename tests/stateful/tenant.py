"""A tenant in the database, and what the model copies from it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from hypothesis.stateful import RuleBasedStateMachine

from tests.reference_model.records import Event, Judgement, Scope
from tests.reference_model.world import World
from tests.stateful.counts import COUNTS
from tests.stateful.scopes import DAY, FIRST_DAY
from tests.support.memories import GENERIC_PLANS
from tests.support.queries import DB
from tests.support.rounds import rounds

STEPS = rounds("MEMFOLD_STEPS", 30, 30)
READ = """
select jsonb_build_object(
  'memories', (select jsonb_agg(jsonb_build_array(m.memory_id, m.bucket_id, m.predicate, m.content, m.object, m.status,
        m.merged_into, m.root_id, m.metadata, m.embedding_pending, k.on_timeline, k.aliases, k.observations,
        k.independent, k.source_confidence, k.extractor_confidence, extract(epoch from nullif(k.first_seen, '-infinity')),
        extract(epoch from nullif(k.last_seen, '-infinity')), jsonb_build_array(extract(epoch from k.valid_from),
        extract(epoch from k.valid_until)), v.is_live, m.canonicalizer)
        order by m.memory_id)
    from memfold.memories as m left join memfold.memory_totals as k using (tenant_id, memory_id)
        left join memfold.memory_vectors as v using (tenant_id, memory_id) where m.tenant_id = %(tenant)s),
  'intervals', (select jsonb_agg(jsonb_build_array(extract(epoch from i.valid_from), i.memory_id,
        extract(epoch from i.valid_to))) from memfold.memory_intervals as i where i.tenant_id = %(tenant)s),
  'sources', (select jsonb_agg(jsonb_build_array(o.memory_id, o.source_turn_id))
    from memfold.memory_sources as o where o.tenant_id = %(tenant)s),
  'judgements', (select jsonb_agg(jsonb_build_array(j.judgement_id, j.kind, j.memory_id, j.other_id, j.status, j.verdict,
        j.similarity)
        order by j.judgement_id) from memfold.judgements as j where j.tenant_id = %(tenant)s and j.kind <> 'identity'),
  'events', (select jsonb_agg(jsonb_build_array(e.event_id, e.action, e.memory_id, e.tier, e.method, e.target_id,
        e.similarity, e.reason, e.observation, e.judgement_id, e.verdict, e.undoes, e.content,
        e.source_turn_ids, e.source_confidence, e.extractor_confidence, e.metadata, extract(epoch from e.observed_at),
        jsonb_build_array(extract(epoch from e.valid_from), extract(epoch from e.valid_until)), e.similar_memories, e.run_id)
        order by e.event_id) from memfold.memory_events as e
    where e.tenant_id = %(tenant)s and e.event_id > %(last)s),
  'invariants', case when %(check)s then (select jsonb_agg(c) from memfold.check_invariants(%(tenant)s) as c) end)
"""
# of a row of READ's events
EVENT = ["action", "memory", "tier", "method", "target", "similarity", "reason", "observation", "judgement",
         "verdict", "undoes", "content", "turns", "source", "extractor", "metadata", "at", "valid", "similar",
         "run"]  # fmt: skip
NONE = UUID(int=0)


class Tenant(RuleBasedStateMachine):
    """One tenant in the database, the same one in the model."""

    db: DB
    query = READ

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.tenant = f"stateful {uuid4()}"
        self.scopes: list[Scope] = []
        self.memories: list[UUID] = []
        self.events: list[UUID] = []
        self.judgements: list[UUID] = []
        self.keys: dict[tuple[str, str], tuple[dict[str, Any], Event]] = {}
        self.script: list[str] = []
        self.calls = 0
        self.clock = 0.0
        self.rehashes: list[str] = []
        # of each run of maintenance its rows in the ledger; and which judgements are its
        self.runs: dict[str, set[int]] = {}
        self.asked: dict[str, set[int]] = {}
        # buckets in which ALIAS is linked to Ann; and those where something was stated under it
        self.linked: set[str] = set()
        self.told_by_alias: set[str] = set()

    def stated_now(self, last_seen: float) -> float:
        """The clock at the call, after the transaction's start; the ledger has the exact time."""
        at = float(self.held["events"][-1][1 + EVENT.index("at")])
        assert at == last_seen or at >= self.clock
        return max(at, last_seen)

    def call(self, function: str, **arguments: Any) -> Any:
        """The result's row as a dictionary, or the SQLSTATE; and the new state of the database."""
        silent = ("bucket_id", "subject", "embedding_model", "predicate", "session_id")
        usual: tuple[Any, ...] = (None, [], 0.5, "observed", "{}")
        values = {n: self.shown(v) for n, v in arguments.items() if v not in usual and n not in silent}
        if "embedding" in values:
            values["embedding"] = "its own"
        self.script.append(f"{function}({', '.join(f'{n}={v}' for n, v in values.items())})")
        self.calls += function != "_rehash_batch"
        arguments["tenant_id"] = self.tenant
        names = ", ".join(f"{name} => %({name})s" for name in arguments)
        try:
            schema = "memfold_internal" if function.startswith("_") else "memfold"
            rows = self.db.execute(
                f"select to_jsonb(r), extract(epoch from now()) from {schema}.{function}({names}) as r",
                arguments,
            ).fetchall()
        except psycopg.Error as error:
            if not (error.sqlstate or "").startswith("MF"):
                raise AssertionError(f"{error!r}\n{self.told()}") from error
            return error.sqlstate
        self.rows = [row[0] for row in rows]
        if not rows:
            return {}
        self.clock = float(rows[0][1])
        return self.rows[0]

    def shown(self, value: Any) -> str:
        if isinstance(value, UUID):
            for letter, ids in (("m", self.memories), ("e", self.events), ("j", self.judgements)):
                if value in ids:
                    return f"{letter}{ids.index(value)}"
        if isinstance(value, datetime):
            return f"day {(value.timestamp() - FIRST_DAY) / DAY:g}"
        return repr(value)

    def brief(self, said: dict[str, Any]) -> str:
        wanted = ("status", "verdict", "action", "tier", "method", "similarity", "memory_id", "superseded_id")
        names = {str(id_): f"m{i}" for i, id_ in enumerate(self.memories)}
        return " ".join(names.get(said[key], str(said[key])) for key in wanted if said.get(key) is not None)

    def told(self) -> str:
        return "\n".join(
            [f"scopes: {', '.join(s.name for s in self.scopes)}"]
            + [f"  {i}: {line}" for i, line in enumerate(self.script)]
            + [
                f"  m{m.number}: {m.scope.name}, {m.content!r}, object {m.object}"
                for m in self.world.memories
            ]
        )

    def read(self, check: bool) -> None:
        if check:
            self.db.execute(GENERIC_PLANS)
        last = self.events[-1] if self.events else NONE
        given = {"tenant": self.tenant, "last": last, "known": self.events, "check": check}
        held = self.db.execute(self.query, given, prepare=True).fetchone()
        if check:
            self.db.execute("reset plan_cache_mode")
        assert held is not None
        self.held = {key: value or [] for key, value in held[0].items()}

    def teardown(self) -> None:
        if not self.scopes:
            return
        COUNTS["sequences"] += 1
        COUNTS["of all steps"] += len(self.script) >= STEPS
        self.read(True)
        if self.held["invariants"]:
            raise AssertionError(f"{self.told()}\ninvariants broken: {self.held['invariants']}")

    def new_events(self) -> list[Event]:
        """The new ledger rows, as the model would write them."""
        known = len(self.events)
        of = {
            "memory": {row[0]: i for i, row in enumerate(self.held["memories"])},
            "judgement": {row[0]: i for i, row in enumerate(self.held["judgements"])},
            "undoes": {str(id_): i for i, id_ in enumerate(self.events)}
            | {row[0]: known + i for i, row in enumerate(self.held["events"])},
        }
        of["target"] = of["memory"]
        events = []
        for row in self.held["events"]:
            values = dict(zip(EVENT, row[1:], strict=True))
            values["similar"] = [
                (
                    of["memory"][x["memory_id"]],
                    x.get("similarity"),
                    of["memory"].get(x.get("matched_id")),
                    x.get("matched_similarity"),
                )
                for x in values["similar"] or []
            ]
            for key, numbers in of.items():
                values[key] = None if values[key] is None else numbers[values[key]]
            values["turns"] = tuple(values["turns"])
            values["valid"] = tuple(values["valid"])
            values["metadata"] = values["metadata"] or {}
            events.append(Event(**values))
        return events

    def take_over(self, run: str | None = None) -> None:
        """Let the model hold what the database has done, where each row is one that may be; state is derived from them."""
        for event in self.new_events()[len(self.world.events) - len(self.events) :]:
            COUNTS[f"a run: {event.action} {event.method}"] += 1
            assert not event.of_rehash, event
            if event.fold:
                state = self.world.state
                for side in event.fold:
                    assert side not in state.parent, event
                    assert state.status[side] in ("active", "superseded"), event
                if event.tier == 2:
                    assert not self.world.pair(*event.fold, ("done", "open")), event
            else:
                assert event.action in ("undone", "judged", "superseded", "rejected"), event
            self.world.record(event)
            undone = None if event.undoes is None else self.world.events[event.undoes]
            if undone and undone.fold:
                self.world.part(undone)
            if run is not None:
                self.runs.setdefault(run, set()).add(event.number)
        numbers = {row[0]: i for i, row in enumerate(self.held["memories"])}
        for i, row in enumerate(self.held["judgements"]):
            _, kind, memory, other, state_, verdict, similarity = row
            judgement = Judgement(i, kind, numbers[memory], numbers[other], state_, verdict, similarity)
            if i < len(self.world.judgements):
                self.world.judgements[i] = judgement
            else:
                self.world.judgements.append(judgement)
                if run is not None:
                    self.asked.setdefault(run, set()).add(i)

    def take_over_hashes(self) -> None:
        for row, m in zip(self.held["memories"], self.world.memories, strict=False):
            m.profile = None if row[-1] is None else row[-1].split("/")[0]
