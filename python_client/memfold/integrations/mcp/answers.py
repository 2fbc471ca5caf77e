"""What the tools answer: models, from which the schemas of the tools' output are made."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from memfold.types import Action, JudgementStatus, ResolvedAction, StoredVerdict

MemoryId = Annotated[
    UUID, Field(description="Id of a memory, as remember, recall or open_questions give it.")
]
EventId = Annotated[
    UUID, Field(description="Id of what was done, as remember, correct, forget or answer give it.")
]


class Near(BaseModel):
    """A memory that the new text was compared with."""

    memory_id: UUID
    similarity: float | None = Field(description="Cosine, from -1 to 1; null: compared by words alone.")
    differences: list[str] = Field(description="What speaks against a merge, such as another number.")


class Remembered(BaseModel):
    """What became of a text."""

    action: Action = Field(
        description="inserted: new. merged: known, counted once more. replaced: it says more than the known text, and"
        " leads now. superseded: it replaces an older value. historical: an older value, kept as history."
        " escalated: stored, and a question is open whether it says the same as a known one. rejected: not stored."
    )
    memory_id: UUID | None = Field(description="The memory that holds the fact now; null: rejected.")
    event_id: UUID | None = Field(description="For undo.")
    counted: bool = Field(description="Whether it counts as stated. Recalled text does not.")
    superseded_id: UUID | None = Field(description="The memory whose value it replaces.")
    question_id: UUID | None = Field(description="The question that is open about it: see open_questions.")
    similar: list[Near]
    note: str | None = Field(description="What to know or do about this answer.")


class Memory(BaseModel):
    """A memory that states a current fact (with as_of: a fact of that time)."""

    memory_id: UUID
    content: str
    memory_type: str
    subject: str | None
    predicate: str | None
    object: str | None
    score: float = Field(description="How well it fits, best first: see found_by.")
    confidence: float = Field(description="From 0 to 1.")
    stated: int = Field(description="How often it was stated, in any wording.")
    collapsed_ids: list[UUID] = Field(description="Memories that say the same and are not shown.")


class Recalled(BaseModel):
    """What memory holds about a query."""

    found_by: Literal["meaning", "words"] = Field(
        description="meaning: by embeddings and by words in common. words: by words in common alone; a memory in other"
        " words is not found. score goes by that, and by how sure and how helpful a memory is."
    )
    memories: list[Memory]
    note: str


class Forgotten(BaseModel):
    """What was forgotten."""

    memory_id: UUID
    action: Literal["rejected", "erased"] = Field(
        description="rejected: no longer shown, and refused if it comes again; undo takes it back. erased: gone for good."
    )
    event_id: UUID | None = Field(description="For undo; null: erased, which nothing takes back.")
    erased_texts: int = Field(description="Texts that are gone.")
    remaining_texts: int = Field(description="Texts that are left: call again until there are none.")


class Undone(BaseModel):
    """A memory as it is after an undo."""

    memory_id: UUID
    status: str
    content: str


class Undo(BaseModel):
    """What an undo did."""

    event_id: UUID | None = Field(description="The undo's own.")
    memories: list[Undone]


class Explanation(BaseModel):
    """The whole life of a memory."""

    text: str


class Side(BaseModel):
    """One of the memories that a question is about."""

    memory_id: UUID
    content: str


class Question(BaseModel):
    """A question that waits: do these memories say the same?"""

    question_id: UUID
    for_user: bool = Field(description="Whether a person has to answer: ask the user.")
    memories: list[Side] = Field(description="Oldest to newest.")
    subject: str | None
    predicate: str | None
    differences: list[str] = Field(description="What speaks against a merge, such as another number.")
    similarity: float | None
    asked_at: datetime


class Questions(BaseModel):
    """Questions that wait, the oldest first."""

    questions: list[Question]
    note: str


class Answered(BaseModel):
    """What an answer did."""

    status: JudgementStatus = Field(
        description="done; obsolete: there is nothing to decide any more; open: a memory had changed, so it is asked again."
    )
    verdict: StoredVerdict | None = Field(description="unsure: the confidence was too low, so all are kept.")
    action: ResolvedAction | None
    memory_id: UUID | None = Field(description="The memory that holds the fact now.")
    event_id: UUID | None = Field(description="For undo.")
