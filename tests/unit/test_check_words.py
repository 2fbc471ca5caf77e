"""tools/check_words.py refuses the words that the glossary replaces."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import ROOT


@pytest.mark.parametrize(("word", "code"), [("who" + "ever", 1), ("anybody", 0)], ids=["refused", "allowed"])
def test_exit_code(tmp_path: Path, word: str, code: int) -> None:
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "check_words.py", tmp_path / "tools")
    (tmp_path / "README.md").write_text(f"For {word} asks.\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "README.md"], cwd=tmp_path, check=True)
    run = subprocess.run(
        [sys.executable, "tools/check_words.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, "README.md:1: " in run.stdout) == (code, bool(code))
