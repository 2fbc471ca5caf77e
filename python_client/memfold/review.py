"""A person as the judge: pairs side by side, one key an answer. What an answer does is decided in the database."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import shutil
import signal
import sys
import threading
import unicodedata
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias
from uuid import UUID

import click

from memfold import errors, queries
from memfold._text import escape, escape_line
from memfold.client import Memfold
from memfold.judge import Question, Side, Verdict

__all__ = ["Review", "side_by_side"]

LEASE = 900.0
"""Seconds that a pair is kept from other judges while it is on the screen."""
_UNDOABLE = frozenset({"merged", "replaced", "superseded", "rejected"})
_NOT_PERMITTED = "42501"

# --- showing a pair ---------------------------------------------------------------------------------------------

Span: TypeAlias = tuple[str, bool]
"""Some text, and whether the other side lacks it."""

# Scripts without spaces are compared letter by letter; 3.5, 2025-01-02 and don't are one word each.
_TOKEN: Final = re.compile(
    r"\s+|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
    r"|[^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+"
    r"(?:[.,:'’-][^\W\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+)*|.",
    re.DOTALL,
)
_LABEL = 12
_GAP = "  "
_PLAIN = {"A": ("[-", "-]"), "B": ("{+", "+}")}
_COLOURS = {"A": "\x1b[1;4;31m", "B": "\x1b[1;4;32m"}
_DIM, _BOLD, _RESET = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_LONG = 2_000


def differences(one: str, other: str) -> tuple[list[Span], list[Span]]:
    """Both texts, word by word, with the words marked that are not common to them."""
    sides = [_TOKEN.findall(one), _TOKEN.findall(other)]
    words = [[token for token in tokens if not token.isspace()] for tokens in sides]
    matcher = difflib.SequenceMatcher(a=words[0], b=words[1], autojunk=max(map(len, words)) > _LONG)
    common: tuple[set[int], set[int]] = (set(), set())
    for block in matcher.get_matching_blocks():
        common[0].update(range(block.a, block.a + block.size))
        common[1].update(range(block.b, block.b + block.size))
    return _marked(sides[0], common[0]), _marked(sides[1], common[1])


def _marked(tokens: Sequence[str], common: set[int]) -> list[Span]:
    place = 0
    spans: list[Span] = []
    for token in tokens:
        if token.isspace():
            # Between two marked words the space is marked as well, at an end it is not.
            inside = bool(spans) and spans[-1][1] and place not in common and "\n" not in token
            spans.append((token, inside))
        else:
            spans.append((token, place not in common))
            place += 1
    if spans and spans[-1][0].isspace():
        spans[-1] = (spans[-1][0], False)
    return spans


def _width(text: str) -> int:
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def _pieces(spans: Sequence[Span], width: int) -> Iterator[Span]:
    """The same, with words that are wider than a line cut."""
    for text, mark in spans:
        piece = ""
        for char in text:
            if piece and _width(piece + char) > width and not text.isspace():
                yield piece, mark
                piece = ""
            piece += char
        yield piece, mark


def _wrapped(spans: Sequence[Span], width: int) -> list[list[Span]]:
    lines: list[list[Span]] = [[]]
    used = 0
    for text, mark in _pieces(spans, width):
        if text.isspace() and "\n" in text:
            lines += [[] for _ in range(min(text.count("\n"), 2))]
            used = 0
            continue
        if text.isspace():
            text = " "
            if not used:
                continue
        size = _width(text)
        if used + size > width:
            lines.append([])
            used = 0
            if text == " ":
                continue
        lines[-1].append((text, mark))
        used += size
    return lines


def _bracketed(spans: Sequence[Span], side: str) -> list[Span]:
    """Marks as text, for where there are no colours."""
    begin, end = _PLAIN[side]
    made: list[Span] = []
    for mark, run in itertools.groupby(spans, key=lambda span: span[1]):
        texts = [text for text, _ in run]
        if mark:
            texts[0] = begin + texts[0]
            texts[-1] += end
        made += [(text, False) for text in texts]
    return made


def _column(spans: Sequence[Span], side: str, width: int, colours: bool) -> list[tuple[str, int]]:
    """Lines, each with the width that it takes on the screen."""
    lines = _wrapped(spans if colours else _bracketed(spans, side), width)
    made = []
    for line in lines:
        while line and line[-1][0] == " ":
            line.pop()
        text = ""
        for mark, run in itertools.groupby(line, key=lambda span: span[1]):
            joined = "".join(piece for piece, _ in run)
            text += f"{_COLOURS[side]}{joined}{_RESET}" if mark else joined
        made.append((text, _width("".join(piece for piece, _ in line))))
    return made


def _time(value: datetime | None) -> str:
    return "" if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _rows(question: Question) -> Iterator[tuple[str, list[Span], list[Span]]]:
    """Label, older side, newer side; of what only one has, the other is empty."""
    sides = (question.other, question.memory)
    yield "", *differences(*(escape(side.content) for side in sides))
    for label in ("memory_type", "subject", "predicate", "object"):
        texts = [escape_line(getattr(side, label) or "") for side in sides]
        if any(texts):
            older, newer = ([(text, bool(text) and texts[0] != texts[1])] for text in texts)
            yield label.removeprefix("memory_"), older, newer

    def sources(side: Side) -> str:
        said = f"said {_count(side.observations, 'time')}"
        return f"{said}, {_count(side.sources, 'source')}" if side.sources else said

    if not sum(side.observations for side in sides):
        return  # no memories, but texts alone
    told: list[tuple[str, list[str]]] = [
        ("first seen", [_time(side.first_seen) for side in sides]),
        ("last seen", [_time(side.last_seen) for side in sides]),
        ("observed", [sources(side) for side in sides]),
        ("origin", ["" if side.origin == "observed" else escape_line(side.origin or "") for side in sides]),
        ("session", [escape_line(side.session_id or "") for side in sides]),
        ("turns", [escape_line(", ".join(side.source_turn_ids)) for side in sides]),
    ]
    for label, texts in told:
        if any(texts):
            yield label, [(texts[0], False)], [(texts[1], False)]


def side_by_side(question: Question, width: int, colours: bool) -> str:
    """The pair as text: the older memory as A, the newer one as B, what differs marked."""
    about = [f"tenant {escape_line(question.tenant_id)}"]
    if question.bucket_id:  # labelled pairs are of none
        about.append(f"bucket {escape_line(question.bucket_id)}")
    about.append(escape_line(question.kind))
    if question.similarity is not None:
        about.append(f"similarity {question.similarity:.3f}")
    if question.guard:
        about.append("guard: " + escape_line(", ".join(question.guard)))
    dim, bold, reset = (_DIM, _BOLD, _RESET) if colours else ("", "", "")
    lines = [dim + ", ".join(about) + reset]
    rows = list(_rows(question))
    beside = width >= 2 * 28 + _LABEL + len(_GAP)
    column = (width - _LABEL - len(_GAP)) // 2 if beside else max(width - _LABEL, 20)
    if beside:
        head = f"{'A  older':{column}}{_GAP}B  newer"
        lines.append(" " * _LABEL + bold + head + reset)
        for label, older, newer in rows:
            left, right = _column(older, "A", column, colours), _column(newer, "B", column, colours)
            for number, (one, other) in enumerate(itertools.zip_longest(left, right, fillvalue=("", 0))):
                name = f"{label if number == 0 else '':{_LABEL}}"
                padding = " " * (column - one[1])
                lines.append(f"{dim}{name}{reset}{one[0]}{padding}{_GAP}{other[0]}".rstrip())
    else:
        for side, title in (("A", "A  older"), ("B", "B  newer")):
            lines.append(bold + title + reset)
            for label, older, newer in rows:
                for number, (text, _) in enumerate(
                    _column(older if side == "A" else newer, side, column, colours)
                ):
                    name = f"{label if number == 0 else '':{_LABEL}}"
                    lines.append(f"{dim}{name}{reset}{text}".rstrip())
    return "\n".join(lines)


# --- asking a person --------------------------------------------------------------------------------------------

_VERDICTS: dict[str, Verdict] = {"d": "duplicate", "r": "refinement", "c": "contradiction", "k": "distinct"}
_KEYS = "d duplicate, r refinement, c contradiction, k keep both, s skip, u undo my last, q quit, ? help"
_HELP = """\
d  duplicate: they make the same claim. The newer one is folded into the older one.
r  refinement: the same fact, and one says more. The fuller one stands for both.
c  contradiction: the same question, another answer. The policy decides; if it is up to you, the later one holds.
k  keep both: anything else. The pair is not asked again.
s  skip: leave it for later, or for somebody else.
u  undo my last answer, and show that pair again.
q  quit. What was not answered waits on. So do Ctrl-C and the end of the input."""


class _Keys:
    """One key at a time from a terminal, one line at a time from anything else."""

    def __init__(self) -> None:
        self.terminal = sys.stdin.isatty()

    def ask(self, prompt: str) -> str | None:
        """A key in lower case ("" for Enter), of a line all of it; None at the end of the input."""
        click.echo(prompt, nl=False)
        if not self.terminal:
            line = sys.stdin.readline()
            click.echo()
            return line.strip().lower() if line else None
        try:
            # Drops what was typed before the pair was there to be seen.
            pressed = click.getchar()
        except EOFError:
            click.echo()
            return None
        # An arrow or function key sends several characters, the first of which is no key of ours.
        key = "" if pressed[:1] in "\r\n" else pressed[:1].lower()
        click.echo(key if key.isprintable() else "")
        return key


@dataclass(frozen=True, slots=True)
class _Pair:
    """What is shown. By hand: its judgement is closed, and another answer is a decision of its own."""

    question: Question
    by_hand: bool = False


@dataclass(frozen=True, slots=True)
class _Done:
    question: Question
    verdict: Verdict
    action: str | None
    event_id: UUID | None


class Review:
    """One sitting. Pairs are leased one at a time; whatever is not answered is given back at its end."""

    def __init__(self, client: Memfold, tenant_id: str | None = None, *, everything: bool = False) -> None:
        self._client = client
        self._core = client._core
        self._tenant_id = tenant_id
        self._kinds = (True, False) if everything else (True,)
        self._keys = _Keys()
        self._colours = (
            sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        )
        self._leased: dict[UUID, Question] = {}
        self._skipped: set[UUID] = set()
        self._ahead: deque[_Pair] = deque()
        self._history: list[_Done] = []
        self.verdicts: Counter[str] = Counter()
        """Answers given, those that were taken back not among them."""

    def run(self) -> None:
        """Until nothing waits any more, or the person has had enough."""
        waiting = self._waiting()
        if waiting is not None:
            click.echo(
                f"{_count(waiting['person'], 'pair')} for a person,"
                f" {_count(waiting['model'], 'pair')} for a model" + self._hint(waiting["model"])
            )
        ended = "stopped"
        given_back = True
        with _interruptible():
            try:
                while True:
                    pair = self._next()
                    if pair is None:
                        ended = "nothing more waits"
                        if not self._once_more():
                            break
                    elif not self._decide(pair):
                        ended = "stopped"
                        break
            except KeyboardInterrupt:
                click.echo()
            finally:
                given_back = self._give_back(list(self._leased.values()))
        answers = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        skipped = f", {len(self._skipped)} skipped" if self._skipped else ""
        click.echo(
            f"{ended}: {_count(self.verdicts.total(), 'answer')}"
            + (f" ({answers})" if answers else "")
            + skipped
            + ("" if given_back else f"; what is left is free in {LEASE / 60:.0f} minutes")
        )

    def _hint(self, model: int) -> str:
        return " (memfold judge, or memfold review --all)" if model and False not in self._kinds else ""

    def _waiting(self) -> dict[str, Any] | None:
        try:
            return dict(self._client._query(queries.WAITING, self._tenant_id)[0])
        except errors.MemfoldError as error:
            if error.sqlstate != _NOT_PERMITTED:
                raise
            return None  # a judge may ask, and not look around

    def _next(self) -> _Pair | None:
        if self._ahead:
            return self._ahead.popleft()
        for review in self._kinds:
            # What was skipped and comes again is kept, so that the end of the queue is seen.
            while (question := self._claim(review=review)) is not None:
                if question.judgement_id not in self._skipped:
                    return _Pair(question)
        return None

    def _claim(
        self, *, review: bool, tenant_id: str | None = None, only: Sequence[UUID] | None = None
    ) -> Question | None:
        question = self._client._drive(
            self._core.claim(
                tenant_id or self._tenant_id,
                LEASE,
                review=review,
                judgement_ids=only,
            )
        )
        if question is not None:
            self._leased[question.judgement_id] = question
        return question

    def _give_back(self, questions: Sequence[Question]) -> bool:
        """Whether it worked; if not, the leases end by themselves."""
        try:
            for question in questions:
                self._client._drive(self._core.give_back(question, "shown to a person, not answered"))
                self._leased.pop(question.judgement_id, None)
        except errors.MemfoldError:
            return False
        return True

    def _decide(self, pair: _Pair) -> bool:
        """Show a pair until it is answered or put aside; whether to go on."""
        question = pair.question
        width = min(shutil.get_terminal_size().columns, 200)
        click.echo("\n" + side_by_side(question, width, self._colours), color=self._colours)
        while True:
            key = self._keys.ask(f"[{_KEYS}] ")
            if key is None or key[:1] == "q":
                return False
            if key[:1] == "s":
                self._skip(pair)
                return True
            if key[:1] == "u":
                if self._undo(pair):
                    return True
            elif key[:1] in _VERDICTS and key[:1]:
                fuller: UUID | None = None
                if key[:1] == "r":
                    chosen = self._fuller(question, key[1:].strip())
                    if chosen == "back":
                        continue
                    fuller = {"a": question.other.memory_id, "b": question.memory.memory_id}.get(chosen)
                self._answer(pair, _VERDICTS[key[:1]], fuller)
                return True
            else:
                click.echo(_HELP)

    def _once_more(self) -> bool:
        """At the end of the queue: whether the last answer was taken back."""
        while self._history:
            key = self._keys.ask("nothing more waits [u undo my last, q quit] ")
            if key is None or key[:1] in ("", "q"):
                return False
            if key[:1] == "u" and self._undo(None):
                return True
        return False

    def _fuller(self, question: Question, given: str) -> str:
        """a, b, nothing (the longer text), or back."""
        longer = "B" if len(question.memory.content) > len(question.other.content) else "A"
        if not given or given not in ("a", "b"):
            asked = self._keys.ask(f"which says more? a, b, Enter for the longer one ({longer}), else back ")
            if asked is None:
                return "back"
            given = asked
        return given if given in ("a", "b", "") else "back"

    def _skip(self, pair: _Pair) -> None:
        if not pair.by_hand:
            self._skipped.add(pair.question.judgement_id)
            self._give_back([pair.question])

    def _answer(self, pair: _Pair, verdict: Verdict, fuller: UUID | None) -> None:
        question = pair.question
        try:
            if pair.by_hand:
                self._by_hand(question, verdict, fuller)
                return
            resolution = self._client._drive(self._core.answer_by_person(question, verdict, fuller))
        except (errors.JudgementClosedError, errors.JudgementNotFoundError) as error:
            click.echo(f"-> not applied, it was closed meanwhile. {escape_line(error.detail or '')}".rstrip())
            self._leased.pop(question.judgement_id, None)
            return
        except (errors.MemoryStateError, errors.MemoryNotFoundError) as error:
            click.echo(f"-> not applied: {escape_line(error.message)}")
            return
        self._leased.pop(question.judgement_id, None)
        if resolution.state == "open":
            click.echo(
                "-> not applied: one of the two has changed meanwhile; the pair as it is now is queued"
            )
        elif resolution.state != "done":
            click.echo("-> not applied: there is nothing to decide any more")
        else:
            self._note(question, verdict, resolution.action, resolution.memory_id, resolution.event_id)

    def _note(
        self,
        question: Question,
        verdict: Verdict,
        action: str | None,
        memory_id: UUID | None,
        event_id: UUID | None,
    ) -> None:
        self._history.append(_Done(question, verdict, action, event_id))
        self.verdicts[verdict] += 1
        names = {question.other.memory_id: "A", question.memory.memory_id: "B"}
        holds = names.get(memory_id, str(memory_id)) if memory_id is not None else ""
        said = {
            "merged": f"merged, {holds} stands for both",
            "replaced": f"merged, {holds} stands for both",
            "superseded": f"superseded, {holds} holds now and the other is history",
            "rejected": "rejected, the bucket keeps A and refuses B",
            "escalated": "queued for a person, as the policy says",
        }.get(action or "", "both are kept")
        click.echo(f"-> {verdict}: {said}")

    def _by_hand(self, question: Question, verdict: Verdict, fuller: UUID | None) -> None:
        """Another answer for a pair whose judgement is closed."""
        older, newer = question.other, question.memory
        if verdict == "distinct":
            self._note(question, verdict, "judged", None, None)  # as they are since the undo
            return
        if verdict == "contradiction":
            later = newer.last_seen is None or older.last_seen is None or newer.last_seen >= older.last_seen
            winner, loser = (newer, older) if later else (older, newer)
            function, other_id = queries.SUPERSEDE, "by_id"
        else:
            if fuller is None and len(newer.content) > len(older.content):
                fuller = newer.memory_id
            fold_older = verdict == "refinement" and fuller == newer.memory_id
            winner, loser = (newer, older) if fold_older else (older, newer)
            function, other_id = queries.MERGE, "into_id"
        given = {"memory_id": loser.memory_id, other_id: winner.memory_id, "reason": f"{verdict}, in review"}
        result = self._client._drive(self._core.by_hand(function, given, question.tenant_id))
        self._note(question, verdict, result.action, winner.memory_id, result.event_id)

    def _undo(self, current: _Pair | None) -> bool:
        """Take the last answer back and show its pair again, then the present one."""
        if not self._history:
            click.echo("-> there is no answer to undo")
            return False
        last = self._history[-1]
        try:
            if last.action in _UNDOABLE and last.event_id is not None:
                with contextlib.suppress(errors.AlreadyUndoneError):
                    self._client.undo(last.event_id, "in review", last.question.tenant_id)
            again = self._again(last.question)
        except errors.MemfoldError as error:
            if error.sqlstate != _NOT_PERMITTED:
                raise
            click.echo(f"-> not undone: {escape_line(error.message)}")
            return False
        self._history.pop()
        self.verdicts -= Counter([last.verdict])
        click.echo("-> undone, both are kept; answer it again, or skip it")
        if current is not None:
            self._ahead.appendleft(current)
        self._ahead.appendleft(again)
        return True

    def _again(self, question: Question) -> _Pair:
        """The pair as a question of its own, where the undo has queued one, else for an answer by hand."""
        queued = self._client._drive(self._core.queued_again(question))
        if queued:
            claimed = self._claim(review=True, tenant_id=question.tenant_id, only=queued)
            if claimed is not None:
                return _Pair(claimed)
        return _Pair(question, by_hand=True)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A terminal that is closed and a request to end are as Ctrl-C: what is leased is given back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    earlier = {name: signal.signal(getattr(signal, name), stop) for name in names}
    try:
        yield
    finally:
        for name, handler in earlier.items():
            signal.signal(getattr(signal, name), handler)
