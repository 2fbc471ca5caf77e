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
from memfold.judging import Question, Side, Verdict
from memfold.judging.questions import LETTERS

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


def _about(question: Question) -> str:
    about = [f"tenant {escape_line(question.tenant_id)}"]
    if question.bucket_id:  # labelled pairs are of none
        about.append(f"bucket {escape_line(question.bucket_id)}")
    about.append(escape_line(question.kind))
    if question.similarity is not None:
        about.append(f"similarity {question.similarity:.3f}")
    if question.guard:
        about.append("guard: " + escape_line(", ".join(question.guard)))
    return ", ".join(about)


def one_below_the_other(question: Question, width: int, colours: bool) -> str:
    """A cluster as text: its memories by letter, oldest to newest, each with where and when it was said."""
    dim, bold, reset = (_DIM, _BOLD, _RESET) if colours else ("", "", "")
    lines = [dim + _about(question) + reset]
    for letter, side in zip(LETTERS, question.sides, strict=False):
        spans = [(token, False) for token in _TOKEN.findall(escape_line(side.content))]
        for number, (text, _) in enumerate(_column(spans, "A", max(width - 3, 20), colours)):
            lines.append(f"{bold}{letter}{reset}  {text}" if number == 0 else f"   {text}")
        fields = [escape_line(value) for value in (side.subject, side.predicate, side.object) if value]
        told = [
            escape_line(side.memory_type),
            *([" / ".join(fields)] if fields else []),
            f"said {_count(side.observations, 'time')}",
            f"last {_time(side.last_seen)}" if side.last_seen else "",
        ]
        lines.append(f"   {dim}{', '.join(filter(None, told))}{reset}")
    return "\n".join(lines)


def side_by_side(question: Question, width: int, colours: bool) -> str:
    """The pair as text: the older memory as A, the newer one as B, what differs marked."""
    dim, bold, reset = (_DIM, _BOLD, _RESET) if colours else ("", "", "")
    lines = [dim + _about(question) + reset]
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
_CLUSTER_KEYS = _KEYS.replace("both", "all")
_HELP = """\
d  duplicate: they make the same claim. The newer one is folded into the older one.
r  refinement: the same fact, and one says more. The fuller one stands for both.
c  contradiction: the same question, another answer. The policy decides; if it is up to you, the later one holds.
k  keep both: anything else. The pair is not asked again.
s  skip: leave it for later, or for somebody else.
u  undo my last answer, and show that pair again.
q  quit. What was not answered waits on. So do Ctrl-C and the end of the input."""


_CLUSTER_HELP = """\
After d, r or c you name those that it is about, by their letters (Enter: all of them). The others are distinct from
them, and come again as a question of their own."""


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

    def letters(self, prompt: str) -> str | None:
        """Letters in lower case, up to Enter; None at the end of the input."""
        if not self.terminal:
            return self.ask(prompt)
        click.echo(prompt, nl=False)
        made = ""
        while True:
            try:
                pressed = click.getchar()
            except EOFError:
                click.echo()
                return None
            if pressed[:1] in "\r\n":
                click.echo()
                return made
            if pressed in "\x7f\b":
                made = made[:-1]
            elif len(pressed) == 1 and pressed.isprintable():
                made += pressed.lower()
                click.echo(pressed, nl=False)


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
    by_hand: tuple[UUID, ...] = ()
    """The events of a cluster that was answered by hand."""


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
        cluster = bool(question.members)
        show = one_below_the_other if cluster else side_by_side
        click.echo("\n" + show(question, width, self._colours), color=self._colours)
        while True:
            key = self._keys.ask(f"[{_CLUSTER_KEYS if cluster else _KEYS}] ")
            if key is None or key[:1] == "q":
                return False
            if key[:1] == "s":
                self._skip(pair)
                return True
            if key[:1] == "u":
                if self._undo(pair):
                    return True
            elif key[:1] in _VERDICTS and key[:1]:
                given = key[1:].strip()
                about: tuple[Side, ...] | None = None
                if cluster and key[:1] != "k":
                    about = self._named(question, given)
                    if about is None:
                        continue
                    given = ""
                fuller: UUID | None = None
                if key[:1] == "r":
                    chosen = self._fuller(question, given, about)
                    if chosen == "back":
                        continue
                    names = {
                        letter.lower(): side.memory_id
                        for letter, side in zip(LETTERS, question.sides, strict=False)
                    }
                    fuller = names.get(chosen)
                self._answer(pair, _VERDICTS[key[:1]], fuller, about)
                return True
            else:
                click.echo(f"{_HELP}\n{_CLUSTER_HELP}" if cluster else _HELP)

    def _named(self, question: Question, given: str) -> tuple[Side, ...] | None:
        """The memories that the verdict is about; None: back."""
        last = LETTERS[len(question.sides) - 1].lower()
        if not given:
            said = self._keys.letters(f"which of them? letters a to {last}, Enter for all ")
            if said is None:
                return None
            given = said
        letters = {letter for letter in given if letter not in " ,"}
        if not letters:
            return question.sides
        names = {letter.lower(): side for letter, side in zip(LETTERS, question.sides, strict=False)}
        if len(letters) < 2 or not letters <= names.keys():
            click.echo(f"-> name at least two of a to {last}")
            return None
        return tuple(names[letter] for letter in sorted(letters))

    def _once_more(self) -> bool:
        """At the end of the queue: whether the last answer was taken back."""
        while self._history:
            key = self._keys.ask("nothing more waits [u undo my last, q quit] ")
            if key is None or key[:1] in ("", "q"):
                return False
            if key[:1] == "u" and self._undo(None):
                return True
        return False

    def _fuller(self, question: Question, given: str, about: tuple[Side, ...] | None = None) -> str:
        """A letter, nothing (the longest text), or back."""
        names = {
            letter.lower(): side
            for letter, side in zip(LETTERS, question.sides, strict=False)
            if about is None or side in about
        }
        longer = max(names, key=lambda letter: len(names[letter].content)).upper()
        if not given or given not in names:
            asked = self._keys.ask(
                f"which says more? {', '.join(names)}, Enter for the longer one ({longer}), else back "
            )
            if asked is None:
                return "back"
            given = asked
        return given if given in names or not given else "back"

    def _skip(self, pair: _Pair) -> None:
        if not pair.by_hand:
            self._skipped.add(pair.question.judgement_id)
            self._give_back([pair.question])

    def _answer(
        self, pair: _Pair, verdict: Verdict, fuller: UUID | None, about: tuple[Side, ...] | None = None
    ) -> None:
        question = pair.question
        try:
            if pair.by_hand:
                self._by_hand(question, verdict, fuller, about or question.sides)
                return
            named = None if about is None else [side.memory_id for side in about]
            resolution = self._client._drive(self._core.answer_by_person(question, verdict, fuller, named))
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
                "-> not applied: one of them has changed meanwhile; the question as it is now is queued"
                if question.members
                else "-> not applied: one of the two has changed meanwhile; the pair as it is now is queued"
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
        by_hand: tuple[UUID, ...] = (),
    ) -> None:
        self._history.append(_Done(question, verdict, action, event_id, by_hand))
        self.verdicts[verdict] += 1
        names = {side.memory_id: letter for letter, side in zip(LETTERS, question.sides, strict=False)}
        holds = names.get(memory_id, str(memory_id)) if memory_id is not None else ""
        said = {
            "merged": f"merged, {holds} stands for both",
            "replaced": f"merged, {holds} stands for both",
            "superseded": f"superseded, {holds} holds now and the other is history",
            "rejected": "rejected, the bucket keeps A and refuses B",
            "escalated": "queued for a person, as the policy says",
        }.get(action or "", "both are kept")
        if question.members:
            said = {
                "merged": f"merged, {holds} stands for those named",
                "replaced": f"merged, {holds} stands for those named",
                "superseded": f"superseded, {holds} holds now and the others named are history",
                "rejected": f"rejected, the bucket keeps {holds} and refuses the others named",
                "escalated": "queued for a person, as the policy says",
            }.get(action or "", "all are kept")
        click.echo(f"-> {verdict}: {said}")

    def _by_hand(
        self, question: Question, verdict: Verdict, fuller: UUID | None, about: tuple[Side, ...]
    ) -> None:
        """Another answer for memories whose judgement is closed."""
        if verdict == "distinct":
            self._note(question, verdict, "judged", None, None)  # as they are since the undo
            return
        winner = about[0]
        if verdict == "contradiction":
            function, other_id = queries.SUPERSEDE, "by_id"
            for side in about:
                if winner.last_seen is None or side.last_seen is None or side.last_seen >= winner.last_seen:
                    winner = side
        else:
            function, other_id = queries.MERGE, "into_id"
            if verdict == "refinement":
                longest = max(about, key=lambda side: len(side.content))
                winner = next((side for side in about if side.memory_id == fuller), longest)
        events: list[UUID] = []
        for loser in about:
            if loser is winner:
                continue
            given = {
                "memory_id": loser.memory_id,
                other_id: winner.memory_id,
                "reason": f"{verdict}, in review",
            }
            result = self._client._drive(self._core.by_hand(function, given, question.tenant_id))
            if result.event_id is not None:
                events.append(result.event_id)
        self._note(
            question, verdict, result.action, winner.memory_id, events[-1] if events else None, tuple(events)
        )

    def _undo(self, current: _Pair | None) -> bool:
        """Take the last answer back and show its pair again, then the present one."""
        if not self._history:
            click.echo("-> there is no answer to undo")
            return False
        last = self._history[-1]
        try:
            if last.action in _UNDOABLE and last.event_id is not None:
                for event_id in self._events(last):
                    with contextlib.suppress(errors.AlreadyUndoneError):
                        self._client.undo(event_id, "in review", last.question.tenant_id)
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

    def _events(self, done: _Done) -> list[UUID]:
        """What an answer did, the last first: of a cluster an event for each memory."""
        if done.by_hand:
            return list(reversed(done.by_hand))
        if done.question.members:
            return self._client._drive(self._core.events_of(done.question))
        return [] if done.event_id is None else [done.event_id]

    def _again(self, question: Question) -> _Pair:
        """The pair as a question of its own, where the undo has queued one, else for an answer by hand."""
        if question.members:
            return _Pair(question, by_hand=True)
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
