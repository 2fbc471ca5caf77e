"""What an agent may change, how often, and how one role's actions are undone: docs/security.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.exports import exported, imported
from tests.support.judging import answer
from tests.support.ledger import History, same, stored
from tests.support.memories import check, ingest, model, status, vector
from tests.support.queries import DB, one
from tests.support.rounds import seeds

ROLES = {"agent": "memfold_agent", "helper": "memfold_agent", "anna": "memfold_tenant"}


@dataclass
class People:
    """Two agents and a person of tenant acme, each a role that the connection can assume."""

    db: DB
    names: dict[str, str]

    @contextmanager
    def be(self, who: str) -> Iterator[DB]:
        self.db.execute(f"set role {self.names[who]}".encode())
        try:
            yield self.db
        finally:
            self.db.execute("reset role")

    def ingest(self, who: str, content: str, **given: Any) -> Any:
        with self.be(who) as db:
            return ingest(db, content, **given)

    def call(self, who: str, call: str, *given: Any) -> list[tuple[Any, ...]]:
        with self.be(who) as db:
            return db.execute(f"select * from memfold.{call}".encode(), given).fetchall()

    def refused(self, who: str, state: str, call: str, *given: Any) -> psycopg.Error:
        """The call raises this, with a detail and a hint, and changes nothing."""
        before = everything(self.db)
        with pytest.raises(psycopg.Error) as error:
            self.call(who, call, *given)
        assert error.value.sqlstate == state
        assert error.value.diag.message_detail
        assert error.value.diag.message_hint
        assert everything(self.db) == before
        return error.value


@pytest.fixture
def people(db: DB) -> Iterator[People]:
    names = {who: f"{who}_{db.info.dbname}" for who in ROLES}
    for who, group in ROLES.items():
        db.execute(
            f"drop role if exists {names[who]}; create role {names[who]} login in role {group}".encode()
        )
        db.execute("insert into memfold.tenant_roles values (%s, 'acme')", [names[who]])
    yield People(db, names)
    for name in names.values():
        db.execute("delete from memfold.tenant_roles")
        db.execute(f"drop role {name}".encode())


class Shared(History):
    """A history of several roles: questions come from maintenance, which belongs to no role."""

    def ask(self) -> None:
        self.db.execute("reset role")
        super().ask()


def everything(db: DB) -> list[tuple[Any, ...]]:
    """What readers see, and how long the ledger and the queue are."""
    return [
        *db.execute("select memory_id, status, content, root_id from memories order by 1").fetchall(),
        *db.execute("select memory_id, observations, last_seen from memory_totals order by 1").fetchall(),
        *db.execute("select memory_id, valid_from, valid_to from memory_intervals order by 1, 2").fetchall(),
        *db.execute("select source_turn_id, memory_id from memory_sources order by 1, 2").fetchall(),
        *db.execute("select (select count(*) from memory_events), (select count(*) from runs)").fetchall(),
        *db.execute("select judgement_id, status from judgements order by 1").fetchall(),
    ]


def now(db: DB) -> Any:
    return one(db, "select clock_timestamp()")


def take_back(db: DB, actor: str, since: Any, *, dry_run: bool = False) -> list[tuple[Any, ...]]:
    return db.execute(
        "select memory_id, status, run_id from undo_actor(%s, %s, 'acme', dry_run => %s)",
        [actor, since, dry_run],
    ).fetchall()


class TestRank:
    def test_an_agent_may_not_change_what_a_person_stated(self, people: People) -> None:
        tea = people.ingest("anna", "User likes tea")
        people.ingest("agent", "User likes tea")
        error = people.refused("agent", "42501", "reject_memory(%s, 'acme')", tea.memory_id)
        assert str(people.names["anna"]) in (error.diag.message_detail or "")
        people.refused("agent", "42501", "update_memory(%s, 'User likes gin', 'acme')", tea.memory_id)
        assert people.call("anna", "reject_memory(%s, 'acme')", tea.memory_id)[0][0] == "rejected"

    def test_an_alias_stated_by_a_person_protects_too(self, people: People) -> None:
        model(people.db)
        root = people.ingest("agent", "User prefers dark mode", **vector(1.0))
        alias = people.ingest("anna", "The user likes dark mode best", **vector(0.95))
        assert alias.memory_id == root.memory_id
        people.refused("agent", "42501", "reject_memory(%s, 'acme')", root.memory_id)

    def test_a_text_reworded_by_a_person_is_protected_too(self, people: People) -> None:
        tea = people.ingest("agent", "User likes tea")
        people.call("anna", "update_memory(%s, 'User likes green tea', 'acme')", tea.memory_id)
        people.refused("agent", "42501", "reject_memory(%s, 'acme')", tea.memory_id)

    def test_agents_may_change_what_agents_stated(self, people: People) -> None:
        """Including other agents' memories; agents may undo it too."""
        tea = people.ingest("agent", "User likes tea")
        made = people.call("helper", "reject_memory(%s, 'acme')", tea.memory_id)
        assert status(people.db, tea) == "rejected"
        people.call("agent", "undo(%s, 'acme')", made[0][7])
        assert status(people.db, tea) == "active"
        assert (
            people.call("agent", "update_memory(%s, 'User likes gin', 'acme')", tea.memory_id)[0][0]
            == "replaced"
        )

    def test_a_statement_that_was_withdrawn_protects_nothing(self, people: People) -> None:
        tea = people.ingest("agent", "User likes tea")
        again = people.ingest("anna", "User likes tea")
        people.call("anna", "undo(%s, 'acme')", again.event_id)
        assert people.call("agent", "reject_memory(%s, 'acme')", tea.memory_id)[0][0] == "rejected"

    def test_an_agent_may_not_undo_what_a_person_decided(self, people: People) -> None:
        a, b = (people.ingest("agent", text) for text in ("Item 1 is blue", "The colour of item 1: blue"))
        merge = people.call("anna", "merge_memories(%s, %s, 'acme')", b.memory_id, a.memory_id)[0]
        people.refused("agent", "42501", "undo(%s, 'acme')", merge[7])
        undone = people.call("anna", "undo(%s, 'acme')", merge[7])
        people.refused("agent", "42501", "undo(%s, 'acme')", undone[0][0])
        restated = people.ingest("anna", "Item 1 is blue")
        people.refused("agent", "42501", "undo(%s, 'acme')", restated.event_id)

    def test_a_role_that_is_gone_counts_as_a_person(self, people: People, db: DB) -> None:
        tea = people.ingest("helper", "User likes tea")
        db.execute("delete from memfold.tenant_roles where role_name = %s", [people.names["helper"]])
        db.execute(f"drop role {people.names['helper']}".encode())
        people.refused("agent", "42501", "reject_memory(%s, 'acme')", tea.memory_id)
        db.execute(f"create role {people.names['helper']} login in role memfold_agent".encode())
        assert people.call("agent", "reject_memory(%s, 'acme')", tea.memory_id)

    def test_an_application_with_the_agents_rights_is_a_person(self, people: People, db: DB) -> None:
        tea = people.ingest("anna", "User likes tea")
        db.execute(f"grant memfold_app to {people.names['agent']}".encode())
        assert people.call("agent", "reject_memory(%s, 'acme')", tea.memory_id)


class TestLimit:
    def test_actions_per_hour_are_limited(self, people: People, db: DB) -> None:
        db.execute("select set_policy('acme', agent_actions_per_hour => 3)")
        facts = [people.ingest("agent", f"Fact number {n} of the team") for n in range(8)]
        made = people.call("agent", "reject_memory(%s, 'acme')", facts[0].memory_id)
        people.call("agent", "undo(%s, 'acme')", made[0][7])
        people.call("agent", "update_memory(%s, 'Fact number one', 'acme')", facts[1].memory_id)
        error = people.refused("agent", "MF066", "reject_memory(%s, 'acme')", facts[2].memory_id)
        assert error.diag.message_detail == (
            f"{people.names['agent']} has changed memories of bucket default 3 times within an hour."
        )
        people.refused("agent", "MF066", "update_memory(%s, 'Fact no. 2', 'acme')", facts[2].memory_id)
        restated = people.ingest("agent", "Fact number 5 of the team")
        people.refused("agent", "MF066", "undo(%s, 'acme')", restated.event_id)
        # statements are not limited, nor are other roles, nor another bucket
        people.ingest("agent", "Fact number 9 of the team")
        people.call("helper", "reject_memory(%s, 'acme')", facts[3].memory_id)
        people.call("anna", "reject_memory(%s, 'acme')", facts[4].memory_id)
        elsewhere = people.ingest("agent", "Fact number 1", bucket_id="other")
        people.call("agent", "reject_memory(%s, 'acme')", elsewhere.memory_id)

    def test_answers_count(self, people: People, db: DB) -> None:
        model(db)
        db.execute("select set_policy('acme', agent_actions_per_hour => 0)")
        people.ingest("agent", "User prefers dark mode", **vector(1.0))
        asked = people.ingest("agent", "The user likes dark mode best", **vector(0.89))
        people.refused("agent", "MF066", "resolve_judgement(%s, 'duplicate', 'acme')", asked.judgement_id)
        assert people.call("anna", "resolve_judgement(%s, 'duplicate', 'acme')", asked.judgement_id)

    def test_the_limit_resets_after_an_hour(self, people: People, db: DB) -> None:
        db.execute("select set_policy('acme', agent_actions_per_hour => 1)")
        facts = [people.ingest("agent", f"Fact number {n} of the team") for n in range(2)]
        people.call("agent", "reject_memory(%s, 'acme')", facts[0].memory_id)
        people.refused("agent", "MF066", "reject_memory(%s, 'acme')", facts[1].memory_id)
        with db.transaction():
            db.execute("set local session_replication_role = replica")
            db.execute(
                "update memory_events set event_id = memfold_internal._first_id(clock_timestamp() - interval '61 minutes')"
                " where action = 'rejected'"
            )
        assert people.call("agent", "reject_memory(%s, 'acme')", facts[1].memory_id)

    @pytest.mark.parametrize("wrong", [-1, 1_000_001])
    def test_invalid_limits_are_refused(self, db: DB, wrong: int) -> None:
        with pytest.raises(psycopg.Error) as error:
            db.execute("select set_policy('acme', agent_actions_per_hour => %s)", [wrong])
        assert error.value.sqlstate == "MF017"


class TestUndoActor:
    def test_an_id_that_is_older_than_its_row_is_not_missed(self, people: People, db: DB) -> None:
        """An id is made first: a millisecond, or a wait for a lock, may lie between it and recorded_at."""
        people.ingest("agent", "User likes tea")
        with db.transaction():
            db.execute("set local session_replication_role = replica")
            db.execute("update memory_events set recorded_at = recorded_at + interval '1 minute'")
        since = one(db, "select recorded_at from memory_events")
        assert len(take_back(db, people.names["agent"], since, dry_run=True)) == 1
        assert take_back(db, people.names["agent"], since + timedelta(microseconds=1), dry_run=True) == []

    def test_it_is_as_if_the_role_had_done_nothing(self, people: People, db: DB) -> None:
        """Its statements, supersessions, rejections, updates, answers and undos; nothing of the others."""
        model(db)
        db.execute(f"grant memfold_tenant to {people.names['agent']}".encode())
        db.execute("select set_predicate('lives_in', 'acme')")
        home = people.ingest("anna", "Ann lives in Lyon", subject="Ann", predicate="lives_in", object="Lyon")
        tea, gin = (people.ingest("anna", f"User likes {x}", source_turn_ids=[x]) for x in ("tea", "gin"))
        rejected = people.call("anna", "reject_memory(%s, 'acme')", gin.memory_id)[0]
        dark = people.ingest("anna", "User prefers dark mode", **vector(1.0))
        before = db.execute("select memory_id, status, content, root_id from memories order by 1").fetchall()
        totals = db.execute(
            "select memory_id, observations, last_seen from memory_totals order by 1"
        ).fetchall()
        since = now(db)
        moved = people.ingest(
            "agent", "Ann lives in Oslo", subject="Ann", predicate="lives_in", object="Oslo"
        )
        assert (moved.action, status(db, home)) == ("superseded", "superseded")
        people.ingest("agent", "User likes tea", source_turn_ids=["tea", "later"])
        people.call("agent", "undo(%s, 'acme')", rejected[7])
        assert people.ingest("agent", "The user likes dark mode best", **vector(0.95)).action == "merged"
        people.call("agent", "update_memory(%s, 'User likes rum', 'acme')", tea.memory_id)
        people.call("agent", "reject_memory(%s, 'acme')", dark.memory_id)
        changed = everything(db)

        shown = take_back(db, people.names["agent"], since, dry_run=True)
        assert everything(db) == changed
        assert {row[2] for row in shown} == {None}
        done = take_back(db, people.names["agent"], since)
        assert [row[:2] for row in done] == [row[:2] for row in shown]
        after = db.execute("select memory_id, status, content, root_id from memories order by 1").fetchall()
        assert [row for row in after if row in before] == before
        assert {row[1] for row in after if row not in before} == {"withdrawn"}
        kept = {row[0] for row in totals}
        assert [
            row
            for row in db.execute("select memory_id, observations, last_seen from memory_totals order by 1")
            if row[0] in kept
        ] == totals
        assert one(db, "select array_agg(source_turn_id order by source_turn_id) from memory_sources") == [
            "gin",
            "tea",
        ]
        assert not db.execute("select from judgements where status = 'done'").fetchall()
        check(db)
        # and all of it can be undone
        db.execute("select undo_run(%s, 'acme')", [done[0][2]])
        assert everything(db)[: len(after)] == changed[: len(after)]
        check(db)

    def test_a_text_comes_back_when_somebody_else_states_it(self, people: People, db: DB) -> None:
        since = now(db)
        fact = people.ingest("agent", "User likes tea")
        take_back(db, people.names["agent"], since)
        assert status(db, fact) == "withdrawn"
        assert people.ingest("anna", "User likes tea").memory_id == fact.memory_id
        assert status(db, fact) == "active"
        assert one(db, "select observations from memory_totals") == 1
        check(db)

    def test_statements_of_others_since_then_remain(self, people: People, db: DB) -> None:
        a, b = (people.ingest("anna", text) for text in ("Item 1 is blue", "The colour of item 1: blue"))
        since = now(db)
        db.execute(f"grant memfold_tenant to {people.names['agent']}".encode())
        merged = people.call("agent", "merge_memories(%s, %s, 'acme')", b.memory_id, a.memory_id)[0]
        undone = people.call("anna", "undo(%s, 'acme')", merged[7])[0]
        twice = people.call("agent", "undo(%s, 'acme')", undone[0])[0]
        last = people.call("anna", "undo(%s, 'acme')", twice[0])
        assert {row[2] for row in last} == {"active"}
        # nothing that the agent did is in force
        assert take_back(db, people.names["agent"], since) == []
        rejected = people.call("anna", "reject_memory(%s, 'acme')", a.memory_id)[0]
        freed = people.call("agent", "undo(%s, 'acme')", rejected[7])[0]
        people.call("anna", "undo(%s, 'acme')", freed[0])
        people.call("anna", "undo(%s, 'acme')", rejected[7]) if status(db, a) == "rejected" else None
        assert take_back(db, people.names["agent"], since) == []
        assert status(db, a) == "active"
        check(db)

    def test_only_events_since_then_of_that_tenant(self, people: People, db: DB) -> None:
        early = people.ingest("agent", "User likes tea")
        since = now(db)
        ingest(db, "User likes tea", tenant_id="globex")
        late = people.ingest("agent", "User likes gin")
        assert [row[0] for row in take_back(db, people.names["agent"], since)] == [late.memory_id]
        assert status(db, early) == "active"
        assert take_back(db, "nobody at all", "-infinity") == []
        check(db)

    def test_undone_answers_no_longer_count(self, people: People, db: DB) -> None:
        """For the memories and for later questions about them."""
        model(db)
        people.ingest("anna", "User prefers dark mode", **vector(1.0))
        people.ingest("anna", "The user likes dark mode best", **vector(0.89))
        since = now(db)
        with people.be("agent"):
            assert answer(db, "distinct", 0.9)[1] == "distinct"
        assert people.ingest("anna", "The user likes dark mode best", **vector(0.89)).judgement_id is None
        assert db.execute("select * from collect_pairs('acme', embedding_model => 'm')").fetchall()
        run = take_back(db, people.names["agent"], since)[0][2]
        assert {row[0] for row in db.execute("select status from judgements")} == {"obsolete"}
        assert db.execute("select * from collect_pairs('acme', embedding_model => 'm')").fetchall() == []
        db.execute("select undo_run(%s, 'acme')", [run])
        assert {row[0] for row in db.execute("select status from judgements")} == {"done"}
        check(db)

    def test_undone_statements_stay_undone_when_others_are_erased(self, people: People, db: DB) -> None:
        """Including a merge whose other side is gone: its remaining statement was withdrawn."""
        model(db)
        root = people.ingest("anna", "User prefers dark mode", **vector(1.0))
        since = now(db)
        fold = people.ingest("agent", "The user likes dark mode best", **vector(0.95))
        assert fold.action == "merged"
        take_back(db, people.names["agent"], since)
        db.execute("select erase_memory(%s, 'acme')", [root.memory_id])
        assert db.execute("select content, status from memories").fetchall() == [
            ("The user likes dark mode best", "withdrawn")
        ]
        check(db)

    def test_it_is_exported_and_imported(self, people: People, db: DB) -> None:
        since = now(db)
        people.ingest("anna", "User likes tea")
        people.ingest("agent", "User likes tea")
        people.ingest("agent", "User likes gin")
        state = "select content, status, observations from memories join memory_totals using (memory_id) order by 1"
        run = take_back(db, people.names["agent"], since)[0][2]
        files = [(exported(db), db.execute(state).fetchall())]
        db.execute("select undo_run(%s, 'acme')", [run])
        files.append((exported(db), db.execute(state).fetchall()))
        for lines, was in files:
            db.execute(
                "select erase_tenant('acme'); select erase_tenant('acme'); select erase_tenant('acme')"
            )
            assert db.execute(state).fetchall() == []
            imported(db, lines)
            assert db.execute(state).fetchall() == was
            check(db)
        assert [row[1:] for _, was in files for row in was] == [
            ("withdrawn", 0), ("active", 1), ("active", 1), ("active", 2),
        ]  # fmt: skip

    def test_an_error_is_not_taken_for_a_preview(self, people: People, db: DB) -> None:
        since = now(db)
        people.ingest("agent", "User likes tea")
        db.execute(
            "create function public.no() returns trigger language plpgsql as 'begin raise exception ''not today''; end';"
            " create trigger no before insert on memory_events for each row execute function public.no()"
        )
        try:
            for dry_run in (True, False):
                with pytest.raises(psycopg.errors.RaiseException, match="not today"):
                    take_back(db, people.names["agent"], since, dry_run=dry_run)
        finally:
            db.execute("drop trigger no on memory_events; drop function public.no()")

    @pytest.mark.parametrize(
        "given",
        ["null, now(), 'acme'", "'a', null, 'acme'", "'a', 'infinity', 'acme'", "'a', now(), 'acme', null"],
    )
    def test_ambiguous_arguments_are_refused(self, db: DB, given: str) -> None:
        with pytest.raises(psycopg.Error) as error:
            db.execute(f"select * from memfold.undo_actor({given})".encode())
        assert error.value.sqlstate == "MF022"

    def test_not_for_agents(self, people: People) -> None:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            people.call("agent", "undo_actor('anna', now(), 'acme')")

    @pytest.mark.parametrize("seed", seeds(1, 12))
    def test_any_history(self, people: People, db: DB, seed: int) -> None:
        """A random one of two people; the ledger explains the state without one of them, and then with both again."""
        model(db)
        db.execute("select set_predicate('works_at', 'acme')")
        db.execute(f"grant memfold_tenant to {people.names['agent']}".encode())
        history = Shared(db, f"history {seed}", seed)
        since = None
        for step in range(120):
            if step == 30:
                since = now(db)
            with people.be(history.random.choice(["agent", "anna"])):
                history.run(1)
        before = stored(db, history.bucket)
        done = take_back(db, people.names["agent"], since)
        same(db, history.bucket)
        check(db)
        assert db.execute(
            "select count(*) from memfold_internal._statements"
            " where actor = %s and recorded_at >= %s and method is distinct from 'plain'",
            [people.names["agent"], since],
        ).fetchone() == (0,)
        run: UUID = done[0][2]
        db.execute("select undo_run(%s, 'acme')", [run])
        assert same(db, history.bucket) == before
        check(db)


def test_the_attack_of_an_agent_leaves_nothing(people: People, db: DB, connect: Callable[..., DB]) -> None:
    """A narrow login changes nothing of a person's; one with its tenant's rights, nothing that one call does not undo."""
    facts = [people.ingest("anna", f"Fact number {n} of the team", subject=f"s{n}") for n in range(20)]
    pairs = [
        [people.ingest("anna", f"Item {n} {x} blue").memory_id for x in ("is", "has been")] for n in range(10)
    ]
    merges = [people.call("anna", "merge_memories(%s, %s, 'acme')", b, a)[0][7] for a, b in pairs]
    state = "select memory_id, status, content, root_id from memories order by 1"
    before, since = db.execute(state).fetchall(), now(db)

    def attack() -> int:
        """How many of its calls worked, over its own connection."""
        done = 0
        with connect(user=people.names["agent"]) as login:
            calls = [
                *[("reject_memory(%s, 'acme', 'obsolete')", [f.memory_id]) for f in facts[:12]],
                *[("update_memory(%s, %s, 'acme')", [f.memory_id, f"Wire it to {n}"]) for n, f in enumerate(facts[12:])],
                *[("undo(%s, 'acme', 'wrong')", [event]) for event in merges],
            ]  # fmt: skip
            for call, given in calls:
                with suppress(psycopg.errors.InsufficientPrivilege):
                    login.execute(f"select * from memfold.{call}".encode(), given)
                    done += 1
        return done

    assert attack() == 0
    assert db.execute(state).fetchall() == before
    db.execute(f"grant memfold_tenant to {people.names['agent']}".encode())
    assert attack() == 30
    take_back(db, people.names["agent"], since)
    after = db.execute(state).fetchall()
    assert [row for row in after if row in before] == before
    assert {row[1] for row in after if row not in before} == {"withdrawn"}
    check(db)
