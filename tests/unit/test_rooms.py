"""The rooms of the Python package, its four folders: which may import which, and no circles. And what tests share.

Read from the source, so that an import within a function, or for the type checker alone, counts like any other.
docs/architecture.md has the picture.
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

# What each room may import, apart from itself. "memfold" is the __init__.py of the package.
MAY_IMPORT: dict[str, set[str]] = {
    "client": set(),
    "adopt": {"client"},
    "agents": {"client"},
    "tools": {"client", "adopt", "agents"},
    "memfold": {"client"},
    "testing": {"client", "tools"},
    "__main__": {"client", "tools"},
}

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


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def forbidden(found: Imports) -> list[str]:
    return [
        f"{module} imports {other}"
        for module, others in sorted(found.items())
        for other in sorted(others)
        if room(other) not in {room(module), *MAY_IMPORT[room(module)]}
    ]


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


def test_every_module_is_in_a_room() -> None:
    assert {room(module) for module in sources(PACKAGE)} == set(MAY_IMPORT)
    assert len(sources(PACKAGE)) > 90


def test_rooms_import_what_they_may() -> None:
    found = graph(PACKAGE)
    assert sum(map(len, found.values())) > 300
    assert forbidden(found) == []


def test_no_import_is_circular() -> None:
    assert circles(graph(PACKAGE)) == []


def test_files_are_short() -> None:
    lines = {module: path.read_text().count("\n") for module, path in sources(PACKAGE).items()}
    assert {module: count for module, count in lines.items() if count > LONGEST} == {}


def test_code_shared_by_tests_is_in_tests_support() -> None:
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
                "memfold.client._endpoint",
                "memfold.tools.cli",
            },
        ),
        # pytest loads it in every project
        ("memfold.testing", {"memfold.client", "memfold.tools", "psycopg"}),
        (
            "memfold.tools.cli",
            {
                "alembic",
                "mcp",
                "numpy",
                "openai",
                "sqlalchemy",
                "sqlglot",
                "starlette",
                "memfold.client.judging.worker",
                "memfold.tools.review",
                "memfold.tools.web",
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
    ids=["memfold", "memfold.testing", "memfold.tools.cli", "tests.conftest"],
)
def test_slow_imports_are_deferred(module: str, absent: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=servers.ROOT
    ).stdout
    assert absent & set(loaded.split()) == set()
    assert module in loaded.split()


@pytest.mark.parametrize(
    ("module", "source", "line"),
    [
        ("client/a.py", "import memfold", "memfold.client.a imports memfold"),
        ("client/a.py", "from memfold import tools", "memfold.client.a imports memfold.tools"),
        ("client/a.py", "from ..agents import b", "memfold.client.a imports memfold.agents.b"),
        ("client/a.py", "def f():\n    from memfold.adopt import x", "memfold.client.a imports memfold.adopt"),
        ("agents/a.py", "if TYPE_CHECKING:\n    import memfold.tools", "memfold.agents.a imports memfold.tools"),
        ("adopt/a.py", "from memfold.agents.b import x", "memfold.adopt.a imports memfold.agents.b"),
        ("__init__.py", "from memfold.adopt import x", "memfold imports memfold.adopt"),
    ],
    ids=["front", "name", "relative", "in a function", "for types", "beside", "from the front"],
)  # fmt: skip
def test_a_forbidden_import_is_found(tmp_path: Path, module: str, source: str, line: str) -> None:
    package = tmp_path / "memfold"
    for name in ("__init__.py", *(f"{one}/__init__.py" for one in ("client", "adopt", "agents", "tools")),
                 "client/b.py", "agents/b.py", module):  # fmt: skip
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    (package / "tools/__init__.py").write_text("from memfold.client import b\nimport os, memfold.agents.b\n")
    (package / module).write_text(source)
    assert forbidden(graph(package)) == [line]


def test_a_circle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "memfold"
    (package / "tools").mkdir(parents=True)
    for name, source in {
        "__init__.py": "",
        "tools/__init__.py": "from memfold.tools import a",
        "tools/a.py": "import memfold.tools.b",
        "tools/b.py": "def f():\n    from .c import g",
        "tools/c.py": "from memfold.tools.a import f",
    }.items():
        (package / name).write_text(source)
    assert circles(graph(package)) == [["memfold.tools.a", "memfold.tools.b", "memfold.tools.c"]]


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
def test_misplaced_code_is_found(tmp_path: Path, module: str, source: str, line: str) -> None:
    (tmp_path / module).parent.mkdir(parents=True)
    (tmp_path / module).write_text(source)
    assert misplaced(tmp_path) == [line]
