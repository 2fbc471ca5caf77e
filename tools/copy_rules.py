"""Writes the copies of rules that fast paths contain because a function call would cost too much.

A rule has one original, between ``-- rule NAME`` and ``-- end of rule``. A copy, in any file of ``sql/functions``, is
between ``-- copy of NAME`` and ``-- end of copy``; a list in front of it has one replacement per line
(``-- this => that``): whole words of the original, in the given order. ``--check`` writes nothing, and fails if a
copy differs from what its original gives.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

FUNCTIONS = Path(__file__).resolve().parent.parent / "sql" / "functions"
_RULE = re.compile(r"^ *-- rule (?P<name>\w+)\n(?P<lines>.*?)^ *-- end of rule$", re.M | re.S)
_COPY = re.compile(
    r"^(?P<head>(?P<indent> *)-- copy of (?P<name>\w+)\n(?P<swaps>(?: *--     [^\n]* =>[^\n]*\n)*))"
    r".*?^ *-- end of copy$",
    re.M | re.S,
)


class CopyError(Exception):
    """A rule has two originals or none, or lacks what a copy replaces; the message says which."""


def rules(texts: dict[Path, str]) -> dict[str, str]:
    """Read the originals of all rules, by name."""
    found: dict[str, str] = {}
    for path, text in texts.items():
        for match in _RULE.finditer(text):
            if match["name"] in found:
                raise CopyError(f"{path.name}: the rule {match['name']} has another home")
            found[match["name"]] = match["lines"]
    return found


def copied(text: str, homes: dict[str, str]) -> str:
    """Make the copies in a file's text again."""
    return _COPY.sub(lambda match: _copy(match, homes), text)


def _copy(match: re.Match[str], homes: dict[str, str]) -> str:
    name = match["name"]
    if name not in homes:
        raise CopyError(f"there is no rule {name}")
    lines = homes[name]
    for swap in match["swaps"].splitlines():
        old, new = (part.strip() for part in swap.replace("--", "", 1).split(" =>"))
        # whole words; a qualifier, which ends in a dot, precedes others
        end = "" if old.endswith(".") else r"(?!\w)"
        lines, found = re.subn(rf"(?<![\w.]){re.escape(old)}{end}", new, lines)
        if not found:
            raise CopyError(f"the rule {name} has no {old}, or a line before has replaced it")
    shift = len(match["indent"]) - (len(lines) - len(lines.lstrip(" ")))
    moved = [" " * shift + line if shift > 0 else line[-shift:] for line in lines.splitlines()]
    return f"{match['head']}" + "".join(f"{line}\n" for line in moved) + f"{match['indent']}-- end of copy"


def main() -> int:
    """Write the copies, or check that they match their originals."""
    parser = argparse.ArgumentParser(
        description="Write the copies of rules that fast paths hold inside themselves."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a copy differs from its home"
    )
    check = parser.parse_args().check
    texts = {path: path.read_text() for path in sorted(FUNCTIONS.rglob("*.sql"))}
    homes = rules(texts)
    different = {path: new for path, text in texts.items() if (new := copied(text, homes)) != text}
    for path, new in different.items():
        name = path.relative_to(FUNCTIONS)
        if check:
            print(
                f"{name}: a copy differs from the home of its rule; run tools/copy_rules.py", file=sys.stderr
            )
        else:
            path.write_text(new)
            print(f"{name}: written")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main())
