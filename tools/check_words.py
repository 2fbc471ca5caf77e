"""Finds words and phrases that memfold's prose avoids, and says what to write instead.

It reads Markdown outside of code, comments and strings of Python, and SQL; identifiers and other code are free.
``--all`` ignores the list of what is allowed.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# a regular expression, and what to write instead
WORDS = {
    ", for (?:all|he|it|nobody|none|she|there|they) (?:is|are|was|were|has|have|had)": "because",
    "(?:rows?|keys?|lines?) an? (?:call|text|candidate|bucket|tenant|memory|judgement|answer|pair)": "per",
    "(?:as|be|been|being|is|are|was|were|not|nor|never) folded": "merged",
    "anew": "again",
    "as ever": "as before, as always",
    "beside (?:an?|the|its?|them|one|what|writers|each|others?|which|those)": "next to, as well as, concurrently with",
    "besides": "in addition to, also, except",
    "by hand": "manually, a person",
    "comes? out otherwise": "differs",
    "dear": "expensive",
    "(?:go|goes|going|gone|went) on with": "continue, resume",
    "enters? (?:a|the|another) tenant": "acts for, is authorized for",
    "fold(?:s|ed)? into": "merge",
    ", for what (?:is|are|was|were|it|they|he|nobody)": "because",
    "(?<!there.)(?:is|are|was|were) no (?:duplicate|file|json|member|name|neighbour|part|superuser|table|text)": "is not a",
    "in the place of": "in place of",
    "leads? (?:on|elsewhere)": "points to another memory, is re-pointed",
    "less one": "minus one",
    "lets? go of": "releases, drops",
    "live (?:memory|memories|rows?|texts?|vectors?)": "active",
    "meanwhile": "at the same time, in the meantime, since",
    "moot": "obsolete",
    "never folds?": "never merges",
    "persons?'s hand": "manual action",
    "shall": "must, should, will",
    "speaks? against": "argues against, differs",
    "t(?:ak(?:es?|en|ing)|ook) (?:(?:it|that|them|this) )?back": "undo, revert, roll back, revoke",
    "tenants?'? walls?": "tenant isolation",
    "thereby": "by this, so",
    "thrice": "three times",
    "to be had": "available, possible",
    "undone folds?": "undone merge",
    "unasked": "without asking",
    "upkeep": "maintenance",
    "ways? in": "installation method",
    "whoever": "anyone who, no matter who, the one that",
}
# Data, generated and recorded files, and this one.
_SKIPPED = re.compile(
    r"LICENSE|bench/results/|docs/reference\.md|tests/data/|sql/schema/\S*(guard|lexicon)\.sql"
    r"|sql/functions/(11_canonical/_lexicon|22_guard/_guard\w*)\.sql|plpython/memfold_py/(golden|lemma|words)\.py"
    r"|tools/(check_words|gen_lexicon)\.py"
)
# Lines that are right as they are: path, part of the line, reason.
_ALLOWED = (
    ("CONTRIBUTING.md", "the ways in which", "not a method of installing"),
    ("bench/peers.py", "for way in", "code in an f-string"),
    ("tests/support/chat_server.py", "should|now", "what people write to a judge"),
)
_BETWEEN = r"(?:\s|--|#)+"
_FOUND = re.compile(
    r"\b(?:" + "|".join(word.replace(" ", _BETWEEN) for word in WORDS) + r")\b", re.IGNORECASE
)
_CODE = re.compile(r"^( *)```.*?^\1```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def _prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield pieces of prose, each with the number of its first line."""
    if path.suffix == ".md":
        yield 1, _CODE.sub(lambda code: "\n" * code[0].count("\n") or "`", text)
    elif path.suffix == ".py":
        prose = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in prose and " " in token.string:
                yield token.start[0], token.string
    else:
        yield 1, text


def _hits(name: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, line and what was found, for each hit in a file."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if not _FOUND.search(text):
        return
    lines = text.split("\n")
    for start, piece in _prose(Path(name), text):
        for match in _FOUND.finditer(piece):
            number = start + piece.count("\n", 0, match.start())
            yield number, lines[number - 1], match[0]


def _instead(found: str) -> str:
    return next(
        new for old, new in WORDS.items() if re.fullmatch(old.replace(" ", _BETWEEN), found, re.IGNORECASE)
    )


def main() -> int:
    """Print the hits; fail if there are any."""
    everything = "--all" in sys.argv[1:]
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.sql", "Makefile"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    count = 0
    for name in listed.stdout.splitlines():
        if _SKIPPED.match(name) or not (ROOT / name).is_file():
            continue
        for number, line, found in _hits(name):
            if not everything and any(name == path and part in line for path, part, _ in _ALLOWED):
                continue
            count += 1
            print(f"{name}:{number}: {found!r}: write {_instead(found)}")
    if count:
        print(f"{count} words to replace", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
