"""The rooms of the Python package: an import leads down, or within its room, and never in a circle. And those of the tests.

Read from the source, so that an import within a function, or for the type checker alone, counts like any other. A floor
lies on those before it; rooms of one floor do not know one another. docs/architecture.md has the picture.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import servers

PACKAGE = servers.ROOT / "python_client" / "memfold"

# Lowest first. A folder is a room; the files at the root are the ground, but for __init__.py, which is the
# front, and __main__.py, which is what starts the command line.
GROUND, FRONT, ENTRY = "ground", "front", "entry"
FLOORS = (
    {GROUND},
    {"embedding", "judging"},
    {"client"},
    {"admin", "adopt", "calibrate", "integrations", "review"},
    {"web"},
    {"cli", FRONT},
    {ENTRY},
)
IN_THE_GROUND = {"errors"}  # a folder, for its length

LONGEST = 400

SHARING = ("tests", "contrib/*/tests", "bench")

Imports = dict[str, set[str]]


def sources(package: Path) -> dict[str, Path]:
    """Module -> its file. What is linked there is not Python of this package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        if not any((package / Path(*parts[:n])).is_symlink() for n in range(1, len(parts))):
            name = ".".join([package.name, *parts]).removesuffix(".py").removesuffix(".__init__")
            found[name] = path
    return found


def imported(module: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that a file imports, wherever in it; of `from a import b`, b if that is a module."""
    within = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = within.split(".")
                base = ".".join([*above[: len(above) - node.level + 1], *([base] if base else [])])
            for alias in node.names:
                if (name := f"{base}.{alias.name}") in known:
                    yield name
                elif base in known:
                    yield base


def graph(package: Path) -> Imports:
    known = sources(package)
    return {module: set(imported(module, path, known)) - {module} for module, path in known.items()}


def room(module: str, folders: set[str]) -> str:
    parts = module.split(".")
    if len(parts) == 1:
        return FRONT
    if parts[1:] == ["__main__"]:
        return ENTRY
    return parts[1] if parts[1] in folders - IN_THE_GROUND else GROUND


def floor(name: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if name in rooms)


def upward(found: Imports, folders: set[str]) -> list[str]:
    """Imports that lead up, or from a room to another one of its floor."""
    lines = []
    for module, others in sorted(found.items()):
        for other in sorted(others):
            here, there = room(module, folders), room(other, folders)
            if here != there and floor(there) >= floor(here):
                lines.append(f"{module} ({here}) imports {other} ({there})")
    return lines


def circles(found: Imports) -> list[list[str]]:
    """Modules that import one another, by however many others."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    made: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(found[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            part = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(part) > 1:
                made.append(sorted(part))

    for module in sorted(found):
        if module not in index:
            visit(module)
    return made


def misplaced(root: Path) -> list[str]:
    """Imports from files of tests, and modules next to the folders of the tests: what is shared is in tests/support/."""
    lines = [
        f"{path.relative_to(root)} stands next to the folders"
        for path in sorted((root / "tests").glob("*.py"))
        if path.name not in {"__init__.py", "conftest.py"}
    ]
    for path in sorted(path for folder in SHARING for path in root.glob(f"{folder}/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module or ''}.{alias.name}" for alias in node.names]
            lines += [
                f"{path.relative_to(root)} imports {name}"
                for name in names
                if any(part.startswith("test_") for part in name.split("."))
            ]
    return lines


def folders_of(package: Path) -> set[str]:
    return {path.name for path in package.iterdir() if (path / "__init__.py").is_file()}


def test_every_folder_is_a_room() -> None:
    rooms = set().union(*FLOORS) - {GROUND, FRONT, ENTRY}
    assert folders_of(PACKAGE) == rooms | IN_THE_GROUND
    assert len(sources(PACKAGE)) > 90


def test_imports_go_to_lower_floors() -> None:
    found = graph(PACKAGE)
    assert sum(map(len, found.values())) > 300
    assert upward(found, folders_of(PACKAGE)) == []


def test_no_import_is_circular() -> None:
    assert circles(graph(PACKAGE)) == []


def test_files_are_short() -> None:
    lines = {module: path.read_text().count("\n") for module, path in sources(PACKAGE).items()}
    assert {module: count for module, count in lines.items() if count > LONGEST} == {}


def test_what_tests_share_is_in_their_support() -> None:
    assert misplaced(servers.ROOT) == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        (
            "memfold",
            {
                "alembic",
                "click",
                "mcp",
                "numpy",
                "openai",
                "sqlalchemy",
                "sqlglot",
                "memfold._endpoint",
                "memfold.cli",
            },
        ),
        (
            "memfold.cli",
            {
                "alembic",
                "mcp",
                "numpy",
                "openai",
                "sqlalchemy",
                "sqlglot",
                "starlette",
                "memfold.judging.worker",
                "memfold.review",
                "memfold.web",
            },
        ),
        # make test-frameworks: loaded where there is a large framework, and little else
        (
            "tests.conftest",
            {
                "google.adk",
                "hypothesis",
                "langchain_core",
                "langgraph",
                "mcp",
                "selenium",
                "sklearn",
                "starlette",
            },
        ),
    ],
    ids=["memfold", "memfold.cli", "tests.conftest"],
)
def test_what_takes_long_is_loaded_where_it_is_used(module: str, absent: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=servers.ROOT
    ).stdout
    assert absent & set(loaded.split()) == set()
    assert module in loaded.split()


@pytest.mark.parametrize(
    ("module", "source", "line"),
    [
        ("errors/base.py", "import memfold", "memfold.errors.base (ground) imports memfold (front)"),
        ("client/a.py", "from memfold import cli", "memfold.client.a (client) imports memfold.cli (cli)"),
        ("client/a.py", "from ..cli import main", "memfold.client.a (client) imports memfold.cli (cli)"),
        ("_a.py", "def f():\n    from memfold.client import a", "memfold._a (ground) imports memfold.client.a (client)"),
        (
            "review/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import memfold.admin.b",
            "memfold.review.a (review) imports memfold.admin.b (admin)",
        ),
    ],
    ids=["front", "name", "relative", "in a function", "for types"],
)  # fmt: skip
def test_an_import_from_a_higher_floor_is_found(tmp_path: Path, module: str, source: str, line: str) -> None:
    package = tmp_path / "memfold"
    for name in ("__init__.py", "cli/__init__.py", "client/__init__.py", "client/a.py", "errors/__init__.py",
                 "admin/__init__.py", "admin/b.py", "review/__init__.py", module):  # fmt: skip
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    (package / "cli/__init__.py").write_text("from memfold.client import a, b\nimport os, memfold.admin.b\n")
    (package / module).write_text(source)
    assert upward(graph(package), folders_of(package)) == [line]


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "memfold"
    (package / "cli").mkdir(parents=True)
    for name, source in {
        "__init__.py": "",
        "cli/__init__.py": "from memfold.cli import a",
        "cli/a.py": "import memfold.cli.b",
        "cli/b.py": "def f():\n    from .c import g",
        "cli/c.py": "from memfold.cli.a import f",
    }.items():
        (package / name).write_text(source)
    assert circles(graph(package)) == [["memfold.cli.a", "memfold.cli.b", "memfold.cli.c"]]


@pytest.mark.parametrize(
    ("module", "source", "line"),
    [
        ("tests/a.py", "", "tests/a.py stands next to the folders"),
        ("tests/sql/a.py", "from tests.sql.test_b import c", "tests/sql/a.py imports tests.sql.test_b.c"),
        ("tests/sql/a.py", "def f():\n    from . import test_b", "tests/sql/a.py imports .test_b"),
        ("bench/a.py", "import tests.sql.test_b", "bench/a.py imports tests.sql.test_b"),
        ("contrib/a/tests/a.py", "from .test_b import c", "contrib/a/tests/a.py imports test_b.c"),
    ],
    ids=["root", "name", "relative", "module", "contrib"],
)  # fmt: skip
def test_what_is_misplaced_is_found(tmp_path: Path, module: str, source: str, line: str) -> None:
    (tmp_path / module).parent.mkdir(parents=True)
    (tmp_path / module).write_text(source)
    assert misplaced(tmp_path) == [line]
