"""mkdocs hooks for the site: pages of the whole repository, with working links.

The pages are where a reader of the repository looks for them: docs/, README.md, bench/results/... The site has all of
them under the same names, with docs/ as its root. Linked files that are not pages (SQL, Python) are copied unchanged;
a link to a folder goes to its README.md, or is left out if there is none.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
# Pages outside of docs/ that the navigation names.
NAMED: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "sql/README.md",
    "bench/README.md",
)
FENCED: Final = re.compile(r"^([ \t]*)(```|~~~).*?^\1\2[ \t]*$", re.M | re.S)
LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
# The pages of this build, as Markdown with the site's links.
WRITTEN: Final[dict[str, str]] = {}


def site_path(path: str) -> str:
    """The path on the site of a file of the repository."""
    if path == "README.md":
        return "index.md"
    return path.removeprefix("docs/")


def in_repository(uri: str) -> str:
    """The file in the repository for a page of the site."""
    if uri == "index.md":
        return "README.md"
    return f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri


def target(page: str, link: str) -> str | None:
    """The file of the repository that a link of a page leads to; None: another site, an anchor, a folder without a page."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z]+:", link):
        return None
    found = os.path.normpath(PurePosixPath(page).parent / path)
    if (ROOT / found).is_dir():
        found = os.path.normpath(f"{found}/README.md")
    return found if (ROOT / found).is_file() else None


def linked(page: str) -> set[str]:
    """The files of the repository that a page links to."""
    text = FENCED.sub("", (ROOT / page).read_text())
    return {found for _, _, link in LINK.findall(text) if (found := target(page, link))}


def closure() -> set[str]:
    """All files of the site: pages, and files reached from them."""
    waiting = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")} | set(NAMED)
    found: set[str] = set()
    while waiting:
        path = waiting.pop()
        found.add(path)
        if path.endswith(".md"):
            waiting |= linked(path) - found
    return found


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for path in sorted(closure()):
        if files.get_file_from_path(site_path(path)) is None:
            files.append(File.generated(config, site_path(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    here = in_repository(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        picture, text, link = match.groups()
        found = target(here, link)
        if found is None:
            is_elsewhere = link.startswith("#") or re.match(r"[a-z]+:", link)
            return match[0] if is_elsewhere else text
        anchor = "#" + link.partition("#")[2] if "#" in link else ""
        led = os.path.relpath(site_path(found), PurePosixPath(page.file.src_uri).parent)
        return f"{picture}[{text}]({led}{anchor})"

    done, place = "", 0
    for block in FENCED.finditer(markdown):
        done += LINK.sub(moved, markdown[place : block.start()]) + block[0]
        place = block.end()
    done += LINK.sub(moved, markdown[place:])
    WRITTEN[page.file.src_uri] = done
    return done


def title(path: str) -> str:
    """The first heading of a page."""
    found = re.search(r"^# (.+)$", (ROOT / path).read_text(), re.M)
    return re.sub(r"[`*]", "", found[1]) if found else path


def described(path: str) -> str:
    """The first sentence below the heading of a page."""
    text = FENCED.sub("", (ROOT / path).read_text()).partition("\n")[2]
    for block in re.split(r"\n\s*\n", text.strip()):
        if not block.startswith(("#", "|", "!", "-")):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            return re.split(r"(?<=[.:]) ", plain)[0].rstrip(":")
    return ""


def sections(nav: list[Any]) -> list[tuple[str, list[str]]]:
    """The navigation: the name and pages of each section, in order."""
    return [
        (name, [pages] if isinstance(pages, str) else [page for one in pages for page in _pages(one)])
        for entry in nav
        for name, pages in entry.items()
    ]


def _pages(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [
        page
        for pages in entry.values()
        for page in ([pages] if isinstance(pages, str) else [one for below in pages for one in _pages(below)])
    ]


def llms(nav: list[Any]) -> str:
    """llms.txt: each page of the navigation with what it is about, for models that read the docs."""
    lines = ["# memfold", "", "> " + described("README.md")]
    for name, pages in sections(nav):
        lines += ["", f"## {name}", ""]
        for page in pages:
            path = in_repository(page)
            about = described(path)
            lines.append(f"- [{title(path)}]({page})" + (f": {about}" if about else ""))
    return "\n".join(lines) + "\n"


def on_post_build(*, config: MkDocsConfig) -> None:
    Path(config.site_dir, "llms.txt").write_text(llms(config.nav or []))
    # llms.txt links to the Markdown next to each page
    for uri, text in WRITTEN.items():
        Path(config.site_dir, uri).write_text(text)
