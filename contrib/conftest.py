"""The settings that tests/conftest.py makes for every run, for runs of these tests without it."""

from __future__ import annotations

import pytest
from tests.support import time_limits


def pytest_configure(config: pytest.Config) -> None:
    if not config.pluginmanager.is_registered(time_limits):
        config.pluginmanager.register(time_limits)
