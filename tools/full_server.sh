#!/usr/bin/env bash
# Sets up the full server: the system's PostgreSQL 15+ with plpython3u, pgvector 0.8+ and, where there is one,
# plpgsql_check. Does nothing if everything is installed. Touches no existing cluster, and creates none.
#
# It installs Debian's packages; if pgvector is not among them (Debian 12), it builds the source package of the next release,
# from the machine's own apt sources. Exit code 3: it is not possible here, and the last line says why.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
apt=(apt-get -y -q -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold --no-install-recommends)
export DEBIAN_FRONTEND=noninteractive

by_hand="a DBA would install PostgreSQL 15 or newer with plpython3u and pgvector 0.8 or newer"

say() { printf 'full server: %s\n' "$*"; }
give_up() {
    say "$*"
    exit 3
}
# Optional daemons, which tests start themselves: pgbouncer, and Prometheus with its exporter. Debian's packages would also start
# services; this prevents it.
daemons() {
    local wanted=() policy=/usr/sbin/policy-rc.d ours= package
    for package in pgbouncer prometheus prometheus-postgres-exporter; do
        [ -n "$(PATH=$PATH:/usr/sbin command -v "$package")" ] || wanted+=("$package")
    done
    [ ${#wanted[@]} -gt 0 ] || return 0
    { [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; } || return 0
    if [ ! -e "$policy" ]; then
        ours=yes
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy"
    fi
    for package in "${wanted[@]}"; do
        known "$package" || { "${apt[@]}" update >/dev/null && known "$package"; } || continue
        install "$package" || say "$package cannot be installed; its tests are left out"
        update-rc.d "$package" disable >/dev/null 2>&1 || true
    done
    [ -z "$ours" ] || rm -f "$policy"
}
# The browser for the tests of the page.
browser() {
    local package=chromium-driver
    { ! command -v chromedriver || ! command -v chromium; } >/dev/null || return 0
    { [ "$(id -u)" -eq 0 ] && [ -z "${MEMFOLD_FULL_SERVER:-}" ] && command -v apt-get >/dev/null; } || return 0
    known "$package" || { "${apt[@]}" update >/dev/null && known "$package"; } || return 0
    install chromium "$package" || say "chromium cannot be installed; its tests are left out"
}
finish() {
    daemons
    browser
    say "$("$1/postgres" -V | awk '{ print $3 }') at $1"
    exit 0
}

# Whether apt knows a version of the package. Debian's images come without lists, so this may need an update first.
updated=no
update() {
    [ "$updated" = no ] || return 0
    "${apt[@]}" update >/dev/null || give_up "cannot be set up: apt-get update failed ($by_hand)"
    updated=yes
}
# Read the whole answer first: a reader that closes a pipe early makes the writer fail.
candidate() {
    local answer
    answer=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null)
    [[ $answer =~ Candidate:\ ([^$'\n']*) ]] && [ "${BASH_REMATCH[1]}" != '(none)' ] && echo "${BASH_REMATCH[1]}"
}
known() { candidate "$1" >/dev/null; }
have() { known "$1" || { update && known "$1"; }; }
install() {
    local wanted=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || wanted+=("$package")
    done
    [ ${#wanted[@]} -gt 0 ] || return 0
    say "installing ${wanted[*]}"
    # Old lists name files that no longer exist: try again with new ones.
    "${apt[@]}" install "${wanted[@]}" >/dev/null || { update && "${apt[@]}" install "${wanted[@]}" >/dev/null; }
}

# plpgsql_check is optional: install it only if apt already knows it.
major=
if found=$("$python" "$here/find_full_server.py"); then
    bindir=$found
    major=$(basename "$(dirname "$bindir")")
    if [ "$(id -u)" -ne 0 ] || [ -n "${MEMFOLD_FULL_SERVER:-}" ] || ! command -v apt-get >/dev/null ||
        [ -e "$("$bindir/pg_config" --sharedir)/extension/plpgsql_check.control" ] ||
        ! known "postgresql-$major-plpgsql-check"; then
        finish "$bindir"
    fi
fi
[ "$(id -u)" -eq 0 ] || give_up "cannot be set up: $found, and only root can install packages ($by_hand)"
[ -z "${MEMFOLD_FULL_SERVER:-}" ] || give_up "cannot be set up: MEMFOLD_FULL_SERVER says $found"
command -v apt-get >/dev/null || give_up "cannot be set up: $found, and there is no apt-get ($by_hand)"

# Complete an installed server; otherwise install the one that the system prefers.
for bindir in $([ -n "$major" ] || ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -n -r); do
    version=$(basename "$(dirname "$bindir")")
    if [ -x "$bindir/postgres" ] && [ "$version" -ge 15 ] 2>/dev/null && have "postgresql-plpython3-$version"; then
        major=$version
        break
    fi
done
if [ -z "$major" ]; then
    have postgresql || give_up "cannot be set up: apt knows no package postgresql ($by_hand)"
    answer=$(LC_ALL=C apt-cache depends postgresql)
    [[ $answer =~ Depends:\ postgresql-([0-9]+) ]] && major=${BASH_REMATCH[1]}
    [ "${major:-0}" -ge 15 ] || give_up "cannot be set up: the system's PostgreSQL ${major:-?} is too old ($by_hand)"
fi
bindir=/usr/lib/postgresql/$major/bin

# Debian's package creates and starts a cluster on its first installation; this prevents it.
if [ ! -x "$bindir/postgres" ]; then
    install postgresql-common
    conf=/etc/postgresql-common/createcluster.conf
    kept=$(mktemp)
    cp -p "$conf" "$kept"
    trap 'cp -p "$kept" "$conf"; rm -f "$kept"' EXIT
    printf 'create_main_cluster = false\n' >>"$conf"
fi
install "postgresql-$major" "postgresql-plpython3-$major"
if [ -n "${kept:-}" ]; then
    cp -p "$kept" "$conf"
    rm -f "$kept"
    trap - EXIT
fi
if known "postgresql-$major-plpgsql-check"; then
    install "postgresql-$major-plpgsql-check"
fi

control=$("$bindir/pg_config" --sharedir)/extension/vector.control
pgvector=$(candidate "postgresql-$major-pgvector") || true
if [ ! -e "$control" ] && [ -n "$pgvector" ] && [[ ! $pgvector =~ ^0\.[0-7][.+~-] ]]; then
    install "postgresql-$major-pgvector"
fi
if ! found=$("$python" "$here/find_full_server.py"); then
    # The source package of the next release, built for this server.
    . /etc/os-release
    case "${VERSION_CODENAME:-}" in
        bookworm) next=trixie ;;
        *) give_up "cannot be set up: $found, and no package of pgvector 0.8 is known for this system ($by_hand)" ;;
    esac
    update
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $VERSION_CODENAME" \
        'Component: main' 'Origin: Debian')
    mirror=${mirror%%$'\n'*}
    [ -n "$mirror" ] || give_up "cannot be set up: apt has no sources for $VERSION_CODENAME ($by_hand)"
    install gcc make libc6-dev dpkg-dev "postgresql-server-dev-$major"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/source"
    # apt downloads as its own account, which must be able to enter this directory.
    chmod 755 "$work" "$work/source"
    if id -u _apt >/dev/null 2>&1; then chown _apt "$work/lists/partial" "$work/source"; fi
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ ! -e "$keys" ] || signed="[signed-by=$keys] "
    printf 'deb-src %s%s %s main\n' "${signed:-}" "$mirror" "$next" >"$work/next.list"
    source=("${apt[@]}" -o "Dir::Etc::SourceList=$work/next.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$work/lists" -o Dir::Cache::srcpkgcache= -o Dir::Cache::pkgcache=)
    say "building pgvector from the source package of $next"
    "${source[@]}" update >/dev/null
    (cd "$work/source" && "${source[@]}" source --only-source pgvector >/dev/null)
    # OPTFLAGS: no processor-specific instructions. with_llvm: no second copy for the JIT compiler.
    for goal in all install; do
        make -s -C "$work"/source/pgvector-*/ $goal OPTFLAGS= with_llvm=no "PG_CONFIG=$bindir/pg_config" >/dev/null
    done
    found=$("$python" "$here/find_full_server.py") || give_up "cannot be set up: $found ($by_hand)"
fi
finish "$found"
