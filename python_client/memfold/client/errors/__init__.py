"""memfold's exceptions. The server's errors are distinguished only by SQLSTATE, never by their text."""

from memfold.client.errors.base import *  # noqa: F403 (each class has one home, and is listed nowhere else)
from memfold.client.errors.server import *  # noqa: F403
from memfold.client.errors.translating import *  # noqa: F403
