"""Checks of arguments that the server or psycopg would not report clearly."""

from __future__ import annotations

from typing import Any

from memfold.client.errors import InvalidTextError


def check_text(name: str, text: Any) -> None:
    """Raise MF030 for characters that PostgreSQL cannot store."""
    if text is None:
        return
    if not isinstance(text, str):
        raise TypeError(f"{name} must be str, not {type(text).__name__}")
    if "\0" in text:
        detail = f"{name} has a NUL at position {text.index(chr(0))}."
    else:
        try:
            text.encode()
            return
        except UnicodeEncodeError as error:
            detail = (
                f"{name} has a lone surrogate (U+{ord(text[error.start]):04X}) at position {error.start}."
            )
    raise InvalidTextError(
        "the text cannot be stored",
        detail=detail,
        hint="PostgreSQL stores any other character.",
    )


def checked_number(name: str, value: Any) -> float:
    """The value as a float, if it is a number."""
    if isinstance(value, bool | str | bytes) or not hasattr(value, "__float__"):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}")
    return float(value)
