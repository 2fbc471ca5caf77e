#!/usr/bin/env bash
# Installs the dependencies of memfold_py for the Python that the full server's PL/Python is linked with, and prints the
# directory for the PYTHONPATH of its postmaster. For root it is where the server's account can read; else in this work tree.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
bindir=$("${PYTHON:-python3}" "$here/tools/find_full_server.py") || { echo "no full server: $bindir" >&2; exit 3; }
library=$(ldd "$("$bindir/pg_config" --pkglibdir)/plpython3.so" | sed -n 's/.*libpython\(3\.[0-9]*\)[^ ]* => .*/\1/p')
[ -n "$library" ] || { echo "plpython3 of $bindir does not say which Python it is linked with" >&2; exit 3; }
find_python() { command -v "/usr/bin/python$library" || command -v "python$library"; }
if ! find_python >/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    # PL/Python needs only the library
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q "python$library-venv" >&2 || true
fi
python=$(find_python) || {
    echo "PL/Python is linked with Python $library, and there is no python$library here" >&2
    exit 3
}
name=python$library-$(cksum <"$here/plpython/pyproject.toml" | cut -d' ' -f1)
if [ "$(id -u)" -eq 0 ]; then venv=/var/lib/memfold/$name; else venv=$here/.venv-server/$name; fi
mkdir -p "$venv"
chmod 755 "$(dirname "$venv")"
(
    # two work trees may install at the same time
    flock 9
    if [ ! -e "$venv/.made" ]; then
        bash "$here/tools/make_venv.sh" "$python" "$venv" >&2
        "$venv/bin/python" -m pip install -q --disable-pip-version-check "$here/plpython[embed,cjk]" >&2
        chmod -R go+rX "$venv"
        touch "$venv/.made"
    fi
) 9>"$venv.lock"
echo "$venv/lib/python$library/site-packages"
