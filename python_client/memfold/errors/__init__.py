"""What memfold raises. The server's errors are told apart by SQLSTATE alone, never by their text."""

from memfold.errors.base import *  # noqa: F403 (each class has one home, and is listed nowhere else)
from memfold.errors.server import *  # noqa: F403
from memfold.errors.translating import *  # noqa: F403
