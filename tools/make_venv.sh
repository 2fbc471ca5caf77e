#!/usr/bin/env bash
# Makes a virtual environment with pip: make_venv.sh PYTHON DIRECTORY
#
# Debian keeps the part of `python3 -m venv` that brings pip in a separate package. Root installs that; for others pip comes
# from wherever this machine has it, or from Debian's package, unpacked outside the system.
set -euo pipefail

python=$1 venv=$2

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    echo "installing $package"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q "$package" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null && apt-get install -y -q "$package" >/dev/null; } || true
fi
if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    exec "$python" -m venv --clear "$venv"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$python" -m venv --clear --without-pip "$venv"; then
    echo "$python has no venv module; ask root for: apt-get install python3-venv" >&2
    exit 1
fi
if "$python" -m pip --version >/dev/null 2>&1; then
    "$python" -m pip --python "$venv/bin/python" install -q --disable-pip-version-check pip
    exit
fi
wheel=$(ls /usr/share/python-wheels/pip-*.whl 2>/dev/null | tail -n 1) || true
if [ -z "$wheel" ] && command -v apt-get >/dev/null; then
    echo 'unpacking pip from the package python3-pip-whl'
    mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial"
    own=(-q -o "Dir::State=$work/state" -o Dir::State::status=/var/lib/dpkg/status -o "Dir::Cache=$work/cache")
    (cd "$work" && { apt-get -q download python3-pip-whl ||
        { apt-get "${own[@]}" update && apt-get "${own[@]}" download python3-pip-whl; }; }) >/dev/null 2>&1 || true
    for package in "$work"/python3-pip-whl_*.deb; do
        [ ! -e "$package" ] || dpkg-deb -x "$package" "$work/package"
    done
    wheel=$(ls "$work"/package/usr/share/python-wheels/pip-*.whl 2>/dev/null | tail -n 1) || true
fi
if [ -z "$wheel" ]; then
    echo "$python has no pip, and none is available; ask root for: apt-get install python3-venv" >&2
    exit 1
fi
PYTHONPATH=$wheel "$venv/bin/python" -m pip install -q --disable-pip-version-check pip
