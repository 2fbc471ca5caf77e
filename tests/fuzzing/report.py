"""The results of the calls, and what was found."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """The results of the calls."""

    seed: int
    calls: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    called: Counter[str] = field(default_factory=Counter)
    succeeded: Counter[str] = field(default_factory=Counter)
    tenants: list[str] = field(default_factory=list)
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)
    memory: dict[str, list[int]] = field(default_factory=dict)  # by role, bytes of the session over time
    seconds: float = 0
    took: Counter[str] = field(default_factory=Counter)  # milliseconds by function

    def find(self, what: str, example: str) -> None:
        if what not in self.findings:
            print(f"call {self.calls}: {what}\n    {example}", flush=True)
        self.findings[what] = (
            self.findings.get(what, (0, ""))[0] + 1,
            self.findings.get(what, (0, example))[1],
        )

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.calls} calls of {len(self.called)} functions, {self.seconds:.0f} s"
        ]
        lines += [f"  {count:8} {outcome}" for outcome, count in self.outcomes.most_common()]
        lines += [
            f"  {n} times: {what}\n      {example}" for what, (n, example) in sorted(self.findings.items())
        ]
        return "\n".join(lines)
