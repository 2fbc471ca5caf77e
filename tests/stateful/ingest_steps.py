"""Steps that hand in texts, names and vectors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.reference_model.records import RefusedError, Rules, Scope, Text
from tests.stateful.comparison import Comparison
from tests.stateful.scopes import BUCKETS, DAY, FIRST_DAY, OFTEN, PREDICATES

ALIAS = "Annie"
# Texts near one another are drawn more often.
TEXT = st.sampled_from([0, 1, 2, 3, 0, 2, 3, 0, 2, 1, 8, 9, 4, 6, 5, 7])
VARIANTS = ["", ".", "  ", "!"]
GIVEN: dict[str, Any] = {
    "variant": st.sampled_from(VARIANTS),
    "origin": st.sampled_from(["observed"] * 7 + ["inferred", "recalled"]),
    "day": st.integers(0, 6),
    "turns": st.lists(st.sampled_from(["t1", "t2", "t3", "t4"]), max_size=2, unique=True),
    "source": st.sampled_from([0.5, 0.2, 0.9]),
    "extractor": st.sampled_from([0.5, 0.3, 0.8]),
    "metadata": st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), max_size=2),
    "key": st.sampled_from([None, None, None, None, None, "k1", "k2", "k3"]),
    # first and last day of its validity
    "valid": st.sampled_from([(None, None)] * 6 + [(None, 3), (None, 5), (2, None), (1, 4)]),
}


class IngestSteps(Comparison):
    """Texts, new ones and known ones, links of names, late vectors."""

    @initialize(
        scopes=st.lists(st.sampled_from(OFTEN), min_size=1, max_size=3, unique_by=lambda s: s.name),
        texts=st.lists(TEXT, min_size=1, max_size=4),
        variants=st.lists(st.sampled_from(VARIANTS), min_size=4, max_size=4),
        embedded=st.sampled_from([True, True, True, False]),
        profile=st.sampled_from(["prose", "exact"]),
    )
    def begin(
        self, scopes: list[Scope], texts: list[int], variants: list[str], embedded: bool, profile: str
    ) -> None:
        self.scopes = scopes
        # the model knows the guard's signals, but not the veto's score
        calls = [
            f"memfold.set_policy(%(tenant)s, '{b}', merge_veto => 0, {rules})" for b, rules in BUCKETS.items()
        ]
        calls.append("memfold.set_policy(%(tenant)s, merge_veto => 0)")
        calls += [
            f"memfold.set_predicate('{p}', %(tenant)s, '{many}', {rule})" for p, many, rule in PREDICATES
        ]
        self.db.execute("select " + ", ".join(calls), {"tenant": self.tenant})
        if profile == "exact":
            self.db.execute(
                "select memfold.set_policy(%s, %s, canonicalizer => 'exact')", [self.tenant, scopes[0].bucket]
            )
            self.world.rules[scopes[0].bucket] = Rules("exact")
        for day, (text, variant) in enumerate(zip(texts, variants, strict=False)):
            self.hand_in(
                scopes[0], scopes[0].texts[text], embedded, variant, "observed", day, [], 0.5, 0.5, {}, None
            )

    def seldom(self) -> bool:
        return self.calls % 4 == 3

    def choose(self, number: int) -> int:
        """Any memory, more often one that allows an action."""
        state = self.world.state
        texts = [m.number for m in self.world.memories]
        alive = [m for m in texts if state.status[state.root(m)] in ("active", "superseded")]
        return (texts if number % 5 == 0 or not alive else alive)[number % len(alive or texts)]

    def hand_in(self, scope: Scope, text: Text, embedded: bool, variant: str, origin: str, day: int | None, turns: list[str],
                source: float, extractor: float, metadata: dict[str, int], key: str | None,
                valid: tuple[int | None, int | None] = (None, None)) -> None:  # fmt: skip
        content = text.content + variant
        subject = self.subject(scope)
        candidate = (content, scope.predicate, text.object, metadata, subject)
        at = None if day is None else FIRST_DAY + day * DAY
        since, until = (None if x is None else FIRST_DAY + x * DAY for x in valid)
        said = self.call(
            "ingest_memory", content=content, bucket_id=scope.bucket, subject=subject, predicate=scope.predicate,
            object=text.object, source_turn_ids=turns, source_confidence=source, extractor_confidence=extractor,
            origin=origin, metadata=json.dumps(metadata),
            observed_at=None if at is None else datetime.fromtimestamp(at, UTC), idempotency_key=key, session_id="s",
            valid_from=None if since is None else datetime.fromtimestamp(since, UTC),
            valid_until=None if until is None else datetime.fromtimestamp(until, UTC),
            **({"embedding": str(list(text.vector)), "embedding_model": "m"} if embedded else {}),
        )  # fmt: skip

        def expect() -> dict[str, Any]:
            if key is not None and (scope.bucket, key) in self.keys:  # row 1
                first, event = self.keys[scope.bucket, key]
                if first["candidate"] != candidate:
                    raise RefusedError("MF062")
                first = {name: value for name, value in first.items() if name != "candidate"}
                leads_to = self.answer(event)["memory_id"]
                # the memory that the first call named, or the present root of its text
                if isinstance(said, dict) and said["memory_id"] == leads_to:
                    return {**first, "memory_id": leads_to}
                return first
            event = self.world.ingest(
                scope, text, content, text.object, embedded, origin, at, turns=tuple(turns), source=source,
                extractor=extractor, metadata=metadata, valid=(since, until),
            )  # fmt: skip
            answer = self.answer(event)
            if key is not None:
                said_first = {**answer, "event_id": self.held["events"][-1][0], "candidate": candidate}
                self.keys[scope.bucket, key] = said_first, event
            return answer

        self.step(said, expect)
        if subject == ALIAS:
            self.told_by_alias.add(scope.bucket)

    def subject(self, scope: Scope) -> str:
        """A name of Ann: the model knows no other, so that what is told by an alias has to be as if told by the name."""
        return ALIAS if scope.bucket in self.linked and self.calls % 2 else "Ann"

    @precondition(lambda self: len(self.linked) < len({scope.bucket for scope in self.scopes}))
    @rule()
    def link(self) -> None:
        bucket = next(scope.bucket for scope in self.scopes if scope.bucket not in self.linked)
        said = self.call("link_subject", alias=ALIAS, subject="Ann", bucket_id=bucket)
        self.linked.add(bucket)
        self.step(said if isinstance(said, str) and said.startswith("MF") else {}, dict)

    @precondition(lambda self: self.linked - self.told_by_alias)
    @rule()
    def unlink(self) -> None:
        """If nothing was stated under the alias, nothing may change."""
        bucket = min(self.linked - self.told_by_alias)
        said = self.call("unlink_subject", alias=ALIAS, bucket_id=bucket)
        self.linked.remove(bucket)
        self.step(said if isinstance(said, str) else {}, dict)

    @rule(which=st.integers(0, 2), text=TEXT, embedded=st.booleans(), **GIVEN)
    def ingest(self, which: int, text: int, embedded: bool, **given: Any) -> None:
        scope = self.scopes[which % len(self.scopes)]
        self.hand_in(scope, scope.texts[text], embedded, **given)

    @rule(text=TEXT, embedded=st.sampled_from([True, True, False]), **GIVEN)
    def ingest_in_the_first_scope(self, text: int, embedded: bool, **given: Any) -> None:
        self.hand_in(self.scopes[0], self.scopes[0].texts[text], embedded, **given)

    @precondition(lambda self: self.world.memories)
    @rule(memory=st.integers(0, 29), embedded=st.booleans(), **GIVEN)
    def restate(self, memory: int, embedded: bool, **given: Any) -> None:
        m = self.world.memories[self.choose(memory)]
        self.hand_in(m.scope, m.text, embedded, **given)

    @precondition(lambda self: any(not m.embedded for m in self.world.memories))
    @rule(number=st.integers(0, 9), most=st.sampled_from([1, 1, 2, 9]))
    def attach(self, number: int, most: int) -> None:
        """One late vector, or those of several texts: active ones, values of the past, aliases, rejected ones."""
        waiting = [m.number for m in self.world.memories if not m.embedded]
        for i in range(min(most, len(waiting))):
            self.attach_to(waiting[(number + i) % len(waiting)])

    def attach_to(self, memory: int) -> None:
        vector = str(list(self.world.memories[memory].text.vector))
        said = self.call(
            "attach_embedding", memory_id=self.memories[memory], embedding=vector, embedding_model="m"
        )
        self.step(said, lambda: self.answer(self.world.attach(memory)))
