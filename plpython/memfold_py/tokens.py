"""Words of texts in scripts without spaces, for comparing texts by the words they share."""

from __future__ import annotations

import importlib
import tempfile
from functools import cache
from typing import Any

from memfold_py import UnknownLanguageError

LANGUAGES = ("ja", "zh")

# Particles and auxiliaries occur in every sentence, marks in many: they say little about whether two texts agree.
_JAPANESE_LEFT_OUT = frozenset(("助詞", "記号", "フィラー"))


def tokens(text: str, language: str) -> list[str]:
    """The distinct words of ``text``, sorted by code point; ``language`` is ``zh`` or ``ja``.

    ``text`` is lower-cased already. A negation is a word of its own or part of one; it is never left out. Raises
    UnknownLanguageError, a ValueError, for another language, ModuleNotFoundError without jieba (zh) or janome (ja).
    """
    if language == "zh":
        # Without the hidden Markov model, which invents words that are not in the dictionary.
        found = _chinese().cut(text, HMM=False)
    elif language == "ja":
        found = (
            token.surface
            for token in _japanese().tokenize(text)
            if token.part_of_speech.split(",", 1)[0] not in _JAPANESE_LEFT_OUT
        )
    else:
        raise UnknownLanguageError(f"no tokens for {language!r}, only for {' and '.join(LANGUAGES)}")
    return sorted({word for word in found if any(map(str.isalnum, word))})


@cache
def _chinese() -> Any:
    jieba = importlib.import_module("jieba")
    jieba.setLogLevel("WARNING")
    tokenizer = jieba.Tokenizer()
    # It caches data in a file with a known name in /tmp, and would trust a file that another user has put there.
    with tempfile.TemporaryDirectory() as private:
        tokenizer.tmp_dir = private
        tokenizer.initialize()
    return tokenizer


@cache
def _japanese() -> Any:
    return importlib.import_module("janome.tokenizer").Tokenizer()
