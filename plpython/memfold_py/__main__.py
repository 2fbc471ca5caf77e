"""``python -m memfold_py install``: copies the extension's control file and scripts to a server's extension directory."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from memfold_py import __version__

FILES = Path(__file__).parent / "extension"


class InstallError(Exception):
    """The files cannot be installed; the message says why, and what to do."""


def extension_directory(pg_config: str) -> Path:
    """Return the extension directory of the server of that pg_config."""
    try:
        done = subprocess.run([pg_config, "--sharedir"], capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        raise InstallError(f"{pg_config} --sharedir failed: {error.stderr.strip()}") from None
    except OSError as error:
        raise InstallError(
            f"cannot run {pg_config}: {error.strerror}\n"
            "Name the server's: --pg-config /usr/lib/postgresql/17/bin/pg_config"
        ) from None
    directory = Path(done.stdout.strip()) / "extension"
    if not directory.is_dir():
        raise InstallError(
            f"there is no directory {directory}\nIs the server of {pg_config} installed, or only its client?"
        )
    return directory


def install(directory: Path) -> list[str]:
    """Copy the files, each atomically; return the names of those that were missing or different."""
    written = []
    for file in sorted(FILES.iterdir(), key=lambda file: file.suffix, reverse=True):  # the control file last
        target, text = directory / file.name, file.read_bytes()
        try:
            if target.is_file() and target.read_bytes() == text:
                continue
            handle, new = tempfile.mkstemp(prefix=f".{file.name}.", dir=directory)
            try:
                with open(handle, "wb") as stream:  # noqa: PTH123 (a file descriptor)
                    stream.write(text)
                Path(new).chmod(0o644)
                Path(new).replace(target)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(new).unlink()
                raise
        except PermissionError:
            raise InstallError(
                f"{Path(sys.executable).name} may not write to {directory}\n"
                f"Run it as the owner of the server's files: sudo {sys.executable} -m memfold_py install ..."
            ) from None
        except OSError as error:
            raise InstallError(f"cannot write {target}: {error.strerror}") from None
        written.append(file.name)
    return written


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m memfold_py", description="Install the extension memfold_py into a PostgreSQL server."
    )
    parser.add_argument("--version", action="version", version=f"memfold_py {__version__}")
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "install", help="copy the control file and the scripts; safe to repeat"
    )
    command.add_argument(
        "--pg-config",
        metavar="PATH",
        default=os.environ.get("PG_CONFIG") or "pg_config",
        help="the server's pg_config; default: PG_CONFIG, else the one on the PATH",
    )
    given = parser.parse_args()
    try:
        directory = extension_directory(given.pg_config)
        written = install(directory)
    except InstallError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    if written:
        print(f"installed in {directory}: {', '.join(written)}")
        print("now, in a database with memfold: create extension memfold_py cascade;")
    else:
        print(f"memfold_py {__version__} is already in {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
