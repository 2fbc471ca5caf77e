"""Words of text that is written without spaces, for the lexical tier: Chinese by jieba, Japanese by janome."""

from __future__ import annotations

import functools
import logging
from typing import Any

LANGUAGES = ("zh", "ja")


@functools.lru_cache(maxsize=None)
def _cut(language: str) -> Any:
    if language == "zh":
        import jieba

        jieba.setLogLevel(logging.WARNING)
        # HMM guesses at words that are in no dictionary, and guesses depend on what stands beside
        return functools.partial(jieba.lcut, HMM=False)
    from janome.tokenizer import Tokenizer

    return functools.partial(Tokenizer().tokenize, wakati=True)


def tokens(text: str, language: str) -> list[str]:
    """The distinct words of a text, sorted; language is one of LANGUAGES.

    Of canonical text (prose/1): the words come as they are written. Raises ImportError where the package is missing.
    """
    return sorted({word.strip() for word in _cut(language)(text)} - {""})
