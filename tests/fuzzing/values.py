"""Draws values for arguments, by their type and name."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.fuzzing.catalog import Argument
from tests.fuzzing.hostile import (
    BIGINTS,
    DIMENSIONS,
    DOUBLES,
    INJECTIONS,
    INTERVALS,
    JSONS,
    LIKES,
    NAMES,
    PLANES,
    POINTS,
    SPACES,
    TIMES,
    TOWNS,
    UNBELIEVABLE,
    UUIDS,
    VECTORS,
    WORDS,
)

# A parameter: its bytes, and whether they are in the type's binary form (a text may then hold what no literal can).
Value = tuple[bytes | None, bool]
# What the name of an argument of type uuid says it is the id of.
KINDS = {
    "memory_id": "memory", "into_id": "memory", "by_id": "memory", "id": "memory", "after": "memory",
    "richer_memory_id": "memory",
    "memory_ids": "memory", "event_id": "event", "judgement_id": "judgement", "judgement_ids": "judgement", "run_id": "run",
    "undo_run_id": "run", "into_run": "run", "pair_id": "pair", "calibration_id": "calibration",
}  # fmt: skip


def array_literal(items: Iterable[str | None]) -> str:
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
            return array_literal(element(False) for _ in range(self.random.randint(1, 3)))
        kind = self.random.random()
        one = element(False)
        if kind < 0.1:
            return "{}"
        if kind < 0.2:
            return array_literal([None])
        if kind < 0.3:
            return array_literal([one, None, one])
        if kind < 0.4:
            return "{" + array_literal([one, one]) + "," + array_literal([one, one]) + "}"
        if kind < 0.5:
            return f"[{self.one(['5:6', '-3:-2', '0:1', '2147483645:2147483646'])}]=" + array_literal(
                [one, element(False)]
            )
        if kind < 0.55:
            return array_literal([one] * 10_000)
        if kind < 0.6:
            return array_literal([one] * self.one([1000, 1001, 300]))
        if kind < 0.65:
            return str(self.one(["{", "x", "{{a},{b,c}}", '{"', "{}{}", "[1:1]={a,b}", "{{{{{{{a}}}}}}}"]))
        return array_literal(element(self.random.random() < 0.6) for _ in range(self.random.randint(1, 5)))

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
            "bytea": lambda hostile: self.one(["\\x", "\\x0", "x", ""] if hostile else ["\\x" + "0f" * 32]),
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
