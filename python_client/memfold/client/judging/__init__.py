"""Tier 3: asking a model whether memories say the same. The worker is ``memfold.client.judging.worker``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memfold.client.judging.questions import Answer, Judge, JudgeError, Names, Question, Side, Usage, Verdict

if TYPE_CHECKING:
    from memfold.client.judging.local_judge import LocalJudge
    from memfold.client.judging.openai_judge import OpenAIJudge

__all__ = [
    "Answer",
    "Judge",
    "JudgeError",
    "LocalJudge",
    "Names",
    "OpenAIJudge",
    "Question",
    "Side",
    "Usage",
    "Verdict",
]


def __getattr__(name: str) -> Any:
    # Callers with their own model do not load the code that calls endpoints, or a model.
    if name == "LocalJudge":
        from memfold.client.judging.local_judge import LocalJudge

        return LocalJudge
    if name == "OpenAIJudge":
        from memfold.client.judging.openai_judge import OpenAIJudge

        return OpenAIJudge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
