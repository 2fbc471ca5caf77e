"""Finds the one JSON object in a model's reply: tolerantly, but without guessing.

Models put fences, prose and reasoning around the answer. The answer itself must still be unambiguous: a truncated
object, or two different ones, are not accepted. Errors do not quote the text, because it may quote memories.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

from memfold.client.judging.prompt import Json

_REASONING: Final = re.compile(r"<(/?)(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
# A brace that begins an object rather than prose; that object must be complete. Otherwise an object within one that
# breaks off would pass for the answer.
_OBJECT: Final = re.compile(r"""\{\s*(?:["'}]|\w+\s*:)""")


class UnreadableError(ValueError):
    """There is no JSON object, or it is unclear which one is meant. The text says why."""


def read_body(body: bytes) -> Json:
    """The JSON object of a reply. Raises ValueError."""
    try:
        value = json.loads(body, parse_constant=_no_number, object_pairs_hook=_members)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def read_object(text: str) -> Json:
    """The JSON object that a text is or contains. Raises UnreadableError."""
    whole = text.strip()
    if not whole.startswith("{"):
        whole = _without_reasoning(whole)
    found: Json | None = None
    at = 0
    while (begin := whole.find("{", at)) >= 0:
        if _OBJECT.match(whole, begin) is None:
            at = begin + 1
            continue
        made, at = _decode(whole, begin)
        if found is not None and made != found:
            raise UnreadableError("the answer contains different JSON objects")
        found = made
    if found is None:
        raise UnreadableError("the answer is not a JSON object, and contains none")
    return found


def _without_reasoning(text: str) -> str:
    """The text after a model's reasoning, whose opening tag some endpoints leave out."""
    tags = list(_REASONING.finditer(text))
    if not tags:
        return text
    if not tags[-1][1]:
        raise UnreadableError("the answer ends within its reasoning")
    return text[tags[-1].end() :]


def _decode(text: str, begin: int) -> tuple[Json, int]:
    """The object that begins there, and where it ends."""
    try:
        made, end = _DECODER.raw_decode(text, begin)
    except RecursionError:
        raise UnreadableError("the answer is nested too deep") from None
    except _TwiceError:
        raise UnreadableError("the answer has a member twice") from None
    except json.JSONDecodeError as error:
        breaks_off = error.pos >= len(text) or error.msg.startswith("Unterminated string")
        cause = "it breaks off" if breaks_off else "its JSON is not valid"
        raise UnreadableError(f"the answer is not a JSON object: {cause}") from None
    except ValueError:
        raise UnreadableError("the answer is not a JSON object: its JSON is not valid") from None
    return made, end


class _TwiceError(ValueError):
    """An object has a member twice."""


def _members(pairs: list[tuple[str, Any]]) -> Json:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _TwiceError
    return made


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number, object_pairs_hook=_members)
