"""The seam: what the extension's functions call. ``plpy`` is handed in, so that all this can be imported without a server."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable

from memfold_py import __version__

Session = dict[str, Any]
"""PL/Python's GD, or any dictionary that lives as long as the session."""


class Refusal(Exception):  # noqa: N818 - what it says is an error, it is not one of ours
    """What a caller is told: SQLSTATE, message, DETAIL and HINT."""

    def __init__(self, sqlstate: str, message: str, detail: str, hint: str) -> None:
        super().__init__(message)
        self.sqlstate, self.detail, self.hint = sqlstate, detail, hint


def run(plpy: Any, session: Session, version: str, function: str, *arguments: Any) -> Any:
    """Call one of FUNCTIONS for an SQL wrapper of that version, and raise what it refuses as an error of SQL."""
    try:
        return call(plpy, session, version, function, *arguments)
    except Refusal as refusal:
        plpy.error(str(refusal), sqlstate=refusal.sqlstate, detail=refusal.detail, hint=refusal.hint)


def call(plpy: Any, session: Session, version: str, function: str, *arguments: Any) -> Any:
    """As ``run``, but raises Refusal."""
    if version != __version__:
        raise Refusal(
            "MF059",
            "the extension memfold_py and its Python package differ",
            f"The extension is {version}, the package {__version__}.",
            "Install the other one of the two, and alter extension memfold_py update (docs/plpython.md).",
        )
    try:
        return FUNCTIONS[function](plpy, session, *arguments)
    except ImportError as error:
        raise Refusal(
            "MF058",
            f"the server's Python lacks a package: {error.name or error}",
            str(error),
            "Install it for the Python of the server: pip install 'memfold_py[embed,cjk]' (docs/plpython.md).",
        ) from error


# --- lemma/1 --------------------------------------------------------------------------------------------------------


def _unknown_language(language: str) -> Refusal:
    from memfold_py import lemma

    return Refusal(
        "MF011",
        "unknown canonicalizer profile",
        f"There is no profile lemma/1 for language {language!r}.",
        f"Languages are {', '.join(lemma.LANGUAGES)}, and auto.",
    )


def profile(_plpy: Any, _session: Session, language: str) -> str:
    """The full name of lemma/1 for a language."""
    from memfold_py import lemma

    if language not in (*lemma.LANGUAGES, "auto"):
        raise _unknown_language(language)
    return f"lemma/1:{language}:{lemma.forms_version()}"


def lemmatize(_plpy: Any, _session: Session, text: str, name: str) -> str:
    """A text by a profile's full name, or by its language."""
    from memfold_py import lemma

    language = name
    if "/" in name:
        kind, _, rest = name.partition(":")
        language, _, forms = rest.partition(":")
        if kind != "lemma/1" or not forms.startswith("simplemma-"):
            raise Refusal("MF011", "unknown canonicalizer profile", f"There is no profile {name!r}.",
                          "As lemma_profile(language) names it.")  # fmt: skip
        if forms != lemma.forms_version():
            raise Refusal(
                "MF059",
                f"the server's lemmatiser is another version than {forms}",
                f"It is {lemma.forms_version()}, and may give other forms, which would split facts.",
                f"Install {forms.replace('-', '==')} for the server's Python; or, with it, rehash_bucket() to prose, and to "
                "lemma with the other (docs/plpython.md).",
            )
    if language not in (*lemma.LANGUAGES, "auto"):
        raise _unknown_language(language)
    return lemma.lemmatize(text, language)


def selftest(_plpy: Any, _session: Session) -> list[tuple[str, str, str, str, bool]]:
    """A row a language: (profile, input, expected, actual, ok)."""
    from memfold_py import golden

    return [
        (name, "golden pairs, and common words of the dictionary", "as they were", "as they were" if ok else why, ok)
        for name, ok, why in golden.selftest()
    ]


# --- embedding --------------------------------------------------------------------------------------------------------


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() and 0 < int(value) <= 10_000 else default


def model_sessions(_plpy: Any, _session: Session) -> int:
    """How many sessions of a database may hold models at a time."""
    return _number("MEMFOLD_MODEL_SESSIONS", 4)


def _resident() -> int:
    """Bytes of memory that this process has; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _load(session: Session, name: str) -> dict[str, Any]:
    from memfold_py import embed

    models: dict[str, dict[str, Any]] = session.setdefault("memfold_py.models", {})
    if name not in models:
        before, started = _resident(), time.monotonic()
        try:
            model = embed.load(embed.find(name), _number("MEMFOLD_MODEL_THREADS", 1))
        except (LookupError, ValueError, OSError) as error:
            raise Refusal(
                "MF058",
                f"the server cannot load the embedding model {name!r}",
                str(error),
                "Put its directory into one of MEMFOLD_MODELS in the server's environment (docs/plpython.md).",
            ) from error
        models[name] = {
            "model": model, "memory": max(_resident() - before, 0), "seconds": time.monotonic() - started, "texts": 0,
        }  # fmt: skip
    return models[name]


def embed(plpy: Any, session: Session, name: str, texts: list[str | None]) -> list[str]:
    """The vectors of some texts, as pgvector reads them."""
    plans: Session = session.setdefault("memfold_py.plans", {})
    if not plans:
        plans["model"] = plpy.prepare("select dimensions from memfold.embedding_models where model = $1", ["text"])
        plans["holds"] = plpy.prepare("select memfold._holds_model() as may", [])
    registered = plpy.execute(plans["model"], [name])
    if len(registered) == 0:
        raise Refusal("MF013", "unknown embedding model", f"{name!r} is not registered.",
                      "Register it: select register_embedding_model(model, dimensions).")  # fmt: skip
    if any(text is None for text in texts):
        raise Refusal("MF022", "a text is missing", "One of contents was null.", "Pass texts.")
    if not texts:
        return []
    if not plpy.execute(plans["holds"])[0]["may"]:
        # a place that was let go, by DISCARD ALL, is another's now
        session.pop("memfold_py.models", None)
        raise Refusal(
            "MF057",
            "too many sessions hold an embedding model",
            f"{model_sessions(plpy, session)} may, in this database, and do: MEMFOLD_MODEL_SESSIONS in the server's environment.",
            "Let another session do it; ingest_memory() stores without a vector meanwhile, and embed_pending() makes up for it.",
        )
    entry = _load(session, name)
    dimensions = registered[0]["dimensions"]
    if entry["model"].dimensions != dimensions:
        raise Refusal(
            "MF014", "the embedding has the wrong size",
            f"Model {name!r} is registered with {dimensions} dimensions, the server's has {entry['model'].dimensions}.",
            "Register it under another name, with the dimensions that it has.",
        )  # fmt: skip
    vectors = entry["model"].encode(texts)
    entry["texts"] += len(texts)
    # a float32 as a double prints the digits that are read back as the same float32
    return ["[" + ",".join(map(repr, vector)) + "]" for vector in vectors.tolist()]


def loaded(_plpy: Any, session: Session) -> list[tuple[str, str, int, int, float, int]]:
    """Rows of (model, route, dimensions, bytes, seconds, texts embedded)."""
    return [
        (name, one["model"].route, one["model"].dimensions, one["memory"], one["seconds"], one["texts"])
        for name, one in session.get("memfold_py.models", {}).items()
    ]


# --- words --------------------------------------------------------------------------------------------------------------


def tokens(_plpy: Any, _session: Session, text: str, language: str) -> list[str]:
    """The distinct words of a text of a script without spaces."""
    from memfold_py import tokens as words

    if language not in words.LANGUAGES:
        raise Refusal("MF022", "unknown language of words", f"language was {language!r}.",
                      f"Languages are {', '.join(words.LANGUAGES)}.")  # fmt: skip
    return words.tokens(text, language)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (profile, lemmatize, selftest, model_sessions, embed, loaded, tokens)
}
