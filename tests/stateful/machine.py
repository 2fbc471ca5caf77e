"""All steps: those of tiers 1 to 3, recall, rehashes, runs of maintenance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.reference_model.derivation import derive, shown
from tests.reference_model.records import Event, Rules
from tests.stateful.counts import COUNTS
from tests.stateful.scopes import DAY, FIRST_DAY
from tests.stateful.tier3_steps import VERDICTS, Tier3Steps

# more than twice the texts of any bucket of a sequence
MOST_BATCHES = 200
# (size, how many). A batch of more than one text ends when its time is up: how many there are is not for a test to know.
BATCHES = st.sampled_from([(1, 0), (1, 1), (1, 2), (1, 3), *[(1, MOST_BATCHES), (100, MOST_BATCHES)] * 2])


class Machine(Tier3Steps):
    """Everything that can happen to a tenant."""

    @precondition(lambda self: self.world.memories)
    @rule(day=st.integers(-1, 7))
    def recall(self, day: int) -> None:
        """The memories shown for a day, in all scopes."""
        self.compare_recall(day, None, self.world.events)

    @precondition(lambda self: self.world.events)
    @rule(number=st.integers(0, 99), day=st.integers(-1, 7))
    def recall_what_was_known(self, number: int, day: int) -> None:
        """The same, by the ledger as it was after some event."""
        ledger = self.db.execute(
            "select event_id, recorded_at from memfold.memory_events where tenant_id = %(tenant)s",
            {"tenant": self.tenant},
        ).fetchall()
        recorded = dict(ledger)
        known_at = recorded[self.events[number % len(self.events)]]
        known = [e for e in self.world.events if recorded[self.events[e.number]] <= known_at]
        self.compare_recall(day, known_at, known)

    def compare_recall(self, day: int, known_at: datetime | None, known: list[Event]) -> None:
        at = FIRST_DAY + day * DAY
        rows = self.db.execute(
            "select distinct m.memory_id from unnest(%(buckets)s::text[]) as b (id),"
            " memfold.current_memories(%(tenant)s, b.id, %(at)s, %(known_at)s) as m",
            {
                "buckets": list({scope.bucket for scope in self.scopes}),
                "tenant": self.tenant,
                "at": datetime.fromtimestamp(at, UTC),
                "known_at": known_at,
            },
        ).fetchall()
        found = sorted(self.memories.index(row[0]) for row in rows)
        expected = sorted(shown(derive(self.world.memories, known), at))
        COUNTS[
            f"recall{'' if known_at is None else ' what was known'}: {'some' if expected else 'none'}"
        ] += 1
        if found != expected:
            raise AssertionError(
                f"{self.told()}\nday {day}, {len(known)} events: {found} from the database, {expected} from the model"
            )

    def rehash_rules(self) -> Rules:
        return self.world.rules[self.scopes[0].bucket]

    def batches(self, size: int, most: int) -> None:
        """Some batches of the rehash in progress, and their effects."""
        for _ in range(most):
            ended = self.call("_rehash_batch", run_id=self.rehashes[-1], batch_size=size)
            if not isinstance(ended, bool):
                raise AssertionError(f"{self.told()}\n{ended}")
            if ended:
                self.rehash_rules().before = None
            self.step({}, self.taken_over)
            if ended:
                return
        assert most < MOST_BATCHES, self.told()

    def taken_over(self) -> dict[str, Any]:
        self.take_over()
        return {}

    def begin_rehash(self, profile: str | None, undoes: str | None, size: int, most: int) -> None:
        bucket = self.scopes[0].bucket
        rules = self.rehash_rules()
        said = self.call(
            "_rehash_begin", bucket_id=bucket, canonicalizer=profile, key_fields=None, metadata_keys=None, memory_type="*",
            undo_run_id=undoes, batch_size=1000,
        )  # fmt: skip
        if not isinstance(said, str) or said.startswith("MF"):
            raise AssertionError(f"{self.told()}\n{said}")
        self.rehashes.append(said)
        self.world.rules[bucket] = Rules("exact" if rules.now == "prose" else "prose", rules.now)
        self.step({}, self.taken_over)
        self.batches(size, most)

    @precondition(lambda self: self.rehash_rules().before is None)
    @rule(batches=BATCHES)
    def rehash(self, batches: tuple[int, int]) -> None:
        """Finished, or interrupted."""
        self.begin_rehash("exact" if self.rehash_rules().now == "prose" else "prose", None, *batches)

    @precondition(lambda self: self.rehash_rules().before is not None)
    @rule(batches=BATCHES)
    def go_on_with_the_rehash(self, batches: tuple[int, int]) -> None:
        self.batches(*batches)

    @precondition(lambda self: self.rehashes)
    @rule(by_run=st.booleans(), batches=BATCHES)
    def take_the_rehash_back(self, by_run: bool, batches: tuple[int, int]) -> None:
        """The run in progress, or the last one."""
        before = "exact" if self.rehash_rules().now == "prose" else "prose"
        self.begin_rehash(None if by_run else before, self.rehashes[-1] if by_run else None, *batches)

    def waiting_runs(self) -> list[str]:
        """Newest first."""
        waiting = {j.number for j in self.world.judgements if j.state == "open"}
        return [run for run, asked in reversed(self.asked.items()) if asked & waiting]

    def maintain(self, function: str, **arguments: Any) -> None:
        self.call(function, bucket_id=self.scopes[0].bucket, **arguments)
        row = self.db.execute(
            "select run_id::text from memfold.runs where tenant_id = %s and kind <> 'rehash'"
            " order by run_id desc limit 1",
            [self.tenant],
        ).fetchone()
        run = None
        if row is not None and row[0] not in self.runs:
            run = row[0]
            self.runs[row[0]] = set()

        def expect() -> dict[str, Any]:
            self.take_over(run)
            return {}

        self.step({}, expect)

    @precondition(lambda self: self.seldom() and len(self.world.memories) > 1)
    @rule(
        what=st.sampled_from(
            ["sweep", "sweep", "consolidate at 0.8", "consolidate at 0.9", "end the session"]
        )
    )
    def a_run(self, what: str) -> None:
        if what == "sweep":
            self.maintain("sweep_duplicates", dry_run=False)
        elif what == "end the session":
            self.maintain("end_session", session_id="s")
        else:
            self.maintain("consolidate", threshold=float(what[-3:]), approval="person", dry_run=False)

    @precondition(lambda self: self.waiting_runs())
    @rule(number=st.integers(0, 3), verdict=VERDICTS["verdict"])
    def approve(self, number: int, verdict: str) -> None:
        runs = self.waiting_runs()
        run = runs[number % len(runs)]
        said = self.call("approve_run", run_id=run, verdict=verdict)
        refused = isinstance(said, str)

        def expect() -> Any:
            self.take_over(run)
            return "MF039" if refused else {}

        self.step(said if refused else {}, expect)

    @precondition(lambda self: self.seldom() and self.runs)
    @rule(number=st.integers(0, 3))
    def undo_run(self, number: int) -> None:
        run = list(self.runs)[::-1][number % len(self.runs)]
        said = self.call("undo_run", run_id=run)
        refused = isinstance(said, str)

        def expect() -> Any:
            if refused:
                return "MF039"
            self.take_over()
            folds = ("merged", "replaced", "superseded", "rejected")
            left = [e for e in self.world.in_force() if e.number in self.runs[run] and e.action in folds]
            assert not left, left
            return {}

        self.step(said if refused else {}, expect)
