"""The nine tools: their descriptions for the calling model, and their answers."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from uuid import UUID

import psycopg
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from memfold.agents.mcp.answers import (
    Answered,
    EventId,
    Explanation,
    Fact,
    Forgetting,
    Forgotten,
    MemoryId,
    Profile,
    Questions,
    Recalled,
    Remembered,
    Side,
    Undo,
    Undone,
)
from memfold.agents.mcp.notes import (
    ABOUT,
    ECHO,
    FOR_USER,
    FROM_MEMORY,
    INCOMPLETE,
    LONGEST_QUERY,
    NEAREST,
    PREVIEW,
    Limit,
    OptionalText,
    Reason,
    Time,
    memory,
    question,
    remembered,
    session,
    told,
)
from memfold.agents.mcp.shown import Shown
from memfold.agents.mcp.store import Store, logger
from memfold.client._text import describe_error
from memfold.client.errors import MemfoldError
from memfold.client.judging.questions import Verdict


class Tools:
    """The tools, over one store. Their docstrings and annotations are what the calling model reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._shown = Shown()

    async def remember(
        self,
        context: Context[Any, Any],
        content: Annotated[
            str,
            Field(min_length=1, description="One fact, as a short sentence that is understood on its own."),
        ],
        subject: Annotated[
            OptionalText,
            Field(
                description="Who or what the fact is about, always by the same name: Alice; user; project memfold."
            ),
        ] = None,
        predicate: Annotated[
            OptionalText,
            Field(
                description="What is said about the subject, always by the same word: lives_in, works_at, birthday, likes."
                " With a subject, facts of one predicate are only compared with one another."
            ),
        ] = None,
        object: Annotated[  # noqa: A002 (its name in every interface of memfold)
            OptionalText,
            Field(
                description="The value: Paris; Acme; 1990-05-01. For a predicate with one value, the newest counts."
            ),
        ] = None,
        memory_type: Annotated[
            str, Field(min_length=1, description="fact, unless this memory's users have their own types.")
        ] = "fact",
        turn_id: Annotated[
            OptionalText,
            Field(
                description="The id of the message that says so, if you know one: a message counts as one piece of evidence."
            ),
        ] = None,
        valid_until: Annotated[
            Time | None,
            Field(
                description="When it stops being true, if that was said: the day after the last one, or a time with its time"
                " zone. Recall no longer shows it then."
            ),
        ] = None,
        recalled: Annotated[
            bool | None,
            Field(
                description="true: you know it from memory, not from this conversation; it is not counted. false: the"
                " user has said it now, although recall had shown it to you. If omitted, what memory has shown counts as"
                " recalled."
            ),
        ] = None,
    ) -> Remembered:
        """Store one fact that the user has stated or that you have found out, or count it once more if it is known.

        Safe to call for what may be known: the same fact in other words is merged with it, a changed value of a
        predicate with one value replaces the old one, and an unclear one is kept as well, with an open question.
        """
        echo = recalled is None and (session(context), content) in self._shown
        counted = not (recalled or echo)
        fields = {"subject": subject, "predicate": predicate, "object": object, "memory_type": memory_type}
        until = {} if valid_until is None else {"valid_until": valid_until}
        with told():
            result = await self._store.remember(
                content, "observed" if counted else "recalled", turn_id, {**fields, **until}
            )
        return remembered(result, counted=counted, note=ECHO if echo else None)

    async def recall(
        self,
        context: Context[Any, Any],
        query: Annotated[
            str,
            Field(
                min_length=1,
                max_length=LONGEST_QUERY,
                description="What you want to know, as a question or as keywords.",
            ),
        ],
        limit: Limit = 10,
        subject: Annotated[
            OptionalText, Field(description="Only memories about this subject, spelled as for remember.")
        ] = None,
        as_of: Annotated[
            Time | None,
            Field(description="As of when: a day, or a time with its time zone. Default: now."),
        ] = None,
    ) -> Recalled:
        """Look up what memory holds about something, each fact once, best first. An empty list: nothing is known."""
        by_meaning = self._store.embedder is not None
        note = FROM_MEMORY
        with told():
            if by_meaning:
                try:
                    found = await self._store.recall(query, limit, subject, as_of, "both")
                except (psycopg.Error, MemfoldError) as error:
                    if not getattr(error, "speaks_plainly", False):
                        raise
                    by_meaning = False  # an endpoint that is down
                    note += " The embedding model could not be reached, so they were found by words."
                except Exception as error:
                    logger.warning("no vector for the query: %s", describe_error(error))
                    by_meaning = False
                    note += " The embedding model failed, so they were found by words."
            if not by_meaning:
                found = await self._store.recall(query, limit, subject, as_of, "words")
        if not found.complete:
            note += INCOMPLETE
            logger.warning("recall was not complete: %s %s", found.reason, found.hint)
        memories = list(map(memory, found))
        self._shown.add(session(context), (memory.content for memory in memories))
        return Recalled(found_by="meaning" if by_meaning else "words", memories=memories, note=note)

    async def correct(
        self,
        memory_id: MemoryId,
        content: Annotated[str, Field(min_length=1, description="The whole fact as it should read.")],
        object: Annotated[  # noqa: A002 (its name in every interface of memfold)
            OptionalText,
            Field(description="The value as it should be, if the memory has one and it changes."),
        ] = None,
        reason: Reason = None,
    ) -> Remembered:
        """Replace the wording of a memory that is wrong. The old text stays in its history; undo(event_id) restores it.

        For a fact that has changed since (it was right once), call remember with the new value instead.
        """
        with told():
            result = await self._store.correct(memory_id, content, object, reason)
        return remembered(result, counted=False)

    async def profile(
        self,
        context: Context[Any, Any],
        subject: Annotated[
            str,
            Field(min_length=1, description="Who or what, by the name that remember was given: user; Alice."),
        ],
        limit: Annotated[int, Field(ge=1, le=500, description="Maximum number of facts.")] = 100,
    ) -> Profile:
        """List all that is known about a subject now: for "what do you know about me?", or before a longer task."""
        with told():
            known = await self._store.profile(subject, limit)
        self._shown.add(session(context), (fact.content for fact in known))
        facts = [Fact(**{name: getattr(one, name) for name in Fact.model_fields}) for one in known]
        return Profile(facts=facts, note=FROM_MEMORY)

    async def forget(
        self,
        context: Context[Any, Any],
        memory_ids: Annotated[
            list[UUID] | None,
            Field(
                min_length=1,
                max_length=NEAREST,
                description="The memories to forget. Omit them to look first.",
            ),
        ] = None,
        about: Annotated[
            OptionalText,
            Field(max_length=LONGEST_QUERY, description="What they are about: a topic, in a few words."),
        ] = None,
        subject: Annotated[
            OptionalText, Field(description="Whom or what they are about, spelled as for remember.")
        ] = None,
        predicate: Annotated[
            OptionalText, Field(description="With a subject: only this is meant, such as lives_in.")
        ] = None,
        erase: Annotated[
            bool,
            Field(
                description="true: delete the texts for good, only if the user asks for that. Cannot be undone."
            ),
        ] = False,
        reason: Reason = None,
    ) -> Forgetting:
        """Forget memories: they are no longer shown, and what says the same is refused when it is stated again.

        First say what they are about (about, subject, predicate): the answer lists what would be forgotten, former values
        included, and changes nothing. Then call it with the memory_ids of those. undo(event_id) restores each.
        """
        if memory_ids is None and about is None and subject is None and predicate is None:
            raise ToolError(
                "it is not clear what to forget\nHINT: Say what it is about, or give memory_ids, a list."
            )
        if memory_ids is None:
            with told():
                return await self._preview(context, about, subject, predicate)
        made: list[Forgotten] = []
        again: set[UUID] = set()
        with told():
            for memory_id in memory_ids:
                if erase:
                    again.update((await self._store.erase(memory_id, reason)).current_again)
                    event_id = None
                else:
                    result = await self._store.reject(memory_id, reason)
                    event_id = result.event_id
                    again.update(one.memory_id for one in result.similar if one.note == "current again")
                made.append(
                    Forgotten(
                        memory_id=memory_id,
                        content=None,
                        action="erased" if erase else "rejected",
                        event_id=event_id,
                        similarity=None,
                    )
                )
            rows = await self._store.current_of(sorted(again))
        return Forgetting(memories=made, current_again=[Side(**row) for row in rows], note=None)

    async def _preview(
        self, context: Context[Any, Any], about: str | None, subject: str | None, predicate: str | None
    ) -> Forgetting:
        found: list[tuple[UUID, str, float | None]]
        if about is not None and self._store.embedder is None:
            by_words = await self._store.recall(about, NEAREST, subject, None, "words")
            found = [(one.memory_id, one.content, None) for one in by_words]
        else:
            least = None if about is None else ABOUT
            rows = await self._store.forgettable(subject, predicate, about, least)
            found = [(one.memory_id, one.content, one.similarity) for one in rows]
        self._shown.add(session(context), (content for _, content, _ in found[:NEAREST]))
        note = f"{len(found) - NEAREST} more match; these are the nearest. " if len(found) > NEAREST else ""
        return Forgetting(
            memories=[
                Forgotten(
                    memory_id=memory_id,
                    content=content,
                    action="preview",
                    event_id=None,
                    similarity=similarity,
                )
                for memory_id, content, similarity in found[:NEAREST]
            ],
            current_again=[],
            note=note + PREVIEW if found else "Nothing like that is known.",
        )

    async def undo(self, context: Context[Any, Any], event_id: EventId, reason: Reason = None) -> Undo:
        """Undo what a call did: a merge, a replaced value, a correction, a forget, an answer, a restatement.

        To remove a new fact (action inserted or escalated), use forget instead.
        """
        with told():
            made = await self._store.undo(event_id, reason)
        self._shown.add(session(context), (one.content for one in made))
        return Undo(
            event_id=made[0].event_id if made else None,
            memories=[
                Undone(memory_id=one.memory_id, status=one.status, content=one.content) for one in made
            ],
        )

    async def explain(self, context: Context[Any, Any], memory_id: MemoryId) -> Explanation:
        """Show the complete history of a memory: its texts, their sources, what was merged, replaced, judged and undone."""
        with told():
            text = await self._store.explain(memory_id)
        # its texts are in quotes, each on its own line
        self._shown.add(session(context), re.findall('"(.*)"', text))
        return Explanation(text=text)

    async def open_questions(self, context: Context[Any, Any], limit: Limit = 10) -> Questions:
        """List pairs of memories that may or may not say the same. Those for the user come first."""
        with told():
            rows = await self._store.open_questions(limit)
        questions = list(map(question, rows))
        self._shown.add(session(context), (side.content for one in questions for side in one.memories))
        return Questions(questions=questions, note=FROM_MEMORY)

    async def answer(
        self,
        context: Context[Any, Any],
        question_id: Annotated[UUID, Field(description="From open_questions.")],
        verdict: Annotated[
            Verdict,
            Field(
                description="duplicate: the same claim. refinement: the same fact, one says more and all that the"
                " others say. contradiction: another answer to the same question. distinct: anything else."
                " one, many: a subject has one value of the predicate at a time, or several."
            ),
        ],
        decided_by: Annotated[
            Literal["user", "model"],
            Field(description="user: the user has told you. model: you have compared the texts yourself."),
        ],
        reason: Reason = None,
        confidence: Annotated[
            float,
            Field(
                ge=0,
                le=1,
                description="How sure the verdict is. When in doubt, below 0.75: then all memories are kept.",
            ),
        ] = 1.0,
        richer_memory_id: Annotated[
            UUID | None, Field(description="For a refinement: the memory that says more.")
        ] = None,
        memory_ids: Annotated[
            list[UUID] | None,
            Field(
                description="If there are more than two: those that the verdict is about; the others count as distinct."
            ),
        ] = None,
    ) -> Answered:
        """Answer an open question. The memories are merged, replaced or kept accordingly; undo(event_id) reverses that."""
        model = None
        with told():
            kind = await self._store.kind_of_question(question_id)
            if kind == "identity":
                raise ToolError(
                    "this question is about names, not memories\n"
                    "HINT: Its answer is a rule for every memory: leave it to memfold judge or memfold review."
                )
            if decided_by == "model":
                if kind in FOR_USER:
                    raise ToolError(
                        "this question is for the user\n"
                        "HINT: Show them the memories, then answer with decided_by='user'."
                    )
                client = context.session.client_params
                model = (client.client_info.name if client is not None else "") or "mcp"
            row = await self._store.answer(
                {
                    "judgement_id": question_id,
                    "verdict": verdict,
                    "confidence": confidence,
                    "reason": reason,
                    "richer_memory_id": richer_memory_id,
                    "member_ids": memory_ids,
                    "model": model and model[:200],
                }
            )
        return Answered(**{name: row[name] for name in Answered.model_fields})
