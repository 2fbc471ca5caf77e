"""The functions behind the SQL functions of the extension memfold_py.

They call ``run``, and pass ``plpy``, which this package does not import; all else needs no database. Expected failures
are a ``Refusal``, with the four parts of an error of memfold. Models stay in GD, PL/Python's dictionary
of the session.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memfold_py import UnknownLanguageError, __version__, embed, golden, lemma, tokens

SESSIONS = "MEMFOLD_MODEL_SESSIONS"
"""The environment variable for how many sessions of a database may hold models at the same time; default 4."""

THREADS = "MEMFOLD_MODEL_THREADS"
"""The environment variable for the number of threads in which a session computes; default 1."""

_PACKAGES = {
    "simplemma": "",
    "jieba": "[cjk]",
    "janome": "[cjk]",
    "sentence_transformers": "[torch]",
    "torch": "[torch]",
}


class Refusal(Exception):  # noqa: N818 (as the database calls it)
    """A failure that the caller can correct: the arguments of plpy.error."""

    def __init__(self, sqlstate: str, message: str, detail: str, hint: str) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.message = message
        self.detail = detail
        self.hint = hint


@dataclass
class _Loaded:
    """A model of this session."""

    model: embed.Model
    resident: int
    seconds: float
    texts: int = 0


@dataclass
class _Session:
    """The data that a session keeps in its GD."""

    models: dict[str, _Loaded] = field(default_factory=dict)


def run(plpy: Any, GD: dict[str, Any], sql_version: str, function: str, *args: Any) -> Any:  # noqa: N803
    """As ``call``, for an SQL function: with its permission to hold a model, and with errors as SQL errors."""
    try:
        if function != "embed":
            return call(GD, sql_version, function, *args)
        if not args[1]:
            return []
        dimensions = _registered(plpy, args[0])
        if not plpy.execute("select memfold_internal._holds_model() as may")[0]["may"]:
            # another session may now hold a slot that was released, as by DISCARD ALL
            call(GD, sql_version, "unload")
            raise Refusal(
                "MF057",
                "too many sessions hold an embedding model",
                f"At most {_sessions(None)} may in this database ({SESSIONS} in the server's environment).",
                "Use one of them. Other sessions store without a vector (ingest_memory), and embed_pending() adds it later.",
            )
        vectors = call(GD, sql_version, function, *args)
        if len(vectors[0]) != dimensions:
            raise Refusal(
                "MF014",
                "the embedding has the wrong number of dimensions",
                f"Model {args[0]!r} is registered with {dimensions} dimensions, the server's has {len(vectors[0])}.",
                "Register it under another name, with its actual number of dimensions.",
            )
        # a float32 as a double prints digits that are read as the same float32
        return ["[" + ",".join(map(repr, vector)) + "]" for vector in vectors]
    except Refusal as refusal:
        plpy.error(refusal.message, sqlstate=refusal.sqlstate, detail=refusal.detail, hint=refusal.hint)


def _registered(plpy: Any, model: str) -> int:
    """The dimensions of a registered model: only roles that may register models decide what this server loads."""
    plan = plpy.prepare("select dimensions from memfold.embedding_models where model = $1", ["text"])
    rows = plpy.execute(plan, [model])
    if len(rows) == 0:
        raise Refusal(
            "MF013",
            "unknown embedding model",
            f"{model!r} is not registered.",
            "A member of memfold_owner registers it: select memfold.register_embedding_model(embedding_model, dimensions).",
        )
    dimensions: int = rows[0]["dimensions"]
    return dimensions


def call(GD: dict[str, Any], sql_version: str, function: str, *args: Any) -> Any:  # noqa: N803 (PL/Python's name)
    """Execute the SQL function and return its value. Raises Refusal; KeyError for an unknown function."""
    session = GD.get("memfold_py")
    if session is None:
        if sql_version != __version__:
            raise Refusal(
                "MF059",
                "the extension memfold_py and its Python package differ in version",
                f"The extension is {sql_version}, the package {__version__}.",
                f"Install memfold_py {sql_version} into the server's Python, or ALTER EXTENSION memfold_py UPDATE; "
                "then reconnect.",
            )
        session = GD["memfold_py"] = _Session()
    with _refusing():
        return _FUNCTIONS[function](session, *args)


def _lemmatize(session: _Session, text: str, profile: str) -> str:
    """The lemmatised text; ``profile`` is a language, or a whole name, as lemma/1:en:simplemma-2.0.0."""
    _text(text)
    if "/" not in profile:
        return lemma.lemmatize(text, profile)
    rules, _, rest = profile.partition(":")
    language, _, forms = rest.partition(":")
    if rules != "lemma/1" or not forms:
        raise Refusal(
            "MF011",
            f'there is no profile "{profile}"',
            f"This package has profiles such as {_profile(session, 'en')}.",
            "See docs/plpython.md for the profiles.",
        )
    if forms != lemma.forms_version():
        raise Refusal(
            "MF059",
            "the profile's dictionary is not the installed one",
            f"The profile {profile} needs {forms}; installed is {lemma.forms_version()}.",
            f"Install {forms.replace('-', '==')} into the server's Python. To change over: rehash_bucket() to prose with "
            f"the old one, then to {_profile(session, language)} (docs/plpython.md).",
        )
    return lemma.lemmatize(text, language)


def _profile(session: _Session, language: str) -> str:
    """The whole name of the profile of a language, or of auto."""
    lemma.check(language)
    return f"lemma/1:{language}:{lemma.forms_version()}"


def _embed(session: _Session, model: str, texts: list[str]) -> list[list[float]]:
    """Vectors of some texts. A model is loaded at its first use."""
    if not texts:
        raise _bad("The array has no text.", "Pass at least one.")
    for text in texts:
        _text(text)
    if not isinstance(model, str):
        raise _bad("The model is null.", "Pass its name.")
    if model not in session.models:
        session.models[model] = _load(model, _number(THREADS, 1))
    entry = session.models[model]
    vectors: list[list[float]] = entry.model.encode(texts).tolist()
    entry.texts += len(texts)
    return vectors


def _unload(session: _Session) -> None:
    """Release all models."""
    session.models.clear()


def _sessions(_session: _Session | None) -> int:
    return _number(SESSIONS, 4)


def _number(name: str, default: int) -> int:
    """Return the value of an environment variable, if it is a number from 1 to 999."""
    value = os.environ.get(name, "")
    return int(value) if re.fullmatch("[1-9][0-9]{0,2}", value) else default


def _load(name: str, threads: int) -> _Loaded:
    path = embed.find(name)
    resident, started = _resident(), time.monotonic()
    model = embed.load(path, threads)
    model.encode(["a"])  # the first run reserves memory too
    return _Loaded(model, max(0, _resident() - resident), time.monotonic() - started)


def _loaded(session: _Session) -> list[tuple[str, str, int, int, float, int]]:
    """This session's models: name, route, dimensions, bytes (0: not known) and seconds that loading took, texts embedded."""
    return [
        (name, entry.model.route, entry.model.dimensions, entry.resident, entry.seconds, entry.texts)
        for name, entry in sorted(session.models.items())
    ]


def _tokens(session: _Session, text: str, language: str) -> list[str]:
    _text(text)
    return tokens.tokens(text, language)


def _selftest(_session: _Session) -> list[tuple[str, str, str, str, bool]]:
    """One row per language, in the format of canonicalizer_selftest(): profile, input, expected, actual, ok."""
    return [
        (
            name,
            "golden pairs, and common words of the dictionary",
            "as they were",
            "as they were" if ok else why,
            ok,
        )
        for name, ok, why in golden.selftest()
    ]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "lemmatize": _lemmatize,
    "profile": _profile,
    "embed": _embed,
    "unload": _unload,
    "sessions": _sessions,
    "loaded": _loaded,
    "tokens": _tokens,
    "selftest": _selftest,
}


@contextmanager
def _refusing() -> Iterator[None]:
    """Translate the exceptions of the modules into SQL errors."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        raise Refusal(
            "MF058",
            f'the Python package "{name}" is missing',
            str(error),
            f"pip install 'memfold_py{_PACKAGES.get(name, '[embed]')}' into the server's Python, see docs/plpython.md; "
            "then reconnect.",
        ) from error
    except LookupError as error:
        if isinstance(error, (KeyError, IndexError)):
            raise  # a bug here
        raise Refusal(
            "MF058",
            "the model is missing",
            str(error),
            f"Put its directory into one of those that the server's {embed.MODELS} names, see docs/plpython.md.",
        ) from error
    except (embed.ModelError, ImportError, OSError) as error:
        raise Refusal(
            "MF058",
            "a model or a package cannot be loaded",
            f"{type(error).__name__}: {error}",
            "See docs/plpython.md for the models and versions that are known to work.",
        ) from error
    except UnknownLanguageError as error:
        raise Refusal("MF011", "the language is not known", str(error), "Pass one of those.") from error


def _text(text: object) -> None:
    if not isinstance(text, str):
        raise _bad("A text is null.", "Pass texts.")
    if "\0" in text:
        raise _bad("A text contains the character U+0000.", "Remove it.")


def _bad(detail: str, hint: str) -> Refusal:
    return Refusal("MF022", "an argument is not allowed", detail, hint)


def _resident() -> int:
    """Bytes of memory that this process holds, if the system reports it; else 0."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, ValueError):
        return 0
