#!/usr/bin/env bash
# The style of the SQL, the safety of its migrations, and the generated canonicalizer against its generator.
set -euo pipefail
cd "$(dirname "$0")/.."
sqlfluff lint --disable-progress-bar --nocolor --processes 0 sql
squawk --pg-version 15 sql/schema/*.sql
python tools/gen_canonicalizer.py --check
if grep -nP '\t| +$' -r sql migrations; then
    echo 'tabs, or spaces at the end of a line' >&2
    exit 1
fi
