"""What a run of the tests has started, and its directory, is gone when the run is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.servers import ROOT
from tests.support.waiting import until

RUN = """
import subprocess
from pathlib import Path
from tests.support import leftovers

run = Path({run!r})
run.mkdir()
leftovers.watch(run)
print(subprocess.Popen(["sleep", "300"], start_new_session=True).pid, flush=True)
input()
"""


@pytest.mark.parametrize("end", [None, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_the_run(tmp_path: Path, end: signal.Signals | None) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", RUN.format(run=str(run))], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout is not None
    server = psutil.Process(int(process.stdout.readline()))
    # it has the directory's name, and a longer path, among its arguments
    bystander = subprocess.Popen(["tail", "-f", "/dev/null", "run", f"{run}.log"], stderr=subprocess.DEVNULL)
    assert run.exists()
    if end is not None:
        process.send_signal(end)
    process.communicate("\n")
    until(
        lambda: not (server.is_running() and server.status() != psutil.STATUS_ZOMBIE), "its server has ended"
    )
    until(lambda: not run.exists(), "its directory is removed")
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
