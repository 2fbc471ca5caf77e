"""The clients: ``Memfold`` blocks, ``AsyncMemfold`` awaits."""

from memfold.client.blocking import AsyncMemfold, Memfold

__all__ = ["AsyncMemfold", "Memfold"]
