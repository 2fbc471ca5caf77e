#!/usr/bin/env python3
"""Make small mistakes, one at a time, and say which of them the tests notice: mutate.py [--since REVISION] [ID ...]

tests/data/mutants.toml lists the mistakes: a text that occurs once in a file, its replacement, and the tests that a
developer who changes that file would run. Each is made in a copy of the work tree. Exit code 1: a mistake survives without
a ``survives``, which gives the reason, or is noticed despite it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "tests" / "data" / "mutants.toml"
LIMIT = 900
"""Seconds for the tests of one mistake; beyond that it counts as noticed, because the run would not end."""


def read() -> list[dict[str, Any]]:
    """The mistakes, in the file's order."""
    found: list[dict[str, Any]] = tomllib.loads(FILE.read_text())["mutant"]
    return found


def kind(mutant: dict[str, Any]) -> str:
    """What the rates are listed by: SQL, a package of the client, or anything else."""
    parts = Path(mutant["file"]).parts
    return (
        "sql"
        if parts[0] == "sql"
        else parts[2]
        if parts[0] == "python_client" and len(parts) > 3
        else "others"
    )


def _git(*arguments: str) -> list[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()


def changed(since: str) -> set[str]:
    """Files that differ from a revision, new ones too."""
    return {*_git("diff", "--name-only", since), *_git("ls-files", "--others", "--exclude-standard")}


def tests_of(files: set[str]) -> list[str]:
    """Test files for some files: themselves, those listed with their mistakes, and those naming one of them, if few do."""
    texts = {
        str(path.relative_to(ROOT)): path.read_text()
        for top in ("tests", "contrib")
        for path in (ROOT / top).rglob("test_*.py")
    }
    found = files | {
        test.partition("::")[0] for one in read() if one["file"] in files for test in one["tests"]
    }
    for stem in {Path(file).stem for file in files}:
        naming = {name for name, text in texts.items() if re.search(rf"\b{re.escape(stem)}\b", text)}
        found |= naming if len(naming) <= 8 else set()
    return sorted(found & texts.keys())


def _copy(place: Path) -> Path:
    """The files that git knows, as they are now, and the environment."""
    for name in _git("ls-files", "--cached", "--others", "--exclude-standard"):
        source = ROOT / name
        if source.is_symlink() or source.exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, place / name, follow_symlinks=False)
    if not (place / ".venv").exists():  # if it is a symbolic link, git lists it as a file
        (place / ".venv").symlink_to(ROOT / ".venv")
    return place


def _pytest(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(place / name) for name in ("python_client", "plpython"))
    # one server is enough, except for PL/Python
    servers = {} if any("plpython" in one for one in arguments) else {"MEMFOLD_FULL_SERVER": "none"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments],
        cwd=place,
        env=servers | dict(os.environ) | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


def _is_noticed(place: Path, mutant: dict[str, Any]) -> bool:
    file = place / mutant["file"]
    text = file.read_text()
    if text.count(mutant["old"]) != 1:
        raise SystemExit(
            f"{mutant['id']}: its text occurs {text.count(mutant['old'])} times in {mutant['file']}"
        )
    file.write_text(text.replace(mutant["old"], mutant["new"]))
    try:
        run = _pytest(place, "-x", *mutant["tests"])
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(text)
    if run.returncode not in {0, 1, 2}:  # 2: what was changed cannot be imported
        raise SystemExit(
            f"{mutant['id']}: pytest ended with {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-2000:]}"
        )
    return run.returncode != 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="these mistakes alone")
    parser.add_argument(
        "--since", metavar="REVISION", help="those in files that have changed since this revision"
    )
    parser.add_argument(
        "--tests",
        metavar="REVISION",
        help="only list the test files for what has changed since this revision",
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="at a time; default: the number of cores"
    )
    arguments = parser.parse_args()
    if arguments.tests:
        print("\n".join(tests_of(changed(arguments.tests))))
        return 0
    files = changed(arguments.since) if arguments.since else None
    chosen = [
        one
        for one in read()
        if (not arguments.ids or one["id"] in arguments.ids) and (files is None or one["file"] in files)
    ]
    noticed: dict[str, list[bool]] = defaultdict(list)
    wrong = []
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(arguments.processes) as pool:
        places: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.processes):
            places.put(_copy(Path(directory) / str(number)))
        # else each mistake of theirs would seem to be noticed
        collected = _pytest(
            Path(directory) / "0",
            "--collect-only",
            *sorted({test for one in chosen for test in one["tests"]}),
        )
        if collected.returncode:
            raise SystemExit(f"not all tests can be collected\n{collected.stdout[-2000:]}")

        def make(mutant: dict[str, Any]) -> tuple[dict[str, Any], bool, float]:
            place = places.get()
            began = time.monotonic()
            try:
                return mutant, _is_noticed(place, mutant), time.monotonic() - began
            finally:
                places.put(place)

        for done in as_completed([pool.submit(make, mutant) for mutant in chosen]):
            mutant, found, took = done.result()
            noticed[kind(mutant)].append(found)
            line = f"{mutant['id']} {'noticed' if found else 'SURVIVES':<8} {took:4.0f} s  {mutant['what']}"
            if found == ("survives" in mutant):
                wrong.append(mutant["id"])
                line += "  (the list says otherwise)"
            print(line, flush=True)
    every = [one for results in noticed.values() for one in results]
    for name, results in [*sorted(noticed.items()), ("all", every)]:
        print(f"{name:<8} {sum(results)} of {len(results)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
