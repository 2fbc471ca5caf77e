"""Tier 3: asking a model whether memories say the same. The worker is ``memfold.judging.worker``."""

from memfold.judging.openai_judge import OpenAIJudge
from memfold.judging.questions import Answer, Judge, JudgeError, Question, Side, Usage, Verdict

__all__ = ["Answer", "Judge", "JudgeError", "OpenAIJudge", "Question", "Side", "Usage", "Verdict"]
