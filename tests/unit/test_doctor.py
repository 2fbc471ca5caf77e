"""What doctor says about a role's rights."""

from __future__ import annotations

import pytest

from memfold.tools.cli._doctor import _dump


@pytest.mark.parametrize(
    ("bypasses", "audits", "reads_all", "missing"),
    [
        (False, False, False, "it needs memfold_auditor and pg_read_all_data"),
        (False, True, False, "it needs pg_read_all_data"),
        (True, False, False, "it needs pg_read_all_data"),
        (True, True, False, "it needs pg_read_all_data"),
        (False, False, True, "it needs memfold_auditor"),
        (False, True, True, None),
        (True, False, True, None),
    ],
)
def test_what_a_dump_needs(bypasses: bool, audits: bool, reads_all: bool, missing: str | None) -> None:
    complete, said = _dump(
        {"role": "r", "is_superuser": False, "bypasses": bypasses, "audits": audits, "reads_all": reads_all}
    )
    assert complete == (missing is None)
    assert said.endswith(missing or "is complete")
