"""Hostile input for every public function that the catalog holds, and the judge of what comes back.

A call is drawn from a function's signature: each argument is left out, valid, or hostile, by its type and its name.
Valid ones build up state, so that hostile ones meet it. Values are parameters of their type: what PostgreSQL's own
input functions refuse names the parameter in its context, and never reaches memfold.

The whole, on a database that holds memfold, a process a database:

    python -m tests.fuzzing DSN CALLS SEED
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import pq, sql

DB = psycopg.Connection[Any]
DOCUMENTED = set(
    re.findall(r"\bMF\d{3}\b", (Path(__file__).parent.parent / "docs" / "errors.md").read_text())
)
EPISODE = 600
"""Calls until a new tenant, with new models, takes its turn, so that settings do not block the rest."""
TOGETHER = 40
"""Calls between two looks for ids that calls can be about."""
SECRET = "the bystander keeps a secret"
BYSTANDER = "bystander"
DIMENSIONS = 4

# What there is to be called -----------------------------------------------------------------------------------------

CATALOG = """
select p.proname, p.prokind = 'p', coalesce(p.proargnames, '{}'), p.proargmodes::text[],
    array(select t::regtype::text from unnest(coalesce(p.proallargtypes, p.proargtypes::oid[])) as t),
    p.pronargdefaults,
    array(select r.rolname from pg_roles as r where r.rolname = any(%s) and has_function_privilege(r.oid, p.oid, 'execute'))
from pg_proc as p
where p.pronamespace = 'memfold'::regnamespace and not exists (
    select from pg_depend as d join pg_extension as x on x.oid = d.refobjid
    where d.objid = p.oid and d.deptype = 'e' and x.extname = 'vector')
order by p.oid::regprocedure::text collate "C"
"""


@dataclass(frozen=True)
class Argument:
    """One input of a function."""

    name: str
    type: str
    required: bool


@dataclass(frozen=True)
class Function:
    """One function, and which of the fuzzer's roles may call it."""

    name: str
    procedure: bool
    arguments: tuple[Argument, ...]
    roles: frozenset[str]


def functions(db: DB, roles: Sequence[str]) -> list[Function]:
    """Every public function, by the catalog."""
    found = []
    for name, procedure, names, modes, types, defaults, may in db.execute(CATALOG, [list(roles)]).fetchall():
        modes = modes or ["i"] * len(types)
        given = [(n, t) for n, t, m in zip(names, types, modes, strict=True) if m in "iobv" and m != "o"]
        first_default = len(given) - defaults
        arguments = tuple(
            Argument(n, t.rsplit(".", 1)[-1].replace('"', ""), i < first_default)
            for i, (n, t) in enumerate(given)
        )
        found.append(Function(name, procedure, arguments, frozenset(may)))
    return found


# Values ---------------------------------------------------------------------------------------------------------------

# A parameter: its bytes, and whether they are in the type's binary form (a text may then hold what no literal can).
Value = tuple[bytes | None, bool]

NAMES = ["Ann", "Bob", "Carol", "Dave", "Eve", "Zoë"]
TOWNS = ["Rome", "Oslo", "Bern", "Kyiv", "Lima", "Łódź"]
LIKES = ["tea", "green tea", "coffee", "chess", "a cat", "no cat", "12 cats", "13 cats", "Vim"]

WORDS: dict[str, list[str]] = {
    "memory_type": ["fact", "event", "fact"],
    "session_id": ["s1", "s2", "s3"],
    "predicate": ["lives_in", "likes", "works_at"],
    "subject": NAMES,
    "object": TOWNS + LIKES,
    "origin": ["observed", "inferred", "recalled", "labelled", "collected"],
    "preset": ["three_tier", "store_and_load", "hash_first", "replace_newer", "robotics"],
    "dedup": ["on", "on", "on", "off"],
    "canonicalizer": ["prose", "flat/1", "code/1", "exact/1", "prose/1"],
    "profile": ["prose/1", "flat/1", "code/1", "exact/1"],
    "key_fields": ["type", "subject", "predicate"],
    "metadata_keys": ["kind", "n"],
    "metadata_max": ["n", "kind"],
    "scope": ["predicate", "bucket"],
    "guard": ["on", "on", "off"],
    "on_ambiguous": ["judge", "synthesise", "review", "insert"],
    "on_merge": ["strengthen", "replace", "synthesise"],
    "on_refinement": ["replace", "escalate", "merge"],
    "on_judge_failure": ["keep", "replace"],
    "metadata_merge": ["merge", "first", "newest"],
    "conflict": ["newest_wins", "keep_existing", "keep_both", "review"],
    "cardinality": ["one", "many"],
    "protected_types": ["event", "rule"],
    "on_error": ["report", "abort"],
    "approval": ["judge", "review", "auto"],
    "verdict": ["duplicate", "refinement", "contradiction", "distinct"],
    "label": ["duplicate", "refinement", "contradiction", "distinct"],
    "worker": ["w1", "w2"],
    "tasks": [
        "plain",
        "decay",
        "counters",
        "syntheses",
        "runs",
        "embed",
        "links",
        "cycles",
        "clean",
        "sweep",
    ],
    "schedule": ["*/10 * * * *"],
    "idempotency_key": [f"k{i}" for i in range(12)],
    "source_turn_ids": [f"t{i}" for i in range(30)],
    "source_turn_id": [f"t{i}" for i in range(30)],
    "reason": ["because"],
    "error": ["timeout"],
}

INJECTIONS = [
    "'", '"', "''", '""', "\\", "\\'", "'; drop table memfold.memories; --",
    '"; drop schema memfold cascade; --',
    "$$", "$1", "$score$", "$q$ || (select 1) || $q$", ";", "--", "/*", "*/", "/* */",
    "%", "%%", "%s", "%I", "%L", "%1$I", "%n",
    "{}", "{", "}", '{"a"}', "{NULL}", "NULL", "null", "\\N", "\\.", "\\copy memories to '/tmp/x'",
    "\\! id", "\\x00",
    "search_path", "pg_catalog", "public", "memfold", "pg_temp", "memfold.memories", "memory_events",
    "postgres", "memfold_owner",
    "*", "**", "_", "default", "DEFAULT", "current_user", "now()", "a' or '1'='1", "a\" or \"1\"=\"1",
    "1) or (true", "(0,0)", "(,)",
    "select 1", "x'; set role postgres; --", "' || current_setting('memfold.tenant_id') || '",
    "memfold.tenant_id", "U&'\\0041'",
    "E'\\x41'", "<script>", "${jndi}", "..", "../../etc/passwd", "0x1F", "-0", "1e400", "NaN", "true",
    "[]", "[1,2]", "prose/2",
    "prose/", "/", "/1", "a/b/c", "PROSE/1", "type,subject", "judge;review", "a" * 63, "a" * 64,
    "é" * 256, "a" * 511, "a" * 512,
    "a" * 513, "é" * 257, "𝔘" * 128, "(", ")", "[", "]", "(?=a)", "a{1000}",
    "(((((((((a*)*)*)*)*)*)*)*)*)*$", "\\m\\M", "\\1",
    BYSTANDER,
]  # fmt: skip

PLANES: list[tuple[int, int]] = [
    (0x20, 0x7E), (0x01, 0x1F), (0x7F, 0x9F), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x3FF),
    (0x400, 0x52F),
    (0x590, 0x6FF), (0x900, 0xDFF), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1FFF),
    (0x2000, 0x206F), (0x2070, 0x2BFF),
    (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xF8FF), (0xF900, 0xFFFF),
    (0x10000, 0x1FFFF),
    (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0x50000, 0xDFFFF), (0xE0000, 0xE0FFF), (0xF0000, 0x10FFFF),
]  # fmt: skip
SPACES = " \t\n\r\v\f\u0085\u00a0\u1680\u2000\u2003\u2007\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
POINTS = ".,;:!?¡¿…。、！？-–—_*#@&%'\"«»()[]{}"
UNBELIEVABLE = [
    "\u202e" + "evil" + "\u202c", "\u2066\u2067\u2068\u2069", "a\u200db\u200cc", "👩‍👩‍👧‍👦🏳️‍🌈🇺🇳",
    "é" + "\u0301" * 300, "\u0344" * 50,
    "\ufdfa" * 40, "İıſẞß", "ΑΣ Σας ς", "ﬃ", "①②³", "ａｂｃ", "\U000e0061\U000e007f", "\U0010ffff",
    "\uffff\ufffe", "\ufffd", "\u0378",
    "\ud7a4".encode("utf-8", "replace").decode(), "가각\u1100\u1161\u11a8", "ก็็็็็็็", "Z̷̢͉̎a̶l̷g̸o̴" * 30,
    "\x01\x02\x7f", "\u2028", "𝕬𝖓𝖓 𝖑𝖎𝖐𝖊𝖘 𝖙𝖊𝖆",
]  # fmt: skip

DOUBLES = [
    "NaN", "Infinity", "-Infinity", "-0", "0", "1", "-1", "0.5", "2", "1e308", "-1e308",
    "1.7976931348623157e308", "4.9e-324",
    "2.2250738585072014e-308", "1e-300", "1e-17", "0.9999999999999999", "1.0000000000000002", "1e400",
    "-1e400", "1e-400", "x",
]  # fmt: skip
BIGINTS = [
    "0", "-1", "1", "2", "100", "1000", "1001", "10000", "10001", "100000", "100001", "16000", "16001",
    "2147483647", "2147483648",
    "-2147483648", "4294967296", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
    "1e3", "", "0x10",
]  # fmt: skip
INTERVALS = [
    "0", "1 second", "1 microsecond", "-1 microsecond", "-1 day", "999 milliseconds", "1 day",
    "1 day 1 microsecond", "1 month",
    "-1 month 30 days", "178000000 years", "-178000000 years", "9223372036854775807 microseconds",
    "2147483647 days",
    "-2147483648 days", "2147483647 months", "infinity", "-infinity", "178000001 years", "P1Y2M",
    "eternity", "90 days",
]  # fmt: skip
TIMES = [
    "infinity", "-infinity", "4713-01-01 00:00:00+00 BC", "4714-11-24 00:00:00+00 BC",
    "294276-12-31 23:59:59.999999+00",
    "294277-01-01 00:00:00+00", "1970-01-01", "epoch", "now", "tomorrow", "yesterday",
    "0001-01-01 00:00:00+00", "2026-02-30",
    "2999-01-01 00:00:00+00", "2000-01-01 00:00:00.000001+14", "2000-01-01 24:00:00-15:59", "infinite",
    "2025-06-01", "2025-01-01",
]  # fmt: skip
UUIDS = [
    "00000000-0000-0000-0000-000000000000",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "x",
    "",
    "{00000000000000000000000000000001}",
]
VECTORS = [
    "[0,0,0,0]", "[1,0,0]", "[1,0,0,0,0]", "[1]", "[NaN,0,0,0]", "[Infinity,0,0,0]",
    "[-Infinity,1,1,1]", "[1e-38,0,0,0]", "[1e-45,0,0,0]",
    "[1e-30,0,0,0]", "[1e-31,0,0,0]", "[3e38,3e38,3e38,3e38]", "[-3e38,3e38,0,0]", "[1e30,0,0,0]",
    "[1e31,0,0,0]", "[1e39,0,0,0]",
    "[1e-46,1,0,0]", "[]", "", "x", "[1,2", "[-1,0,0,0]", "[1e-20,1,0,0]",
    "[0.0001,-0.0001,1e-38,-1e-38]", "[3e38,1e-38,-0,0]",
]  # fmt: skip
JSONS = [
    "{}", "[]", "null", "1", '"x"', "true", "[[]]", "[{}]", "[1]", "[null]", '{"a": null}', '{"": ""}',
    '{"a": 1, "a": 2}',
    '{"n": 1e400}', '{"n": -1e-400}', '{"n": 1e131000}', '{"n": 1e200000}', '{"n": "1e400"}',
    '{"n": {"n": {"n": []}}}', '{"a": "\\u0000"}',
    '{"a": "\\ud800"}', '{"\\ud83d\\ude00": 1}', "{", "", "NaN", "{'a': 1}", '{"content": "x"}',
    '[{"content": "x"}]',
    '{"kind": "a", "n": 1}', '{"kind": ["a"], "n": "x"}', '{"kind": {"a": 1}, "n": 1e308}',
    '{"n": 9007199254740993}',
    '[{"content_a": "a", "content_b": "b", "label": "distinct"}]', '{"a": 5}', '{"m": 1.5}',
    '{"m": "x"}', '{"m": NaN}', '"\\ud83d\\ude00"',
]  # fmt: skip

IDS: dict[str, str] = {
    "memory": "select memory_id from memfold.memories where tenant_id = %s order by memory_id desc limit 150",
    "event": "select event_id from memfold.memory_events where tenant_id = %s order by event_id desc limit 40",
    "judgement": "select judgement_id from memfold.judgements where tenant_id = %s"
    " order by status <> 'open', judgement_id desc limit 40",
    "run": "select run_id from memfold.runs where tenant_id = %s order by run_id desc limit 40",
    "pair": "select pair_id from memfold.labelled_pairs where tenant_id = %s order by pair_id desc limit 40",
}
# What the name of an argument of type uuid says it is the id of.
KINDS = {
    "memory_id": "memory", "into_id": "memory", "by_id": "memory", "id": "memory", "after": "memory",
    "richer_memory_id": "memory",
    "memory_ids": "memory", "event_id": "event", "judgement_id": "judgement", "judgement_ids": "judgement", "run_id": "run",
    "undo_run_id": "run", "into_run": "run", "pair_id": "pair", "calibration_id": "calibration",
}  # fmt: skip


def _array(items: Iterable[str | None]) -> str:
    """The literal of an array."""
    return (
        "{"
        + ",".join(
            "NULL" if item is None else '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'
            for item in items
        )
        + "}"
    )


@dataclass
class Values:
    """Draws values, for one tenant."""

    random: random.Random
    tenant: str
    buckets: list[str]
    models: list[str]
    ids: dict[str, list[str]] = field(default_factory=dict)
    contents: list[tuple[str, str]] = field(default_factory=list)  # of memories: id, content
    exported: list[str] = field(default_factory=list)  # what export_bucket() has last returned

    def one(self, of: Sequence[Any]) -> Any:
        return self.random.choice(of)

    # texts

    def text(self) -> str:
        """Hostile, but a text that PostgreSQL can hold."""
        kind = self.random.random()
        if kind < 0.4:
            return str(self.one(INJECTIONS))
        if kind < 0.5:
            return str(self.one(UNBELIEVABLE))
        if kind < 0.55:
            return "".join(self.one(SPACES) for _ in range(self.random.randint(0, 20)))
        if kind < 0.6:
            return "".join(self.one(POINTS) for _ in range(self.random.randint(1, 20)))
        if kind < 0.63:
            return str(self.one([*self.buckets, *self.models, *self.one(list(WORDS.values())), self.tenant]))
        if kind < 0.67:
            words = [
                self.one(
                    [*INJECTIONS[:40], *NAMES, *LIKES, "not", "no", "1,000.5", "1/0", "٣", "½", "10%", "€5"]
                )
            ]
            return " ".join(words * self.random.randint(1, 60))
        size = self.one(
            [1, 1, 2, 5, 20, 20, 200, 700] if self.random.random() < 0.97 else [10_000, 60_000, 200_000]
        )
        low, high = self.one(PLANES)
        some = [
            chr(point)
            for point in (
                self.random.randint(*self.one([(low, high), self.one(PLANES)])) for _ in range(min(size, 500))
            )
            if not 0xD800 <= point <= 0xDFFF
        ]
        return "".join(some) * (size // 500 or 1)

    def raw(self, text: str) -> Value:
        """The value as a parameter, sometimes broken: a NUL, or invalid UTF-8, which the server refuses."""
        data = text.encode("utf-8", "replace")
        if self.random.random() < 0.01:
            data += self.one([b"\0", b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xe2\x82"])
        return data, True

    def fact(self) -> dict[str, str]:
        """One of some hundred that restate, paraphrase, replace and contradict one another."""
        subject = self.one(NAMES)
        if self.random.random() < 0.4:
            town = self.one(TOWNS)
            said = self.one([f"{subject} lives in {town}.", f"{subject} has moved to {town}"])
            given = {"content": said, "subject": subject, "predicate": "lives_in", "object": town}
            axis = TOWNS.index(town) % 2
        else:
            likes = self.one(LIKES)
            said = self.one(
                [f"{subject} likes {likes}", f"{subject} enjoys {likes}.", f"{subject} is fond of {likes}"]
            )
            given = {"content": said, "subject": subject}
            axis = LIKES.index(likes) % 3
        values = [self.random.gauss(0, 0.12) for _ in range(DIMENSIONS)]
        values[axis] += 1
        given["embedding"] = json.dumps(values)
        given["embedding_model"] = self.models[0]
        return given

    def word(self, name: str) -> str:
        """A text that an argument of this name takes."""
        if name in ("tenant_id", "tenant"):
            return self.tenant
        if name == "bucket_id":
            return str(self.one(self.buckets))
        if "model" in name or name == "replaced_by":
            return (
                self.models[1]
                if name in ("to_model", "replaced_by")
                else str(self.one([*self.models[:1] * 6, *self.models]))
            )
        if name in WORDS:
            return str(self.one(WORDS[name]))
        if name in ("contents", "content_a", "content_b") and self.contents and self.random.random() < 0.7:
            return str(self.one(self.contents)[1])
        return self.fact()["content"]

    # the rest

    def identifier(self, name: str) -> str:
        """The id of a thing as the name has it."""
        known = self.ids.get(KINDS.get(name, "memory"), [])
        return str(self.one(known)) if known else f"{self.random.getrandbits(128):032x}"

    def vector(self) -> str:
        return self.fact()["embedding"]

    def hostile_vector(self) -> str:
        kind = self.random.random()
        if kind < 0.02:
            return "[" + ",".join(["1"] * self.one([2000, 4000, 16000, 16001])) + "]"
        if kind < 0.3:
            return json.dumps(
                [self.one([0, 1, -1, 1e-38, 3e38, -3e38, 1e-20, 0.5]) for _ in range(DIMENSIONS)]
            )
        return str(self.one(VECTORS))

    def json(self, name: str, *, hostile: bool) -> str:
        if name == "candidates":
            return self.batch(hostile=hostile)
        if name == "pairs":
            return self.pairs(hostile=hostile)
        if name == "lines":
            return self.lines(hostile=hostile)
        if hostile:
            kind = self.random.random()
            if kind < 0.08:
                depth = self.one([10, 100, 1000, 3000, 6000, 20000])
                opening, closing = self.one([("[", "]"), ('{"a":', "}"), ('{"n":[', "]}")])
                return str(opening * depth + "1" + closing * depth)
            if kind < 0.14:
                return json.dumps(
                    {self.text()[:100]: self.text()[:2000] for _ in range(self.random.randint(1, 50))}
                )
            return str(self.one(JSONS))
        if name == "similarities":
            return json.dumps({self.models[0]: self.one([0.5, 0.9, -1, 1])})
        return json.dumps(self.one([{}, {"kind": "a"}, {"kind": "b", "n": 1}, {"n": 2}]))

    def anything(self) -> Any:
        """A value that JSON can hold."""
        kind = self.random.random()
        if kind < 0.4:
            return self.text()[:3000]
        if kind < 0.8:
            return self.one(
                [
                    None,
                    True,
                    False,
                    0,
                    -1,
                    0.5,
                    1e308,
                    2,
                    [],
                    {},
                    [None],
                    [[]],
                    ["a"],
                    [1],
                    {"a": 1},
                    "",
                    " ",
                    10**400,
                    2**63,
                    1e-320,
                ]
            )
        return self.one(
            [
                self.one(DOUBLES),
                self.one(BIGINTS),
                self.one(TIMES),
                self.one(UUIDS),
                self.hostile_vector(),
                [1e39],
                [0, 0, 0, 0],
            ]
        )

    def batch(self, *, hostile: bool) -> str:
        """Candidates of ingest_memories()."""
        made: list[Any] = []
        for _ in range(self.one([0, 1, 2, 3, 5, 8])):
            one: dict[str, Any] = dict(self.fact())
            if self.random.random() < 0.5:
                one.pop("embedding")
                one.pop("embedding_model")
            elif self.random.random() < 0.5:
                one["embedding"] = json.loads(one["embedding"])
            if self.random.random() < 0.5:
                one["source_turn_ids"] = [self.word("source_turn_ids")]
            if self.random.random() < 0.2:
                one["idempotency_key"] = self.word("idempotency_key")
            if self.random.random() < 0.3:
                one["bucket_id"] = self.word("bucket_id")
            if hostile and self.random.random() < 0.6:
                key = self.one([
                    "content", "bucket_id", "memory_type", "subject", "predicate", "object",
                    "embedding", "embedding_model",
                    "source_turn_ids", "source_confidence", "extractor_confidence", "session_id",
                    "origin", "metadata", "observed_at",
                    "idempotency_key", self.text()[:50],
                ])  # fmt: skip
                one[key] = self.anything()
            made.append(self.anything() if hostile and self.random.random() < 0.1 else one)
        if hostile and self.random.random() < 0.3:
            return self.json("", hostile=True)
        if hostile and self.random.random() < 0.01:
            made = made[:1] * 10_001
        return json.dumps(made).replace("NaN", "null")

    def pairs(self, *, hostile: bool) -> str:
        """Pairs of add_labelled_pairs()."""
        made: list[Any] = []
        for _ in range(self.one([0, 1, 2, 3])):
            one: dict[str, Any] = {
                "content_a": self.word("content_a"), "content_b": self.word("content_b"), "label": self.word("label"),
                "similarities": {self.models[0]: self.one([0.3, 0.95])},
            }  # fmt: skip
            if hostile and self.random.random() < 0.7:
                one[
                    self.one(["content_a", "content_b", "label", "origin", "similarities", self.text()[:50]])
                ] = self.anything()
            made.append(self.anything() if hostile and self.random.random() < 0.1 else one)
        if hostile and self.random.random() < 0.3:
            return self.json("", hostile=True)
        return json.dumps(made).replace("NaN", "null")

    def lines(self, *, hostile: bool) -> str:
        """An export for import_bucket(): as it was made, or forged."""
        if hostile and self.random.random() < 0.2:
            return self.json("", hostile=True)
        made = list(self.exported)
        if hostile and made:
            for place in self.random.sample(range(len(made)), min(len(made), self.one([1, 1, 2, 5]))):
                if len(made[place]) > 5000:
                    continue  # nested too deep for Python, perhaps
                line = json.loads(made[place])
                line["row"][self.one([*line["row"], self.text()[:50]])] = self.anything()
                made[place] = json.dumps(line).replace("NaN", "null") if self.random.random() < 0.8 else "{}"
        return f"[{','.join(made)}]"

    def array(self, element: Callable[[bool], str | None], *, hostile: bool) -> str:
        if not hostile:
            return _array(element(False) for _ in range(self.random.randint(1, 3)))
        kind = self.random.random()
        one = element(False)
        if kind < 0.1:
            return "{}"
        if kind < 0.2:
            return _array([None])
        if kind < 0.3:
            return _array([one, None, one])
        if kind < 0.4:
            return "{" + _array([one, one]) + "," + _array([one, one]) + "}"
        if kind < 0.5:
            return f"[{self.one(['5:6', '-3:-2', '0:1', '2147483645:2147483646'])}]=" + _array(
                [one, element(False)]
            )
        if kind < 0.55:
            return _array([one] * 10_000)
        if kind < 0.6:
            return _array([one] * self.one([1000, 1001, 300]))
        if kind < 0.65:
            return str(self.one(["{", "x", "{{a},{b,c}}", '{"', "{}{}", "[1:1]={a,b}", "{{{{{{{a}}}}}}}"]))
        return _array(element(self.random.random() < 0.6) for _ in range(self.random.randint(1, 5)))

    def draw(self, argument: Argument, *, hostile: bool) -> Value:
        """A value for an argument. KeyError for a type that is new here: teach it to the fuzzer."""
        name, kind = argument.name, argument.type
        if hostile and self.random.random() < 0.08:
            return None, False
        if kind.endswith("[]"):
            element = self.scalar(name, kind[:-2])
            return self.array(element, hostile=hostile).replace("\0", "").encode("utf-8", "replace"), False
        drawn = self.scalar(name, kind)(hostile)
        if kind == "text":
            return self.raw(drawn or "")
        return (drawn or "").replace("\0", "").encode("utf-8", "replace"), False

    def scalar(self, name: str, kind: str) -> Callable[[bool], str | None]:
        draws: dict[str, Callable[[bool], str | None]] = {
            "text": lambda hostile: self.text() if hostile else self.word(name),
            "uuid": lambda hostile: self.other_id() if hostile else self.identifier(name),
            "vector": lambda hostile: self.hostile_vector() if hostile else self.vector(),
            "jsonb": lambda hostile: self.json(name, hostile=hostile),
            "jsonpath": lambda hostile: self.text() if hostile else self.one(["$.n > 1", "$.kind == 1", "$"]),
            "boolean": lambda hostile: self.one(["t", "f", "x", ""] if hostile else ["t", "f"]),
            "bigint": lambda hostile: (
                self.one(BIGINTS) if hostile else self.one(["1", "2", "4", "10", "100"])
            ),
            "double precision": lambda hostile: (
                self.one(DOUBLES) if hostile else str(round(self.random.random(), 3))
            ),
            "interval": lambda hostile: (
                self.one(INTERVALS) if hostile else self.one(["1 second", "1 hour", "1 day", "0"])
            ),
            "timestamp with time zone": lambda hostile: (
                self.one(TIMES)
                if hostile
                else self.one(["now", f"2025-0{self.random.randint(1, 9)}-1{self.random.randint(0, 9)}"])
            ),
        }
        return draws[kind]

    def other_id(self) -> str:
        """An id of anything, or of nothing."""
        kind = self.random.random()
        if kind < 0.3:
            return str(self.one(UUIDS))
        if kind < 0.5:
            return f"{self.random.getrandbits(128):032x}"
        known = self.ids.get(self.one(sorted(self.ids)), [])
        return str(self.one(known)) if known else UUIDS[0]


# The run ----------------------------------------------------------------------------------------------------------------


@dataclass
class Report:
    """The results of the calls."""

    seed: int
    calls: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    tenants: list[str] = field(default_factory=list)
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)
    memory: dict[str, list[int]] = field(default_factory=dict)  # by role, bytes of the session over time
    seconds: float = 0
    took: Counter[str] = field(default_factory=Counter)  # milliseconds by function

    def find(self, what: str, example: str) -> None:
        if what not in self.findings:
            print(f"call {self.calls}: {what}\n    {example}", flush=True)
        self.findings[what] = (
            self.findings.get(what, (0, ""))[0] + 1,
            self.findings.get(what, (0, example))[1],
        )

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.calls} calls of {len(self.called)} functions, {self.seconds:.0f} s"
        ]
        lines += [f"  {count:8} {outcome}" for outcome, count in self.outcomes.most_common()]
        lines += [
            f"  {n} times: {what}\n      {example}" for what, (n, example) in sorted(self.findings.items())
        ]
        return "\n".join(lines)


OFTEN = {
    "ingest_memory": 7.0,
    "ingest_memories": 3.0,
    "update_memory": 2.0,
    "attach_embedding": 2.0,
    "resolve_judgement": 2.0,
}
SELDOM = {
    "run_maintenance_all": 0.15,
    "create_vector_index": 0.3,
    "canonicalizer_selftest": 0.01,
    "check_invariants": 0.4,
    "set_policy": 1.0,
    "set_options": 1.0,
    "erase_tenant": 0.1,
    "erase_bucket": 0.2,
    "import_bucket": 2.0,
}
REPLACING = {"replace_embedding_model", "drop_embeddings", "unregister_embedding_model"}
ROLES = ("app", "bound", "judge", "auditor", "owner", "superuser")
# Who calls: of what each may call, and seldom of what it may not.
SHARES = {"app": 12.0, "bound": 3.0, "judge": 2.0, "auditor": 1.0, "owner": 2.0, "superuser": 1.0}
TENANTS = ["acme'; --", 'a"b', "%I", "$$", "тест", "🦊\u202e", "a\\b", "{x}", "memfold_app", "pg_catalog"]


class Fuzzer:
    """Calls everything, as everybody, and takes note of what may not be."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.report = Report(seed)
        self.random = random.Random(seed)
        self.admin = psycopg.connect(dsn, autocommit=True)
        self.admin.execute("set search_path = pg_catalog, public")
        self.roles = {name: f"fuzz_{name}_{self.admin.info.dbname}"[:63] for name in ROLES}
        self._make_roles()
        self.functions = functions(self.admin, list(self.roles.values()))
        self.sessions = {name: self._session(dsn, name) for name in ROLES}
        self.notices: list[str] = []
        self.read_only = False
        self.started = self._value("select pg_postmaster_start_time()")
        self._bystander()
        self.untouched = self._digest()
        self.tenant = ""
        self.values = Values(self.random, "", [], [])

    def _value(self, query: str, *parameters: Any) -> Any:
        row = self.admin.execute(query.encode(), parameters or None).fetchone()
        assert row is not None
        return row[0]

    def _make_roles(self) -> None:
        groups = {
            "app": "memfold_app",
            "bound": "memfold_tenant",
            "judge": "memfold_judge",
            "auditor": "memfold_auditor",
            "owner": "memfold_owner",
        }
        for name, role in self.roles.items():
            known = self.admin.execute("select from pg_roles where rolname = %s", [role]).fetchone()
            if known is None:
                self.admin.execute(sql.SQL("create role {} login {}").format(
                    sql.Identifier(role), sql.SQL("superuser" if name == "superuser" else "")
                ))  # fmt: skip
                if name in groups:
                    self.admin.execute(
                        sql.SQL("grant {} to {}").format(sql.Identifier(groups[name]), sql.Identifier(role))
                    )

    def _session(self, dsn: str, name: str) -> DB:
        """A superuser's session that has become another role: at the end its memory can be read."""
        session = psycopg.connect(dsn, autocommit=True)
        session.execute("set statement_timeout = '60s'")
        session.execute("set search_path = pg_catalog, public")
        session.execute("set client_min_messages = warning")
        session.execute(sql.SQL("set session authorization {}").format(sql.Identifier(self.roles[name])))
        session.add_notice_handler(lambda diagnostic: self.notices.append(diagnostic.message_primary or ""))
        return session

    def _bystander(self) -> None:
        """A tenant that nobody calls for."""
        self.admin.execute("select memfold.register_embedding_model('bystander', 4)")
        for i in range(DIMENSIONS):
            self.admin.execute(
                "select memfold.ingest_memory(%s, %s, subject => 'x', embedding => %s, embedding_model => 'bystander',"
                " source_turn_ids => '{t}')",
                [
                    f"{SECRET} {'I' * i}",
                    BYSTANDER,
                    json.dumps([float(i == axis) for axis in range(DIMENSIONS)]),
                ],
            )
        self.admin.execute("select memfold.set_predicate('lives_in', %s)", [BYSTANDER])
        self.admin.execute(
            "select memfold.set_policy(%s, 'default'), memfold.set_options(%s, 'default')", [BYSTANDER] * 2
        )

    def _digest(self) -> dict[str, Any]:
        """All of the bystander's rows; run_maintenance_all() leaves a row in runs."""
        tables = self.admin.execute(
            "select c.relname from pg_class as c join pg_attribute as a on a.attrelid = c.oid and a.attname = 'tenant_id'"
            " where c.relnamespace = 'memfold'::regnamespace and c.relkind = 'r' and c.relname <> 'runs'"
        ).fetchall()
        return {
            name: self._value(
                f"select array_agg(md5(t::text) order by md5(t::text)) from memfold.{name} as t where t.tenant_id = %s",
                BYSTANDER,
            )
            for (name,) in tables
        }

    # episodes

    def begin(self) -> None:
        """A new tenant, with a name that is not kind either."""
        number = len(self.report.tenants)
        self.tenant = f"{self.random.choice(TENANTS)} {self.report.seed}.{number}"
        self.report.tenants.append(self.tenant)
        # a name that is kind half of the time: what has to be quoted must be, and what is long must be hashed
        strange = self.random.choice(["", " '\"; --", " $$ %I", " \\", " ж🦊"])
        models = [f"{letter}{self.report.seed}.{number}{strange}" for letter in "abc"]
        buckets = ["default", "b2", self.random.choice(["'; --", '"', "%s", "🦊", "a" * 512])]
        self.values = Values(self.random, self.tenant, buckets, models)
        for model in models:
            self.admin.execute("select memfold.register_embedding_model(%s, %s)", [model, DIMENSIONS])
        for method in ("budget", "percentile"):
            found = self._value(
                "insert into memfold.calibrations (model, merge_threshold, judge_threshold, report, fingerprint, method)"
                " values (%s, 0.9, 0.8, '{}', '', %s) returning calibration_id::text", models[0], method,
            )  # fmt: skip
            self.values.ids.setdefault("calibration", []).append(found)
        self.admin.execute("select memfold.set_predicate('lives_in', %s)", [self.tenant])
        self.admin.execute(
            "insert into memfold.tenant_roles values (%s, %s)"
            " on conflict (role_name) do update set tenant_id = excluded.tenant_id",
            [self.roles["bound"], self.tenant],
        )
        for name in ("app", "bound", "auditor", "superuser"):
            self.sessions[name].execute("select set_config('memfold.tenant_id', %s, false)", [self.tenant])
        for text in ("Plain Ann rows.", "Plain Bob runs.", "plain ann rows"):
            self.admin.execute(
                "insert into memfold.memories (tenant_id, content) values (%s, %s) on conflict do nothing",
                [self.tenant, text],
            )
        self._probe_batch()

    def _probe_batch(self) -> None:
        for kind, query in IDS.items():
            self.values.ids[kind] = [
                str(row[0]) for row in self.admin.execute(query.encode(), [self.tenant]).fetchall()
            ]
        self.values.ids["bystander"] = [
            str(row[0]) for row in self.admin.execute(IDS["memory"].encode(), [BYSTANDER]).fetchall()
        ]
        self.values.contents = [
            (str(row[0]), row[1])
            for row in self.admin.execute(
                "select memory_id, content from memfold.memories where tenant_id = %s order by memory_id desc limit 100",
                [self.tenant],
            ).fetchall()
        ]

    def end(self) -> None:
        """What has to hold after whatever came in; of rows of a plain INSERT once they are ingested.

        And of a bucket that is being erased once it is.
        """
        for (bucket,) in self.admin.execute(
            "select bucket_id from memfold.runs where tenant_id = %s and kind = 'erasure' and status = 'open'",
            [self.tenant],
        ).fetchall():
            erase = "erase_tenant(%s)" if bucket == "*" else "erase_bucket(%s, %s)"
            while self._value(
                f"select (memfold.{erase}).remaining", *[self.tenant, bucket][: erase.count("%s")]
            ):
                pass
        while self._value("select ingested from memfold.ingest_plain_rows(%s)", self.tenant):
            pass
        for broken in self.admin.execute(
            "select * from memfold.check_invariants(%s)", [self.tenant]
        ).fetchall():
            self.report.find(f"invariant {broken[1]}", f"{self.tenant}: {broken}")
        indexes = self.admin.execute(
            "select indexrelid::regclass::text from pg_index where indrelid = 'memfold.memory_vectors'::regclass"
            " and indexrelid::regclass::text ~ 'hnsw'"
        ).fetchall()
        for (index,) in indexes:
            self.admin.execute(f"drop index if exists {index}".encode())

    # calls

    def draw(self, function: Function) -> dict[str, Value]:
        """The arguments of one call: all valid, one hostile, or all against one."""
        mode = self.random.random()
        given = [
            a
            for a in function.arguments
            if a.required or self.random.random() < (0.2 if len(function.arguments) > 20 else 0.45)
        ]
        hostile = set()
        if mode >= 0.75:
            hostile = {a.name for a in given if self.random.random() < 0.5}
        elif mode >= 0.35 and function.arguments:
            one = self.random.choice(function.arguments)
            hostile = {one.name}
            given = [a for a in function.arguments if a in given or a is one]
        if "tenant_id" in hostile and self.random.random() < 0.7:
            hostile.discard("tenant_id")
        values = {a.name: self.values.draw(a, hostile=a.name in hostile) for a in given}
        names = {a.name for a in function.arguments}
        # what goes together
        if {"content", "embedding"} <= names and "content" not in hostile:
            fact = self.values.fact()
            if self.random.random() < 0.35:
                fact.pop("embedding")
                fact.pop("embedding_model")
            for name in ("content", "subject", "predicate", "object", "embedding", "embedding_model"):
                if name in hostile or name not in names:
                    continue
                values.pop(name, None)
                if name in fact:
                    values[name] = (fact[name].encode(), False)
        elif (
            "embedding_model" in names - hostile
            and {"embedding", "query_embedding"} & names
            and self.random.random() < 0.9
        ):
            values["embedding_model"] = (self.values.models[0].encode(), False)
        if {"memory_ids", "contents", "embeddings"} <= names and not hostile and self.values.contents:
            some = [self.random.choice(self.values.contents) for _ in range(self.random.randint(1, 4))]
            values["embedding_model"] = (self.values.models[1].encode(), False)
            values["memory_ids"] = (_array(one[0] for one in some).encode(), False)
            values["contents"] = (_array(one[1] for one in some).encode(), False)
            values["embeddings"] = (_array(self.values.vector() for _ in some).encode(), False)
            values.pop("run_id", None)
        if function.name == "ingest_memories" and not hostile and values.get("embeddings", (None,))[0]:
            # as many as candidates
            candidates = json.loads(values["candidates"][0] or b"[]")
            values["embeddings"] = (_array(self.values.vector() for _ in candidates).encode(), False)
        if function.name == "import_bucket":
            # not what is there, because a bucket can only be imported into an empty one
            if "tenant_id" not in hostile:
                values["tenant_id"] = (f"{self.tenant} copied".encode(), False)
            if "bucket_id" not in hostile and self.values.exported:
                values["bucket_id"] = (
                    json.loads(self.values.exported[0])["row"]["bucket_id"].encode(),
                    False,
                )
        if function.name in REPLACING and "embedding_model" not in hostile and self.random.random() < 0.8:
            values["embedding_model"] = (self.values.models[2].encode(), False)
        if function.name == "register_embedding_model" and not hostile:
            values["embedding_model"] = (f"new {self.random.getrandbits(40)}".encode(), False)
        return values

    def call(self, role: str, function: Function, values: dict[str, Value], *, within: bool = False) -> bool:
        """One call; says whether it succeeded. within: in a transaction block."""
        if role in ("owner", "superuser") and values.get("tenant_id", (b"", False))[0] == BYSTANDER.encode():
            # they may
            values["tenant_id"] = (self.tenant.encode(), False)
        types = {a.name: a.type for a in function.arguments}
        names = list(values)
        arguments = ", ".join(f"{name} => ${i}::{types[name]}" for i, name in enumerate(names, 1))
        statement = (
            f"{'call' if function.procedure else 'select * from'} memfold.{function.name}({arguments})"
        )
        self.notices.clear()
        began = time.monotonic()
        result = self.sessions[role].pgconn.exec_params(
            statement.encode(),
            [values[name][0] for name in names],
            None,
            [int(values[name][1]) for name in names],
        )
        self.report.took[function.name] += round((time.monotonic() - began) * 1000)
        self.report.calls += 1
        self.report.called[function.name] += 1

        def example() -> str:
            return (
                f"{role}: {function.name}(" + ", ".join(f"{n} => {_short(values[n][0])}" for n in names) + ")"
            )

        if result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            self.report.outcomes["success"] += 1
            self.report.succeeded[function.name] += 1
            self._judge_result(role, function, result, example, within=within)
            return True
        code, leaks = self._judge_error(role, function, result, example, within=within)
        self.report.outcomes[code] += 1
        if leaks:
            self.report.find(f"{function.name} tells another tenant's text", example())
        return False

    def _judge_error(
        self,
        role: str,
        function: Function,
        result: pq.abc.PGresult,
        example: Callable[[], str],
        *,
        within: bool,
    ) -> tuple[str, bool]:
        def diagnostic(which: pq.DiagnosticField) -> str:
            return (result.error_field(which) or b"").decode("utf-8", "replace")

        code = diagnostic(pq.DiagnosticField.SQLSTATE)
        context = diagnostic(pq.DiagnosticField.CONTEXT)
        message = diagnostic(pq.DiagnosticField.MESSAGE_PRIMARY)
        if not code:
            raise ConnectionError(f"the connection of {role} is lost: {message} {result.status} {example()}")
        said = " ".join(
            (
                message,
                diagnostic(pq.DiagnosticField.MESSAGE_DETAIL),
                diagnostic(pq.DiagnosticField.MESSAGE_HINT),
                context,
            )
        )
        leaks = SECRET in said and role in ("app", "bound")
        if re.search(r"portal.* parameter \$\d+", context) and (code[:2] in ("22", "54") or code == "42601"):
            return f"{code}, refused by PostgreSQL's input of a type", False
        if code == "42501" and self.roles[role] not in function.roles:
            return "42501, not granted", leaks
        if code == "25006" and self.read_only:
            return code, leaks
        if code == "25001" and function.procedure and within:
            return code, leaks
        if code.startswith("MF"):
            if code not in DOCUMENTED:
                self.report.find(f"{code} is not in docs/errors.md", example())
            if not diagnostic(pq.DiagnosticField.MESSAGE_DETAIL) or not diagnostic(
                pq.DiagnosticField.MESSAGE_HINT
            ):
                self.report.find(
                    f"{code} without DETAIL or HINT in {function.name}", f"{message} {example()}"
                )
        else:  # 40001 too: nobody else is there whom the call could have met
            lines = [line for line in context.splitlines() if "memfold" in line or "function" in line]
            where = re.sub(r"\s+", " ", " <- ".join(lines[:3]))[:400]
            plain = re.sub(r'"[^"]*"|\d+', "#", message)[:120]
            self.report.find(f"{code} {plain} in {function.name}", f"{example()} | {message} | {where}")
        return code, leaks

    def _judge_result(
        self,
        role: str,
        function: Function,
        result: pq.abc.PGresult,
        example: Callable[[], str],
        *,
        within: bool,
    ) -> None:
        columns = {result.fname(i): i for i in range(result.nfields)}
        ordinary = role in ("app", "bound")  # an auditor reads all tenants
        if function.name == "export_bucket" and role in ("app", "bound"):
            self.values.exported = [(result.get_value(i, 0) or b"").decode() for i in range(result.ntuples)]
        for row in range(min(result.ntuples, 200)):
            cells = [result.get_value(row, i) or b"" for i in range(result.nfields)]
            if ordinary and any(SECRET.encode() in cell for cell in cells):
                self.report.find(f"{function.name} shows another tenant's text", example())
            if b"sqlstate" in columns and cells[columns[b"sqlstate"]]:
                state = cells[columns[b"sqlstate"]].decode()
                self.report.outcomes[f"{state}, of a candidate in a batch"] += 1
                if state not in DOCUMENTED and not (self.read_only and state == "25006"):
                    self.report.find(f"{state} of a candidate in {function.name}", f"{cells} {example()}")
            if function.name == "run_maintenance":
                errors = json.loads(cells[0])["errors"]
                for task, error in errors.items():
                    if error[:5] not in DOCUMENTED:
                        self.report.find(f"maintenance task {task}: {error[:5]}", f"{error} {example()}")
        for notice in self.notices:
            if notice.startswith("maintenance failed"):
                self.report.find("run_maintenance_all failed", notice)
        if function.name in ("vector_index_ddl", "drop_vector_index_ddl") and not within:
            for row in range(result.ntuples):
                statement = (result.get_value(row, 0) or b"").decode()
                try:
                    self.admin.execute(statement.encode())
                except psycopg.Error as error:
                    self.report.find(
                        f"{error.sqlstate} of a statement of {function.name}", f"{statement} {error}"
                    )

    def turn(self, wanted: int) -> None:
        """A single call, or several in one transaction."""
        role = self.random.choices(ROLES, [SHARES[r] for r in ROLES])[0]
        if role in ("judge", "owner") and self.random.random() < 0.5:
            # those who may act for any tenant, and say so by the setting
            self.sessions[role].execute("select set_config('memfold.tenant_id', %s, false)", [self.tenant])
        elif role in ("judge", "owner"):
            self.sessions[role].execute("reset memfold.tenant_id")
        if self.random.random() < 0.9:
            function = self.choose(role)
            if function.name == "import_bucket":
                self.import_once(role, function)
            else:
                self.call(role, function, self.draw(function))
            return
        session = self.sessions[role]
        level = self.random.choice(
            ["", "", "", "isolation level repeatable read", "isolation level serializable", "read only"]
        )
        session.pgconn.exec_(f"begin {level}".encode())
        for _ in range(min(self.random.randint(2, 6), wanted)):
            function = self.choose(role)
            session.pgconn.exec_(b"savepoint s")
            if not self.call_in(role, function, level):
                session.pgconn.exec_(b"rollback to s")
        ended = session.pgconn.exec_(b"commit" if self.random.random() < 0.8 else b"rollback")
        if ended.status != pq.ExecStatus.COMMAND_OK:
            state = (ended.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            self.report.outcomes[f"{state}, at COMMIT"] += 1
            self.report.find(f"{state} at COMMIT", ended.error_message.decode("utf-8", "replace"))

    def import_once(self, role: str, function: Function) -> None:
        """Invariants hold of what was exported; those who may import can forge what they like: it is not to stay."""
        session = self.sessions[role].pgconn
        session.exec_(b"begin")
        values = self.draw(function)
        genuine = values["lines"][0] == self.values.lines(hostile=False).encode()
        if self.call(role, function, values, within=True) and genuine:
            tenant = (values["tenant_id"][0] or b"").decode()
            self.sessions[role].execute("select * from memfold.ingest_plain_rows(%s, null, 100000)", [tenant])
            broken = (
                self.sessions[role].execute("select * from memfold.check_invariants(%s)", [tenant]).fetchall()
            )
            if broken:
                self.report.find(f"invariant {broken[0][1]} of a copy", f"{tenant}: {broken}")
        session.exec_(b"rollback")

    def call_in(self, role: str, function: Function, level: str) -> bool:
        values = self.draw(function)
        if level != "read only":
            # an import that may be forged does not stay
            return self.call(role, function, values, within=True) and function.name != "import_bucket"
        self.read_only = True
        try:
            return self.call(role, function, values, within=True)
        finally:
            self.read_only = False

    def choose(self, role: str) -> Function:
        allowed = self.random.random() < 0.97
        some = [f for f in self.functions if (self.roles[role] in f.roles) == allowed] or self.functions
        return self.random.choices(some, [OFTEN.get(f.name, SELDOM.get(f.name, 1.0)) for f in some])[0]

    def run(self, calls: int) -> Report:
        """Make this many calls, then check everything that must hold."""
        began = time.monotonic()
        warm = False
        if not self.tenant:
            self.begin()
            for function in self.functions:
                # all of them, however short the run
                for role in ("superuser",) if function.name in SELDOM else ("app", "superuser", "owner"):
                    self.call(role, function, self.draw(function))
        while self.report.calls < calls:
            if self.report.calls >= len(self.report.tenants) * EPISODE:
                self.end()
                self.begin()
            until = min(calls, self.report.calls + TOGETHER)
            while self.report.calls < until:
                self.turn(calls - self.report.calls)
            self._probe_batch()
            if not warm and self.report.calls > calls / 2:
                warm = True
                self._weigh()
        self.end()
        self._weigh()
        for tenant in self.report.tenants:
            for broken in self.admin.execute(
                "select * from memfold.check_invariants(%s)", [tenant]
            ).fetchall():
                self.report.find(f"in the end, invariant {broken[1]}", f"{tenant}: {broken}")
        if self._digest() != self.untouched:
            self.report.find("another tenant's rows have changed", BYSTANDER)
        if self._value("select pg_postmaster_start_time()") != self.started:
            self.report.find("the server has restarted", "")
        self.report.seconds += time.monotonic() - began
        return self.report

    def _weigh(self) -> None:
        """How much memory each session holds between two calls."""
        for name, session in self.sessions.items():
            session.execute("reset session authorization")
            row = session.execute(
                "select sum(total_bytes)::bigint from pg_backend_memory_contexts"
            ).fetchone()
            assert row is not None
            self.report.memory.setdefault(name, []).append(int(row[0]))
            session.execute(sql.SQL("set session authorization {}").format(sql.Identifier(self.roles[name])))

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()
        for role in self.roles.values():
            self.admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
        self.admin.close()


def _short(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = repr(value.decode("utf-8", "replace"))
    return text if len(text) < 160 else f"{text[:120]}… ({len(value)} bytes)"


def main(dsn: str, calls: str = "10000", seed: str = "1") -> int:
    fuzzer = Fuzzer(dsn, int(seed))
    step = 1_000
    try:
        for until in range(step, int(calls) + step, step):
            report = fuzzer.run(min(until, int(calls)))
            print(
                f"{time.strftime('%H:%M:%S')} {report.calls} calls, {len(report.findings)} findings",
                flush=True,
            )
    finally:
        print(fuzzer.report)
        fuzzer.close()
    never = sorted(f.name for f in fuzzer.functions if not report.succeeded[f.name])
    print("ms:", dict(report.took.most_common(12)))
    sizes = ", ".join(f"{name} {sizes[-1] >> 20} MB" for name, sizes in report.memory.items() if sizes)
    print(f"never succeeded: {', '.join(never) or 'none'}; memory of the sessions: {sizes}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
