"""Python names nothing of the schema memfold_internal: any release may change it, and a client works with later ones.

The schema itself is created and dropped by the installation, and read in the catalog by `memfold doctor`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support import servers

# With the reason.
NAMED = {
    "alembic_version": "the installation's revision, which memfold init writes and uninstalling removes",
    "_unanswered": "the sentence of dedup_stats, for all that the role of memfold status sees",
}


def named(path: Path) -> Iterator[str]:
    """What the strings of a file name in that schema; empty: something that is only composed when it runs."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value == "memfold_internal":
                yield ""
            yield from re.findall(r'\bmemfold_internal"?\."?(\w*)', node.value)


def test_only_what_is_listed_is_named() -> None:
    files = sorted((servers.ROOT / "python_client").rglob("*.py"))
    found = {(path.name, name) for path in files for name in named(path)}
    assert {name for _, name in found} == set(NAMED), sorted(found)
