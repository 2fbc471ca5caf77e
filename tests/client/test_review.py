"""memfold review: a person answers, line by line through click's runner and key by key on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from click.testing import CliRunner

from memfold.client._text import escape as visible
from memfold.client.judging import Question, Side
from memfold.tools.cli import main
from memfold.tools.review.display import differences, side_by_side, width_of
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB

# Python: the tests of the SQL functions cover each server.
pytestmark = pytest.mark.one_server
Run = Callable[..., str]


@pytest.fixture
def run(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Answers from a pipe, one line each; returns the output."""
    monkeypatch.setenv("MEMFOLD_DSN", dsn)
    monkeypatch.setenv("COLUMNS", "100")

    def invoke(lines: str, *arguments: str) -> str:
        result = CliRunner().invoke(main, ["review", *(arguments or ("--tenant", "acme"))], input=lines)
        assert result.exception is None, result.output
        return result.output

    return invoke


def pair(db: DB, older: str, newer: str, subject: str | None = None, **fields: Any) -> tuple[UUID, UUID]:
    """Two memories that wait for a judge."""
    first = ingest(db, older, subject=subject, **vector(1), **fields)
    second = ingest(db, newer, subject=subject, **vector(0.9), **fields)
    assert second.action == "escalated"
    assert first.memory_id is not None
    assert second.memory_id is not None
    return first.memory_id, second.memory_id


@pytest.fixture
def persons(db: DB) -> None:
    """Unclear pairs go to a person."""
    model(db)
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'review')")


def queue(db: DB) -> list[tuple[Any, ...]]:
    return db.execute(
        "select kind, status, verdict, attempts from memfold.judgements order by judgement_id"
    ).fetchall()


def statuses(db: DB) -> dict[str, str]:
    return dict(db.execute("select content, status from memfold.memories order by memory_id").fetchall())


# how a pair is shown ---------------------------------------------------------------------------------------


def question(older: str, newer: str, **fields: Any) -> Question:
    when = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    one = Side(uuid4(), older, "fact", "Alice", "lives_in", "Paris", when, when, 1, 1, "observed")
    other = Side(
        uuid4(), newer, "fact", "Alice", "lives_in", "Rome", when, when, 3, 2, "inferred", "s1", ("t1",)
    )
    made = {"similarity": 0.9134, "guard": ("numeral: 2 <> 3",), **fields}
    return Question(uuid4(), "acme", "default", "review", attempts=1, memory=other, other=one, **made)


WIDE = """\
tenant acme, bucket default, review, similarity 0.913, guard: numeral: 2 <> 3
            A  older                              B  newer
            Alice lives in [-Paris-].             Alice {+now+} lives in {+the city of
                                                  Rome+}.
type        fact                                  fact
subject     Alice                                 Alice
predicate   lives_in                              lives_in
object      [-Paris-]                             {+Rome+}
first seen  2025-01-02 03:04:05 UTC               2025-01-02 03:04:05 UTC
last seen   2025-01-02 03:04:05 UTC               2025-01-02 03:04:05 UTC
observed    said once, 1 source                   said 3 times, 2 sources
origin                                            inferred
session                                           s1
turns                                             t1"""


def test_side_by_side() -> None:
    asked = question("Alice lives in Paris.", "Alice now lives in the city of Rome.")
    assert side_by_side(asked, 86, colours=False) == WIDE


def test_one_above_the_other_where_it_is_narrow() -> None:
    shown = side_by_side(question("Alice lives in Paris.", "Alice lives in Rome."), 40, colours=False)
    assert max(map(len, shown.splitlines()[1:])) <= 40
    assert shown.index("A  older") < shown.index("[-Paris-]") < shown.index("B  newer")
    assert shown.index("B  newer") < shown.index("{+Rome+}")


def test_colours_take_no_room() -> None:
    asked = question("Alice lives in Paris.", "Alice now lives in the city of Rome.")
    shown = side_by_side(asked, 88, colours=True)
    assert "\x1b[1;4;31mParis\x1b[0m" in shown
    assert "\x1b[1;4;32mnow\x1b[0m" in shown
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "[-" not in bare
    starts = {
        line.index(word) for line in bare.splitlines() for word in ("B  newer", "Alice now") if word in line
    }
    assert len(starts) == 1


def marked(one: str, other: str) -> tuple[str, str]:
    made = []
    for spans in differences(one, other):
        text = "".join(f"<{text}>" if mark else text for text, mark in spans)
        made.append(text.replace("><", ""))
    return made[0], made[1]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("a b c", "a b c", ("a b c", "a b c")),
        ("a b c", "", ("<a b c>", "")),
        ("costs 3.5 EUR", "costs 3.6 EUR", ("costs <3.5> EUR", "costs <3.6> EUR")),
        ("on 2025-01-02", "on 2025-01-03", ("on <2025-01-02>", "on <2025-01-03>")),
        (
            "Alice reports to Bob",
            "Bob reports to Alice",
            ("<Alice> reports to <Bob>", "<Bob> reports to <Alice>"),
        ),
        ("she doesn't", "she does", ("she <doesn't>", "she <does>")),
        ("他住在东京", "他住在大阪", ("他住在<东京>", "他住在<大阪>")),
        ("C++ it is", "C it is", ("C<++> it is", "C it is")),
        ("one\ntwo", "one three", ("one\n<two>", "one <three>")),
    ],
)
def test_differences(one: str, other: str, expected: tuple[str, str]) -> None:
    assert marked(one, other) == expected


def test_a_memory_does_not_steer_the_terminal() -> None:
    text = "red \x1b[31m\x9b2J\r\x07 \u202eback\u2066 zero\u200bwidth\ttab\u00a0nbsp\u3000wide\u2028line"
    assert visible(text) == (
        r"red \u001b[31m\u009b2J\u000d\u0007 \u202eback\u2066 zero\u200bwidth tab nbsp wide\u2028line"
    )
    assert visible("äöü 東京 🎉 one\r\ntwo") == "äöü 東京 🎉 one\ntwo"
    asked = question(text, text, guard=("\x1b[2J",))
    assert "\x1b" not in side_by_side(asked, 100, colours=False)


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_any_text_fits(width: int) -> None:
    older = "x" * 1000 + " " + "東京" * 50 + "\n\n\n\nend"
    shown = side_by_side(question(older, older[::-1]), width, colours=False)
    assert "end" in shown
    assert max(map(width_of, shown.splitlines()[1:])) <= max(width, 32)
    assert re.sub(r"\s|memory|[-+{}\[\]]", "", shown).count("東") == 100


def test_long_texts_are_compared_soon() -> None:
    older = " ".join(f"word{n % 97} {n}" for n in range(8000))
    shown = side_by_side(question(older, older.replace("4000", "x")), 120, colours=False)
    assert "[-4000-]" in shown


# answers ---------------------------------------------------------------------------------------------------


def test_nothing_waits(run: Run, db: DB) -> None:
    assert "nothing more is waiting: 0 answers" in run("")


@pytest.mark.usefixtures("persons")
@pytest.mark.parametrize(
    ("keys", "verdict", "after", "said"),
    [
        ("d\n", "duplicate", ("active", "merged"), "merged, A stands for both"),
        ("r\n\n", "refinement", ("merged", "active"), "merged, B stands for both"),
        ("r\na\n", "refinement", ("active", "merged"), "merged, A stands for both"),
        ("rb\n", "refinement", ("merged", "active"), "merged, B stands for both"),
        ("c\n", "contradiction", ("superseded", "active"), "B is current and the other is history"),
        ("K\n", "distinct", ("active", "active"), "both are kept"),
        ("x\n\nr\nno\nduplicate\n", "duplicate", ("active", "merged"), "A stands for both"),
    ],
)
def test_every_answer(run: Run, db: DB, keys: str, verdict: str, after: tuple[str, str], said: str) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    shown = run(keys)
    assert "1 pair for a person, 0 pairs for a model" in shown
    assert "{+very much+}" in shown
    assert "\x1b" not in shown
    assert f"-> {verdict}: " in shown
    assert said in shown
    assert f"nothing more is waiting: 1 answer (1 {verdict})" in shown
    assert tuple(statuses(db).values()) == after
    row = db.execute("select status, verdict, confidence, model from memfold.judgements").fetchone()
    assert row == ("done", verdict, 1, None)
    assert db.execute("select method from memfold.memory_events where tier = 3").fetchall() == [("person",)]
    check(db)


@pytest.mark.usefixtures("persons")
def test_a_sitting_that_ends_and_another(run: Run, db: DB) -> None:
    """A pair that was shown but not answered is given back, and the attempt does not count."""
    for subject in ("a", "b", "c"):
        pair(db, "User likes Vim.", "User likes Vim very much.", subject)
    first = run("d\nq\n")
    assert "3 pairs for a person" in first
    assert "stopped: 1 answer (1 duplicate)" in first
    assert queue(db) == [("review", "done", "duplicate", 1), *[("review", "open", None, 0)] * 2]
    second = run("k\n")  # the input ends
    assert "2 pairs for a person" in second
    assert "stopped: 1 answer (1 distinct)" in second
    assert sorted(row[1] for row in queue(db)) == ["done", "done", "open"]
    third = run("c\n")
    assert "1 pair for a person" in third
    assert "nothing more is waiting: 1 answer (1 contradiction)" in third
    check(db)


@pytest.mark.usefixtures("persons")
def test_a_skipped_pair_is_shown_only_once(run: Run, db: DB) -> None:
    for subject in ("a", "b", "c"):
        pair(db, "User likes Vim.", "User likes Vim very much.", subject)
    shown = run("s\ns\nd\n")
    assert shown.count("A  older") == 3
    assert "nothing more is waiting: 1 answer (1 duplicate), 2 skipped" in shown
    assert sorted(queue(db)) == [
        ("review", "done", "duplicate", 1),
        ("review", "open", None, 0),
        ("review", "open", None, 0),
    ]
    assert db.execute("select count(*) from memfold.judgements where worker is not null").fetchone() == (1,)


@pytest.mark.usefixtures("persons")
def test_two_people_do_not_see_the_same_pair(run: Run, db: DB) -> None:
    for subject in ("a", "b"):
        pair(db, "User likes Vim.", "User likes Vim very much.", subject)
    db.execute(
        "select memfold.claim_judgements('another person', max_results => 1, review => true, tenant_id => 'acme')"
    )
    assert "nothing more is waiting: 1 answer" in run("d\n")
    assert [row[1] for row in queue(db)] == ["leased", "done"]


@pytest.mark.usefixtures("persons")
def test_all_shows_pairs_that_wait_for_a_model(run: Run, db: DB) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.", "a")
    db.execute("select memfold.set_policy('acme', on_ambiguous => 'judge')")
    pair(db, "User likes Vim.", "User likes Vim very much.", "b")
    shown = run("d\n")
    assert "1 pair for a person, 1 pair for a model (memfold judge, or memfold review --all)" in shown
    assert queue(db) == [("review", "done", "duplicate", 1), ("write", "open", None, 0)]
    shown = run("k\n", "--tenant", "acme", "--all")
    assert "bucket default, write, similarity 0.900" in shown
    assert queue(db)[1] == ("write", "done", "distinct", 1)


@pytest.mark.usefixtures("persons")
def test_every_tenant(run: Run, db: DB, dsn: str) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    db.execute("select memfold.set_policy('other', on_ambiguous => 'review')")
    pair(db, "User likes Vim.", "User likes Vim very much.", tenant_id="other")
    assert "1 answer" in run("d\n")
    shown = run("d\n", "--dsn", dsn)
    assert "tenant other, " in shown
    assert "1 pair for a person" in shown
    check(db)


def test_an_application_reviews_its_own(
    run: Run, db: DB, dsn: str, app: Callable[..., DB], persons: None
) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    where = f"{dsn} user={app().info.user}"
    assert "1 answer" in run("d\nu\nk\n", "--dsn", where, "--tenant", "acme")
    result = CliRunner().invoke(main, ["review", "--dsn", where])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: MF001: ")


def test_a_judge_may_answer_and_not_undo(run: Run, db: DB, dsn: str, connect: Any, persons: None) -> None:
    role = f"judge_{uuid4().hex[:8]}"
    db.execute(f"create role {role} login in role memfold_judge".encode())
    try:
        pair(db, "User likes Vim.", "User likes Vim very much.", "a")
        pair(db, "User likes Vim.", "User likes Vim very much.", "b")
        shown = run("d\nu\nd\n", "--dsn", f"{dsn} user={role}")
        assert "-> not undone: permission denied" in shown
        assert "nothing more is waiting: 2 answers (2 duplicate)" in shown
    finally:
        db.execute(f"drop role {role}".encode())


# undo ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("persons")
@pytest.mark.parametrize("first", ["d", "r\n", "c", "k"])
@pytest.mark.parametrize(
    ("then", "after"),
    [
        ("d", ("active", "merged")),
        ("r\n", ("merged", "active")),
        ("c", ("superseded", "active")),
        ("k", ("active", "active")),
        ("s", ("active", "active")),
    ],
)
def test_an_answer_is_undone_and_given_again(
    run: Run, db: DB, first: str, then: str, after: tuple[str, str]
) -> None:
    """Whatever the first answer was, the result is as if only the second had been given."""
    pair(db, "User likes Vim.", "User likes Vim very much.", "a")
    pair(db, "Bob likes tea.", "Bob likes green tea.", "b")
    shown = run(f"{first}\nu\n{then}\nk\n")
    assert shown.count("-> undone") == 1
    assert "not applied" not in shown
    vim, much, tea, green = statuses(db).values()
    assert (vim, much) == after
    assert (tea, green) == ("active", "active")
    assert not db.execute("select from memfold.judgements where status = 'leased'").fetchall()
    check(db)


@pytest.mark.usefixtures("persons")
def test_the_last_answer_can_be_undone_at_the_end(run: Run, db: DB) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    shown = run("u\nd\nu\nu\nk\nq\n")
    assert shown.count("-> there is no answer to undo") == 2
    assert "nothing more is waiting [u undo my last, q quit]" in shown
    assert list(statuses(db).values()) == ["active", "active"]
    check(db)


@pytest.mark.usefixtures("persons")
def test_several_answers_are_undone_one_after_the_other(run: Run, db: DB) -> None:
    for subject in ("a", "b"):
        pair(db, "User likes Vim.", "User likes Vim very much.", subject)
    shown = run("d\nd\nu\nu\nk\nk\nq\n")
    assert shown.count("-> undone") == 2
    assert "nothing more is waiting: 2 answers (2 distinct)" in shown
    assert set(statuses(db).values()) == {"active"}
    check(db)


# concurrent changes ------------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(db: DB, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs a statement while the first pair is on the screen."""
    from memfold.tools.review.keys import Keys

    def prepare(statement: str) -> None:
        ask = Keys.ask
        done: list[bool] = []

        def interrupted(keys: Any, prompt: str) -> str | None:
            if not done:
                done.append(True)
                db.execute(statement.encode())
            return ask(keys, prompt)

        monkeypatch.setattr(Keys, "ask", interrupted)

    return prepare


@pytest.mark.usefixtures("persons")
def test_somebody_else_answers_first(run: Run, db: DB, meanwhile: Callable[[str], None]) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    meanwhile(
        "select memfold.resolve_judgement(judgement_id, 'distinct', tenant_id => 'acme') from memfold.judgements"
    )
    shown = run("d\n")
    assert "-> not applied, it has been closed since. Judgement " in shown
    assert "is done: distinct." in shown
    assert "0 answers" in shown
    assert list(statuses(db).values()) == ["active", "active"]


@pytest.mark.usefixtures("persons")
def test_a_side_that_has_changed_is_asked_again(run: Run, db: DB, meanwhile: Callable[[str], None]) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    third = ingest(db, "Vim it is.")
    meanwhile(
        f"select memfold.merge_memories(memory_id, '{third.memory_id}', tenant_id => 'acme')"
        " from memfold.memories where content = 'User likes Vim.'"
    )
    shown = run("d\nk\n")
    assert "-> not applied: one of the two has changed since; the pair as it is now is queued" in shown
    assert shown.count("A  older") == 2
    assert "1 answer (1 distinct)" in shown
    assert statuses(db)["User likes Vim very much."] == "active"
    check(db)


@pytest.mark.usefixtures("persons")
def test_a_side_that_is_gone(run: Run, db: DB, meanwhile: Callable[[str], None]) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    meanwhile(
        "select memfold.reject_memory(memory_id, tenant_id => 'acme')"
        " from memfold.memories where content = 'User likes Vim.'"
    )
    assert "-> not applied: there is nothing to decide any more" in run("d\n")
    check(db)


# on a terminal ---------------------------------------------------------------------------------------------


class Terminal:
    """memfold review on a separate terminal."""

    def __init__(self, dsn: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        environment = {
            name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "memfold", "review", "--dsn", dsn, "--tenant", "acme"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**environment, "TERM": "xterm"},
        )
        self.shown = ""
        self.read = 0

    def until(self, text: str, seconds: float = 30) -> str:
        """Wait for this text after the previous one; returns the output up to it."""
        deadline = time.monotonic() + seconds
        os.set_blocking(self.master, False)
        while text not in self.shown[self.read :]:
            assert time.monotonic() < deadline, self.shown[self.read :]
            try:
                self.shown += os.read(self.master, 65536).decode()
            except BlockingIOError:
                time.sleep(0.01)
        begin, self.read = self.read, self.shown.index(text, self.read) + len(text)
        return self.shown[begin : self.read]

    def press(self, keys: bytes) -> None:
        time.sleep(0.3)  # input typed before the prompt is ready is dropped
        os.write(self.master, keys)

    def end(self) -> int:
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(dsn: str, db: DB) -> Iterator[Callable[[], Terminal]]:
    opened: list[Terminal] = []

    def start() -> Terminal:
        opened.append(Terminal(dsn))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


PROMPT = "? help] "


@pytest.mark.usefixtures("persons")
def test_one_key_without_enter(terminal: Callable[[], Terminal], db: DB) -> None:
    for subject in ("a", "b", "c"):
        pair(db, "User likes Vim.", "User likes Vim very much.", subject)
    screen = terminal()
    shown = screen.until(PROMPT)
    assert "\x1b[1;4;32mvery much\x1b[0m" in shown
    assert "{+" not in shown
    screen.press(b"\x1b[A")  # an arrow key is not an answer
    screen.until("d  duplicate: ")
    screen.until(PROMPT)
    screen.press(b"r")
    screen.until("the longer one (B), else back ")
    screen.press(b"\x1b")
    screen.until(PROMPT)
    screen.press(b"r")
    screen.until("else back ")
    screen.press(b"\r")
    screen.until("-> refinement: merged, B stands for both")
    screen.until(PROMPT)
    screen.press(b"ddd")  # a key that is held down answers one pair
    screen.until("-> duplicate: ")
    screen.until(PROMPT)
    screen.press(b"q")
    screen.until("stopped: 2 answers (1 duplicate, 1 refinement)")
    assert screen.end() == 0
    assert [row[1] for row in queue(db)] == ["done", "done", "open"]
    assert termios.tcgetattr(screen.slave) == screen.before
    check(db)


@pytest.mark.usefixtures("persons")
@pytest.mark.parametrize("how", ["ctrl-c", "ctrl-d", "sigint", "sigterm", "sighup"])
def test_the_pair_is_given_back_on_any_exit(terminal: Callable[[], Terminal], db: DB, how: str) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    screen = terminal()
    screen.until(PROMPT)
    assert queue(db) == [("review", "leased", None, 1)]
    match how:
        case "ctrl-c":
            screen.press(b"\x03")
        case "ctrl-d":
            screen.press(b"\x04")
        case _:
            time.sleep(0.3)
            screen.process.send_signal(getattr(signal, how.upper()))
    screen.until("stopped: 0 answers")
    assert screen.end() == 0
    assert queue(db) == [("review", "open", None, 0)]
    assert termios.tcgetattr(screen.slave) == screen.before


@pytest.mark.usefixtures("persons")
def test_a_killed_sitting_loses_nothing(terminal: Callable[[], Terminal], run: Run, db: DB) -> None:
    pair(db, "User likes Vim.", "User likes Vim very much.")
    screen = terminal()
    screen.until(PROMPT)
    screen.process.kill()
    screen.end()
    assert "0 answers" in run("d\n"), "its lease holds"
    db.execute("update memfold.judgements set leased_until = now(), next_attempt_at = now()")
    assert "1 answer" in run("d\n")


# the warning -----------------------------------------------------------------------------------------------


def test_stats_warns_when_nobody_judges(dsn: str, db: DB) -> None:
    model(db)
    pair(db, "User likes Vim.", "User likes Vim very much.")
    result = CliRunner().invoke(main, ["stats", "--dsn", dsn, "--tenant", "acme"])
    assert (result.exit_code, "warning" in result.stderr) == (0, False)
    db.execute("update memfold.judgements set created_at = now() - interval '25 hours'")
    result = CliRunner().invoke(main, ["stats", "--dsn", dsn, "--tenant", "acme"])
    assert (
        "warning: tenant acme, bucket default: 1 question has waited for 1 day, and none was "
        in result.stderr
    )


# clusters --------------------------------------------------------------------------------------------------


def cluster(db: DB) -> None:
    """One question for a person about four memories."""
    model(db)
    db.execute(
        "select memfold.set_policy('acme', merge_threshold => 1, judge_threshold => 1, on_ambiguous => 'insert')"
    )
    for n, text in enumerate(("Tea.", "Tea!?", "Black tea with milk", "Tea\x1b[2J")):
        ingest(db, text, subject="Ann", **vector(1 - n / 1000), observed_at=f"2026-01-0{n + 1}")
    db.execute("select * from memfold.consolidate('acme', 'default', dry_run => false, approval => 'person')")


@pytest.mark.parametrize(
    ("keys", "after", "said"),
    [
        ("d\n\n", "active merged merged merged", "merged, A stands for those named"),
        ("d bd\nk\n", "active active active merged", "merged, B stands for those named"),
        ("r\n\n\n", "merged merged active merged", "merged, C stands for those named"),
        ("rbc\nb\nk\n", "active active merged active", "merged, B stands for those named"),
        ("c\n\n", "superseded superseded superseded active", "D is current and the others named are history"),
        ("k\n", "active active active active", "all are kept"),
        ("da\nd\nx,\nd\na, c\nk\n", "active active merged active", "name at least two of a to d"),
    ],
)
def test_a_cluster_is_answered(run: Run, db: DB, keys: str, after: str, said: str) -> None:
    cluster(db)
    shown = run(keys)
    assert "1 pair for a person" in shown
    assert "A  Tea.\n" in shown
    assert "C  Black tea with milk\n   fact, Ann, said once, last 2026-01-03 00:00:00 UTC" in shown
    assert "\x1b" not in shown
    assert said in shown
    assert " ".join(statuses(db).values()) == after
    assert db.execute("select count(*) from memfold.judgements where status = 'open'").fetchone() == (0,)
    check(db)


@pytest.mark.parametrize("first", ["d\n\n", "r\n\n\n", "c\n\n", "dabd\n", "k\n"])
@pytest.mark.parametrize(
    ("then", "after"),
    [
        ("d\n\n", "active merged merged merged"),
        ("r\nabc\nc\n", "merged merged active active"),
        ("c\nab\n", "superseded active active active"),
        ("k\n", "active active active active"),
        ("s\n", "active active active active"),
    ],
)
def test_an_answer_about_a_cluster_is_undone(run: Run, db: DB, first: str, then: str, after: str) -> None:
    cluster(db)
    # skip the judgement that undoing a contradiction queued, and the rest of the first answer
    shown = run(first + "u\n" + then + "s\n" * 6)
    assert "-> undone, both are kept" in shown
    assert " ".join(statuses(db).values()) == after
    check(db)


# names -------------------------------------------------------------------------------------------------------


def names(db: DB) -> None:
    """A question whether two names are one."""
    for name in ("Georg", "Georg Maier"):
        for text in ("plays chess", "has a dog"):
            ingest(db, f"{name} {text}", subject=name)
    assert db.execute("select memfold.ask_links('acme')").fetchone() == (1,)


def subjects(db: DB) -> set[str]:
    return {row[0] for row in db.execute("select subject from memfold.memories").fetchall()}


def test_names_are_shown_side_by_side_and_linked(run: Run, db: DB) -> None:
    names(db)
    shown = run("r\nd\n", "--tenant", "acme", "--all")
    assert "tenant acme, bucket default, identity, subject, noticed: contained, facts" in shown
    assert re.search(r"A  name +B  alias\n +Georg \[-Maier-\] +Georg\ntold +Georg Maier plays chess", shown)
    assert "d duplicate, k keep apart, s skip" in shown
    assert shown.count("A and B name the same thing.") == 1, "refinement is not an answer, and help is shown"
    assert "-> duplicate: linked, A is stored in place of B" in shown
    assert subjects(db) == {"Georg Maier"}
    check(db)


def test_names_are_kept_apart(run: Run, db: DB) -> None:
    names(db)
    shown = run("k\nu\nq\n", "--tenant", "acme", "--all")
    assert "-> distinct: both stay" in shown
    assert "names that are kept apart remain so" in shown
    assert queue(db) == [("identity", "done", "distinct", 1)]
    assert subjects(db) == {"Georg", "Georg Maier"}


def test_a_link_is_undone_in_the_sitting(run: Run, db: DB) -> None:
    names(db)
    shown = run("d\nu\nq\n", "--tenant", "acme", "--all")
    assert "-> unlinked, the two names are kept apart" in shown
    assert "0 answers" in shown
    assert subjects(db) == {"Georg", "Georg Maier"}
    assert db.execute("select memfold.ask_links('acme')").fetchone() == (0,)
    check(db)


def values(db: DB) -> None:
    """A question whether a predicate has one value at a time."""
    for home in ("Lyon", "Paris"):
        ingest(db, f"Alice lives in {home}", subject="Alice", predicate="lives_in", object=home)


def active(db: DB) -> int:
    row = db.execute("select count(*) from memfold.memories where status = 'active'").fetchone()
    assert row is not None
    return int(row[0])


def test_a_predicate_is_declared_and_the_declaration_undone(run: Run, db: DB) -> None:
    values(db)
    shown = run("d\no\nu\nq\n", "--tenant", "acme", "--all")
    assert "tenant acme, bucket default, cardinality\n" in shown
    assert re.search(r"A  older +B  newer\n +Alice lives in \[-Lyon-\] +Alice lives in \{\+Paris\+\}", shown)
    assert "o one, m many, s skip" in shown
    assert shown.count("a subject has one value at a time") == 1, (
        "duplicate is not an answer, and help is shown"
    )
    assert "-> one: lives_in has one value at a time" in shown
    assert "-> undone, nothing is declared about lives_in" in shown
    assert active(db) == 2
    check(db)


def test_a_predicate_with_several_values(run: Run, db: DB) -> None:
    values(db)
    assert "-> many: lives_in has several values at a time" in run("m\n", "--tenant", "acme", "--all")
    assert queue(db) == [("cardinality", "done", "many", 1)]
    assert active(db) == 2


def test_a_forgotten_memory_is_marked_as_forgotten(run: Run, db: DB) -> None:
    """A person who answers that two say the same is told that this forgets the other one too."""
    model(db)
    told = ingest(db, "Bo earns 82,000", **vector(1.0))
    db.execute("select reject_memory(%s, 'acme')", [told.memory_id])
    ingest(db, "Bo is paid 82,000 euros", **vector(0.88))
    shown = run("d\n", "--tenant", "acme", "--all")
    assert "forgotten, one of them was forgotten: duplicate or refinement forgets the other too" in shown
    assert active(db) == 0
    check(db)
