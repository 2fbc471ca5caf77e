"""The clients: ``Memfold``, blocking, and ``AsyncMemfold``. The calls of both are steps, which a driver carries out."""

from memfold.client.calls.asynchronous.client import AsyncMemfold
from memfold.client.calls.blocking.client import Memfold

__all__ = ["AsyncMemfold", "Memfold"]
