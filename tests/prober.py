"""Tries to cross from one tenant to another, by everything that the catalog lists; says what came through.

Two tenants, alder and birch, hold some of everything, with a word of their own in every text. A session that acts for alder
must not meet birch's word, nor an id of birch's, in anything that comes back: rows, notices, errors. What is asked for
in the same way and does not exist at all (cedar) must be answered in the same way. Each probe returns what is wrong,
so that tests can take a policy away and see that it is missed.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from tests.support import ingest, vector

DB = psycopg.Connection[Any]

# Not of a tenant: models and their thresholds, what an administrator adopts, alembic's own.
SHARED = {
    "embedding_models", "calibrations", "calibration_changes", "adoptions", "adoption_archive", "adoption_repeats",
    "adoption_claims", "alembic_version",
    "lexicon",
}  # fmt: skip
# Columns of tenants' tables whose texts are no tenant's own: states, names of rules and of shared models.
PLAIN = {
    "judgements.guard", "judgements.kind", "judgements.status", "judgements.verdict",
    "labelled_pairs.evidence", "labelled_pairs.label", "labelled_pairs.labelled_by", "labelled_pairs.origin",
    "labelled_pairs.similarities",
    "memories.canonicalizer", "memories.key_fields", "memories.metadata_signature", "memories.status",
    "memory_events.action", "memory_events.actor", "memory_events.guard", "memory_events.method",
    "memory_events.origin", "memory_events.similar_memories", "memory_events.verdict",
    "links.kind", "memory_vectors.model",
    "policies.canonicalizer", "policies.conflict", "policies.dedup", "policies.embed", "policies.guard",
    "policies.key_fields", "policies.metadata_keys", "policies.metadata_merge", "policies.on_ambiguous",
    "policies.on_judge_failure", "policies.on_merge", "policies.on_refinement", "policies.preset",
    "policies.rehash_from_canonicalizer",
    "policies.rehash_from_key_fields",
    "policies.rehash_from_metadata_keys", "policies.scope", "policies.segmenter",
    "predicates.cardinality", "predicates.conflict", "antonyms.kind",
    "runs.actor", "runs.kind", "runs.report", "runs.status",
}  # fmt: skip

PLAIN |= {name.replace("memory_events.", "memory_events_archive.") for name in PLAIN}


@dataclass
class Side:
    """A tenant, its word, and the ids of its things: what calls name."""

    letter: str
    word: str
    ids: dict[str, uuid.UUID] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)

    @property
    def tenant(self) -> str:
        return f"{self.word}-tenant"

    @property
    def bucket(self) -> str:
        return f"{self.word} bucket"

    def say(self, text: str) -> str:
        return f"{self.word} {text}"

    def id(self, name: str) -> uuid.UUID:
        # made up: after every id of the database, for some functions go on from one
        return self.ids.setdefault(name, uuid.UUID(int=uuid.uuid4().int | 0xF << 124))


def sides() -> tuple[Side, Side, Side]:
    """The caller, the tenant it asks for, and one that does not exist: words of one shape, so that nothing else
    differs."""
    return Side("a", "alderwood"), Side("b", "birchwood"), Side("c", "cedarwood")


def _one(db: DB, query: str, *parameters: Any) -> Any:
    row = db.execute(query.encode(), parameters).fetchone()
    assert row is not None
    return row[0]


def populate(db: DB, side: Side) -> None:
    """Write some of everything, as a superuser, with the side's word in every text."""
    tenant, bucket, say, ids = side.tenant, side.bucket, side.say, side.ids

    def told(text: str, **more: Any) -> Any:
        more = {"bucket_id": bucket, "tenant_id": tenant, "session_id": say("session"), **more}
        more.setdefault("source_turn_ids", [say("turn")])
        more.setdefault("memory_type", say("type"))
        more.setdefault("subject", say("subject"))
        return ingest(db, say(text), metadata={side.word: side.word}, **more)

    db.execute("select memfold.set_predicate(tenant_id => %s, predicate => %s)", [tenant, say("drives")])
    db.execute(
        "select memfold.set_policy(%s, %s, memory_type => %s, lexical_threshold => 0.9, metadata_max => %s,"
        " on_ambiguous => 'judge')",
        [tenant, bucket, say("type"), [say("key")]],
    )
    db.execute(
        "select memfold.set_options(%s, %s, memory_type => %s, protected_types => %s)",
        [tenant, bucket, say("type"), [say("pet")]],
    )
    db.execute(
        "insert into memfold.antonyms values (%s, %s, %s, %s)",
        [tenant, side.word, say("not"), say("language")],
    )
    for kind, name in (("subject", "subject"), ("predicate", "drives")):
        db.execute(
            f"select memfold.link_{kind}(%s, %s, %s, %s)".encode(),
            [say("nickname"), say(name), tenant, bucket],
        )
    db.execute(
        "insert into memfold.memory_event_sums values"
        " (%s, gen_random_uuid(), gen_random_uuid(), 1, 1, 0, 0.5, 0.5, now(), now(), false, false, '{}')",
        [tenant],
    )
    first = told("prefers dark mode", idempotency_key=say("key"), **vector(1.0))
    for turn in range(5):
        last = told("prefers dark mode", source_turn_ids=[say(f"turn {turn}")])
    told("likes it dark best", **vector(0.97))
    asked = told("prefers dim light", **vector(0.9))
    assert asked.action == "escalated", asked
    answer_with(db, side, asked.judgement_id, "distinct")
    waits = told("prefers grey light", **vector(0.9, axis=2))
    assert waits.action == "escalated", waits
    tried = told("prefers blue light", **vector(0.9, axis=3))
    leased = _one(
        db, "select judgement_id from memfold.claim_judgements(%s, tenant_id => %s, judgement_ids => %s)",
        say("worker"), tenant, [tried.judgement_id],
    )  # fmt: skip
    assert leased == tried.judgement_id
    again = told("prefers pink light", **vector(0.89, axis=3))
    claimed = db.execute(
        "select judgement_id from memfold.claim_judgements(%s, tenant_id => %s)", [say("worker"), tenant]
    ).fetchall()
    for (judgement_id,) in claimed:
        db.execute(
            "select memfold.fail_judgement(%s, %s, model => %s, retry_after => '0 s', tenant_id => %s)",
            [judgement_id, say("error"), say("judge"), tenant],
        )
    for place in ("VW", "Fiat", "VW"):
        told(f"drives {place}", predicate=say("drives"), object=say(place))
    unseen = told("owns a boat", subject=say("boatman"))
    wrong = told("owns a plane", subject=say("pilot"))
    db.execute(
        "select memfold.reject_memory(%s, reason => %s, tenant_id => %s)",
        [wrong.memory_id, say("reason"), tenant],
    )
    ids["pair_id"] = _one(
        db,
        "select memfold.add_labelled_pair(%s, %s, 'distinct', tenant_id => %s)",
        say("one"),
        say("two"),
        tenant,
    )
    ids["session_run_id"] = _one(
        db, "select run_id from memfold.end_session(%s, %s, %s)", say("session"), tenant, bucket
    )
    ids["run_id"] = _one(db, "select memfold.start_reembedding('m', 'm2', %s)", tenant)
    archived = _one(db, "select (memfold.archive_events(clock_timestamp(), %s, 1000)).archived", tenant)
    assert archived > 0
    db.execute(
        "insert into memfold.archive_positions values (%s, %s, %s) on conflict do nothing",
        [tenant, first.memory_id, first.event_id],
    )
    assert first.memory_id is not None
    names = {
        "kind": "subject", "alias": say("Al"), "name": say("Alan"), "key": say("key"), "told": [str(first.memory_id)],
        "name_told": [str(asked.memory_id)],
    }  # fmt: skip
    db.execute(
        "insert into memfold.judgements (tenant_id, bucket_id, scope_key, kind, link) values (%s, %s, 0, 'identity', %s)",
        [tenant, bucket, json.dumps(names)],
    )
    db.execute(
        "select memfold_internal._stripe(tenant_id, memory_id) from memfold.memories where tenant_id = %s",
        [tenant],
    )
    ids |= {
        "memory_id": first.memory_id, "other_id": asked.memory_id, "unseen_id": unseen.memory_id,
        "event_id": last.event_id, "judgement_id": waits.judgement_id, "leased_id": leased,
        "failed_id": again.judgement_id or leased, "done_id": asked.judgement_id,
    }  # fmt: skip
    fill_in(db, side)


def answer_with(db: DB, side: Side, judgement_id: uuid.UUID | None, verdict: str) -> None:
    db.execute(
        "select memfold.resolve_judgement(%s, %s, confidence => 0.99, reason => %s, model => %s, tenant_id => %s)",
        [judgement_id, verdict, side.say("reason"), side.say("judge"), side.tenant],
    )


def fill_in(db: DB, side: Side) -> None:
    """Columns that no call above has filled with the word are written by the superuser, bypassing every rule."""
    db.execute("begin; set local session_replication_role = replica")
    for table, column, kind in db.execute(TEXTS).fetchall():
        if f"{table}.{column}" in PLAIN or column == "tenant_id":
            continue
        row = db.execute(
            sql.SQL(
                "select count(*) filter (where t.{c}::text like {w}), count(*) from memfold.{t} as t"
                " where tenant_id = {i}"
            )
            .format(c=sql.Identifier(column), t=sql.Identifier(table), w=f"%{side.word}%", i=side.tenant)
        ).fetchone()  # fmt: skip
        assert row is not None
        assert row[1] > 0, f"populate() writes nothing into {table}"
        if row[0]:
            continue
        value = {
            "text": side.word,
            "text[]": "{" + side.word + "}",
            "jsonb": json.dumps({side.word: side.word}),
        }[kind]
        done = db.execute(
            sql.SQL(
                "update memfold.{t} as t set {c} = {v} where t.ctid = (select min(ctid) from memfold.{t} as u"
                " where u.tenant_id = {i}) and t.tenant_id = {i}"
            ).format(c=sql.Identifier(column), t=sql.Identifier(table), v=value, i=side.tenant)
        )
        assert done.rowcount == 1, (table, column)
    db.execute("commit")


TEXTS = """
select c.relname::text, a.attname::text, pg_catalog.format_type(a.atttypid, null)
from pg_class as c join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'p') and a.attgenerated = ''
    and a.atttypid in ('text'::regtype, 'text[]'::regtype, 'jsonb'::regtype) and c.relname <> 'tenant_roles' and exists (
        select from pg_attribute as t where t.attrelid = c.oid and t.attname = 'tenant_id' and not t.attisdropped
    )
order by 1, 2
"""


def relations(db: DB) -> list[tuple[str, str, bool]]:
    """Tables, views and whatever else rows are read from: name, kind, whether it has a tenant_id."""
    return db.execute(
        "select c.relname::text, c.relkind::text, exists (select from pg_attribute as a where a.attrelid = c.oid"
        "  and a.attname = 'tenant_id' and not a.attisdropped)"
        " from pg_class as c where c.relnamespace = any('{memfold,memfold_internal}'::regnamespace[])"
        "  and c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')"
        " order by 1"
    ).fetchall()


def full(relation: str) -> str:
    """With its schema."""
    return f"memfold{'_internal' if relation.startswith('_') or relation == 'alembic_version' else ''}.{relation}"


def tenant_tables(db: DB) -> list[str]:
    return [name for name, kind, isolated in relations(db) if kind in "rp" and isolated]


def snapshot(db: DB, *tenants: str) -> dict[str, str]:
    """A digest of all rows of these tenants, by table; as a superuser."""
    parts = [
        f"select '{table}', coalesce(md5(string_agg(t::text, '|' order by t::text)), '') from memfold.{table} as t"
        " where tenant_id = any(%(tenants)s)"
        for table in tenant_tables(db)
    ]
    return dict(db.execute(" union all ".join(parts).encode(), {"tenants": list(tenants)}).fetchall())


def secrets(db: DB, side: Side) -> set[str]:
    """What nobody else may see: the word, and every id, hash and key of the side's rows."""
    if side.hidden:
        return side.hidden
    found = {side.word}
    columns = db.execute(
        "select c.relname::text, a.attname::text from pg_class as c join pg_attribute as a on a.attrelid = c.oid"
        " where c.relnamespace = 'memfold'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0"
        " and not a.attisdropped and (a.atttypid in ('uuid'::regtype, 'bytea'::regtype) or a.attname = 'scope_key')"
    ).fetchall()
    for table, column in columns:
        if table in tenant_tables(db):
            rows = db.execute(
                f"select distinct {column}::text from memfold.{table} where tenant_id = %s"
                f" and {column} is not null".encode(),
                [side.tenant],
            ).fetchall()
            found |= {row[0].removeprefix("\\x") for row in rows}
    side.hidden = {text for text in found if len(text) > 7 and text.strip("0-")}
    return side.hidden


# Sessions ---------------------------------------------------------------------------------------------------------


@dataclass
class Session:
    """A connection that acts for a tenant, and everything that it receives."""

    name: str
    connection: DB
    setting: str | None
    path: str = "public, memfold"
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.connection.add_notice_handler(self._hear)

    def _hear(self, diagnostic: psycopg.errors.Diagnostic) -> None:
        self.heard.append(told(diagnostic))

    def run(self, statement: str, parameters: Any = None, *, commit: bool = False) -> Outcome:
        """One statement in its own transaction, which is rolled back unless told otherwise."""
        begin, statements = f"begin; set local search_path = {self.path};", 2
        if self.setting is not None:
            statements = 3
            begin += self._bind(
                "select pg_catalog.set_config('memfold.tenant_id', %s, true);", [self.setting]
            )
        if statement.startswith("copy"):
            self.connection.execute(begin.encode())
            outcome = self._copy(statement)
            self.connection.execute("rollback")
            return outcome
        if parameters is not None:
            statement = self._bind(statement, parameters)
        # in one message: there are thousands of these
        return self.listen(f"{begin} {statement}; {'commit' if commit else 'rollback'}", before=statements)

    def _bind(self, statement: str, parameters: Any) -> str:
        return psycopg.ClientCursor(self.connection).mogrify(statement.encode(), parameters)

    def listen(self, statements: str, *, before: int = 0) -> Outcome:
        """The result of the statement that follows so many others."""
        self.heard.clear()
        try:
            cursor = self.connection.execute(statements.encode())
            for _ in range(before):
                cursor.nextset()
            rows = [str(row) for row in cursor.fetchall()] if cursor.description else []
        except psycopg.Error as error:
            self.connection.execute("rollback")
            return Outcome(error.sqlstate or "", [], told(error.diag), list(self.heard))
        return Outcome(None, rows, "", list(self.heard))

    def _copy(self, statement: str) -> Outcome:
        self.heard.clear()
        try:
            with self.connection.cursor() as cursor, cursor.copy(statement.encode()) as copied:
                rows = [bytes(line).decode() for line in copied]
        except psycopg.Error as error:
            return Outcome(error.sqlstate or "", [], told(error.diag), list(self.heard))
        return Outcome(None, rows, "", list(self.heard))


def told(diagnostic: psycopg.errors.Diagnostic) -> str:
    """The complete text of an error or a notice."""
    names = ("sqlstate", "message_primary", "message_detail", "message_hint", "context", "internal_query",
             "schema_name", "table_name", "column_name", "datatype_name", "constraint_name")  # fmt: skip
    return "\n".join(f"{name}: {getattr(diagnostic, name)}" for name in names if getattr(diagnostic, name))


@dataclass
class Outcome:
    """The result of a statement: its rows or its error, and its notices."""

    state: str | None
    rows: list[str]
    error: str
    notices: list[str]

    @property
    def all(self) -> str:
        return "\n".join([*self.rows, self.error, *self.notices])

    def reveals(self, hidden: set[str]) -> list[str]:
        text = self.all.lower()
        found = sorted(secret for secret in hidden if secret.lower() in text)
        # a function of the caller's own, run with the rights of somebody else
        return found + re.findall(r"shadow \S+ as \w+", text)

    def shape(self) -> str:
        """The text without the names asked for, and without what is new in every call."""
        text = "\n".join([str(self.state), *sorted(self.rows), self.error, *self.notices])
        text = re.sub(r"(birch|cedar)wood", "<word>", text, flags=re.IGNORECASE)
        text = re.sub(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", "<id>", text)
        text = re.sub(
            r"datetime\.datetime\([^)]*\)+|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.\d]*(\+\d\d(:\d\d)?)?",
            "<time>",
            text,
        )
        text = re.sub(r"'ms': {[^}]*}", "<ms>", text)
        text = re.sub(r"(\\+x|b')([^']*)'", "<bytes>", text)
        return re.sub(r"\b[0-9a-f]{16,}\b", "<hash>", text)


# Functions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Argument:
    name: str
    kind: str
    optional: bool


@dataclass(frozen=True)
class Function:
    oid: int
    name: str
    procedure: bool
    arguments: tuple[Argument, ...]

    @property
    def full_name(self) -> str:
        return f"memfold{'_internal' if self.name.startswith('_') else ''}.{self.name}"


def functions(db: DB, role: str) -> list[Function]:
    """The functions of memfold that the role may execute."""
    rows = db.execute(
        "select p.oid, p.proname::text, p.prokind = 'p', coalesce(p.proargnames[:p.pronargs], '{}'),"
        " array(select format_type(t, null) from unnest(p.proargtypes::oid[]) with ordinality as u (t, n) order by n),"
        " p.pronargdefaults"
        " from pg_proc as p where p.pronamespace = any('{memfold,memfold_internal}'::regnamespace[])"
        " and p.prorettype <> 'trigger'::regtype"
        " and has_function_privilege(%s, p.oid, 'execute') and not exists ("
        "  select from pg_depend d join pg_extension x on x.oid = d.refobjid"
        "  where d.objid = p.oid and d.deptype = 'e' and x.extname = 'vector')"
        " order by 2, 1",
        [role],
    ).fetchall()
    return [
        Function(oid, name, procedure, tuple(
            Argument(argument, kind, n >= len(names) - defaults)
            for n, (argument, kind) in enumerate(zip(names, kinds, strict=True))
        ))
        for oid, name, procedure, names, kinds, defaults in rows
    ]  # fmt: skip


Give = Callable[[Side], Any]


def _id(name: str) -> Give:
    return lambda side: side.id(name)


def _word(text: str) -> Give:
    return lambda side: side.say(text)


# What calls pass, by the name of the argument (function.argument where one name means two things). Of a side:
SIDED: dict[str, Give] = {
    "tenant_id": lambda side: side.tenant,
    "bucket_id": _word("bucket"),
    "memory_id": _id("memory_id"),
    "id": _id("memory_id"),
    "attach_embedding.memory_id": _id("unseen_id"),
    "into_id": _id("other_id"),
    "by_id": _id("other_id"),
    "after": _id("memory_id"),
    "richer_memory_id": _id("memory_id"),
    "root_id": _id("other_id"),
    "memory_ids": lambda side: [side.id("memory_id"), side.id("unseen_id")],
    "event_id": _id("event_id"),
    "judgement_id": _id("judgement_id"),
    "undo_run.run_id": _id("session_run_id"),
    "update_memory.content": _word("prefers it bright"),
    "judgement_ids": lambda side: [side.id("judgement_id"), side.id("failed_id")],
    "run_id": _id("run_id"),
    "into_run": _id("run_id"),
    "undo_run_id": _id("run_id"),
    "pair_id": _id("pair_id"),
    "content": _word("prefers dark mode"),
    "other_content": _word("prefers dim light"),
    "contents": lambda side: [side.say("prefers dark mode"), side.say("owns a boat")],
    "content_a": _word("one"),
    "content_b": _word("two"),
    "merged_text": _word("prefers it dark"),
    "subject": _word("subject"),
    "predicate": _word("drives"),
    "object": _word("VW"),
    "memory_type": _word("type"),
    "session_id": _word("session"),
    "source_turn_ids": lambda side: [side.say("turn")],
    "source_turn_id": _word("turn"),
    "idempotency_key": _word("key"),
    "alias": _word("nickname"),
    "metadata": lambda side: json.dumps({side.word: side.word}),
    "pairs": lambda side: json.dumps([{"a": side.say("one"), "b": side.say("two"), "label": "distinct"}]),
    "candidates": lambda side: json.dumps([{
        "content": side.say("prefers dark mode"), "bucket_id": side.bucket, "memory_type": side.say("type"),
        "subject": side.say("subject"), "idempotency_key": side.say("key"), "source_turn_ids": [side.say("turn")],
    }]),
    "link": lambda side: json.dumps({
        "told": [str(side.id("memory_id"))], "name_told": [str(side.id("other_id"))], "name": side.say("nickname"),
    }),
    "role": lambda side: f"{side.word}_role",
}  # fmt: skip
# And what is of no side.
NEUTRAL: dict[str, Any] = {
    "embedding": "[1,0,0,0]", "query_embedding": "[1,0,0,0]", "embeddings": ["[1,0,0,0]", "[0,1,0,0]"],
    "embedding_model": "m", "from_model": "m", "to_model": "m2", "add_embeddings.embedding_model": "m2",
    "threshold": 0.1, "confidence": 0.9, "verdict": "distinct",
    "resolve_judgement.verdict": "refinement", "label": "distinct", "error": "it broke",
    "helpful": True, "thresholds": [0.1, 0.5], "profile": "prose/1", "name": "x", "code": "MF022", "message": "m",
    "detail": "d", "hint": "h", "guard": "on", "_explain_pair.guard": ["negation"], "score": None, "similarity": 0.9,
    "_effective.confidence": 0.5, "last_used": "2025-01-01", "at": "2025-06-01", "decay_rate": 0.1, "decay_floor": 0.1,
    "decay_interval": "1 day", "source_confidence": 0.5, "extractor_confidence": 0.5, "independent": 3,
    "weight_source": 0.5, "weight_extractor": 0.3, "weight_repetition": 0.2, "batch_size": 10, "canonicalizer": "flat",
    "key_fields": None, "metadata_keys": None, "cardinality": "one", "dry_run": False, "approval": "judge",
    "feature": "it", "reason": "because", "worker": "a worker", "min_age": "0 s", "unused_for": "0 s",
    "_rehash_batch.batch_size": 10, "_is_undoable.action": "merged", "tier": 2, "observation": False,
    "_is_unmeasured.merge_threshold": 0.92, "_is_unmeasured.judge_threshold": 0.85, "text_search": "simple",
    "_take_up_batch.kind": "subject", "as_of": None, "known_at": None, "of_tenant": "x", "of_bucket": "x",
    "capitals": "A", "fold_from": "A", "fold_to": "a", "_vector_index_name.model": "m", "words": ["tea"],
    "_veto_reasons.a": "one", "_veto_reasons.b": "two", "_vector_index.model": "m",
}  # fmt: skip
# Given although there is a default: a call without these would find nothing.
GIVEN = {
    "find_similar.threshold", "search_memories.embedding_model", "consolidate.threshold", "collect_pairs.min_age",
    "prune_memories.unused_for", "consolidate.embedding_model", "sweep_duplicates.embedding_model",
}  # fmt: skip
# (dry_run is left to its default, which is to do nothing, and passed as well)


class UnknownError(Exception):
    """Nobody has said what to pass for an argument."""


def value(function: Function, argument: Argument, side: Side) -> Any:
    for name in (f"{function.name}.{argument.name}", argument.name):
        if name in SIDED:
            return SIDED[name](side)
        if name in NEUTRAL:
            return NEUTRAL[name]
    raise UnknownError(
        f"{function.name}({argument.name} {argument.kind}): say in tests/prober.py what to pass"
    )


def sided(function: Function) -> list[Argument]:
    return [a for a in function.arguments if f"{function.name}.{a.name}" not in NEUTRAL and a.name in SIDED]


def call(session: Session, function: Function, given: dict[str, Any], *, commit: bool = False) -> Outcome:
    kinds = {argument.name: argument.kind for argument in function.arguments}
    listed = ", ".join(f'"{name}" => %({name})s::{_typed(kinds[name])}' for name in given)
    if function.procedure:
        # it commits by itself: no transaction around it
        setting = session._bind("set memfold.tenant_id = %s", [session.setting or ""])
        session.connection.execute(f"set search_path = {session.path}; {setting}".encode())
        outcome = session.listen(session._bind(f"call {function.full_name}({listed})", given))
        session.connection.execute("reset memfold.tenant_id; reset search_path")
        return outcome
    return session.run(f"select * from {function.full_name}({listed})", given, commit=commit)


def _typed(kind: str) -> str:
    """pgvector may be in any schema, and a hostile search_path does not lead there."""
    return re.sub(r"^(\w+\.)?vector\b", "public.vector", kind)


def base(function: Function, side: Side, *, everything: bool = False) -> dict[str, Any]:
    """Arguments of a call for the side: all that are of it, and of the others what cannot be left out."""
    own = {a.name for a in sided(function)}
    given = {}
    for argument in function.arguments:
        known = value(function, argument, side) if not argument.optional or argument.name in own else None
        if argument.name in own or not argument.optional or f"{function.name}.{argument.name}" in GIVEN:
            given[argument.name] = known if known is not None else value(function, argument, side)
        elif everything and (argument.name in NEUTRAL or f"{function.name}.{argument.name}" in NEUTRAL):
            given[argument.name] = value(function, argument, side)
    return given


def owns(function: Function, side: Side) -> list[dict[str, Any]]:
    """Calls of the side for its own: with everything, with little, so that one of them goes through."""
    full = base(function, side)
    core = {a.name for a in function.arguments if not a.optional} | {"tenant_id", "bucket_id"}
    calls = [
        full,
        base(function, side, everything=True),
        {name: given for name, given in full.items() if name not in ("predicate", "object")},
        {name: given for name, given in full.items() if name in core or f"{function.name}.{name}" in GIVEN},
    ]
    if "undo_run_id" in full:
        calls.append(full | {"undo_run_id": None})
    return [given for n, given in enumerate(calls) if given not in calls[:n]]


# What refuses every call, by its nature, without a rehash under way, or without memfold_py.
REFUSING = {
    "_fail", "_unknown_profile", "_other_profile", "_require_python", "_rehash_batch", "_require_autocommit",
    "_bound_role",
}  # fmt: skip


def arrangements(function: Function, own: Side, other: Side) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls that name things of the other: one of them, all of them, with either tenant's name or none."""
    names = [a.name for a in sided(function)]
    for name in names:
        argument = next(a for a in function.arguments if a.name == name)
        yield f"{name} of the other", base(function, own) | {name: value(function, argument, other)}
        minimal = {a.name: value(function, a, own) for a in function.arguments if not a.optional}
        if "tenant_id" in names and name != "tenant_id":
            minimal["tenant_id"] = own.tenant
        yield f"{name} of the other, little else", minimal | {name: value(function, argument, other)}
    if names:
        yield "all of the other", base(function, other)
    if "tenant_id" in names:
        yield "all of the other, in own name", base(function, other) | {"tenant_id": own.tenant}
        yield "own, in the other's name", base(function, own) | {"tenant_id": other.tenant}
        tenant = next(a for a in function.arguments if a.name == "tenant_id")
        if tenant.optional:
            rest = base(function, other)
            del rest["tenant_id"]
            yield "all of the other, in nobody's name", rest


def passed(given: dict[str, Any]) -> str:
    return json.dumps([str(v) for v in given.values()]).lower()


def probe_functions(
    db: DB, session: Session, own: Side, other: Side, nobody: Side, *, only: Sequence[Function] | None = None
) -> tuple[list[str], int]:
    """Call whatever the session's role may execute with the other's things; what is wrong, and how many calls."""
    wrong: list[str] = []
    calls = 0
    hidden = secrets(db, other)
    asked: list[tuple[Function, dict[str, Any]]] = []
    # first what is rolled back, so that all calls see one state
    for function in only or functions(db, session.connection.info.user):
        try:
            found = list(arrangements(function, own, other))
            unasked = dict(arrangements(function, own, nobody))
            own_calls = owns(function, own)
        except UnknownError as error:
            wrong.append(str(error))
            continue
        for label, given in found:
            where = f"{session.name}: {function.name}, {label}"
            asked.append((function, given))
            if function.procedure:
                continue
            outcome = call(session, function, given)
            missing = call(session, function, unasked[label])
            calls += 2
            known = passed(given)
            for secret in outcome.reveals({s for s in hidden if s.lower() not in known}):
                wrong.append(f"{where}: reveals {secret}")
            if outcome.shape() != missing.shape():
                wrong.append(f"{where}: {outcome.shape()!r}, but for nobody's: {missing.shape()!r}")
            if (
                given.get("tenant_id") == other.tenant
                and any(map(_tells, outcome.rows))
                and function.name not in ANYBODY
            ):
                wrong.append(f"{where}: is answered {outcome.rows}")
        asked += [(function, given) for given in own_calls]
        outcomes = [call(session, function, given) for given in own_calls]
        for outcome in outcomes if not function.procedure else []:
            wrong += [
                f"{session.name}: {function.name}, its own: reveals {s}" for s in outcome.reveals(hidden)
            ]
        if all(outcome.state for outcome in outcomes) and function.name not in REFUSING:
            wrong.append(
                f"{session.name}: {function.name} refuses all ({outcomes[0].state}): say in tests/prober.py what to pass"
            )
        calls += len(own_calls)
    # then what is kept, which must change nothing of the other; last what leaves little to work on
    asked.sort(key=lambda one: one[0].name.startswith("erase"))
    before = snapshot(db, other.tenant)
    for n, (function, given) in enumerate(asked):
        outcome = call(session, function, given, commit=True)
        calls += 1
        known = passed(given)
        # (not the word: by now the caller has said it)
        for secret in outcome.reveals({s for s in hidden - {other.word} if s.lower() not in known}):
            wrong.append(f"{session.name}: {function.name}, {given}: reveals {secret}")
        if n + 1 == len(asked) or asked[n + 1][0] is not function:
            after = snapshot(db, other.tenant)
            wrong += [
                f"{session.name}: {function.name} changes {t} of the other"
                for t in after
                if after[t] != before[t]
            ]
            before = after
    return wrong, calls


# What answers anyone who asks, in whatever name: from its arguments and the rules of '*' alone.
ANYBODY = {"_decay", "_options", "_policy", "_specificity", "_explain_pair", "_shown_link"}


def _tells(row: str) -> bool:
    return row not in ("(None,)", "('',)")


HOSTILE = [
    "", "*", "%", "_" * 16, "' or true --", "'; select 1; --", "\\", "\\x00", "\\000", "\u2400", "null", "NULL", '"', "$$",
    "birchwood-tenan%", "BIRCHWOOD-TENANT", "birchwood-tenant ", " birchwood-tenant", "birchwood-tenant\n",
    "birchwood-tenant' or '1'='1", "birchwood-tenant\u200b", "\uff42irchwood-tenant", "{birchwood-tenant,alderwood-tenant}",
]  # fmt: skip


def probe_names(db: DB, session: Session, own: Side, other: Side) -> tuple[list[str], int]:
    """Tenants that are no tenants, in the call and in the setting: everything stays shut for both."""
    wrong: list[str] = []
    calls = 0
    before = snapshot(db, own.tenant, other.tenant)
    hidden = secrets(db, other)
    bound = _one(db, "select pg_has_role(%s, 'memfold_tenant', 'member')", session.connection.info.user)
    everything = hidden if bound else hidden | secrets(db, own)
    kept = session.setting
    for function in functions(db, session.connection.info.user):
        names = [a.name for a in sided(function)]
        if "tenant_id" not in names or function.procedure:
            continue
        for name in HOSTILE:
            given = base(function, other) | {"tenant_id": name}
            outcome = call(session, function, given)
            calls += 1
            known = passed(given)
            found = outcome.reveals({s for s in hidden if s.lower() not in known})
            wrong += [
                f"{session.name}: {function.name}, tenant {name!r}: reveals {secret}" for secret in found
            ]
    for name in [None, *HOSTILE]:
        session.setting = name
        for function in functions(db, session.connection.info.user):
            names = [a.name for a in sided(function)]
            if "tenant_id" not in names or function.procedure:
                continue
            given = base(function, other)
            del given["tenant_id"]
            for more in ({}, {"tenant_id": other.tenant}):
                if not more and not next(a for a in function.arguments if a.name == "tenant_id").optional:
                    continue
                outcome = call(session, function, given | more)
                calls += 1
                known = passed(given | more)
                found = outcome.reveals({s for s in everything if s.lower() not in known and s != own.word})
                wrong += [f"setting {name!r}: {function.name}{more}: reveals {secret}" for secret in found]
        for relation, _, _ in relations(db):
            outcome = session.run(f"select t::text from {full(relation)} as t")
            calls += 1
            wrong += [
                f"setting {name!r}: {relation}: reveals {secret}" for secret in outcome.reveals(everything)
            ]
    session.setting = kept
    after = snapshot(db, own.tenant, other.tenant)
    wrong += [f"{session.name}: {table} has changed" for table in after if after[table] != before[table]]
    return wrong, calls


# Tables -----------------------------------------------------------------------------------------------------------

READS = (
    "select t::text from {r} as t",
    "select t::text, tableoid, ctid, xmin from only {r} as t",
    "select t::text from {r} as t where leak(t::text)",
    "select t::text from {r} as t tablesample bernoulli (100) where leak(t::text)",
    "select string_agg(t::text, '|') from {r} as t",
    "select max(t::text), min(t::text) from {r} as t",
    "copy {r} to stdout",
    "copy (select t::text from {r} as t) to stdout",
    "select t::text from {r} as t for key share",
    "select t::text from {r} as t cross join lateral (select leak(t::text) offset 0) as l",
    "select a::text, b::text from {r} as a full join {r} as b on a::text operator(pg_catalog.=) b::text",
    "select query_to_xml('select * from {r}', true, false, '')::text",
    "select t::text from {r} as t where length(t::text) / 0 > 0",
    "select (t::text)::integer from {r} as t",
)
WRITES = (
    "insert into {r} default values",
    "insert into {r} ({c}) select {c} from {r}",
    "update {r} set {c} = {c}",
    "delete from {r}",
    "truncate {r}",
    "lock table {r} in share mode",
    "alter table {r} disable row level security",
    "alter table {r} owner to current_user",
    "create policy mine on {r} using (true)",
    "create index on {r} ({c})",
    "create trigger mine before update on {r} for each row execute function suppress_redundant_updates_trigger()",
    "drop table {r}",
)


def probe_reads(
    db: DB, session: Session, own: Side, other: Side, *, only: str | None = None, most: int = 99
) -> tuple[list[str], int]:
    """Read every relation in every way; nothing of the other comes back, and what is one's own does."""
    wrong: list[str] = []
    calls = 0
    hidden = secrets(db, other)
    user = session.connection.info.user
    counts = owned(db, own, only)
    if only in (None, "tenant_roles"):
        counts["tenant_roles"] = _one(
            db,
            "select count(*) from memfold.tenant_roles where role_name = %s and role_name !~ '^pooled'",
            user,
        )
    for relation, kind, isolated in relations(db):
        if only not in (None, relation):
            continue
        readable = _one(db, "select has_table_privilege(%s, %s::text, 'select')", user, full(relation))
        if isolated and kind in "rp" and not readable:
            wrong.append(f"{session.name}: {relation} is not to be read")
        for n, read in enumerate(READS[:most]):
            outcome = session.run(read.format(r=full(relation)))
            calls += 1
            wrong += [
                f"{session.name}: {read.format(r=full(relation))}: reveals {s}"
                for s in outcome.reveals(hidden)
            ]
            if not readable and outcome.state is None:
                wrong.append(f"{session.name}: {relation} is read without a right to")
            if n == 0 and readable and len(outcome.rows) != counts.get(relation, len(outcome.rows)):
                seen = len(outcome.rows)
                wrong.append(f"{session.name}: {relation} has {counts[relation]} rows for it, it sees {seen}")
        if isolated:
            outcome = session.run(
                f"select t::text from {full(relation)} as t where tenant_id operator(pg_catalog.=) %s",
                [other.tenant],
            )
            calls += 1
            if outcome.rows:
                wrong.append(
                    f"{session.name}: {relation} where the tenant is the other: {len(outcome.rows)} rows"
                )
    return wrong, calls


def owned(db: DB, own: Side, only: str | None = None) -> dict[str, int]:
    """How many rows of each isolated table a tenant sees: its own and those of '*'."""
    return {
        table: _one(
            db, f"select count(*) from memfold.{table} where tenant_id = %s or tenant_id = '*'", own.tenant
        )
        for table in tenant_tables(db)
        if table != "tenant_roles" and only in (None, table)
    }


def intruder(db: DB, relation: str, other: Side) -> tuple[str, list[str]]:
    """An INSERT of a row that the other has."""
    columns = _one(
        db,
        "select string_agg(quote_ident(attname), ', ') from pg_attribute where attrelid = %s::text::regclass"
        " and attnum > 0 and not attisdropped and attgenerated = ''",
        full(relation),
    )
    row = _one(
        db, f"select to_jsonb(t) from {full(relation)} as t where tenant_id = %s limit 1", other.tenant
    )
    return (
        f"insert into {full(relation)} ({columns}) select {columns}"
        f" from jsonb_populate_record(null::{full(relation)}, %s)",
        [json.dumps(row)],
    )


def probe_writes(db: DB, session: Session, other: Side) -> tuple[list[str], int]:
    """Only the owner's functions write tables, whatever their rows."""
    wrong: list[str] = []
    calls = 0
    user = session.connection.info.user
    for relation, kind, isolated in relations(db):
        if kind not in "rp":
            continue
        column = _one(
            db,
            "select attname::text from pg_attribute where attrelid = %s::text::regclass and attnum = 1",
            full(relation),
        )
        may = _one(db, "select has_any_column_privilege(%s, %s::text, 'insert')", user, full(relation))
        for write in WRITES:
            outcome = session.run(write.format(r=full(relation), c=column))
            calls += 1
            if outcome.state != "42501" and not (may and write.startswith("insert") and outcome.state):
                done = outcome.state or "done"
                wrong.append(f"{session.name}: {write.format(r=full(relation), c=column)}: {done}")
        if isolated and may:
            # what may be written at all (staging), in one's own name only; the same row again is not a conflict
            outcome = session.run(*intruder(db, relation, other))
            calls += 1
            if outcome.state != "MF002":
                wrong.append(
                    f"{session.name}: a row of the other's into {relation}: {outcome.state or 'done'}"
                )
    return wrong, calls


@contextmanager
def acting(db: DB, role: str, tenant: str | None) -> Iterator[Session]:
    """The superuser's connection as a role that nobody logs in as, and back."""
    db.execute("set role " + role)
    session = Session(role, db, tenant)
    try:
        yield session
    finally:
        db.remove_notice_handler(session._hear)
        db.execute("reset role")


def probe_owner(db: DB, own: Side, other: Side, *, only: str | None = None) -> tuple[list[str], int]:
    """The second defence: the functions' own role, with the setting of one tenant, cannot reach the other's rows."""
    wrong: list[str] = []
    calls = 0
    hidden = secrets(db, other)
    counts = owned(db, own, only)
    for relation in tenant_tables(db):
        if only not in (None, relation) or relation == "tenant_roles":
            continue
        intrusion = intruder(db, relation, other)
        with acting(db, "memfold_owner", own.tenant) as owner:
            outcome = owner.run(f"select t::text from {full(relation)} as t")
            calls += 1
            wrong += [f"owner: {relation}: reveals {secret}" for secret in outcome.reveals(hidden)]
            if len(outcome.rows) != counts[relation]:
                wrong.append(
                    f"owner: {relation} has {counts[relation]} rows for it, it sees {len(outcome.rows)}"
                )
            for statement in (
                f"update {full(relation)} set tenant_id = tenant_id where tenant_id = %s returning 1",
                f"delete from {full(relation)} where tenant_id = %s returning 1",
            ):
                outcome = owner.run(statement, [other.tenant])
                calls += 1
                # (what never changes is refused before that: MF020, MF021)
                if outcome.rows or outcome.state not in (None, "MF020", "MF021"):
                    wrong.append(f"owner: {statement}: {outcome.state or outcome.rows}")
            outcome = owner.run(*intrusion)
            calls += 1
            if outcome.state != "42501":
                wrong.append(f"owner: a row of the other's into {relation}: {outcome.state or 'done'}")
    return wrong, calls


def probe_others(db: DB, own: Side, other: Side, *, only: str | None = None) -> tuple[list[str], int]:
    """Roles that should see all tenants do, and only read; roles that should read no table do not."""
    wrong: list[str] = []
    calls = 0
    for relation, kind, _ in relations(db):
        if only not in (None, relation) or kind not in "rp":
            continue
        total = _one(db, f"select count(*) from {full(relation)}")
        for role in ("memfold_auditor", "memfold_queue", "memfold_judge", "memfold_owner"):
            may = _one(db, "select has_table_privilege(%s, %s::text, 'select')", role, full(relation))
            if role == "memfold_owner" and relation != "tenant_roles":
                continue
            with acting(db, role, None) as session:
                outcome = session.run(f"select t::text from {full(relation)} as t")
                calls += 1
            if may and len(outcome.rows) != total:
                wrong.append(f"{role}: {relation} has {total} rows, it sees {len(outcome.rows)}")
            if not may and outcome.state != "42501":
                wrong.append(f"{role}: {relation}: {outcome.state or 'read'}")
            if role == "memfold_judge" and may:
                wrong.append(f"{role}: may read {relation}")
            if role in ("memfold_auditor", "memfold_judge"):
                with acting(db, role, None) as session:
                    found, done = probe_writes_as(db, session, relation)
                wrong += found
                calls += done
    return wrong, calls


def probe_writes_as(db: DB, session: Session, relation: str) -> tuple[list[str], int]:
    wrong = []
    for write in (
        "insert into {r} default values",
        "delete from {r}",
        "truncate {r}",
    ):
        outcome = session.run(write.format(r=full(relation)))
        if outcome.state != "42501":
            wrong.append(f"{session.name}: {write.format(r=full(relation))}: {outcome.state or 'done'}")
    return wrong, 3
