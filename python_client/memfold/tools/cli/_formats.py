"""Reads the memories of other programs as candidates: each format names the fields that hold the arguments of ingest.

A format yields records, each an id (None: it has none) and fields. The fields that NAMES lists become arguments of
ingest, those that only repeat another one are counted as not mapped, all others go into the metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from memfold.tools.cli._documents import Fields, as_json, documents, lines
from memfold.tools.cli._shared import fail, file_name, is_stdin, open_file

Record: TypeAlias = tuple[Any, Fields] | str
"""An id and fields; or an entry that is not mapped."""
Item: TypeAlias = tuple[str, Fields | str]
"""The name of a row or record, and its candidate or what is wrong with it."""

NAMES: Mapping[str, tuple[str, ...]] = {
    "content": ("content", "memory", "text", "fact", "data"),
    "memory_type": ("memory_type",),
    "subject": ("subject",),
    "predicate": ("predicate",),
    "object": ("object",),
    "session_id": ("session_id", "run_id"),
    "observed_at": ("observed_at", "updated_at", "created_at", "timestamp"),
    "valid_from": ("valid_from", "valid_at"),
    "valid_until": ("valid_until", "invalid_at", "expired_at", "expiration_date"),
    "source_turn_ids": ("source_turn_ids", "episodes", "episode_uuids"),
    "source_confidence": ("source_confidence",),
    "extractor_confidence": ("extractor_confidence",),
    "embedding": ("embedding", "vector", "fact_embedding"),
}
"""Argument of ingest -> the fields that it comes from; the first that has a value. (A text is as old as its update.)"""
_TIMES = {"observed_at", "valid_from", "valid_until"}
_NUMBERS = {"source_confidence", "extractor_confidence"}
_FACT = ("content", "memory_type", "subject", "predicate", "object", "valid_from", "valid_until")
"""The fields whose change makes a record a new observation."""
_MOST_TURNS = 1000
_LONGEST = 512
"""The most bytes of an identifier."""


@dataclass(frozen=True)
class Format:
    """fits: whether a record is of this format. records: those within it. repeats: fields that say nothing new."""

    about: str
    fits: Callable[[Fields], bool]
    records: Callable[[Fields, Mapping[str, str]], Iterator[Record]]
    repeats: frozenset[str] = frozenset()


def _mcp(found: Fields, _: Mapping[str, str]) -> Iterator[Record]:
    if found.get("type") == "entity":
        name, kind = found["name"], found.get("entityType")
        observations = found.get("observations") or []
        if not observations:
            yield "entity without observations"
        for text in observations:
            yield [name, text], {"content": text, "subject": name, "entity_type": kind}
    elif found.get("type") == "relation":
        subject, predicate, target = found["from"], found["relationType"], found["to"]
        text = f"{subject} {str(predicate).replace('_', ' ')} {target}"
        fields = {"content": text, "subject": subject, "predicate": predicate, "object": target}
        yield [subject, predicate, target], fields
    else:
        raise ValueError("neither an entity nor a relation")


def _mem0(found: Fields, _: Mapping[str, str]) -> Iterator[Record]:
    if "relationship" in found:  # an edge of mem0's graph
        given = (found.get("source"), found["relationship"], found.get("target") or found.get("destination"))
        yield from _mcp(
            dict(zip(("type", "from", "relationType", "to"), ("relation", *given), strict=True)), {}
        )
        return
    payload = found.get("payload")
    fields = {name: value for name, value in found.items() if name not in ("id", "payload")}
    yield found.get("id"), fields | (payload if isinstance(payload, dict) else {})


def _langgraph(found: Fields, names: Mapping[str, str]) -> Iterator[Record]:
    fields = {name: value for name, value in found.items() if name not in ("key", "value", "prefix")}
    space = found.get("namespace", found.get("prefix"))
    fields["namespace"] = ".".join(map(str, space)) if isinstance(space, list) else space
    value = found["value"] if isinstance(found["value"], dict) else {"content": found["value"]}
    inner = value.get("content")
    if isinstance(inner, dict):  # langmem nests the fields
        value = {**{name: one for name, one in value.items() if name != "content"}, **inner}
    texts = [name for name, one in value.items() if isinstance(one, str)]
    if len(texts) == 1 and _first(value, names.get("content"), "content") is None:
        value = {"content": value[texts[0]]} | {name: one for name, one in value.items() if name != texts[0]}
    fields["source_turn_ids"] = [str(found["key"])]
    yield [fields["namespace"], found["key"]], fields | value


def _graphiti(found: Fields, _: Mapping[str, str]) -> Iterator[Record]:
    fields = {name: value for name, value in found.items() if name not in ("uuid", "name", "attributes")}
    fields |= found["attributes"] if isinstance(found.get("attributes"), dict) else {}
    for end, argument in (("source", "subject"), ("target", "object")):
        node = fields.pop(f"{end}_node", None)
        name = node.get("name") if isinstance(node, dict) else node
        if name := fields.pop(f"{end}_node_name", None) or name:
            fields[argument] = name
            fields.pop(f"{end}_node_uuid", None)
    fields["predicate"] = found.get("name")
    yield found.get("uuid"), fields


def _plain(found: Fields, names: Mapping[str, str]) -> Iterator[Record]:
    key = names.get("id", "id")
    yield found.get(key), {name: value for name, value in found.items() if name != key}


FORMATS: Mapping[str, Format] = {
    "mcp": Format(
        "the memory file of MCP's reference memory server",
        lambda one: one.get("type") in ("entity", "relation") and ("name" in one or "relationType" in one),
        _mcp,
    ),
    "langgraph": Format(
        "items of a LangGraph store",
        lambda one: "key" in one and "value" in one and ("namespace" in one or "prefix" in one),
        _langgraph,
        frozenset({"score", "expires_at", "ttl_minutes"}),
    ),
    "graphiti": Format(
        "facts of Zep or Graphiti",
        lambda one: "fact" in one and ("source_node_uuid" in one or "uuid" in one),
        _graphiti,
        frozenset({"source_node_uuid", "target_node_uuid", "reference_time", "score", "relevance"}),
    ),
    "mem0": Format(
        "memories of mem0",
        lambda one: "memory" in one or "relationship" in one or isinstance(one.get("payload"), dict),
        _mem0,
        frozenset({"hash", "score", "text_lemmatized"}),
    ),
    "records": Format("records, by the names of their fields", lambda _: True, _plain),
    "lines": Format("one text per line", lambda _: False, _plain),
}
"""Name -> format; the first that fits."""


class FileSource:
    """The candidates of a file. ``unmapped`` counts the fields that are not mapped; ``format`` is its name."""

    def __init__(
        self,
        file: Path,
        *,
        tenant: str,
        format: str | None,  # noqa: A002 (the option's name)
        names: Mapping[str, str],
        bucket: str,
        bucket_from: str | None,
        model: str | None,
    ) -> None:
        self.name = file_name(file)
        self._where = self.name if is_stdin(file) else str(file.resolve())
        self._fixed = {"tenant_id": tenant}
        self._bucket, self._bucket_from = bucket, bucket_from
        self._names, self._model = names, model
        self.unmapped: Counter[str] = Counter()
        self._seen: Counter[str] = Counter()
        with open_file(file) as stream:
            content = stream.read()
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            fail(f"{self.name} is not UTF-8 at byte {error.start}")
        texts = {names["content"]} if "content" in names else {*NAMES["content"]}
        found = documents(text, self.name, texts) if format != "lines" else None
        self._found = lines(text) if found is None else found
        first: Fields = next((one for _, one in self._found if isinstance(one, dict)), {})
        self.format = format or ("lines" if found is None else _format_of(first))
        self.total = len(self._found)

    def __iter__(self) -> Iterator[Item]:
        form = FORMATS[self.format]
        for place, found in self._found:
            if isinstance(found, str):
                yield place, found
                continue
            try:
                records = list(form.records(found, self._names))
            except (KeyError, TypeError, ValueError) as error:
                why = f"no {error}" if isinstance(error, KeyError) else str(error)
                yield place, f"not of the format {self.format}: {why}"
                continue
            for record in records:
                if isinstance(record, str):
                    self.unmapped[record] += 1
                    continue
                try:
                    yield place, self._candidate(*record, form)
                except ValueError as error:
                    yield place, str(error)

    def _candidate(self, key: Any, fields: Fields, form: Format) -> Fields:
        given: Fields = {}
        used: set[str] = set()
        for argument in NAMES:
            name = _first(fields, self._names.get(argument), argument)
            if name is None:
                continue
            value = self._value(argument, name, fields[name])
            if value is not None:
                given[argument] = value
                used.add(name)
        if "content" not in given:
            names = self._names.get("content") or " or ".join(NAMES["content"])
            raise ValueError(f"no text in {names}: name its field with --content")
        bucket = self._bucket_of(fields, used)
        metadata = fields.get(about := self._names.get("metadata", "metadata"))
        kept: Fields = {**metadata} if isinstance(metadata, dict) else {}
        for name, value in fields.items():
            if name in used or _is_empty(value) or (name == about and value is metadata and kept):
                continue
            if name in form.repeats or name in NAMES["embedding"]:
                self.unmapped[name] += 1
            else:
                kept[name] = value
        origin = {"format": self.format} | ({"file": self.name} if key is None else {"id": key})
        named = key if isinstance(key, str) else json.dumps(key)
        turn = (
            f"{self.name if self.format == 'records' else self.format}:{named}"
            if key is not None
            else self._where
        )
        made = self._key(key, given)
        return {
            "source_turn_ids": [turn if len(turn.encode()) <= _LONGEST else made],
            **self._fixed,
            **given,
            **({"embedding_model": self._model} if "embedding" in given else {}),
            "bucket_id": bucket,
            "metadata": {**kept, "imported_from": origin},
            "idempotency_key": made,
        }

    def _bucket_of(self, fields: Fields, used: set[str]) -> str:
        if (name := self._bucket_from) is None:
            return self._bucket
        value = fields.get(name)
        if _is_empty(value) and isinstance(fields.get("metadata"), dict):
            value = fields["metadata"].get(name)
        if _is_empty(value):
            self.unmapped[f"no {name}, so in bucket {self._bucket}"] += 1
            return self._bucket
        used.add(name)
        return ".".join(map(str, value)) if isinstance(value, list) else str(value)

    def _value(self, argument: str, name: str, value: Any) -> Any:
        """None: it cannot be read, and is counted as not mapped."""
        try:
            if argument in _TIMES:
                kind = "a time"
                return _time(value)
            if argument in _NUMBERS:
                kind = "a number"
                return float(value)
            if argument == "source_turn_ids":
                return [str(one) for one in value][:_MOST_TURNS] if isinstance(value, list) else [str(value)]
            if argument == "embedding":
                kind = "a vector"
                return [float(one) for one in as_json(value)] if self._model is not None else None
            kind = "a text"
            return _text(value)
        except (TypeError, ValueError, OverflowError, OSError):
            self.unmapped[f"{name} (not {kind})"] += 1
            return None

    def _key(self, key: Any, given: Fields) -> str:
        """The idempotency key of a record: the same in every run, wherever in the file it is."""
        fact = [str(given[name]) if name in given else None for name in _FACT]
        named = [self.format, [self._where] if key is None else key, fact]
        made = hashlib.sha256(json.dumps(named, default=str).encode("utf-8", "surrogateescape")).hexdigest()[
            :32
        ]
        self._seen[made] += 1
        return f"import:{self.format}:{made}:{self._seen[made]}"


def _first(fields: Fields, named: str | None, argument: str) -> str | None:
    """The field that an argument comes from."""
    names = NAMES[argument] if named is None else (named,)
    return next((name for name in names if not _is_empty(fields.get(name))), None)


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def _text(value: Any) -> str:
    if isinstance(value, dict | list):
        raise TypeError("not a text")
    return str(value)


def _time(value: Any) -> datetime:
    """Without an offset it is UTC; a number is Unix time."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return datetime.fromtimestamp(value, UTC)
    when = datetime.fromisoformat(value)
    return when if when.tzinfo is not None else when.replace(tzinfo=UTC)


def _format_of(first: Fields) -> str:
    return next(name for name, one in FORMATS.items() if one.fits(first))
