"""The summary of a worker's run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal


@dataclass(slots=True)
class Summary:
    """What a run did."""

    verdicts: Counter[str] = field(default_factory=Counter)
    """Judgements answered, by the verdict that the database stored."""
    calls: int = 0
    requeued: int = 0
    """Answered, but a side had changed since: asked again for the current pair."""
    obsolete: int = 0
    """Answered, but the question was obsolete."""
    answered_elsewhere: int = 0
    """Answered by somebody else first: the first verdict won."""
    failed: int = 0
    """Failed attempts that count: the endpoint answered, but not usably."""
    last_failure: str | None = None
    """The reason of the last failure."""
    dead: int = 0
    """Judgements that died with that attempt."""
    given_back: int = 0
    """Failed attempts that do not count: the endpoint was down, or the worker stopped."""
    unwritten: int = 0
    """Answers that were paid for and could not be written."""
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    unfinished: Literal["endpoint down", "answers useless", "budget spent"] | None = None
    """Why a run that should end with an empty queue ended before that was certain."""

    @property
    def judged(self) -> int:
        """Judgements answered."""
        return self.verdicts.total()

    @property
    def answers(self) -> int:
        """Answers that could be read, whatever their outcome."""
        return self.judged + self.requeued + self.obsolete + self.answered_elsewhere + self.unwritten

    def __str__(self) -> str:
        per_verdict = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        parts = [f"judged {self.judged}" + (f" ({per_verdict})" if per_verdict else "")]
        parts.append(f"failed {self.failed}" + (f" ({self.dead} now dead)" if self.dead else ""))
        for count, what in (
            (self.requeued, "asked again for a changed pair"),
            (self.obsolete, "obsolete"),
            (self.answered_elsewhere, "answered elsewhere"),
            (self.given_back, "given back"),
            (self.unwritten, "answers LOST"),
        ):
            if count:
                parts.append(f"{count} {what}")
        parts.append(f"{self.calls} calls, {self.input_tokens} + {self.output_tokens} tokens")
        parts.append(f"cost {self.cost:.6g} in {self.seconds:.1f} s")
        if self.unfinished:
            parts.append(f"ended early: {self.unfinished}")
        return "; ".join(parts)
