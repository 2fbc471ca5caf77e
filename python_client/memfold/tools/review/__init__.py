"""A person as the judge, at a terminal."""

from memfold.tools.review.labelling import Labelling
from memfold.tools.review.sitting import Review

__all__ = ["Labelling", "Review"]
