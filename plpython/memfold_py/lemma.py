"""Lemmas, for merging texts that differ only in inflection: "user likes dogs" is "user liked dogs".

What becomes one text is stored as one fact, silently. Replacing too little costs nothing, replacing too much loses
facts. So a word is replaced by its lemma only if it is written wholly in lower case and of letters alone (a capitalised
word may be a name), is not a function word, is in simplemma's dictionary (simplemma also guesses; guesses are not
used), and is one of the few forms in ``_FORMS``, which leave person, mood, voice and degree as they are.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

from memfold_py import UnknownLanguageError
from memfold_py.words import FUNCTION, IRREGULAR, OWN_SENSE

LANGUAGES = ("de", "en", "es", "fr", "it", "pt")
"""The languages that have lists of function words and golden pairs. Other languages express negation or roles by endings."""

AUTO = "auto"

# Quoted text is not changed. A word is surrounded by blanks, with no other characters than those of prose:
# with any other character in or next to it (a_b, a.b, x:, --flag, @x, it's, well-known) it is not a word.
_PIECE = re.compile(
    r"```.*?```|`[^`]*`|\"[^\"]*\"|“[^”]*”|„[^“”]*[“”]|«[^»]*»"
    r"|(?<!\S)[(¿¡]*(?P<word>[^\W\d_]+)(?=[.,;!?…)]*(?!\S))",
    re.DOTALL,
)
_WORD = re.compile(r"[^\W\d_]+")

# Stems of verbs that need an e to be pronounced: arbeitet, rechnet; but wohnt, lernt.
_GERMAN_E = re.compile(r"[dt]$|[^aeiouäöülrhmn][mn]$")

# "wird verfolgt" and "wird verfolgen" are two facts, and "sie kaufen", unlike "sie kauft", is about several people.
_GERMAN_VERBS_STAY = frozenset(
    (
        "werden",
        "werde",
        "wirst",
        "wird",
        "werdet",
        "wurde",
        "wurden",
        "würde",
        "würden",
        "worden",
        "geworden",
        "sie",
    )
)


def languages() -> tuple[str, ...]:
    """The languages that ``lemmatize`` knows, besides ``auto``."""
    return LANGUAGES


def forms_version() -> str:
    """The source of the lemmas, as in a profile's name: ``simplemma-2.0.0``."""
    return f"simplemma-{_simplemma().__version__}"


def check(language: str) -> None:
    """Raise UnknownLanguageError where ``lemmatize`` would."""
    if language not in (*LANGUAGES, AUTO):
        raise UnknownLanguageError(f"no lemmas for {language!r}, only for {', '.join(LANGUAGES)} and {AUTO}")


def lemmatize(text: str, language: str) -> str:
    """Replace inflected words of ``text`` by their lemmas, and leave every other character unchanged.

    ``text`` is as it was written (its case distinguishes names), in Unicode NFC. ``language`` is one of ``languages()``, or
    ``auto``: then the language is detected, and unclear text is left unchanged. Idempotent, and the same in every
    process. Raises UnknownLanguageError, a ValueError, for another language, ModuleNotFoundError without simplemma.
    """
    if language == AUTO:
        found = detect(text)
        changed = text if found is None else lemmatize(text, found)
        # Otherwise a second run could detect another language, and change more.
        return changed if changed == text or detect(changed) == found else text
    check(language)
    verbs = language != "de" or _GERMAN_VERBS_STAY.isdisjoint(map(str.lower, _WORD.findall(text)))

    def replaced(piece: re.Match[str]) -> str:
        word = piece["word"]
        if not word:
            return piece[0]
        before = piece[0][: -len(word)]
        return before + _lemma(word, language, verbs)

    return _PIECE.sub(replaced, text)


def detect(text: str) -> str | None:
    """The one of ``languages()`` that ``text`` is in, or None if it is unclear.

    It is clear if it has three different words or more, at least 60 % of them known in that language, and a sixth fewer in
    any other. The first call in a process reads all six dictionaries.
    """
    if len(set(_WORD.findall(text))) < 3:
        return None
    detector = _simplemma().LanguageDetector(LANGUAGES, lemmatization_strategy=_dictionary())
    shares = detector.proportion_in_each_language(text)
    (first, language), (second, _) = sorted(
        ((shares.get(name, 0.0), name) for name in LANGUAGES), reverse=True
    )[:2]
    return language if first >= 0.6 and first - second > 1 / 6 else None


def _simplemma() -> Any:
    # By name: type checking needs no library.
    return importlib.import_module("simplemma")


@cache
def _dictionary() -> Any:
    return importlib.import_module("simplemma.strategies").DictionaryLookupStrategy()


@lru_cache(maxsize=65_536)
def _lemma(word: str, language: str, verbs: bool) -> str:
    """The lemma of a word, or the word."""
    if not (word.islower() and word.isalpha()) or word in FUNCTION[language] or word in OWN_SENSE[language]:
        return word
    lemma = lemma_of(word, language)
    if lemma is None or lemma == word or not (lemma.islower() and lemma.isalpha()):
        return word
    # founded -> found -> find: such a lemma is itself a form of another word, and two facts would become equal.
    if (
        lemma in FUNCTION[language]
        or lemma_of(lemma, language) != lemma
        or not _FORMS[language](word, lemma, verbs)
    ):
        return word
    return lemma


def lemma_of(word: str, language: str) -> str | None:
    """The dictionary's lemma of a word, or None if the word is not in it."""
    lemma: str | None = _dictionary().exact_lemma(word, language)
    return lemma


def _english(word: str, lemma: str, verbs: bool) -> bool:
    """Plurals, the third person and regular pasts; irregular forms by list, so participles (broken, seen) stay."""
    if word in IRREGULAR:
        return True
    if word.endswith(("ing", "er", "est")):
        return False
    y_less = lemma[:-1] + "i" if lemma.endswith("y") else lemma
    regular = {
        lemma + "s",
        lemma + "es",
        y_less + "es",
        lemma + "ed",
        y_less + "ed",
        lemma + lemma[-1] + "ed",
    }
    if lemma.endswith("e"):
        regular.add(lemma + "d")
    return word in regular


def _german(word: str, lemma: str, verbs: bool) -> bool:
    """Weak verbs' third person and past; endings of adjectives but -er, which is also the comparative's."""
    if not verbs and word.endswith(("t", "te", "n")):
        return False
    if lemma.endswith("n"):
        stem = lemma[: -2 if lemma.endswith("en") else -1]
        # Otherwise the e marks the subjunctive: "er sage", "ihr saget".
        endings = ("et", "ete", "eten") if _GERMAN_E.search(stem) else ("t", "te", "ten")
        if word in {stem + ending for ending in endings}:
            return True
    return word in {lemma + ending for ending in ("e", "en", "em", "es")}


def _french(word: str, lemma: str, verbs: bool) -> bool:
    """Plurals; third person of the present and imperfect of regular verbs. Participles, future, conditional stay."""
    if word in {lemma + "s", lemma + "x", lemma[:-2] + "aux" if lemma.endswith("al") else ""}:
        participle = lemma.endswith("é") and lemma_of(lemma[:-1] + "er", "fr")
        return not participle
    return _ends(
        word,
        lemma,
        {
            "er": ("e", "ent", "ait", "aient", "eait", "eaient"),
            "ir": ("it", "issent", "issait", "issaient"),
            "re": ("", "ent", "ait", "aient"),
        },
    )


def _spanish(word: str, lemma: str, verbs: bool) -> bool:
    """Plurals; third person singular of the present and the preterite of regular verbs, because there is no pronoun."""
    if word.endswith("s"):
        singular = {lemma + "s", lemma + "es", lemma[:-1] + "ces" if lemma.endswith("z") else ""}
        accentless = _unaccented(lemma) + "es" if lemma.endswith(("ón", "án", "én", "ín", "ún", "és")) else ""
        return word in {*singular, accentless} and (
            word.endswith("os") or not _maybe_verb(lemma, "es", ("ar", "er", "ir"))
        )
    return _ends(word, lemma, {"ar": ("a", "ó"), "er": ("e", "ió"), "ir": ("e", "ió")})


def _portuguese(word: str, lemma: str, verbs: bool) -> bool:
    """As in Spanish. Words in -ares, -eres, -ires may be the second person of the infinitive."""
    if word.endswith("s"):
        plurals = {lemma + "s"}
        if lemma.endswith(("or", "z", "s")):
            plurals.add(lemma + "es")
        if lemma.endswith("m"):
            plurals.add(lemma[:-1] + "ns")
        if lemma.endswith("ão"):
            plurals |= {lemma[:-2] + ending for ending in ("ões", "ães", "ãos")}
        if lemma.endswith(("al", "ol", "ul")):
            plurals |= {lemma[:-1] + "is", _unaccented(lemma[:-1]) + "is"}
        return word in plurals and (word.endswith("os") or not _maybe_verb(lemma, "pt", ("ar", "er", "ir")))
    return _ends(word, lemma, {"ar": ("a", "ou"), "er": ("e", "eu"), "ir": ("e", "iu")})


def _italian(word: str, lemma: str, verbs: bool) -> bool:
    """Plurals of the same gender; third person singular of present, imperfect and preterite of regular verbs."""
    if _ends(
        word,
        lemma,
        {
            "are": ("a", "ava", "ò"),
            "ere": ("e", "eva", "é", "ette"),
            "ire": ("e", "isce", "iva", "ì"),
        },
    ):
        return True
    plurals = {lemma[:-1] + "i"} if lemma.endswith(("o", "e")) else set()
    if lemma.endswith(("co", "go")):
        plurals.add(lemma[:-1] + "hi")
    if lemma.endswith("io"):
        plurals.add(lemma[:-1])
    if lemma.endswith("a"):
        plurals.add(lemma[:-1] + ("he" if lemma.endswith(("ca", "ga")) else "e"))
    return word in plurals and not _maybe_verb(lemma, "it", ("are", "ere", "ire"))


def _ends(word: str, lemma: str, endings: dict[str, tuple[str, ...]]) -> bool:
    """Whether ``word`` is the lemma with its infinitive's ending changed into one of these."""
    return any(
        word == lemma[: -len(infinitive)] + ending
        for infinitive, present in endings.items()
        if lemma.endswith(infinitive)
        for ending in present
    )


def _maybe_verb(noun: str, language: str, infinitives: tuple[str, ...]) -> bool:
    """Whether the plural of ``noun`` may be a verb's second person: "compras pan" is not "compra pan"."""
    stem = noun.rstrip("aeio")
    return any(
        lemma_of(stem + extra + infinitive, language) for infinitive in infinitives for extra in ("", "i")
    )


def _unaccented(word: str) -> str:
    return word.translate(str.maketrans("áéíóúâêô", "aeiouaeo"))


_FORMS: dict[str, Callable[[str, str, bool], bool]] = {
    "de": _german,
    "en": _english,
    "es": _spanish,
    "fr": _french,
    "it": _italian,
    "pt": _portuguese,
}
