"""Servers end with the run of the tests, however it ends: a process of its own waits for that, also after kill -9.

All that a run starts knows its directory, by the environment or by an argument.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil

RUN = "RUN_OF_TESTS"
"""The environment variable. (Tests of commands take MEMFOLD_... from what they start.)"""


def watch(run: Path) -> None:
    """End what has been started, and remove the directory, when this process is gone."""
    os.environ[RUN] = str(run)
    # out of the process group that a terminal or a time limit ends
    subprocess.Popen(
        [sys.executable, __file__, str(run), str(os.getpid())], start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def on_disk(run: Path) -> str:
    """How the paths of its directories on disk begin."""
    return f"{tempfile.gettempdir()}/{run.name}."


def started_by(run: Path) -> list[psutil.Process]:
    """Processes that have it in their environment, or a path within it as an argument: by whole paths, as this kills."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # including zombies
            paths = [word for word in process.cmdline() if word.startswith((f"{run}/", on_disk(run)))]
            if (paths or process.environ().get(RUN) == str(run)) and process.pid != os.getpid():
                found.append(process)
    return found


def clean(run: Path) -> None:
    # To a postmaster an immediate shutdown: its sessions end with it.
    for way in (signal.SIGQUIT, signal.SIGKILL):
        deadline = time.monotonic() + 10
        for process in started_by(run):
            with suppress(psutil.Error):
                process.send_signal(way if process.name() == "postgres" else signal.SIGKILL)
        while started_by(run) and time.monotonic() < deadline:
            time.sleep(0.1)
    for directory in (run, *Path(tempfile.gettempdir()).glob(f"{run.name}.*")):
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    while os.getppid() == int(sys.argv[2]):
        time.sleep(0.2)
    clean(Path(sys.argv[1]))
