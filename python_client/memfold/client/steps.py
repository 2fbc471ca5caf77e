"""What a call of a client consists of: transactions, vectors, answers, pauses. Who drives them carries them out."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, TypeAlias, TypeVar

import psycopg

from memfold import queries
from memfold.found import Notice
from memfold.judging import Question
from memfold.types import Row

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transact:
    """One statement in a transaction of its own, in which memfold.tenant_id is set; gives its rows.

    keep: whether to commit, by the statement's rows. reads: it writes nothing: COMMIT goes with it, in one round trip.
    notices: where what the server says beside it is put. opening: the statement before it, which sets memfold.tenant_id.
    """

    statement: LiteralString
    parameters: Mapping[str, Any]
    keep: Callable[[list[Row]], bool] | None = None
    reads: bool = False
    notices: list[Notice] | None = None
    opening: LiteralString = queries.SET_TENANT


@dataclass(frozen=True, slots=True)
class Embed:
    """The vectors of some texts, from the embedder; gives what it gave."""

    texts: list[str]


@dataclass(frozen=True, slots=True)
class Ask:
    """An answer of the judge; gives it, raises what the judge raised, and JudgeError after so many seconds.

    leased: the question is of the queue, to which it returns when its caller is cancelled.
    """

    question: Question
    seconds: float
    leased: bool = True


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Together:
    """Several calls at once, so many at a time; gives their results in order."""

    calls: Sequence[Generator[Any, Any, Any]]
    at_once: int


class CommitLostError(Exception):
    """The connection went while COMMIT was under way. Never leaves this package."""

    def __init__(self, error: psycopg.Error, rows: list[Row]) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows


Step: TypeAlias = Transact | Embed | Ask | Pause | Together
Steps: TypeAlias = Generator[Step, Any, T]


def pause_before(attempts: int) -> Pause:
    """What lies between an attempt and the next one: longer each time, and never the same for two clients."""
    return Pause(min(0.01 * 2**attempts, 1.0) * random.uniform(0.5, 1))  # noqa: S311 (jitter)
