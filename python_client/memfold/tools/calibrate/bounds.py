"""Bounds of a counted rate: exact (Clopper and Pearson), so that they hold for any sample size.

Exact rather than Wilson's: the budget is a promise, and for error rates near zero in small samples Wilson's interval
promises too much. The price is a sample that is a few percent larger.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


def _log_term(k: int, n: int, p: float) -> float:
    return (
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
    )


def at_most(k: int, n: int, p: float) -> float:
    """The probability of at most k events in n, each with probability p."""
    if k < 0:
        return 0.0
    if k >= n or p <= 0.0:
        return 1.0
    if p >= 1.0:
        return 0.0
    if k > n * p:  # the other tail is the shorter one
        return max(0.0, 1.0 - math.fsum(math.exp(_log_term(i, n, p)) for i in range(k + 1, n + 1)))
    return min(1.0, math.fsum(math.exp(_log_term(i, n, p)) for i in range(k + 1)))


def upper(k: int, n: int, confidence: float) -> float:
    """The one-sided upper bound of the rate, with this confidence, after k of n."""
    if k >= n:
        return 1.0
    low, high = k / n, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if at_most(k, n, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def lower(k: int, n: int, confidence: float) -> float:
    """The one-sided lower bound of the rate after k of n."""
    return 1.0 - upper(n - k, n, confidence) if n else 0.0


def allowed(n: int, budget: float, confidence: float) -> int:
    """How many errors among n keep ``upper`` within the budget; -1 if even zero errors do not.

    With k being this number, a threshold at the (k + 1)-th largest of n scores keeps the true rate above it within
    the budget with this confidence, although it was chosen by looking at them: the rate above an order statistic is
    distributed as Beta(k + 1, n - k), and ``upper(k, n)`` is that distribution's quantile.
    """
    found, total = -1, 0.0
    while found < n:
        total += math.exp(_log_term(found + 1, n, budget)) if found + 1 <= n else 0.0
        if total > 1 - confidence:
            break
        found += 1
    return min(found, n)


def needed(budget: float, confidence: float) -> int:
    """How many pairs a bound within the budget needs if there is no error at all."""
    return math.ceil(math.log(1 - confidence) / math.log1p(-budget))


@dataclass(frozen=True, slots=True)
class Rate:
    """A count out of a total, with the exact two-sided interval of 95 %."""

    count: int
    of: int

    @property
    def rate(self) -> float:
        return self.count / self.of if self.of else math.nan

    @property
    def low(self) -> float:
        return lower(self.count, self.of, 0.975)

    @property
    def high(self) -> float:
        return upper(self.count, self.of, 0.975)

    def __str__(self) -> str:
        if not self.of:
            return "–"
        return f"{self.rate:.1%} [{self.low:.1%}, {self.high:.1%}]"

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.count + other.count, self.of + other.of)

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"count": self.count, "of": self.of}
        if self.of:
            found |= {"rate": round(self.rate, 6), "low": round(self.low, 6), "high": round(self.high, 6)}
        return found
