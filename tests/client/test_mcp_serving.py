"""The MCP server as a process: start and end, reported errors, and cancelled calls."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx2
import psycopg
import pytest
from click.testing import CliRunner

from memfold.agents.mcp.http import RequireToken
from memfold.agents.mcp.store import CONNECTIONS, Place, Store, plain
from memfold.client import errors
from memfold.tools.cli import main
from tests.support.mcp_clients import COMMAND, TOKEN, call, environment, over_stdio, refused, run
from tests.support.memories import check, ingest, model, vector
from tests.support.queries import DB
from tests.support.waiting import until

pytestmark = pytest.mark.one_server

CAT = {"content": "Alice has a cat.", "subject": "Alice", "predicate": "has", "object": "cat"}
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Raw:
    """A server over stdio, and a client that sends arbitrary messages."""

    def __init__(self, dsn: str) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "mcp"], env=environment(dsn), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.ask(0, "initialize", INITIALIZE)
        self.answer()
        self.send({"method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, number: int, method: str, parameters: dict[str, Any]) -> None:
        self.send({"id": number, "method": method, "params": parameters})

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        made: dict[str, Any] = json.loads(self.process.stdout.readline())
        return made

    def end(self) -> tuple[int, str]:
        _, log = self.process.communicate(timeout=60)
        return self.process.returncode, log


@pytest.fixture
def raw(dsn: str) -> Any:
    made = Raw(dsn)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def _ended(dsn: str, *options: str, text: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, "mcp", *options], env=environment(dsn, **env), input=text, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


# starting and ending ---------------------------------------------------------------------------------------------


def test_ctrl_c_ends_it_although_a_client_is_connected(raw: Raw) -> None:
    raw.process.send_signal(signal.SIGINT)
    assert raw.process.wait(timeout=60) == -signal.SIGINT


def test_an_unusable_address_gives_no_traceback(dsn: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for options, part in (
            (("--http", port), f"port {port}: Address already in use"),
            (("--http", "0", "--host", "192.0.2.1"), "Address '192.0.2.1', port 0: "),
            (("--http", "0", "--host", "nowhere.invalid"), "Address 'nowhere.invalid', port 0: "),
            (("--http", "0", "--host", "a" * 70 + ".example"), "port 0: "),
            # a variable that is not set must not open it to the network
            (("--http", "0", "--host", ""), "every address of this machine"),
            (("--host", "127.0.0.1"), "need --http"),
        ):
            done = _ended(dsn, *options, MEMFOLD_MCP_TOKEN=TOKEN)
            assert done.returncode == (2 if "need --http" in part else 1)
            assert part in done.stderr
            assert "Traceback" not in done.stderr
            assert "serving" not in done.stderr


def test_a_token_that_no_client_can_send_is_refused(dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    for token in (f"{TOKEN}\n{TOKEN}\n".encode(), "töken-of-32-characters-or-more".encode(), b"\xff" * 32):
        file.write_bytes(token)
        done = _ended(dsn, "--http", "0", "--token-file", str(file))
        assert (done.returncode, "no client can send the token" in done.stderr) == (1, True), done.stderr
        assert TOKEN not in done.stderr
        assert "Traceback" not in done.stderr
    # stdin is a file like others
    done = _ended(dsn, "--http", "0", "--token-file", "-", text="short\n")
    assert (done.returncode, "the token is too short" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ([f"bearer {TOKEN}"], None),
        ([], 401),
        ([f"Basic {TOKEN}"], 401),
        (["Bearer another"], 401),
        # a proxy in between may have checked the other one
        ([f"Bearer {TOKEN}", "Bearer another"], 401),
    ],
)
def test_exactly_one_header_must_have_the_token(sent: list[str], status: int | None) -> None:
    told: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"status": None})

    async def send(message: Any) -> None:
        told.append(message)

    headers = [(b"authorization", one.encode()) for one in sent]
    asyncio.run(RequireToken(app, TOKEN)({"type": "http", "headers": headers}, None, send))  # type: ignore[arg-type]
    assert told[0]["status"] == status


def test_client_input_cannot_forge_log_lines(dsn: str) -> None:
    process = subprocess.Popen(
        [COMMAND, "mcp", "--http", "0"], env=environment(dsn, MEMFOLD_MCP_TOKEN=TOKEN), stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        url = process.stderr.readline().decode().split()[1]
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        with httpx2.Client(timeout=30) as http:
            answer = http.post(url, content=b"{}", headers=headers | {"Host": b"a\x9b31mred\xc2\x85FORGED"})  # type: ignore[dict-item]
        assert answer.status_code == 421
    finally:
        process.terminate()
        log = process.communicate(timeout=60)[1]
    assert b"Invalid Host header: a\\u009b31mred" in log
    assert b"\xc2\x9b" not in log


def test_within_a_process_the_handler_of_ctrl_c_comes_back(dsn: str) -> None:
    before = signal.getsignal(signal.SIGINT)
    done = CliRunner().invoke(main, ["mcp", "--dsn", dsn, "--tenant", "acme"], input="")
    assert (done.exit_code, signal.getsignal(signal.SIGINT)) == (0, before), done.output


# errors ----------------------------------------------------------------------------------------------------------

SQL_NAMES = re.compile(r"\b\w+_\w+\(|\bmemfold\.\w|\bopen_judgements\b|\bMEMFOLD_")


def test_hints_speak_of_tools(dsn: str, db: DB) -> None:
    """Every error that a call can raise: the model can call whatever its hint names."""
    model(db)
    ingest(db, "Fact 1 holds", subject="s", **vector(1.0))
    question = {
        "question_id": str(ingest(db, "Fact 1 holds there", subject="s", **vector(0.88)).judgement_id)
    }
    nothing = str(uuid4())

    async def work() -> dict[str, str]:
        async with over_stdio(dsn) as client:
            made = await call(client, "remember", **CAT)
            gone = await call(client, "remember", content="Bob has a dog.")
            (taken,) = (await call(client, "forget", memory_ids=[gone["memory_id"]]))["memories"]
            again = await call(client, "remember", content="Carol has a bird.")
            done = await call(client, "correct", memory_id=again["memory_id"], content="Carol has an owl.")
            await call(client, "undo", event_id=done["event_id"])
            verdict = {"verdict": "distinct", "decided_by": "user"}
            odd = await refused(client, "answer", **question, **verdict, memory_ids=[nothing])
            await call(client, "answer", **question, **verdict)
            said = {
                "MF003": await refused(client, "remember", content="x", subject=" "),
                "MF004": await refused(client, "remember", content=" . "),
                "MF005": await refused(client, "remember", content="long " * 100_000),
                "MF018": await refused(client, "explain", memory_id=nothing),
                "MF026": await refused(client, "answer", question_id=nothing, **verdict),
                "MF027": await refused(client, "answer", **question, **verdict),
                "MF028": odd,
                "MF029": await refused(client, "undo", event_id=nothing),
                "MF030": await refused(client, "remember", content="a\0b"),
                "MF032": await refused(client, "undo", event_id=made["event_id"]),
                "MF033": await refused(client, "undo", event_id=done["event_id"]),
                "MF034": await refused(
                    client, "correct", memory_id=gone["memory_id"], content="Bob has a cow."
                ),
            }
            assert "forget" in said["MF032"]
            assert taken["event_id"] is not None
            return said

    for code, text in asyncio.run(work()).items():
        assert f"{code}: " in text
        assert "\nHINT: " in text
        assert SQL_NAMES.search(text) is None, text


def test_errors_the_model_cannot_fix_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    for error, part in (
        (errors.WrongTenantError("not of this tenant", hint="Run SET memfold.tenant_id"), "MF002: not of"),
        (errors.UnknownModelError("unknown embedding model", hint="register_embedding_model()"), "MF013: "),
        (errors.MemfoldError("permission denied", sqlstate="42501", hint="memfold_app"), "42501: permission"),
        (errors.MemfoldError("what a driver says"), "the database or its driver failed"),
    ):
        caplog.clear()
        said = plain(error)
        assert part in said
        assert "\nHINT: No other arguments can change that. Tell the user" in said
        assert SQL_NAMES.search(said) is None
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert error.message in caplog.text
    caplog.clear()
    assert "HINT: Try again." in plain(errors.RetryableError("deadlock detected", sqlstate="40P01"))
    assert "nothing was written" in plain(errors.ConnectionLostError("lost"))
    unknown = plain(errors.OutcomeUnknownError("lost"))
    assert "unknown whether it was written" in unknown
    assert "nothing was written" not in unknown


def test_every_tool_reports_characters_that_no_text_can_have(dsn: str, db: DB) -> None:
    nothing = str(uuid4())

    async def work() -> None:
        async with over_stdio(dsn) as client:
            for tool, arguments in (
                ("recall", {"query": "a\0b"}),
                ("recall", {"query": "a", "subject": "a\0b"}),
                ("remember", {"content": "a", "turn_id": "a\0b"}),
                (
                    "answer",
                    {"question_id": nothing, "verdict": "distinct", "decided_by": "user", "reason": "\0"},
                ),
                ("forget", {"memory_ids": [nothing], "erase": True, "reason": "a\0b"}),
                ("undo", {"event_id": nothing, "reason": "a\0b"}),
            ):
                assert "MF030: the text cannot be stored" in await refused(client, tool, **arguments)

    run(work)


def test_a_text_that_looks_like_json_stays_a_text(dsn: str, db: DB) -> None:
    async def work() -> None:
        async with over_stdio(dsn) as client:
            for number, text in enumerate(("null", "true", "1e5", '["red", "blue"]', '{"a":1}', '"q"')):
                about = {"subject": f"s{number}", "predicate": "p", "object": text, "turn_id": text}
                made = await call(client, "remember", content=f"Fact {number} holds.", **about)
                row = db.execute(
                    "select m.object, e.source_turn_ids from memfold.memories as m"
                    " join memfold.memory_events as e on e.tenant_id = m.tenant_id and e.event_id = %s"
                    " where m.memory_id = %s",
                    [made["event_id"], made["memory_id"]],
                ).fetchone()
                assert row == (text, [text])
            made = await call(client, "remember", content="Nothing more is known.", subject=None, object=None)
            assert made["action"] == "inserted"
            assert "valid string" in await refused(client, "remember", content="x", subject=["a"])
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            given = tools["remember"].input_schema["properties"]["object"]
            assert given["anyOf"] == [{"type": "string"}, {"type": "null"}]
            assert given["default"] is None

    run(work)


def test_a_query_has_an_end(dsn: str) -> None:
    async def work() -> None:
        async with over_stdio(dsn) as client:
            assert (await call(client, "recall", query="a " * 2_000))["memories"] == []
            said = await refused(client, "recall", query=" ".join(map(str, range(250_000))))
            assert "at most 4000 characters" in said

    run(work)


# cancelled calls -------------------------------------------------------------------------------------------------


def test_a_cancelled_call_leaves_no_statement_behind(dsn: str, db: DB, raw: Raw) -> None:
    waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    others = (
        "select from pg_stat_activity where datname = current_database() and application_name = 'memfold'"
    )
    many = range(1, 3 * CONNECTIONS + 1)
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table memfold.memories in access exclusive mode")
        for number in many:
            raw.ask(
                number, "tools/call", {"name": "remember", "arguments": {"content": f"Given up {number}."}}
            )
        until(lambda: len(db.execute(waiting).fetchall()) == CONNECTIONS, "calls that wait")
        # Those without a connection first: one that had just got it would have sent its statement, and PostgreSQL ignores
        # a cancel request that comes before the statement.
        for number in reversed(many):
            raw.send({"method": "notifications/cancelled", "params": {"requestId": number}})
        # messages are handled in order: then all of them are cancelled
        raw.ask(99, "ping", {})
        while raw.answer()["id"] != 99:
            pass
        until(lambda: not db.execute(waiting).fetchall(), "their statements end, although the lock is held")
        until(
            lambda: len(db.execute(others).fetchall()) <= CONNECTIONS,
            "no more connections than there are to be",
        )
    raw.ask(100, "tools/call", {"name": "remember", "arguments": CAT})
    answer = raw.answer()
    while answer["id"] != 100:
        answer = raw.answer()
    assert answer["result"]["structuredContent"]["action"] == "inserted"
    assert db.execute("select content from memfold.memories").fetchall() == [(CAT["content"],)]
    check(db)
    code, _ = raw.end()
    assert code == 0


def test_a_call_is_cancelled_once_and_may_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As over TCP, where psycopg needs some time to cancel a statement; over a socket it takes almost none."""
    seen: list[str] = []

    async def slow(_: object, function: str) -> None:
        try:
            seen.append(function)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)
            seen.append("cleaned up")
            raise

    monkeypatch.setattr("memfold.client.calls.AsyncMemfold._drive", slow)
    monkeypatch.setattr("memfold.client.calls.core.Core.explain", lambda *_: "explain")

    async def work() -> None:
        store = Store(Place("dbname=nowhere", "acme"))
        with anyio.move_on_after(0.05):
            await store.explain(uuid4())
        assert seen == ["explain"]
        assert store._idle == [], "still in use"
        await asyncio.gather(*store._working, return_exceptions=True)
        assert len(store._idle) == 1

    run(work)
    assert seen == ["explain", "cleaned up"]


def test_a_client_that_leaves_during_a_call_ends_it(dsn: str, db: DB, raw: Raw) -> None:
    waiting = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table memfold.memories in access exclusive mode")
        raw.ask(1, "tools/call", {"name": "remember", "arguments": CAT})
        until(lambda: bool(db.execute(waiting).fetchall()), "a call that waits")
        code, log = raw.end()
        assert (code, "Traceback" in log) == (0, False), log
        until(lambda: not db.execute(waiting).fetchall(), "the statement ends, although the lock is held")
    assert db.execute("select count(*) from memfold.memories").fetchone() == (0,)
