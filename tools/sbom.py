#!/usr/bin/env python3
"""Print the SBOM of a release, in CycloneDX 1.6: both packages, what they bundle, and what each of their extras brings.

Versions are those of this environment (constraints.txt), which the tests ran with; each package states its own licence.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).resolve().parent.parent
RELEASED: Final = {"memfold": {"all"}, "memfold-py": {"embed", "cjk"}}
"""The packages of a release, with the extras that bring all their dependencies but those of tests."""


def python_packages() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Components and what depends on what, from the metadata of the installed packages."""
    components, edges = {}, {}
    open_ = [(name, extra) for name, extras in RELEASED.items() for extra in ("", *sorted(extras))]
    seen = set()
    while open_:
        name, extra = open_.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        found = metadata.distribution(name)
        components[name] = component(name, found)
        for one in map(Requirement, found.requires or ()):
            if one.marker is None or one.marker.evaluate({"extra": extra}):
                needed = canonicalize_name(one.name)
                open_ += [(needed, further) for further in ("", *one.extras)]
                edges.setdefault(name, set()).add(needed)
    refs = {name: one["bom-ref"] for name, one in components.items()}
    depends = [
        {"ref": refs[name], "dependsOn": sorted(refs[one] for one in edges.get(name, ()) if one != name)}
        for name in sorted(refs)
    ]
    return [components[name] for name in sorted(components)], depends


def component(name: str, found: metadata.Distribution) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{found.version}"
    told = found.metadata
    licence = told.get("License-Expression") or next(
        (
            one.rpartition(" :: ")[2]
            for one in told.get_all("Classifier") or ()
            if one.startswith("License ::")
        ),
        (told.get("License") or "").strip().partition("\n")[0],
    )
    kind = "expression" if told.get("License-Expression") else "license"
    stated = [{kind: licence if kind == "expression" else {"name": licence}}] if licence else []
    return {"type": "library", "bom-ref": purl, "name": name, "version": found.version, "purl": purl} | (
        {"licenses": stated} if stated else {}
    )


def bundled() -> list[dict[str, Any]]:
    """Third-party parts of the packages and the extension."""
    htmx = (ROOT / "python_client/memfold/tools/web/static/htmx.min.js").read_text()
    version = re.findall(r'version:"([\d.]+)"', htmx)[0]
    return [
        {"type": "library", "bom-ref": f"pkg:npm/htmx.org@{version}", "name": "htmx.org", "version": version,
         "purl": f"pkg:npm/htmx.org@{version}", "licenses": [{"expression": "0BSD"}]},
        {"type": "data", "bom-ref": "wordnet@3.0", "name": "WordNet", "version": "3.0",
         "licenses": [{"license": {"name": "WordNet 3.0 license"}}]},
    ]  # fmt: skip


def main() -> None:
    components, depends = python_packages()
    main_ = next(one for one in components if one["name"] == "memfold")
    components = [one for one in components if one is not main_] + bundled()
    when = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    made = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, main_['bom-ref'] + json.dumps(components))}",
        "version": 1,
        "metadata": {"timestamp": f"{when:%Y-%m-%dT%H:%M:%SZ}", "component": main_},
        "components": components,
        "dependencies": depends,
    }
    print(json.dumps(made, indent=1))


if __name__ == "__main__":
    main()
