#!/usr/bin/env bash
# Installs what memfold_py asks for, for the Python that the full server's PL/Python is linked with, and prints the directory
# to put on the PYTHONPATH of its postmaster. For root it lies where the server's account can read; else in this work tree.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
bindir=$("${PYTHON:-python3}" "$here/tools/find_full_server.py") || { echo "no full server: $bindir" >&2; exit 3; }
library=$(ldd "$("$bindir/pg_config" --pkglibdir)/plpython3.so" | sed -n 's/.*libpython\(3\.[0-9]*\)[^ ]* => .*/\1/p')
[ -n "$library" ] || { echo "plpython3 of $bindir does not say which Python it is linked with" >&2; exit 3; }
python=$(command -v "/usr/bin/python$library" || command -v "python$library") || {
    echo "PL/Python is linked with Python $library, and there is no python$library here" >&2
    exit 3
}
if [ "$(id -u)" -eq 0 ]; then venv=/var/lib/memfold/python$library; else venv=$here/.venv-server; fi
stamp=$venv/.made-of-$(cksum <"$here/plpython/pyproject.toml" | tr ' ' -)
if [ ! -e "$stamp" ]; then
    mkdir -p "$(dirname "$venv")"
    bash "$here/tools/make_venv.sh" "$python" "$venv" >&2
    # the package itself from its directory: built in a copy, for the server's Python may be another one's
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "$here/plpython[embed,cjk]" >&2
    chmod -R go+rX "$venv"
    touch "$stamp"
fi
echo "$venv/lib/python$library/site-packages"
