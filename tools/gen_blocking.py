#!/usr/bin/env python3
"""Write the blocking client, ``memfold/client/calls/blocking/``, from the async one next to it, file by file.

    gen_blocking.py            write the files
    gen_blocking.py --check    exit 1 if they are out of date

``async_driver.py`` and ``blocking_driver.py`` have what differs between the two.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
CALLS: Final = ROOT / "python_client" / "memfold" / "client" / "calls"
HEAD: Final = "# Made by tools/gen_blocking.py from ../asynchronous/{name}: change that file, not this one.\n"

# In this order. The first ones are phrases of docstrings.
REPLACED: Final = (
    (r"\bThe async client\b", "The blocking client"),
    (r"\btasks that share\b", "threads that share"),
    (r"\ban async iterator\b", "an iterator"),
    (r" \(an iterable,\s+or\s+an\s+async\s+one\)", ""),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait\s", ""),
    (r"\s*\| AsyncIterable\[\w+\]", ""),
    (r"\bpsycopg\.AsyncConnection\.connect\b", "psycopg.connect"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bAwaitable(?:\[(\w+)\]|, )", r"\1"),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\banext\(", "next("),
    (r"\bimport asyncio\b", "import threading"),
    (r"\basyncio\.Lock\b", "threading.Lock"),
    (r"\b(taken)_async\b", r"\1"),
    (r"\bcalls\.asynchronous\b", "calls.blocking"),
    (r"\basync_driver\b", "blocking_driver"),
)


def blocking(source: str) -> str:
    """The file's code without an event loop. Raises ValueError for code that no replacement covers."""
    for pattern, by in REPLACED:
        source = re.sub(pattern, by, source)
    if left := re.search(r".*(?i:async|await|\bevent loop).*", source):
        raise ValueError(
            f"this cannot be made blocking; write it differently, or add a replacement: {left[0].strip()}"
        )
    return source


def formatted(source: str, name: str) -> str:
    """Formatted as `make lint` requires, without unused imports."""
    # Name our own modules: ruff would look for their files, which may not exist yet.
    own = ["--config", 'lint.isort.known-first-party = ["memfold"]']
    for command in (["check", "--fix", "--quiet", "--select", "F401,I", *own], ["format", "--quiet"]):
        source = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--stdin-filename", str(CALLS / "blocking" / name), "-"],
            input=source, capture_output=True, text=True, check=True, cwd=ROOT,
        ).stdout  # fmt: skip
    return source


def made(calls: Path) -> dict[Path, str]:
    return {
        calls / "blocking" / path.name: formatted(
            HEAD.format(name=path.name) + blocking(path.read_text()), path.name
        )
        for path in (calls / "asynchronous").glob("*.py")
    }


def main(arguments: list[str] | None = None, calls: Path = CALLS) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true")
    check: bool = parser.parse_args(arguments).check
    wanted = made(calls)
    present = {path: path.read_text() for path in (calls / "blocking").glob("*.py")}
    differing = sorted(path for path in wanted.keys() | present if wanted.get(path) != present.get(path))
    for path in differing:
        if check:
            print(
                f"{path.relative_to(calls)} does not match the async client: run python tools/gen_blocking.py"
            )
        elif path in wanted:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted[path])
        else:
            path.unlink()
    return int(check and bool(differing))


if __name__ == "__main__":
    sys.exit(main())
