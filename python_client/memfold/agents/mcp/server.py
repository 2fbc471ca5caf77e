"""The MCP server: the tools of one store, with their descriptions for clients."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import ValidationError

from memfold.agents.mcp.store import Store
from memfold.agents.mcp.tools import Tools
from memfold.client._version import __version__

INSTRUCTIONS = """\
memfold is the user's long-term memory. It keeps one memory per fact, no matter how often and in what words it is stated.

- Recall before you answer what may depend on the user, their projects or earlier conversations.
- Remember what will still matter later: one fact per call, as a short sentence that is understood on its own ("Alice works \
at Acme", not "she works there"). Give subject, predicate and object whenever you can: with them a changed value replaces \
the old one, or a note says that the user has to decide.
- Only remember what was said or found out in this conversation. What recall has shown you is in memory already.
- When the user says that a memory is wrong, correct it; when it should be gone, forget it: look first, then name the \
memories. undo(event_id) reverses either.
- A memory with disputed_by may not hold: ask the user."""


def _hints(
    title: str, *, reads: bool = False, destroys: bool = False, repeatable: bool = False
) -> ToolAnnotations:
    return ToolAnnotations(
        title=title,
        read_only_hint=reads,
        destructive_hint=destroys,
        idempotent_hint=reads or repeatable,
        open_world_hint=False,
    )


class _Server(MCPServer):
    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> Any:
        """Arguments that do not fit the schema are reported in memfold's words, not pydantic's."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = [
                f"{'.'.join(map(str, one['loc'])) or 'the arguments'}: {one['msg'][:1].lower()}{one['msg'][1:]}"
                for one in error.__cause__.errors(include_url=False, include_input=False)
            ]
            raise ToolError("the arguments do not fit\nDETAIL: " + "; ".join(wrong)) from None


def make_server(store: Store) -> MCPServer:
    """A server with the tools of one store."""
    server = _Server(
        "memfold", title="memfold memory", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    tools = Tools(store)
    words = "" if store.embedder is not None else (
        "\n\nThis server has no embedding model: only memories that share words with the query are found, so try other words"
        " before you conclude that nothing is known."
    )  # fmt: skip
    for tool, hints, more in (
        (tools.remember, _hints("Remember a fact"), ""),
        (tools.recall, _hints("Recall from memory", reads=True), words),
        (tools.profile, _hints("List what is known", reads=True), ""),
        (tools.correct, _hints("Correct a memory"), ""),
        (tools.forget, _hints("Forget a memory", destroys=True), ""),
        (tools.undo, _hints("Undo what was done"), ""),
        (tools.explain, _hints("Explain a memory", reads=True), ""),
        (tools.open_questions, _hints("List open questions", reads=True), ""),
        (tools.answer, _hints("Answer an open question"), ""),
    ):
        description = "\n".join(line.strip() for line in (tool.__doc__ or "").strip().splitlines()) + more
        server.add_tool(
            tool, title=hints.title, description=description, annotations=hints, structured_output=True
        )
    return server
