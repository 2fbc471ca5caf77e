"""The frameworks of agents that memfold has adapters for. Each is an extra of memfold, but not in "all"."""

from __future__ import annotations

from tests.support import servers

ADAPTERS = tuple(
    sorted(path.stem for path in (servers.ROOT / "python_client/memfold/agents").glob("[!_]*.py"))
)
# Too large to be installed for every run: `make test-frameworks` has them. The module that shows whether one is here.
# (mem0 has no adapter: it goes through LangChain's, or its table is adopted.)
LARGE = {"crewai": "crewai", "llamaindex": "llama_index", "mem0": "mem0"}
