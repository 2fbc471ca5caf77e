"""How often the sequences made each call."""

from __future__ import annotations

from collections import Counter

COUNTS: Counter[str] = Counter()


def report(counts: Counter[str], seconds: float) -> str:
    lines = [f"{counts['sequences']} sequences, {counts['steps']} steps, {seconds:.0f} s"]
    lines += [f"  {n:7} {what}" for what, n in sorted(counts.items()) if ":" in what]
    return "\n".join(lines)
