"""What tests of clients of HTTP share."""

from __future__ import annotations

import ssl
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def no_certificates() -> Iterator[None]:
    """Each client reads all certificates of the system, which takes longer than its test and is for TLS."""
    with pytest.MonkeyPatch.context() as patch:
        context = ssl.create_default_context()
        patch.setattr(ssl, "create_default_context", lambda *_, **__: context)
        yield
