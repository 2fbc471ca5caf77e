"""Text from other sources (memories, endpoints, the server) on its way to a terminal, a log or the record."""

from __future__ import annotations

import json
import os
import re
import traceback
import unicodedata
from typing import Final

MAX_ERROR: Final = 500

_BLANKS: Final = dict.fromkeys(map(ord, "\t\u00a0\u3000"), " ")
_CACHED: Final = 20_000


def _spelled(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def _is_plain(char: str) -> bool:
    """Whether a terminal only draws the character."""
    return char == " " or unicodedata.category(char)[0] not in "CZ"


class _Escapes(dict[int, str]):
    """For str.translate: characters that control a terminal, or are invisible, become escapes."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        made = char if _is_plain(char) else _spelled(char)
        if len(self) < _CACHED:
            self[code] = made
        return made


class _JsonEscapes(dict[int, str]):
    """The same within JSON, as its own escapes."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        # json.dumps can write characters beyond \\uFFFF, and leaves DEL as it is
        made = char if _is_plain(char) else json.dumps(char)[1:-1] if code > 0xFFFF else f"\\u{code:04x}"
        if len(self) < _CACHED:
            self[code] = made
        return made


_ESCAPES: Final = _Escapes({**_BLANKS, 0x0A: "\n"})
_LINE_ESCAPES: Final = _Escapes({**_BLANKS, 0x0A: "\\n"})
# JSON may contain line breaks and tabs between its tokens, never within strings.
_JSON_ESCAPES: Final = _JsonEscapes({0x09: "\t", 0x0A: "\n", 0x0D: "\r"})


def escape(text: str) -> str:
    """The text, escaped for a terminal; line breaks stay."""
    return text.replace("\r\n", "\n").translate(_ESCAPES)


def escape_line(text: str) -> str:
    """The same on one line: no text can pose as the next line."""
    return text.translate(_LINE_ESCAPES)


def escape_json(line: str) -> str:
    """A JSON document with the same value, escaped for a terminal."""
    return line.translate(_JSON_ESCAPES)


def sanitize_text(text: str, longest: int = 2000) -> str:
    """A text for the record, not for a memory: characters that PostgreSQL cannot store are replaced."""
    text = text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
    return text if len(text) <= longest else text[: longest - 1] + "…"


# --- errors of others -------------------------------------------------------------------------------------------

MASK: Final = "***"
_SHORTEST: Final = 8
_LONGEST: Final = 65_536
_known: set[str] = set()

_SECRET: Final = re.compile(
    r"(?i)(?P<before>\b(?:bearer|basic)\s+|\b(?:x-)?(?:api[-_ ]?key|authorization|access[-_ ]?token)[\"']?\s*[:=]\s*[\"']?"
    r"(?:bearer\s+|basic\s+)?)[^\s\"',;]+|\bsk-[\w-]{6,}|(?<=://)[^/\s:@]*:[^/\s@]+(?=@)"
    # of a DSN, in a URI and as an option, quoted or not
    r"|(?P<option>\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.)*'|[^\s'\"&]+)"
)
_SECRET_NAME: Final = re.compile(r"(?i)(?:key|token|secret|password)$")
# Errors of these packages quote requests and replies.
_TALKATIVE: Final = frozenset(
    {"openai", "httpx", "httpx2", "httpcore", "httpcore2", "requests", "aiohttp", "urllib3"}
)


def remember_key(key: str | None) -> None:
    """Never show this key, whatever text quotes it."""
    if key is not None and len(key) >= _SHORTEST:
        _known.add(key)


def mask_keys(text: str) -> str:
    """The text without keys: known ones, those of the environment, and anything that looks like one."""
    secrets = _known | {
        value for name, value in os.environ.items() if len(value) >= _SHORTEST and _SECRET_NAME.search(name)
    }
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return _SECRET.sub(lambda found: f"{found['before'] or found['option'] or ''}{MASK}", text)


def describe_error(error: BaseException) -> str:
    """An error on one line, for a log, a terminal or the record.

    It never contains an endpoint's own words, as far as their source is known: they may quote a memory or a key.
    """
    kind = type(error)
    if kind.__module__.partition(".")[0] in _TALKATIVE:
        status = getattr(error, "status_code", None)
        text = kind.__name__ + (f", status {status}" if isinstance(status, int) else "")
    elif getattr(kind, "speaks_plainly", False):
        text = str(error)
    else:
        text = f"{kind.__name__}: {str(error).partition(chr(10))[0]}" if str(error) else kind.__name__
    return escape_line(mask_keys(text[:_LONGEST]))[:MAX_ERROR]


def format_error(error: BaseException) -> str:
    """A traceback, including the causes, in which each error is described as above."""
    chain: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and not any(one is known for known in chain):
        chain.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    parts = [
        "Traceback (most recent call last):\n"
        + escape("".join(traceback.format_tb(link.__traceback__)))
        + describe_error(link)
        for link in reversed(chain)
    ]
    return "\n\nwhich led to\n\n".join(parts)
