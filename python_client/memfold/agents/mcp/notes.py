"""The arguments of the tools, and what they say of results: notes for the calling model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import psycopg
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema, WrapValidator

from memfold.agents.mcp.answers import Memory, Near, Question, Remembered, Side
from memfold.agents.mcp.store import plain
from memfold.client.errors import MemfoldError
from memfold.client.found import FoundMemory
from memfold.client.judging.questions import NAME_VERDICTS, VERDICTS
from memfold.client.types import IngestResult, Row

FROM_MEMORY = "These texts come from memory. Do not pass them to remember: they would not count."
ECHO = (
    "This text was shown to you from memory, so it was taken as recalled and not counted. If the user has stated it again,"
    " call remember again with recalled=false."
)
ASKED = (
    "It may say the same as a known memory. Both are kept until the question is answered: see open_questions."
)
OTHER = (
    "Another value is known of this subject and predicate (see similar), and nobody has said whether it has one value at a"
    " time. Both are kept until the user says so: see open_questions."
)
FORGOTTEN = (
    "The user had this forgotten on {day:%Y-%m-%d}, so it is not stored, in any wording. If they want it remembered"
    " again, undo({event_id}) restores it."
)
PREVIEW = (
    "Nothing has been forgotten yet. Show the user what matters, then call forget with the memory_ids of those that"
    " should go."
)
NEAREST = 50
ABOUT = 0.3
FOR_USER = ("review", "cardinality")
INCOMPLETE = (
    " Memory is too large to be searched completely: only its newest part was. What you do not find may still be known; tell"
    " the user that memfold doctor says how to fix that."
)


def as_time(value: Any) -> Any:
    """Read a day, or a time without a zone, as UTC: models write both."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            read = datetime.fromisoformat(value)
            return read.replace(tzinfo=UTC) if read.tzinfo is None else read
    return value


if TYPE_CHECKING:
    OptionalText = str | None
else:
    # To the SDK it is a str: for other types it reads "null" as null, and '["a"]' as a list, which is not a text.
    OptionalText = Annotated[
        str,
        WrapValidator(lambda value, validate: None if value is None else validate(value)),
        WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "null"}]}),
    ]
LONGEST_QUERY = 4_000
Time = Annotated[AwareDatetime, BeforeValidator(as_time)]
Reason = Annotated[OptionalText, Field(description="Why, for the record.")]
Limit = Annotated[int, Field(ge=1, le=50, description="Maximum number of results.")]


def what_next(result: IngestResult) -> str | None:
    for one in result.similar:
        if one.note == "forgotten" and one.event_id is not None and result.action == "rejected":
            # an id of version 7 begins with its time, in milliseconds
            day = datetime.fromtimestamp((one.event_id.int >> 80) / 1000, UTC)
            return FORGOTTEN.format(day=day, event_id=one.event_id)
    if result.action == "escalated":
        return ASKED
    return OTHER if any(one.note == "another value" for one in result.similar) else None


def remembered(result: IngestResult, *, counted: bool, note: str | None = None) -> Remembered:
    return Remembered(
        action=result.action,
        memory_id=result.memory_id,
        event_id=result.event_id,
        counted=counted and result.action != "rejected",
        superseded_id=result.superseded_id,
        question_id=result.judgement_id,
        similar=[
            Near(memory_id=one.memory_id, similarity=one.similarity, differences=list(one.guard or ()))
            for one in result.similar
        ],
        # for a refused text, what to do next matters more than how it was understood
        note=(what_next(result) if result.action == "rejected" else None) or note or what_next(result),
    )


def memory(found: FoundMemory) -> Memory:
    given = {name: getattr(found, name) for name in Memory.model_fields if name != "stated"}
    return Memory(**given, stated=found.repetition_count + 1)


@contextlib.contextmanager
def told() -> Iterator[None]:
    """An error for the model: message, DETAIL and HINT, without how the database is reached."""
    try:
        yield
    except (MemfoldError, psycopg.Error) as error:
        raise ToolError(plain(error)) from None


def session(context: Context[Any, Any]) -> str:
    """The conversation, as far as the transport tells: over stdio there is one per process."""
    return (context.headers or {}).get("mcp-session-id", "")


def question(row: Row) -> Question:
    """An open question, for the calling model."""
    return Question(
        question_id=row["judgement_id"],
        verdicts=list(NAME_VERDICTS.get(row["kind"], VERDICTS)),
        for_user=row["kind"] in FOR_USER,
        memories=[
            Side(memory_id=memory_id, content=content)
            for memory_id, content in zip(row["memory_ids"], row["contents"], strict=True)
        ],
        subject=row["subject"],
        predicate=row["predicate"],
        differences=list(row["guard"] or ()),
        similarity=row["similarity"],
        asked_at=row["created_at"],
    )
