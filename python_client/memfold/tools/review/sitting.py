"""A person as the judge: pairs side by side, one key per answer. The database decides the effect of an answer."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import click

from memfold.client import errors, queries
from memfold.client._text import escape_line
from memfold.client.calls import Memfold
from memfold.client.judging import Question, Side, Verdict
from memfold.client.judging.questions import LETTERS
from memfold.tools.review.answers import (
    VERDICTS,
    answer_manually,
    describe_closed,
    describe_outcome,
    describe_undone,
    lettered,
    take_back,
    unlink,
)
from memfold.tools.review.display import count_of, one_below_the_other, side_by_side
from memfold.tools.review.keys import Keys, interruptible

__all__ = ["Review"]

LEASE = 900.0
"""Seconds for which other judges cannot claim a pair that is on the screen."""
_UNDOABLE = frozenset({"merged", "replaced", "superseded", "rejected"})
_NOT_PERMITTED = "42501"

_KEYS = "d duplicate, r refinement, c contradiction, k keep both, s skip, u undo my last, q quit, ? help"
_CLUSTER_KEYS = _KEYS.replace("both", "all")
_NAME_KEYS = "d duplicate, k keep apart, s skip, u undo my last, q quit, ? help"
_CARDINALITY_KEYS = "o one, m many, s skip, u undo my last, q quit, ? help"
_HELP = """\
d  duplicate: they make the same claim. The newer one is merged into the older one.
r  refinement: the same fact, and one says more. The richer one stands for both.
c  contradiction: the same question, another answer. The conflict policy decides; the later one wins if it is "review",
   or if the question is of kind "review".
k  keep both: anything else. The pair is not asked about again.
s  skip: leave it for later, or for somebody else.
u  undo my last answer, and show that pair again.
q  quit. Unanswered questions keep waiting. Ctrl-C and the end of the input quit too."""


_NAME_HELP = """\
d  duplicate: A and B name the same thing. Facts about B are stored under A from now on; stored ones are moved.
k  keep apart: they do not, or may not. The two names are not asked about again.
s  skip: leave it for later, or for somebody else.
u  undo my last answer. Names that were linked and are unlinked are kept apart.
q  quit. Unanswered questions keep waiting. Ctrl-C and the end of the input quit too."""
_CARDINALITY_HELP = """\
o  one: a subject has one value at a time. The value stated last is current, those before it are history.
m  many: a subject may have several values at the same time. All are kept, and nobody is asked again.
s  skip: leave it for later, or for somebody else.
u  undo my last answer: nothing is declared, and its effects are undone. q  quit. Unanswered questions keep waiting.
Ctrl-C and the end of the input quit too."""
_CLUSTER_HELP = """\
After d, r or c you name the memories that it is about, by their letters (Enter: all of them). The others are distinct
from them, and are asked about again as a separate question."""


_CHOICES = {"identity": (_NAME_KEYS, _NAME_HELP), "cardinality": (_CARDINALITY_KEYS, _CARDINALITY_HELP)}
"""Keys and help for questions about names, by kind."""
_CHANGED_BY = {
    "identity": "names that are kept apart remain so; link_subject() and link_predicate() link them",
    "cardinality": "set_predicate() changes the rule",
}


@dataclass(frozen=True, slots=True)
class _Pair:
    """The question on the screen. Manual: already answered; a new answer is recorded separately."""

    question: Question
    manual: bool = False


@dataclass(frozen=True, slots=True)
class _Done:
    question: Question
    verdict: Verdict
    action: str | None
    event_id: UUID | None
    manual: tuple[UUID, ...] = ()
    """The events of a cluster that was answered by manual actions."""
    run_id: UUID | None = None
    """The run of the link between two names."""


class Review:
    """One sitting. Pairs are leased one at a time; unanswered ones are given back at the end."""

    def __init__(self, client: Memfold, tenant_id: str | None = None, *, everything: bool = False) -> None:
        self._client = client
        self._core = client._core
        self._tenant_id = tenant_id
        self._kinds = (True, False) if everything else (True,)
        self._keys = Keys()
        self._colours = (
            sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        )
        self._leased: dict[UUID, Question] = {}
        self._skipped: set[UUID] = set()
        self._ahead: deque[_Pair] = deque()
        self._history: list[_Done] = []
        self.verdicts: Counter[str] = Counter()
        """Answers given, without those that were undone."""

    def run(self) -> None:
        """Run until nothing is waiting, or the person stops."""
        waiting = self._waiting()
        if waiting is not None:
            click.echo(
                f"{count_of(waiting['person'], 'pair')} for a person,"
                f" {count_of(waiting['model'], 'pair')} for a model" + self._hint(waiting["model"])
            )
        ended = "stopped"
        given_back = True
        with interruptible():
            try:
                while True:
                    pair = self._next()
                    if pair is None:
                        ended = "nothing more is waiting"
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
            f"{ended}: {count_of(self.verdicts.total(), 'answer')}"
            + (f" ({answers})" if answers else "")
            + skipped
            + ("" if given_back else f"; unanswered ones are free again in {LEASE / 60:.0f} minutes")
        )

    def _hint(self, model: int) -> str:
        return " (memfold judge, or memfold review --all)" if model and False not in self._kinds else ""

    def _waiting(self) -> dict[str, Any] | None:
        try:
            return dict(self._client._query(queries.WAITING, self._tenant_id)[0])
        except errors.MemfoldError as error:
            if error.sqlstate != _NOT_PERMITTED:
                raise
            return None  # a judge may claim, but not count

    def _next(self) -> _Pair | None:
        if self._ahead:
            return self._ahead.popleft()
        for review in self._kinds:
            # Skipped questions that come again are kept, so that the end of the queue is recognized.
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
        """Returns whether it worked; if not, the leases expire by themselves."""
        try:
            for question in questions:
                self._client._drive(self._core.give_back(question, "shown to a person, not answered"))
                self._leased.pop(question.judgement_id, None)
        except errors.MemfoldError:
            return False
        return True

    def _decide(self, pair: _Pair) -> bool:
        """Show a pair until it is answered or skipped; returns whether to continue."""
        question = pair.question
        width = min(shutil.get_terminal_size().columns, 200)
        cluster = bool(question.members)
        keys, helps = _CHOICES.get(question.kind, (_KEYS, _HELP))
        if cluster:
            keys, helps = _CLUSTER_KEYS, f"{_HELP}\n{_CLUSTER_HELP}"
        show = one_below_the_other if cluster else side_by_side
        click.echo("\n" + show(question, width, self._colours), color=self._colours)
        while True:
            key = self._keys.ask(f"[{keys}] ")
            if key is None or key[:1] == "q":
                return False
            if key[:1] == "s":
                self._skip(pair)
                return True
            if key[:1] == "u":
                if self._undo(pair):
                    return True
            elif key[:1] and VERDICTS.get(key[:1]) in question.verdicts:
                given = key[1:].strip()
                about: tuple[Side, ...] | None = None
                if cluster and key[:1] != "k":
                    about = self._named(question, given)
                    if about is None:
                        continue
                    given = ""
                richer_memory_id: UUID | None = None
                if key[:1] == "r":
                    chosen = self._fuller(question, given, about)
                    if chosen == "back":
                        continue
                    names = {letter.lower(): side.memory_id for letter, side in lettered(question).items()}
                    richer_memory_id = names.get(chosen)
                self._answer(pair, VERDICTS[key[:1]], richer_memory_id, about)
                return True
            else:
                click.echo(helps)

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
        names = {letter.lower(): side for letter, side in lettered(question).items()}
        if len(letters) < 2 or not letters <= names.keys():
            click.echo(f"-> name at least two of a to {last}")
            return None
        return tuple(names[letter] for letter in sorted(letters))

    def _once_more(self) -> bool:
        """At the end of the queue: returns whether the last answer was undone."""
        while self._history:
            key = self._keys.ask("nothing more is waiting [u undo my last, q quit] ")
            if key is None or key[:1] in ("", "q"):
                return False
            if key[:1] == "u" and self._undo(None):
                return True
        return False

    def _fuller(self, question: Question, given: str, about: tuple[Side, ...] | None = None) -> str:
        """A letter, nothing (the longest text), or back."""
        names = {
            letter.lower(): side
            for letter, side in lettered(question).items()
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
        if not pair.manual:
            self._skipped.add(pair.question.judgement_id)
            self._give_back([pair.question])

    def _answer(
        self,
        pair: _Pair,
        verdict: Verdict,
        richer_memory_id: UUID | None,
        about: tuple[Side, ...] | None = None,
    ) -> None:
        question = pair.question
        try:
            if pair.manual:
                self._answer_manually(question, verdict, richer_memory_id, about or question.sides)
                return
            named = None if about is None else [side.memory_id for side in about]
            resolution = self._client._drive(
                self._core.answer_by_person(question, verdict, richer_memory_id, named)
            )
        except (errors.JudgementClosedError, errors.JudgementNotFoundError) as error:
            click.echo(
                f"-> not applied, it has been closed since. {escape_line(error.detail or '')}".rstrip()
            )
            self._leased.pop(question.judgement_id, None)
            return
        except (errors.MemoryStateError, errors.MemoryNotFoundError) as error:
            click.echo(f"-> not applied: {escape_line(error.message)}")
            return
        self._leased.pop(question.judgement_id, None)
        if resolution.status != "done":
            click.echo(f"-> not applied: {describe_closed(question, resolution.status)}")
        else:
            made = _Done(question, verdict, resolution.action, resolution.event_id, run_id=resolution.run_id)
            self._note(made, resolution.memory_id)

    def _note(self, done: _Done, memory_id: UUID | None) -> None:
        self._history.append(done)
        self.verdicts[done.verdict] += 1
        click.echo(f"-> {describe_outcome(done.question, done.verdict, done.action, memory_id)}")

    def _answer_manually(
        self, question: Question, verdict: Verdict, richer_memory_id: UUID | None, about: tuple[Side, ...]
    ) -> None:
        done = self._client._drive(answer_manually(self._core, question, verdict, richer_memory_id, about))
        last = done.event_ids[-1] if done.event_ids else None
        self._note(_Done(question, verdict, done.action, last, done.event_ids), done.memory_id)

    def _undo(self, current: _Pair | None) -> bool:
        """Undo the last answer and show its pair again, then the current one."""
        if not self._history:
            click.echo("-> there is no answer to undo")
            return False
        last = self._history[-1]
        if last.question.names is not None:
            return self._undo_names(last)
        try:
            if last.action in _UNDOABLE and last.event_id is not None:
                self._client._drive(take_back(self._core, last.question, self._events(last)))
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

    def _undo_names(self, done: _Done) -> bool:
        """Undo a link or a rule. There is no question to show again: unlinked names are kept apart."""
        if done.run_id is None:
            click.echo(f"-> nothing to undo: {_CHANGED_BY[done.question.kind]}")
            return False
        try:
            self._client._drive(unlink(self._core, done.question, done.run_id))
        except errors.MemfoldError as error:
            if error.sqlstate != _NOT_PERMITTED:
                raise
            click.echo(f"-> not undone: {escape_line(error.message)}")
            return False
        self._history.pop()
        self.verdicts -= Counter([done.verdict])
        click.echo(f"-> {describe_undone(done.question)}")
        return False

    def _events(self, done: _Done) -> list[UUID]:
        """The events of an answer, most recent first: for a cluster one per memory."""
        if done.manual:
            return list(reversed(done.manual))
        if done.question.members:
            return self._client._drive(self._core.events_of(done.question))
        return [] if done.event_id is None else [done.event_id]

    def _again(self, question: Question) -> _Pair:
        """The pair as a new question, if the undo has queued one, else for an answer by manual actions."""
        if question.members:
            return _Pair(question, manual=True)
        queued = self._client._drive(self._core.queued_again(question))
        if queued:
            claimed = self._claim(review=True, tenant_id=question.tenant_id, only=queued)
            if claimed is not None:
                return _Pair(claimed)
        return _Pair(question, manual=True)
