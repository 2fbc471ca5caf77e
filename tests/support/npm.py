"""Packages from npm for tests: the official inspector of MCP servers, and axe-core, which finds accessibility faults."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

INSPECTOR = "@modelcontextprotocol/inspector@0.15.0"
"""The first of which these tests know that it runs on Node.js 20."""
AXE = "axe-core@4.10.3"
NODE = 20


@functools.cache
def why_not() -> str | None:
    """Why npm is not usable here; None if it is."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        return "npm is not installed"
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.", told)
    if found is None or int(found[1]) < NODE:
        return f"it needs Node.js {NODE}, this is {told.strip() or 'none'}"
    return None


def install(package: str, directory: Path) -> tuple[Path | None, str]:
    """Install a package into a directory; its node_modules, or None and why not."""
    if why := why_not():
        return None, why
    done = subprocess.run(
        ["npm", "install", "--prefix", directory, "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error",
         package],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"npm install failed: {done.stderr[-500:]}")
    return directory / "node_modules", ""
