"""docs/memfold.d.ts is what the catalog says."""

from __future__ import annotations

import re
import sys

import pytest

from tests.support.queries import DB
from tests.support.servers import ROOT

sys.path.insert(0, str(ROOT / "tools"))

import gen_typescript

pytestmark = pytest.mark.one_server


def test_the_types_are_those_of_the_catalog(db: DB) -> None:
    text = gen_typescript.FILE.read_text()
    assert gen_typescript.written(db) == text
    named = set(re.findall(r"^  (\w+): \{$", text, re.M))
    public = db.execute(
        "select proname from pg_proc where pronamespace = 'memfold'::regnamespace and prokind = 'f'"
        " and prorettype <> 'trigger'::regtype"
    ).fetchall()
    assert named == {name for (name,) in public}


@pytest.mark.parametrize(
    ("of", "is_"),
    [("text[]", "string[]"), ("bigint", "string"), ("double precision[]", "number[]"), ("vector", "string"),
     ("timestamp with time zone", "Date"), ("jsonb", "Json")],
)  # fmt: skip
def test_a_type_is_what_pg_gives(of: str, is_: str) -> None:
    assert gen_typescript.typed(of) == is_
