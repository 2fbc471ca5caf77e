"""What tests of installations share: each way to install, and a role that is none of memfold's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.conftest import Target
from tests.support.queries import DB


@pytest.fixture(params=("alembic", "extension"))
def way(request: pytest.FixtureRequest, target: Target) -> str:
    """Each way of installation that the server has; alembic twice where it has one only."""
    return str(request.param) if target.cluster.extension else "alembic"


@pytest.fixture
def stranger(db: DB) -> Iterator[str]:
    """A role that is none of memfold's."""
    role = f"stranger_{uuid.uuid4().hex[:8]}"
    db.execute(f"create role {role}".encode())
    yield role
    # its databases are gone by now
    db.execute(f"drop role {role}".encode())
