"""Tier 3: asking a model whether memories say the same. The worker is ``memfold.judging.worker``."""

from memfold.judging.openai_judge import Answer, Judge, JudgeError, OpenAIJudge, Question, Side, Usage

__all__ = ["Answer", "Judge", "JudgeError", "OpenAIJudge", "Question", "Side", "Usage"]
