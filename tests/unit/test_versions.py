"""One version everywhere, and what META.json says of the extension is what its control file says."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from typing import Any

import memfold_py
from alembic.script import ScriptDirectory
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from memfold.client._version import __version__
from memfold.tools.admin import migrate
from tests.support.servers import ROOT, releases


def control(path: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+) *= *'?([^'\n]*)'?$", (ROOT / path).read_text(), re.M))


def meta() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((ROOT / "META.json").read_text())
    return read


def test_one_version_everywhere() -> None:
    extension = control("memfold.control")
    beside = control("plpython/memfold_py/extension/memfold_py.control")
    described = meta()
    assert {
        "memfold.control": extension["default_version"],
        "memfold_py.control": beside["default_version"],
        "memfold_py": memfold_py.__version__,
        "META.json": described["version"],
        "META.json, provides": described["provides"]["memfold"]["version"],
    } == dict.fromkeys(
        ("memfold.control", "memfold_py.control", "memfold_py", "META.json", "META.json, provides"),
        __version__,
    )


def test_the_changelog_begins_with_the_version() -> None:
    """With its date once it is frozen."""
    heading = re.search(r"(?m)^## (.*)$", (ROOT / "CHANGELOG.md").read_text())
    frozen = (ROOT / "tests" / "data" / "released" / f"{__version__}.sql.gz").exists()
    dated = rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d"
    wanted = rf"\[Unreleased\]|{dated}" + ("" if frozen else rf"|\[{re.escape(__version__)}\] - unreleased")
    assert heading is not None
    assert re.fullmatch(wanted, heading[1]), heading[1]


def test_every_release_has_a_revision() -> None:
    """One that changes only functions, too: a revision says which version a database of memfold init is at."""
    found = ScriptDirectory.from_config(migrate._config()).walk_revisions()
    assert [one.revision for one in found] == releases()[::-1]


def test_memfold_py_is_updated_from_every_release() -> None:
    extension = ROOT / "plpython" / "memfold_py" / "extension"
    scripts = {path.stem.removeprefix("memfold_py--") for path in extension.glob("memfold_py--*.sql")}
    known = releases()
    updates = {f"{was}--{now}" for was, now in itertools.pairwise(known)}
    # CREATE EXTENSION installs the present version alone
    assert scripts == {__version__, *updates}


def test_what_meta_json_asks_for_is_what_the_extension_needs() -> None:
    described = meta()
    # what the specification asks of every distribution
    assert {"name", "version", "abstract", "maintainer", "license", "provides", "meta-spec"} <= set(described)
    assert described["meta-spec"]["version"] == "1.0.0"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", described[name]) for name in ("version",))
    provided = described["provides"]["memfold"]
    assert (ROOT / provided["file"]).is_file()
    assert (ROOT / provided["docfile"]).is_file()
    requires = described["prereqs"]["runtime"]["requires"]
    assert {name for name in requires if name != "PostgreSQL"} == set(
        control("memfold.control")["requires"].split(", ")
    )
    readme = (ROOT / "README.md").read_text()
    assert f"PostgreSQL {requires['PostgreSQL'].partition('.')[0]} or newer" in readme


def test_every_requirement_is_pinned_within_its_range() -> None:
    """make lock, after a range or an extra has changed."""
    pinned = {
        canonicalize_name(one.name): one.specifier
        for one in map(Requirement, (ROOT / "constraints.txt").read_text().splitlines())
    }
    missed = []
    for path, extras in (("python_client", ("all", "test", "lint")), ("plpython", ("embed", "cjk"))):
        project = tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]
        wanted = project["dependencies"] + [
            requirement for extra in extras for requirement in _extra(project["optional-dependencies"], extra)
        ]
        for one in map(Requirement, wanted):
            versions = [exact.version for exact in pinned.get(canonicalize_name(one.name), ())]
            if not one.name.startswith("memfold") and not (versions and one.specifier.contains(versions[0])):
                missed.append(f"{path}: {one}")
    assert missed == []


def _extra(extras: dict[str, list[str]], name: str) -> list[str]:
    """The requirements of an extra, with those of the extras that it names."""
    found = []
    for one in extras[name]:
        parsed = Requirement(one)
        if parsed.name == "memfold":
            found += [deep for inner in sorted(parsed.extras) for deep in _extra(extras, inner)]
        else:
            found.append(one)
    return found
