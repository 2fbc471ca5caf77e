"""Everything that the pages name exists: links, headings, files, functions in their modules, commands of lint. Needs
no server."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = ROOT / "sql" / "functions"
# Directories that do not belong to the repository, or that make and the tools leave behind.
FOREIGN = {"node_modules", "dist", "build", "site"}


def pages() -> list[str]:
    found = []
    for directory, below, names in os.walk(ROOT):
        below[:] = [
            name for name in below if name == ".github" or not (name.startswith(".") or name in FOREIGN)
        ]
        found += [
            Path(directory, name).relative_to(ROOT).as_posix() for name in names if name.endswith(".md")
        ]
    return sorted(found)


PAGES = pages()
RECORDS = [page for page in PAGES if re.fullmatch(r"docs/decisions/\d{4}-[a-z-]+\.md", page)]

FENCED = re.compile(r"^([ \t]*)(```|~~~).*?^\1\2[ \t]*$", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# A path from the root of the repository, as the pages write it.
NAMED = re.compile(
    r"(?:\.github|bench|contrib|demo|docs|migrations|plpython|python_client|sql|tests|tools)/[\w.*/-]*"
)


def prose(page: str) -> str:
    """A page without its code blocks, in which nothing is a heading or a link."""
    return FENCED.sub("", (ROOT / page).read_text())


def anchors(page: str) -> set[str]:
    """The anchor of a heading: in lower case, without punctuation, numbered if it is repeated."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def dead_links(page: str) -> list[str]:
    dead = []
    for link in LINK.findall(CODE.sub("", prose(page))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(os.path.relpath(target, ROOT))):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", PAGES)
def test_links_resolve(page: str) -> None:
    assert dead_links(page) == []


@pytest.mark.parametrize(
    "link", ["nowhere.md", "docs/rules.md#nowhere", "#nowhere", "../README.md", "docs/rules.md#the-table-1"]
)
def test_a_dead_link_is_found(link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "rules.md").write_text("# Rules\n\n## The table\n\n```\n## The table\n```\n")
    alive = "[x](docs/rules.md) [x](docs/rules.md#the-table) [`x`](#page) [x](https://example.com/nowhere)"
    (tmp_path / "page.md").write_text(f"# Page\n\n{alive} `[x](code.md)`\n\n[x]({link})\n")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert dead_links("page.md") == [link]


# A changelog names files of its time.
@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_named_files_exist(page: str) -> None:
    named = {name for name in CODE.findall(prose(page)) if NAMED.fullmatch(name)}
    assert [name for name in sorted(named) if not list(ROOT.glob(name.rstrip("/")))] == []


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall(prose("README.md"))}
    assert [
        page for page in PAGES if re.fullmatch(r"docs/[^/]+\.md|[A-Z]+\.md", page) and page not in linked
    ] == ["README.md"]
    assert "docs/decisions/README.md" in linked


# The map ----------------------------------------------------------------------------------------------------------


def test_the_map_names_every_module_and_files_that_exist() -> None:
    names = CODE.findall(prose("sql/README.md"))
    modules = {path.name for path in FUNCTIONS.iterdir() if path.is_dir()}
    assert {name for name in names if re.fullmatch(r"\d\d_\w+", name)} == modules
    files = {name for name in names if re.fullmatch(r"\d\d_\w+/\w+", name)}
    assert files
    assert [name for name in sorted(files) if not (FUNCTIONS / f"{name}.sql").is_file()] == []


def made_in(module: Path) -> set[str]:
    text = "\n".join(path.read_text() for path in sorted(module.glob("*.sql")))
    return set(re.findall(r"(?m)^ *create (?:or replace )?(?:function|procedure|view) \w+\.(\w+)", text))


def test_the_steps_of_a_call_are_functions_of_their_modules() -> None:
    """A row of architecture.md's tables: functions in one cell, their module in the next."""
    page = prose("docs/architecture.md")
    rows = re.findall(r"^\|[^|\n]*\| ([^|\n]*) \| `(\d\d_\w+)` \|", page, re.M)
    assert len(rows) > 40
    steps = [(name, module) for cell, module in rows for name in re.findall(r"`(\w+)`", cell)]
    assert [(name, module) for name, module in steps if name not in made_in(FUNCTIONS / module)] == []


def test_functions_that_architecture_names_exist() -> None:
    made = set().union(*(made_in(module) for module in FUNCTIONS.iterdir()))
    named = {name for name in CODE.findall(prose("docs/architecture.md")) if re.fullmatch(r"_\w+", name)}
    assert named
    assert sorted(named - made) == []


# Records ----------------------------------------------------------------------------------------------------------


def test_records_are_numbered_and_listed() -> None:
    numbers = [int(Path(page).name[:4]) for page in RECORDS]
    assert numbers == list(range(1, len(RECORDS) + 1))
    assert LINK.findall(prose("docs/decisions/README.md"))[: len(RECORDS) + 2] == [
        "../rules.md", "../architecture.md", *(Path(page).name for page in RECORDS)
    ]  # fmt: skip


@pytest.mark.parametrize("page", RECORDS)
def test_a_record_is_short_dated_and_complete(page: str) -> None:
    lines = (ROOT / page).read_text().splitlines()
    assert len(lines) <= 60
    assert re.fullmatch(rf"# {int(Path(page).name[:4])}\. .+", lines[0])
    assert re.match(r"\d{4}-\d\d-\d\d\b", lines[2])
    assert [line for line in lines if line.startswith("## ")] == [
        "## Context", "## Decision", "## Consequences", "## What was measured or tried instead"
    ]  # fmt: skip


# Lint -------------------------------------------------------------------------------------------------------------


def test_hooks_run_what_lint_runs() -> None:
    makefile = (ROOT / "Makefile").read_text()
    goals = re.search(r"^LINT +:= (.*)$", makefile, re.M)
    assert goals is not None
    # a recipe of one line each, and no goals other than those that are run
    recipes = dict(re.findall(r"^(lint-\w+):\n\t(.*)\n(?!\t)", makefile, re.M))
    assert list(recipes) == goals[1].split()
    assert re.search(r"^lint: setup.*\n\t@\$\(MAKE\) .* \$\(LINT\)\n", makefile, re.M)
    lint = [
        line.strip()
        .replace("$(PY)", ".venv/bin/python")
        .replace("$(CURDIR)/$(VENV)", "$PWD/.venv")
        .replace("$$", "$")
        for line in recipes.values()
    ]
    hooks = re.findall(r"^ +entry: (.*)$", (ROOT / ".pre-commit-config.yaml").read_text(), re.M)
    assert sorted(re.sub(r"^bash -c '(.*)'$", r"\1", entry) for entry in hooks) == sorted(lint)


def test_the_workflow_runs_goals_that_exist() -> None:
    goals = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    run = re.findall(r"run: make ([\w-]+)$", (ROOT / ".github/workflows/test.yml").read_text(), re.M)
    assert sorted(run) == ["lint", "nightly", "slow", "test"]
    assert set(run) <= goals


def table_rows(page: str) -> list[list[str]]:
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]


def test_the_figures_of_the_comparison_are_those_of_the_bench() -> None:
    """Each row of the page's tables has the figures that the last run of the bench has for that store."""
    measured: dict[str, list[list[str]]] = {}
    for name, *cells in table_rows("bench/results/peers.md"):
        measured.setdefault(re.sub(r" [\d.]+(?=,|$)", "", name), []).append(cells)
    compared = 0
    for name, *cells in table_rows("docs/comparison.md"):
        stores = {
            "memfold, without a judge": ["memfold, ingest"],
            "memfold, and its worker": ["memfold, ingest, and its worker"],
            "langchain-postgres, PGVector, PGVectorStore": [
                "langchain-postgres, PGVector", "langchain-postgres, PGVectorStore",
            ],
        }.get(name, [name.replace("`", "")])  # fmt: skip
        figures = [figure for cell in cells for figure in re.findall(r"\d[\d,]*", cell)]
        for store in stores:
            # the worker runs after the ingests of "memfold, ingest": it has those rows but for the paraphrases
            said = [figure for row in measured.get(store, []) for figure in row]
            if store.endswith("its worker"):
                said += [figure for row in measured["memfold, ingest"] for figure in row]
            if said and figures:
                assert not [figure for figure in figures if figure not in said], (name, store)
                compared += 1
    assert compared == 16


def test_every_promise_names_its_tests() -> None:
    """Their files exist: test_named_files_exist."""
    promised = re.findall(r"(?m)^\| (\d+) \| \*\*([^*]+?)\.?\*\*", prose("docs/promises.md"))
    proven = re.findall(r"(?m)^\| (\d+) \| ([^|]+) \| .*`tests/.* \|$", prose("CONTRIBUTING.md"))
    assert len(promised) == 12
    assert proven == promised


# A figure next to a link to a result; small whole numbers and round ones are sizes and limits more often than measurements.
FIGURE = re.compile(r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?)(?!\w|\.\d)")

SLOWER = re.compile(r"(\d+) %(?= to \d+ %\s+slower|\s+slower)")


def value(figure: str) -> float:
    return float(figure.replace(",", ""))


def is_measured(figure: str) -> bool:
    digits = figure.replace(",", "").rstrip("0")
    return "." in figure or (value(figure) >= 100 and len(digits) > 1)


def is_among(figure: str, found: list[float]) -> bool:
    """Rounded as written, or the reciprocal: 0.55 times the speed is 1.8 times as long."""
    whole, _, decimals = figure.rstrip(",").partition(".")
    # 1,600 of 1,561, too
    places = len(decimals) if decimals else len(whole.rstrip("0")) - len(whole)
    half = 0.5 * 10.0**-places + 1e-9
    return any(abs(value(figure) - one) <= half for given in found if given for one in (given, 1 / given))


def numbers(text: str) -> list[float]:
    return [value(one) for one in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


def cells(result: str) -> Iterator[tuple[str, str, list[float]]]:
    """Row, column and numbers of each cell of a result's tables; then of the rows' names, and of the other lines."""
    head: list[str] = []
    others = []
    for line in (ROOT / "bench" / "results" / f"{result}.md").read_text().splitlines():
        made = [cell.strip(" *`") for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            head = []
            others.append((" ".join(re.sub(r"[\d.,]+", "", line).split()[:6]), "in the text", numbers(line)))
        elif not head:
            head = made
        elif set(line) - set("|-: "):
            for column, cell in zip(head[1:], made[1:], strict=False):
                yield made[0], column, numbers(cell)
            others.append((made[0], "its name", numbers(made[0])))
    yield from others


def figures() -> Iterator[tuple[str, str, list[str]]]:
    """Page, figure, and the results it is taken from."""
    for page in [
        page for page in PAGES if re.fullmatch(r"README\.md|docs/[^/]*\.md|contrib/[^/]*/README\.md", page)
    ]:
        above: list[str] = []
        for paragraph in re.split(r"\n\n|\n(?=\||- |\d+\. )", prose(page)):
            names = re.findall(r"bench/results/(\w+)\.md", paragraph)
            # A table is of what the paragraph above it links to, but for rows that name a result themselves.
            if not paragraph.lstrip().startswith("|"):
                above = names
            text = re.sub(r"\]\([^)]*\)|`[^`]*`|\b1\.0\.0\b", "", paragraph)
            # 32 % slower is 0.68 times the speed
            text = re.sub(SLOWER, lambda found: f"{1 - int(found[1]) / 100:.2f}", text)
            for figure in FIGURE.findall(text) if names or above else []:
                if is_measured(figure):
                    yield page, figure.rstrip(","), names or above


def test_figures_equal_the_result_they_cite(pytestconfig: pytest.Config) -> None:
    """tests/data/figures.txt names for each figure the cell that it is from. ``pytest tests/unit/test_docs.py --pin``
    writes the first cell that has it, for review."""
    pinned = ROOT / "tests" / "data" / "figures.txt"
    found = list(figures())
    if pytestconfig.option.pin:
        pinned.write_text("".join(
            " | ".join([page, figure, *next(
                ((name, row, column) for name in names for row, column, given in cells(name) if is_among(figure, given)),
                ("nowhere",),
            )]) + "\n"
            for page, figure, names in found
        ))  # fmt: skip
    named = [line.split(" | ") for line in pinned.read_text().splitlines()]
    assert [(page, figure) for page, figure, *_ in named] == [figure[:2] for figure in found], (
        "if it is meant: pytest tests/unit/test_docs.py --pin, and review"
    )
    wrong = [
        cell
        for (page, figure, *cell), (_, _, names) in zip(named, found, strict=True)
        if cell[0] not in names
        or not any(
            is_among(figure, given) for row, column, given in cells(cell[0]) if [row, column] == cell[1:]
        )
    ]
    assert wrong == []
    assert len(named) > 40


# What PostgreSQL itself says.
FROM_POSTGRESQL = (
    'duplicate key value violates unique constraint "',
    "Key (",
    "query would be affected by row-level security policy",
    "installing required extension",
)


def test_quoted_errors_are_what_the_code_says() -> None:
    """ERROR, DETAIL, HINT and NOTICE in the pages are messages of the SQL, with values for %s, %I and %L."""
    source = "".join(
        re.sub(r"'\s*\n\s*'", "", path.read_text().replace("''", "’").replace("\\\\", "\\"))
        for folder in ("sql/functions", "plpython/memfold_py/extension")
        for path in sorted((ROOT / folder).rglob("*.sql"))
    )
    said = re.compile(
        "|".join(
            "(?:" + ".*".join(map(re.escape, re.split("%[sIL]?", text))) + ")"
            for text in set(re.findall(r"'([^'\n]+)'", source))
            if len(re.sub("%[sIL]?", "", text)) > 12
        )
    )
    quoted = [
        (page, line[1])
        for page in PAGES
        for line in re.finditer(
            r"(?m)^(?:pg_restore: error: .*)?(?:ERROR|DETAIL|HINT|NOTICE):  (.+)$", (ROOT / page).read_text()
        )
        if not line[1].startswith(FROM_POSTGRESQL)
    ]
    assert [(page, text) for page, text in quoted if not said.fullmatch(text.replace("'", "’"))] == []
    assert len(quoted) >= 10


def test_every_result_of_the_bench_has_its_question() -> None:
    explained = set(
        re.findall(
            r"`(?:results/)?(\w+)(?:\.\w+)?`|results/(\w+)\.md", (ROOT / "bench" / "README.md").read_text()
        )
    )
    known = {name for names in explained for name in names}
    results = {re.sub(r"-\d$", "", path.stem) for path in (ROOT / "bench" / "results").iterdir()}
    assert sorted(results - known) == []
    questions = set(re.findall(r'(?m)^        "(\w+)": lambda', (ROOT / "bench" / "run.py").read_text()))
    elsewhere = {"adopting_peers", "change", "fire", "names", "updates"}
    assert results == (questions & results) | elsewhere
