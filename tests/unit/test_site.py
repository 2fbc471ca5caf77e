"""The docs site: every page is in it and in llms.txt, links resolve, and nothing is loaded from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.servers import ROOT

PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
SCRIPT = re.compile(r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"?(https?://[^\">\s]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", to],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return to


def test_every_page_is_in_the_navigation_and_in_llms_txt(site: Path) -> None:
    told = re.findall(r"^- \[.+?\]\((\S+)\): \S", (site / "llms.txt").read_text(), re.M)
    assert set(PAGES) <= set(told)
    assert len(told) == len(set(told))
    for page in told:
        assert (site / page).read_text().startswith("#")
        assert Path(site, page.replace("README.md", "index.md")).with_suffix(".html").exists()
    home = (site / "index.html").read_text()
    missing = [
        page
        for page in PAGES
        if f'href="{page.replace("README.md", "index.md").removesuffix(".md")}.html"' not in home
    ]
    assert missing == []


def test_links_resolve_and_pages_need_no_other_host(site: Path) -> None:
    dead = []
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert SCRIPT.findall(text) == []
        for link in re.findall(r"href=\"([^\"#:?]+)[\"#?]", text):
            if not link.startswith("/") and not (page.parent / link).exists():
                dead.append((page.relative_to(site).as_posix(), link))
    assert dead == []
    assert len(list(site.rglob("*.html"))) > 50
