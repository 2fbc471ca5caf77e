"""The clients that the framework adapters share."""

from __future__ import annotations

import asyncio

from memfold.agents._core import Connections
from memfold.client.calls import AsyncMemfold


def test_each_event_loop_has_clients_of_its_own() -> None:
    """Also while another loop lives; nothing is connected before it is needed."""
    connections = Connections("host=/nowhere dbname=none", connections=1)

    async def twice() -> set[AsyncMemfold]:
        found = set()
        for _ in range(2):
            async with connections.client() as client:
                found.add(client)
        return found

    with asyncio.Runner() as one, asyncio.Runner() as other:
        of_one, of_other = one.run(twice()), other.run(twice())
    assert (len(of_one), len(of_other), len(of_one | of_other)) == (1, 1, 2)
