"""The clients: ``Memfold`` blocks, ``AsyncMemfold`` awaits."""

from memfold.client.asynchronous import AsyncMemfold
from memfold.client.blocking import Memfold

__all__ = ["AsyncMemfold", "Memfold"]
