"""A person as the judge, at a terminal."""

from memfold.review.labelling import Labelling
from memfold.review.sitting import Review

__all__ = ["Labelling", "Review"]
