"""One version everywhere, and META.json agrees with the extension's control file."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import re
import subprocess
import sys
import tomllib
from typing import Any

import memfold_py
from alembic.script import ScriptDirectory
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
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


def test_meta_json_requires_what_the_extension_needs() -> None:
    described = meta()
    provided = described["provides"]["memfold"]
    assert (ROOT / provided["docfile"]).is_file()
    requires = described["prereqs"]["runtime"]["requires"]
    assert {name for name in requires if name != "PostgreSQL"} == set(
        control("memfold.control")["requires"].split(", ")
    )
    readme = (ROOT / "README.md").read_text()
    assert f"PostgreSQL {requires['PostgreSQL'].partition('.')[0]} or newer" in readme


def test_meta_json_is_as_pgxn_asks() -> None:
    """Meta Spec 1.0: the fields that every distribution has, and the form of those that it may have."""
    described = meta()
    texts = [described[name] for name in ("name", "abstract", "description", "maintainer")]
    assert all(isinstance(one, str) and one.strip() == one != "" for one in [*texts, *described["tags"]])
    assert re.fullmatch(r"[^\W\d][\w-]+", described["name"])  # a term of more than one character
    assert described["license"] == "postgresql"  # the only term of the spec's list for this licence
    assert described["release_status"] in {"stable", "testing", "unstable"}
    assert described["meta-spec"]["version"] == "1.0.0"
    provided = described["provides"]["memfold"]
    assert (ROOT / provided["file"]).is_file()
    versions = [
        described["version"],
        provided["version"],
        *described["prereqs"]["runtime"]["requires"].values(),
    ]
    assert [one for one in versions if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", one)] == []


def test_a_checkout_is_a_folder_that_dbdev_publishes() -> None:
    """It wants one control file, with a version of three numbers, and a README.md; `make` puts the scripts next to them."""
    assert [path.name for path in ROOT.glob("*.control")] == ["memfold.control"]
    assert control("memfold.control").items() >= {"relocatable": "false", "schema": "memfold"}.items()
    assert control("memfold.control")["comment"]
    assert (ROOT / "README.md").is_file()
    assert re.fullmatch(r"\d+\.\d+\.\d+", control("memfold.control")["default_version"])


def test_the_sbom_has_each_package_as_pinned() -> None:
    printed = [
        subprocess.run(
            [sys.executable, ROOT / "tools/sbom.py"], check=True, capture_output=True, text=True
        ).stdout
        for _ in range(2)
    ]
    assert printed[0] == printed[1]
    sbom = json.loads(printed[0])
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    released = sbom["metadata"]["component"]
    assert (released["name"], released["version"]) == ("memfold", __version__)
    found = {one["name"]: one for one in sbom["components"]}
    needs = {one["ref"]: one["dependsOn"] for one in sbom["dependencies"]}
    of_all = {canonicalize_name(Requirement(one).name) for one in requirements("python_client", "all")}
    assert of_all - {"memfold-py"} <= {
        one.removeprefix("pkg:pypi/").partition("@")[0] for one in needs[released["bom-ref"]]
    }
    assert {ref for refs in needs.values() for ref in refs} <= set(needs)
    assert [one for one in found.values() if not one.get("licenses")] == []
    pins = {canonicalize_name(one.name): str(one.specifier) for one in pinned()}
    others = {name: one["version"] for name, one in found.items() if one["bom-ref"].startswith("pkg:pypi/")}
    assert others.pop("memfold-py") == __version__
    assert {name: f"=={version}" for name, version in others.items()} == {name: pins[name] for name in others}
    htmx = (ROOT / "python_client/memfold/tools/web/static/htmx.min.js").read_text()
    assert f'version:"{found["htmx.org"]["version"]}"' in htmx
    assert found["WordNet"]["version"] == "3.0"


def test_every_requirement_is_pinned_within_its_range() -> None:
    """make lock, after a range or an extra has changed."""
    pins = {canonicalize_name(one.name): one.specifier for one in pinned()}
    missed = []
    for path, extras in (("python_client", ("all", "test", "lint")), ("plpython", ("embed", "cjk"))):
        for one in map(Requirement, requirements(path, *extras)):
            versions = [exact.version for exact in pins.get(canonicalize_name(one.name), ())]
            if not one.name.startswith("memfold") and not (versions and one.specifier.contains(versions[0])):
                missed.append(f"{path}: {one}")
    assert missed == []


def pinned() -> list[Requirement]:
    return [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines()]


def requirements(path: str, *extras: str) -> list[str]:
    """What a package requires, with these extras."""
    project = tomllib.loads((ROOT / path / "pyproject.toml").read_text())["project"]
    found: list[str] = list(project["dependencies"])
    return found + [one for extra in extras for one in _extra(project["optional-dependencies"], extra)]


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


def test_every_python_that_memfold_promises_can_install_what_is_pinned() -> None:
    """pip finds no version, and names another package, where one needs a later patch release."""
    oldest = re.search(
        r'requires-python = ">=([\d.]+)"', (ROOT / "python_client" / "pyproject.toml").read_text()
    )
    assert oldest is not None
    needs = {
        d.metadata["Name"]: d.metadata["Requires-Python"] or "" for d in importlib.metadata.distributions()
    }
    assert [
        name for name, needed in needs.items() if not SpecifierSet(needed).contains(f"{oldest[1]}.0")
    ] == []
