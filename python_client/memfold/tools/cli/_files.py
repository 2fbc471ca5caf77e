"""Ingests a file or a stream of candidates; a run can be interrupted anywhere and repeated any number of times.

A line counts once per source: its idempotency key is made of the source, its text, and the number of equal lines
before it. Lines that are appended, inserted or corrected count; those around them do not count again.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from memfold.client import queries
from memfold.client.calls import Memfold
from memfold.client.errors import ConnectionLostError, MemfoldError
from memfold.tools.cli._shared import is_stdin, open_file

_FIELDS = frozenset(queries.CANDIDATE)
_SAVE_EVERY = 1.0


class LineError(Exception):
    """A line that is not a candidate."""


class Ingestion:
    """One pass over a file, or over stdin. Iterating over it yields (line number, error or None) for every line.

    ``lines``: their number; None for stdin, which cannot be read twice and has no state file.
    """

    def __init__(
        self,
        client: Memfold,
        file: Path,
        *,
        tenant: str | None,
        bucket: str | None,
        vectors: Mapping[str, Any] | None,
        model: str | None,
        source: str | None,
        state: Path | None,
        resume: bool,
    ) -> None:
        self._client = client
        self._file = file
        self._defaults = {"tenant_id": tenant, "bucket_id": bucket}
        self._vectors = vectors
        self._model = model
        self._state = state
        self._source = source or ("-" if is_stdin(file) else str(file.resolve()))
        self._seen: Counter[int] = Counter()
        digest: str | None = None
        self.lines: int | None = None
        if state is not None:
            digest, self.lines = _digest(file)
        target = client._query(queries.TARGET)[0]
        # Everything else that decides the meaning of a line is part of the name: another tenant is another run.
        meaning = json.dumps([self._source, self._defaults])
        self._name = "/".join(map(str, [digest, target["target"], meaning]))
        self._began = int(target["milliseconds"])
        stored = self._load().get(self._name, {}) if resume else {}
        self.start = self.line = int(stored.get("line", 0))
        self.errors = int(stored.get("errors", 0))
        self.replayed = int(stored.get("replayed", 0))
        self.without_vector = int(stored.get("without_vector", 0))
        self._keyed: set[UUID] = set()
        self.counts: Counter[tuple[str, int | None, str | None]] = Counter()
        for action, tier, method, count in stored.get("counts", []):
            self.counts[action, tier, method] = count

    def summary(self) -> list[list[object]]:
        """Lines by their result: decisions by tier, then the others."""
        others = ("replayed", "refused", "empty line")
        ordered = sorted(
            self.counts.items(), key=lambda item: (item[0][0] in others, item[0][1] or 0, *map(str, item[0]))
        )
        return [[action, tier or "-", method or "-", count] for (action, tier, method), count in ordered]

    def __iter__(self) -> Iterator[tuple[int, str | None]]:
        if self._vectors and self._model is not None:
            size = len(next(iter(self._vectors.values())))
            self._client.register_embedding_model(self._model, size)
        saved = time.monotonic()
        try:
            with open_file(self._file) as lines:
                for number, line in enumerate(lines, 1):
                    key = self._key(line)
                    if number <= self.start:
                        continue
                    problem = None
                    try:
                        self._ingest(key, line)
                    except ConnectionLostError:
                        raise
                    except (LineError, MemfoldError) as error:
                        problem = str(error)
                        self.errors += 1
                        self.counts["refused", None, None] += 1
                    self.line = number
                    yield number, problem
                    if time.monotonic() - saved > _SAVE_EVERY:
                        self._save()
                        saved = time.monotonic()
        finally:
            self._save()

    def _key(self, line: bytes) -> str:
        """The idempotency key of a line: the same in every run, wherever in the file it is."""
        text = line.removeprefix(codecs.BOM_UTF8).strip()
        digest = hashlib.sha256(b"\0".join([self._source.encode("utf-8", "surrogateescape"), text])).digest()
        name = int.from_bytes(digest[:8])  # short, because a file may have millions of lines
        self._seen[name] += 1
        return f"line:{digest[:16].hex()}:{self._seen[name]}"

    def _ingest(self, key: str, line: bytes) -> None:
        if not line.strip():
            self.counts["empty line", None, None] += 1
            return
        candidate: dict[str, Any] = {
            name: value for name, value in self._defaults.items() if value is not None
        }
        candidate.update(_parse(line))
        has_key = candidate.get("idempotency_key") is not None
        # It recognizes lines that were committed, but not yet noted in the state file.
        if not has_key:
            candidate["idempotency_key"] = key
        try:
            if self._vectors is not None and candidate.get("embedding") is None:
                vector = self._vectors.get(candidate["content"])
                if vector is not None:
                    candidate.update(embedding=vector, embedding_model=self._model)
            result = self._client.ingest(**candidate)
        except (TypeError, ValueError) as error:
            raise LineError(str(error)) from error
        # A replay returns the ledger row of the first call: one of an earlier run (ids begin with the server's clock)
        # or, if lines share an explicit key, of this one.
        if result.event_id is not None and (
            result.event_id.int >> 80 < self._began or result.event_id in self._keyed
        ):
            self.replayed += 1
            self.counts["replayed", None, None] += 1
            return
        if has_key and result.event_id is not None:
            self._keyed.add(result.event_id)
        if result.tier is None and self._vectors is not None and candidate.get("embedding") is None:
            self.without_vector += 1
        self.counts[result.action, result.tier, result.method] += 1

    def _load(self) -> dict[str, Any]:
        if self._state is None:
            return {}
        try:
            stored = json.loads(self._state.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def _save(self) -> None:
        """Note the progress of this run; when it is finished, that there is nothing to continue."""
        if self._state is None or self.lines is None:
            return
        stored = self._load()
        stored.pop(self._name, None)
        if self.line < self.lines:
            stored[self._name] = {
                "file": self._file.name,
                "line": self.line,
                "errors": self.errors,
                "replayed": self.replayed,
                "without_vector": self.without_vector,
                "counts": [[*key, count] for key, count in self.counts.items()],
            }
        if not stored:
            self._state.unlink(missing_ok=True)
            return
        # Renamed into place, so that a killed run leaves the old state or the new one.
        handle, temporary = tempfile.mkstemp(prefix=f".{self._state.name}.", dir=self._state.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(stored, file, indent=1)
            Path(temporary).replace(self._state)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise


def _digest(file: Path) -> tuple[str, int]:
    """SHA-256 of the file, and its number of lines."""
    digest = hashlib.sha256()
    lines = 0
    last = b"\n"
    with file.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return digest.hexdigest(), lines + (last != b"\n")


def _no_constant(name: str) -> Any:
    raise LineError(f"{name} is not JSON")


def _parse(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode("utf-8-sig"), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise LineError(f"not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise LineError(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise LineError("not a JSON object")
    if unknown := sorted(found.keys() - _FIELDS):
        raise LineError(f"unknown field {', '.join(map(repr, unknown))}")
    if "content" not in found:
        raise LineError("the field 'content' is missing")
    for name in ("observed_at", "valid_from", "valid_until"):
        if isinstance(when := found.get(name), str):
            try:
                found[name] = datetime.fromisoformat(when)
            except ValueError as error:
                raise LineError(f"{name} is not an ISO 8601 time: {when[:40]!r}") from error
    return found
