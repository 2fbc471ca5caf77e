"""The answers of the tools, as models: they define the schemas of the tools' output."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from uuid import UUID

from pydantic import BaseModel as PydanticModel
from pydantic import Field, field_validator

from memfold.client.types import Action, JudgementStatus, ResolvedAction, StoredVerdict

MemoryId = Annotated[UUID, Field(description="Id of a memory, from remember, recall or open_questions.")]
EventId = Annotated[UUID, Field(description="Id of a change, from remember, correct, forget or answer.")]
# Tag characters: a copy of ASCII that nobody sees, but that models read.
_TAGS: Final = dict.fromkeys(range(0xE0000, 0xE0080))


class BaseModel(PydanticModel):
    """An answer, without characters that hide text from the user."""

    @field_validator("*", mode="before")
    @classmethod
    def _show(cls, value: object) -> object:
        if isinstance(value, list):
            return [cls._show(one) for one in value]
        return value.translate(_TAGS) if isinstance(value, str) else value


class Near(BaseModel):
    """A memory that the new text was compared with."""

    memory_id: UUID
    similarity: float | None = Field(description="Cosine, from -1 to 1; null: compared only by words.")
    differences: list[str] = Field(description="What argues against a merge, such as another number.")


class Remembered(BaseModel):
    """What happened to a text."""

    action: Action = Field(
        description="inserted: new. merged: known, counted once more. replaced: it says more than the known text, and"
        " is shown in its place. superseded: it replaces an older value. historical: an older value, kept as history."
        " escalated: stored, with an open question whether it says the same as a known one. rejected: not stored."
    )
    memory_id: UUID | None = Field(description="The memory that holds the fact now; null: rejected.")
    event_id: UUID | None = Field(description="For undo.")
    counted: bool = Field(description="Whether it counts as stated. Recalled text does not.")
    superseded_id: UUID | None = Field(description="The memory whose value it replaces.")
    question_id: UUID | None = Field(description="The open question about it: see open_questions.")
    similar: list[Near]
    note: str | None = Field(description="What to know or do next.")


class Memory(BaseModel):
    """A memory that states a current fact (with as_of: a fact that was current then)."""

    memory_id: UUID
    content: str
    memory_type: str
    subject: str | None
    predicate: str | None
    object: str | None
    score: float = Field(description="How well it matches, best first: see found_by.")
    confidence: float = Field(description="From 0 to 1.")
    stated: int = Field(description="How often it was stated, in any wording.")
    valid_from: datetime = Field(description="When it became current.")
    disputed_by: list[UUID] = Field(
        description="Memories that may contradict it: nobody has decided yet. Ask the user before you rely on it."
    )
    collapsed_ids: list[UUID] = Field(description="Memories that say the same and are not shown.")


class Recalled(BaseModel):
    """What memory holds about a query."""

    found_by: Literal["meaning", "words"] = Field(
        description="meaning: by embeddings and by words in common. words: only by words in common; a memory in other"
        " words is not found. score depends on that, and on how sure and how helpful a memory is."
    )
    memories: list[Memory]
    note: str


class Side(BaseModel):
    """One of the memories that a question is about."""

    memory_id: UUID
    content: str


class Forgotten(BaseModel):
    """A memory that was forgotten, or would be."""

    memory_id: UUID
    content: str | None = Field(description="Null: it was given by its id.")
    action: Literal["preview", "rejected", "erased"] = Field(
        description="preview: nothing has happened. rejected: no longer shown, and refused if stated again, in other words"
        " too; undo restores it. erased: deleted for good."
    )
    event_id: UUID | None = Field(description="For undo; null: a preview, or erased, which cannot be undone.")
    similarity: float | None = Field(description="Cosine to about, from -1 to 1; null: not compared.")


class Forgetting(BaseModel):
    """What was forgotten, or would be."""

    memories: list[Forgotten]
    current_again: list[Side] = Field(
        description="Former values that are current again because of it. If the user wants these gone as well, forget them."
    )
    note: str | None = Field(description="What to know or do next.")


class Fact(BaseModel):
    """A current memory about a subject."""

    memory_id: UUID
    content: str
    predicate: str | None
    object: str | None
    valid_from: datetime = Field(description="When it became current.")
    disputed_by: list[UUID] = Field(description="Memories that may contradict it: nobody has decided yet.")


class Profile(BaseModel):
    """What is known about a subject now, by predicate, the newest first."""

    facts: list[Fact]
    note: str


class Undone(BaseModel):
    """A memory as it is after an undo."""

    memory_id: UUID
    status: str
    content: str


class Undo(BaseModel):
    """What an undo did."""

    event_id: UUID | None = Field(description="The event of the undo itself.")
    memories: list[Undone]


class Explanation(BaseModel):
    """The complete history of a memory."""

    text: str


class Question(BaseModel):
    """An open question: do these memories say the same?"""

    question_id: UUID
    verdicts: list[str] = Field(
        description="The possible answers. one and many: how many values the predicate has at a time."
    )
    for_user: bool = Field(description="Whether a person has to answer: ask the user.")
    memories: list[Side] = Field(description="Oldest to newest.")
    subject: str | None
    predicate: str | None
    differences: list[str] = Field(description="What argues against a merge, such as another number.")
    similarity: float | None
    asked_at: datetime


class Questions(BaseModel):
    """Open questions, oldest first."""

    questions: list[Question]
    note: str


class Answered(BaseModel):
    """What an answer did."""

    status: JudgementStatus = Field(
        description="done; obsolete: there is nothing left to decide; open: a memory had changed, so it is asked again."
    )
    verdict: StoredVerdict | None = Field(description="unsure: the confidence was too low, so all are kept.")
    action: ResolvedAction | None
    memory_id: UUID | None = Field(description="The memory that holds the fact now.")
    event_id: UUID | None = Field(description="For undo.")
