"""Limits on the worker's calls: none while the judge's endpoint is down, and only within the hourly budget."""

from __future__ import annotations

import random
from collections import deque
from typing import Final, Literal

HOUR = 3600.0
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
FAILURES_IN_A_ROW: Final = 3


class Breaker:
    """Pauses new calls while the endpoint is down: exponential back-off, ended by one call that succeeds.

    It also pauses while none of the endpoint's answers is usable: ``useless``.
    """

    def __init__(self) -> None:
        self.until: float | None = None
        """When the next probe may start; None: there is no pause."""
        self.probing = False
        self.useless = False
        """Whether the last failure was a useless answer rather than an endpoint that is down."""
        self.probes_failed = 0
        self.last_answer = -1.0
        self._opened = -1.0
        self._pause = 0.0
        self._failures = 0

    @property
    def open(self) -> bool:
        return self.until is not None

    def pause(self, now: float) -> float:
        """Seconds until the next probe."""
        return max(0.0, self.until - now) if self.until is not None else 0.0

    def answered(self, started: float, now: float) -> bool:
        """A call that began at ``started`` got an answer; returns whether that ends a pause."""
        self.last_answer = now
        self._failures = 0
        if self.until is None or started < self._opened:
            return False  # the endpoint may have gone down after it accepted this call
        self.until = None
        self.probing = False
        self.probes_failed = 0
        return True

    @property
    def trouble(self) -> Literal["endpoint down", "answers useless"]:
        """The reason for the pause."""
        return "answers useless" if self.useless else "endpoint down"

    def failed(self, started: float, now: float, retry_after: float | None, *, useless: bool = False) -> bool:
        """A call that began at ``started`` failed; returns whether that starts a pause."""
        asked_for = min(max(retry_after or 0.0, 0.0), HOUR)
        if started < self._opened:
            # Calls that were running when the endpoint went down add nothing new.
            if self.until is not None:
                self.until = max(self.until, now + asked_for)
            return False
        self._failures += 1
        self.useless = useless
        if self.until is not None:
            self.probes_failed += 1
            self._pause = min(self._pause * 2, LONGEST_PAUSE)
        elif asked_for or self._failures >= FAILURES_IN_A_ROW:
            self._pause = FIRST_PAUSE
        else:
            return False
        self.probing = False
        self._opened = now
        self.until = now + max(self._pause * random.uniform(0.9, 1.1), asked_for)  # noqa: S311 (jitter)
        return True


class Budget:
    """Calls and money of the last hour."""

    def __init__(self, calls: int | None, cost: float | None) -> None:
        self._calls_limit = calls
        self._cost_limit = cost
        self._calls: deque[float] = deque()
        self._costs: deque[tuple[float, float]] = deque()
        self._dearest: float | None = None

    def _forget(self, now: float) -> None:
        while self._calls and self._calls[0] <= now - HOUR:
            self._calls.popleft()
        while self._costs and self._costs[0][0] <= now - HOUR:
            self._costs.popleft()

    def called(self, now: float) -> None:
        if self._calls_limit is not None or self._cost_limit is not None:
            self._calls.append(now)

    def paid(self, cost: float, now: float) -> None:
        self._dearest = max(cost, self._dearest or 0.0)
        if self._cost_limit is not None and cost > 0:
            self._costs.append((now, cost))

    def left(self, running: int, now: float) -> float:
        """How many calls may start in addition to the running ones without any risk of exceeding the budget."""
        self._forget(now)
        left = float("inf")
        if self._calls_limit is not None:
            left = self._calls_limit - len(self._calls)
        if self._cost_limit is not None:
            spent = sum(cost for _, cost in self._costs)
            if self._costs:
                # Only from this hour: one absurd price must not slow the worker down for good.
                self._dearest = max(cost for _, cost in self._costs)
            if self._dearest is None:
                money = 1.0 - running  # the first call shows what one costs
            elif self._dearest <= 0:
                money = float("inf")
            elif not self._costs and not running and self._cost_limit > 0:
                money = max(1.0, self._cost_limit / self._dearest + 1e-9)
            else:
                money = (self._cost_limit - spent) / self._dearest + 1e-9 - running
            left = min(left, money)
        return max(0.0, left if left == float("inf") else left // 1)

    def seconds_until_free(self, now: float) -> float:
        """When the oldest spending drops out of the hour."""
        oldest = [*list(self._calls)[:1], *[at for at, _ in list(self._costs)[:1]]]
        return max(0.0, min(oldest) + HOUR - now) if oldest else HOUR
