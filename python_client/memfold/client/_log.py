"""Log lines about decisions, from the client and the worker, on the logger ``memfold``."""

from __future__ import annotations

import json
import logging
from uuid import UUID

from memfold.client._text import describe_error, escape_line, format_error
from memfold.client.types import IngestResult


class Escaping(logging.Filter):
    """Escapes texts, errors and tracebacks of a record for a terminal, for every handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.msg, str):  # some packages quote data in it
            record.msg = escape_line(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(map(_loggable, record.args))
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = format_error(record.exc_info[1])
        return True


def _loggable(value: object) -> object:
    if isinstance(value, str):
        return escape_line(value)
    return describe_error(value) if isinstance(value, BaseException) else value


def get_logger(name: str) -> logging.Logger:
    """A logger of memfold; all of them are created here."""
    found = logging.getLogger(name)
    if not any(isinstance(one, Escaping) for one in found.filters):
        found.addFilter(Escaping())
    return found


logger = get_logger("memfold")


def quoted(text: str) -> str:
    """A text for a log line: on one line, shortened if it is long."""
    return json.dumps(text if len(text) <= 80 else text[:79] + "…", ensure_ascii=False)


def log_decision(content: str, result: IngestResult, *, preview: bool = False) -> None:
    """DEDUP_CHECK for every decision, DEDUP_MERGE for a merge."""
    if not logger.isEnabledFor(logging.INFO):
        return
    how = "no match" if result.tier is None else f"tier {result.tier} {result.method}"
    found = how if result.similarity is None else f"closest match sim={result.similarity:.2f}"
    logger.debug("DEDUP_CHECK: %s %s -> %s", quoted(content), found, result.action)
    if result.action in ("merged", "replaced") and not preview:
        logger.info("DEDUP_MERGE: %s -> memory %s (%s)", quoted(content), result.memory_id, how)


def log_synthesis(
    action: str | None, merged_text: str | None, memory_id: UUID | None, count: int = 2
) -> None:
    """DEDUP_MERGE for memories that a judge has combined into one text."""
    if action == "replaced" and merged_text:
        logger.info("DEDUP_MERGE: %d memories -> %s memory %s", count, quoted(merged_text), memory_id)
