"""What the second server runs in ``make test``: tests on which another version of PostgreSQL may differ.

That is what is marked core, each_server or full_server, and these files. The rest is Python, and PL/pgSQL that calls what
has not changed; ``make nightly`` runs it on both.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.rounds import NIGHTLY

ROOT = Path(__file__).resolve().parents[2]
DIFFERS = (
    # installation, upgrades, dumps, replication
    "tests/install",
    # PL/Python, the server's statistics, its extensions
    "tests/environments", "contrib",
    # DDL and locks on tables of others
    "tests/adopt/test_adopt.py", "tests/adopt/test_adopt_fire.py", "tests/adopt/test_adopt_locks.py",
    # locks: which are taken, who waits for whom
    "tests/adversarial/test_concurrency.py", "tests/adversarial/test_lock_counts.py", "tests/adversarial/test_locks.py",
    "tests/adversarial/test_stress.py",
    # plans and costs
    "tests/sql/test_query_plans.py", "tests/sql/test_vector_index.py", "tests/sql/test_tenant_isolation.py",
    "tests/sql/test_counters.py",
    # settings, catalogs, privileges, constraints, the server's own messages
    "tests/sql/test_settings.py", "tests/sql/test_catalog.py", "tests/sql/test_surface.py", "tests/sql/test_no_bypass.py",
    "tests/sql/test_bad_input.py", "tests/sql/test_options.py", "tests/sql/test_databases.py", "tests/client/test_cli.py",
    # characters, regular expressions, text search
    "tests/sql/test_canonicalizer.py", "tests/sql/test_guard.py", "tests/sql/test_guard_languages.py",
    "tests/sql/test_word_search.py",
)  # fmt: skip


def runs(path: Path) -> bool:
    """Whether the second server runs a test of this file that has no mark."""
    name = path.relative_to(ROOT).as_posix()
    return NIGHTLY or any(name == one or name.startswith(f"{one}/") for one in DIFFERS)
