"""docs/reference.md is what the catalog says, its matrix of rights too, and its examples give what it shows."""

from __future__ import annotations

import difflib
import sys

import pytest

from tests.support.queries import DB
from tests.support.servers import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import gen_reference
import rights

pytestmark = pytest.mark.one_server


def test_the_page_is_what_the_catalog_says(db: DB) -> None:
    with db.transaction(force_rollback=True):
        page = gen_reference.make(db)
    stored, made = (gen_reference.comparable(text) for text in (gen_reference.PAGE.read_text(), page))
    assert (
        "\n".join(difflib.unified_diff(stored, made, "docs/reference.md", "the catalog", lineterm="", n=0))
        == ""
    )


def test_rights_that_change_show_in_the_matrix(db: DB) -> None:
    """Privileges, those that a role inherits, and the policies of row-level security."""
    for change, name in (
        (
            "grant execute on function memfold.erase_tenant(text, text, bigint) to memfold_agent",
            "`erase_tenant()`",
        ),
        ("grant update on memfold.links to memfold_judge", "`links`"),
        ("alter policy tenant_read on memfold.runs using (true)", "`runs`"),
        ("alter table memfold.memory_tokens disable row level security", "`memory_tokens`"),
    ):
        with db.transaction(force_rollback=True):
            before = rights.section(db).splitlines()
            db.execute(change.encode())
            changed = {*rights.section(db).splitlines()} - {*before}
        assert any(name in line.split(" | ")[0] for line in changed), change
