#!/usr/bin/env bash
# Checks the style of the SQL and the safety of its migrations. (The generated canonicalizer: tests/sql/test_canonicalizer.py.)
set -euo pipefail
cd "$(dirname "$0")/.."
# Schema files of a published release never change.
sums() { if command -v sha256sum >/dev/null; then sha256sum --quiet -c SHA256SUMS; else shasum -a 256 --quiet -c SHA256SUMS; fi; }
if [ -e sql/schema/SHA256SUMS ] && ! (cd sql/schema && sums); then
    echo 'A file of a published release was changed. Restore it (git checkout), and put the change into a file of the next' \
        'release: sql/README.md, "A change of the schema"' >&2
    exit 1
fi
sqlfluff lint --processes 0 --disable-progress-bar --nocolor sql contrib
# The first release makes new tables in one transaction, with a lock_timeout set by migrations/env.py: nobody waits for
# them, nothing is half done. Later schema files change what is in use: only the lock_timeout is migrations/env.py's.
squawk --pg-version 15 --exclude prefer-robust-stmts,require-concurrent-index-creation,require-lock-timeout,require-statement-timeout,adding-foreign-key-constraint,constraint-missing-not-valid,prefer-bigint-over-smallint sql/schema/01.00.00_*.sql
later=$(find sql/schema -name '*.sql' ! -name '01.00.00_*')
[ -z "$later" ] || squawk --pg-version 15 --assume-in-transaction --exclude require-lock-timeout,require-statement-timeout $later
if grep -nrP --include='*.sql' --include='*.py' '\t| +$' sql contrib migrations; then
    echo 'tabs, or spaces at the end of a line' >&2
    exit 1
fi
