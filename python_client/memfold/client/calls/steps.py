"""The steps of a client's call: transactions, vectors, answers, pauses. A driver carries them out."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, TypeAlias, TypeVar

import psycopg

from memfold.client import queries
from memfold.client.found import Notice
from memfold.client.judging import Question
from memfold.client.types import Row

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Transact:
    """One statement in its own transaction, in which memfold.tenant_id is set; returns its rows.

    COMMIT is sent along, in one round trip. keep: decides by the rows whether to commit, which takes two. notices:
    receives the server's notices. opening: the statement before it, which sets memfold.tenant_id; None: the statement
    does that, and is sent alone.
    """

    statement: LiteralString
    parameters: Mapping[str, Any]
    keep: Callable[[list[Row]], bool] | None = None
    notices: list[Notice] | None = None
    opening: LiteralString | None = queries.SET_TENANT


@dataclass(frozen=True, slots=True)
class Embed:
    """Vectors of some texts, as the embedder returns them."""

    texts: list[str]


@dataclass(frozen=True, slots=True)
class Ask:
    """An answer of the judge; raises what the judge raises, or JudgeError after the timeout.

    leased: the question comes from the queue, and returns there if its caller is cancelled.
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
    """Several concurrent calls, limited in number; returns their results in order."""

    calls: Sequence[Generator[Any, Any, Any]]
    at_once: int


class CommitLostError(Exception):
    """The connection was lost with COMMIT on its way. Never leaves this package."""

    def __init__(self, error: psycopg.Error, rows: list[Row]) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows


Step: TypeAlias = Transact | Embed | Ask | Pause | Together
Steps: TypeAlias = Generator[Step, Any, T]


def pause_before(attempts: int) -> Pause:
    """The pause before the next attempt: longer each time, and different for each client."""
    return Pause(min(0.01 * 2**attempts, 1.0) * random.uniform(0.5, 1))  # noqa: S311 (jitter)
