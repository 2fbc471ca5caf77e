"""The clients: ``Memfold`` blocks, ``AsyncMemfold`` awaits."""

from memfold.client.calls.asynchronous import AsyncMemfold
from memfold.client.calls.blocking import Memfold

__all__ = ["AsyncMemfold", "Memfold"]
