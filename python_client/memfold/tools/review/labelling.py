"""A person labels pairs for calibration: two texts side by side, one key per pair. It merges nothing."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import click

from memfold.client import queries
from memfold.client.calls import Memfold
from memfold.client.judging import Question, Side, Verdict
from memfold.tools.review.answers import VERDICTS
from memfold.tools.review.display import count_of, side_by_side
from memfold.tools.review.keys import Keys, interruptible

__all__ = ["Labelling"]

PAGE: Final = 50
_KEYS: Final = (
    "d duplicate, r refinement, c contradiction, k distinct, s skip, u undo my last, q quit, ? help"
)
_HELP: Final = """\
d  duplicate: they make the same claim.
r  refinement: the same fact, they agree, and one says more.
c  contradiction: the same question, another answer; they cannot both hold at one time.
k  distinct: anything else, however similar.
s  skip: leave it unlabelled.
u  undo my last label, and show that pair again.
q  quit. Labels given so far are kept. Ctrl-C and the end of the input quit too.
Your answers change no memory: calibration learns from them."""


class Labelling:
    """One sitting. It begins with pairs between the model's thresholds, nearest to a threshold first."""

    def __init__(self, client: Memfold, tenant_id: str, model: str) -> None:
        self._client = client
        self._tenant_id = tenant_id
        self._model = model
        self._keys = Keys()
        self._colours = (
            sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        )
        self._ahead: deque[Mapping[str, Any]] = deque()
        self._seen: set[UUID] = set()
        self._history: list[tuple[Mapping[str, Any], UUID, Verdict]] = []
        self.labels: Counter[str] = Counter()
        """Labels given, without those that were undone."""

    def _call(self, function: str, **given: Any) -> list[Any]:
        arguments = {**given, "tenant_id": self._tenant_id}
        return list(self._client._drive(self._client._core.run(function, arguments)))

    def run(self) -> None:
        """Run until there is nothing more to label, or the person stops."""
        found = self._call(queries.COLLECT_PAIRS, bucket_id=None, embedding_model=self._model, min_age="0")
        click.echo(f"{count_of(sum(row['pairs'] for row in found), 'pair')} found in past decisions")
        ended = "stopped"
        with interruptible():
            try:
                while True:
                    pair = self._next()
                    if pair is None:
                        ended = "nothing more to label"
                        break
                    if not self._decide(pair):
                        break
            except KeyboardInterrupt:
                click.echo()
        given = ", ".join(f"{count} {label}" for label, count in sorted(self.labels.items()))
        click.echo(f"{ended}: {count_of(self.labels.total(), 'label')}" + (f" ({given})" if given else ""))

    def _next(self) -> Mapping[str, Any] | None:
        if not self._ahead:
            # skipped pairs come again, before the rest
            wanted = min(len(self._seen) + PAGE, 10_000)
            rows = self._call(queries.PAIRS_TO_LABEL, embedding_model=self._model, max_results=wanted)
            self._ahead.extend(row for row in rows if row["pair_id"] not in self._seen)
        return self._ahead.popleft() if self._ahead else None

    def _decide(self, pair: Mapping[str, Any]) -> bool:
        """Show a pair until it is labelled or skipped; returns whether to continue."""
        self._seen.add(pair["pair_id"])
        width = min(shutil.get_terminal_size().columns, 200)
        click.echo("\n" + side_by_side(self._question(pair), width, self._colours), color=self._colours)
        while True:
            key = self._keys.ask(f"[{_KEYS}] ")
            if key is None or key[:1] == "q":
                return False
            if key[:1] == "s":
                return True
            if key[:1] == "u":
                if self._undo(pair):
                    return True
            elif key[:1] in VERDICTS and key[:1]:
                label = VERDICTS[key[:1]]
                rows = self._call(
                    queries.ADD_PAIR, content_a=pair["content_a"], content_b=pair["content_b"], label=label
                )
                self._history.append((pair, rows[0]["add_labelled_pair"], label))
                self.labels[label] += 1
                click.echo(f"-> {label}")
                return True
            else:
                click.echo(_HELP)

    def _undo(self, current: Mapping[str, Any]) -> bool:
        """Undo the last label and show its pair again, then the current one."""
        if not self._history:
            click.echo("-> there is no label to undo")
            return False
        pair, pair_id, label = self._history.pop()
        self._call(queries.REMOVE_PAIR, pair_id=pair_id)
        self.labels -= Counter([label])
        self._ahead.appendleft(current)
        self._ahead.appendleft(pair)
        click.echo("-> undone; answer it again, or skip it")
        return True

    def _question(self, pair: Mapping[str, Any]) -> Question:
        sides = [
            Side(UUID(int=0), pair[name], memory_type="", observations=0)
            for name in ("content_a", "content_b")
        ]
        return Question(
            judgement_id=pair["pair_id"],
            tenant_id=self._tenant_id,
            bucket_id="",
            kind=f"{pair['evidence']}: {pair['label']}?",
            similarity=pair["similarity"],
            guard=tuple(pair["guard"]),
            attempts=0,
            memory=sides[1],
            other=sides[0],
        )
