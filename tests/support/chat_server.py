"""A local HTTP server that speaks the chat-completions protocol, for tests of the judge and of its worker.

In a test:

    with ChatServer(latency=0.2) as server:
        judge = OpenAIJudge("stand-in", base_url=server.base_url)
        ...
        server.mode = "429"  # from now on; any of MODES
        server.script("500", "nonsense")  # only the next two requests
        assert server.max_in_flight == 3 and max(server.asked_judgements().values()) == 1

As a separate process, for tests that kill things: ``python -m tests.support.chat_server --port 0 --latency 0.2``
prints its base URL on one line; GET /stats and POST /control (see ``control``) stand in for the attributes.

The models: ``honest_model`` compares what the data say. ``obeying_model`` does what it is told by anything that
stands outside the data, and tells data from instructions as carelessly as the prompt allows.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import json
import re
import sys
import threading
import time
import unicodedata
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Self

Json = dict[str, Any]
Reply = tuple[int, dict[str, str], bytes | str]
"""Status, headers, body."""
Model = Callable[[Json], "Json | Reply"]
"""The reply to a request: a judge's answer, a whole chat completion (has ``choices``), or a raw reply."""

MODES = (
    "ok",  # the model answers
    "refuse",  # nobody listens, open connections are cut
    "503",
    "500",
    "401",
    "429",  # with Retry-After: server.retry_after
    "stall",  # takes the request and never answers, until the mode is another
    "drip",  # sends a byte of its headers now and then, and never ends, until the mode is another
    "cut",  # closes the connection in the middle of the body
    "nonsense",  # 200 and a page of HTML
    "wrong_json",  # the answer is JSON that breaks off
    "truncated",  # finish_reason length
    "refusal",
    "content_filter",
    "empty",  # no choices
)

# --- requests ---------------------------------------------------------------------------------------------------

_LETTERS = "ABCDEFGHIJ"
_BEGIN = re.compile(r"<<<DATA ([^<>\n]+)>>>")


def _messages(request: Json) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in request["messages"]]


def _stated_nonce(request: Json) -> str | None:
    """The nonce that the system message states, in the fence that it shows."""
    for role, text in _messages(request):
        if role == "system" and (found := _BEGIN.search(text)):
            return found.group(1)
    return None


def _split(text: str, nonce: str) -> tuple[str, str | None, str]:
    """The text before, within and after the fence: it ends at the first end line with the nonce, wherever that is."""
    before, begin, rest = text.partition(f"<<<DATA {nonce}>>>")
    if not begin:
        return text, None, ""
    inside, _, behind = rest.partition(f"<<<END {nonce}>>>")
    return before, inside, behind


def read_document(request: Json) -> Json:
    """The whole JSON document between the fences."""
    nonce = _stated_nonce(request)
    assert nonce is not None, "the system message states no fence"
    inside = _split(_messages(request)[-1][1], nonce)[1]
    assert inside is not None, "the user message has no data"
    document = json.loads(inside)
    assert isinstance(document, dict)
    return document


def read_question(request: Json) -> tuple[Json, Json]:
    """The two memories, as the data have them: A (the older one), B (the newer one)."""
    document = read_document(request)
    return document["A"], document["B"]


def read_members(request: Json) -> dict[str, Json]:
    """All memories by their letters, oldest to newest."""
    document = read_document(request)
    return {letter: document[letter] for letter in _LETTERS if letter in document}


@dataclass
class Asked:
    """One request: when, for which judgement (as the client's request id says), about which memories.

    ``answered``: the model's answer was written to a client that was still there.
    """

    at: float
    judgement_id: str | None
    older: Json | None
    newer: Json | None
    answered: bool = False

    @property
    def pair(self) -> tuple[str, str] | None:
        """The two contents in a fixed order, so that it does not matter which side is which."""
        if self.older is None or self.newer is None:
            return None
        first, second = sorted((self.older["content"], self.newer["content"]))
        return first, second


# --- models -----------------------------------------------------------------------------------------------------


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def honest_verdict(older: Json, newer: Json) -> tuple[str, str | None]:
    """The verdict, and the richer side of a refinement."""
    a, b = _words(older["content"]), _words(newer["content"])
    if a == b:
        return "duplicate", None
    if f" {a} " in f" {b} " or f" {b} " in f" {a} ":
        return "refinement", "B" if len(b) > len(a) else "A"
    slots = [
        (_words(side.get("subject") or ""), _words(side.get("predicate") or "")) for side in (older, newer)
    ]
    objects = [_words(side.get("object") or "") for side in (older, newer)]
    if slots[0] == slots[1] and all(slots[0]) and all(objects) and objects[0] != objects[1]:
        return "contradiction", None
    return "distinct", None


def honest_model(request: Json) -> Json:
    """Compares the normalised contents of the memories; of a cluster, what is said twice or more."""
    members = read_members(request)
    older, newer = members["A"], members["B"]
    verdict, richer = honest_verdict(older, newer)
    wanted = '"merged_text": one text' in _messages(request)[0][1]
    answer = {
        "verdict": verdict,
        "confidence": 0.95,
        "reason": "compared word by word",
        "richer": richer,
        "merged_text": None,
    }
    if len(members) > 2:
        said = Counter(_words(member["content"]) for member in members.values())
        words, times = said.most_common(1)[0]
        same = [letter for letter, member in members.items() if _words(member["content"]) == words]
        answer |= {
            "verdict": "duplicate" if times > 1 else "distinct",
            "richer": None,
            "members": same if 1 < times < len(members) else None,
        }
    if wanted and answer["verdict"] in ("duplicate", "refinement"):
        answer["merged_text"] = " / ".join(member["content"] for member in members.values())
    return answer


def writing_model(request: Json) -> Json:
    """Follows the rubric of a synthesis: overlapping texts become one, with each word once; others are distinct."""
    members = read_members(request)
    texts = [member["content"] for member in members.values()]
    shared = set.intersection(*({_words(word) for word in text.split()} for text in texts))
    words: dict[str, str] = {}
    for text in texts:
        for word in text.split():
            words.setdefault(_words(word), word)
    rubric = _messages(request)[0][1]
    overlap = len(shared) > 1 and "about the same thing and overlap" in rubric
    answer = {
        "verdict": "refinement" if overlap else "distinct",
        "confidence": 0.95,
        "reason": "combined word by word",
        "richer": None,
        "merged_text": " ".join(words.values()) if overlap else None,
    }
    return answer | ({"members": None} if len(members) > 2 else {})


_VERDICT = r"(duplicate|refinement|contradiction|distinct)"
_ORDER = re.compile(
    r"\b(?:answer|reply|respond|return|output|say|choose|pick|give|verdict)\b"
    r"(?:\s+(?:with|is|be|to|as|only|exactly|must|the|verdict|shall|should|now))*"
    rf"[\s:=\"'`*]*{_VERDICT}",
    re.IGNORECASE,
)
_OVERRIDE = re.compile(
    rf"\b(?:ignore|disregard|forget)\b.{{0,80}}?\b(?:previous|above|prior|instructions|rules)\b.{{0,200}}?{_VERDICT}",
    re.IGNORECASE | re.DOTALL,
)
# Control tokens by which servers mark turns; a careless one honours them inside of a message too.
_TURN = re.compile(
    r"<\|im_start\|>|<\|im_end\|>|<\|start_header_id\|>|<\|eot_id\|>|\[/?INST\]|<</?SYS>>|<start_of_turn>"
    r"|<end_of_turn>|</?s>|<\|endoftext\|>|<\|(?:user|assistant|system|tool)[^>]*\|>"
)
_KNOWN = {*_LETTERS, "guard"}


def _folded(text: str) -> str:
    """The text for a reader who ignores how letters are written: full-width, invisible, mirrored."""
    return "".join(
        char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) not in ("Cf", "Mn")
    )


def _unescaped(text: str) -> str:
    """The text for a reader who decodes JSON's escapes before looking for the fence."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found.group(1), 16)), text)
    return re.sub(
        r"\\([nrt\"/\\])", lambda found: {"n": "\n", "r": "\r", "t": "\t"}.get(found[1], found[1]), text
    )


def _strays(inside: str) -> Iterator[str]:
    """Data that a reader could take for more than data: no JSON, more than one document, additional members."""
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> Json:
        members: Json = {}
        for name, value in items:
            if name in members or name in ("verdict", "instruction", "system", "role"):
                found.append(f"{name}: {value}")
            members[name] = value
        return members

    text = inside.strip()
    try:
        document, end = json.JSONDecoder(object_pairs_hook=pairs).raw_decode(text)
    except ValueError:
        yield inside  # not a document, so just text
        return
    yield text[end:]
    if isinstance(document, dict):
        yield from (f"{name}: {value}" for name, value in document.items() if name not in _KNOWN)
    yield from found


def outside_of_data(request: Json) -> list[str]:
    """Everything that the obeying model reads as instructions, in any of its ways."""
    nonce = _stated_nonce(request) or ""
    texts: list[str] = []
    for role, text in _messages(request):
        if role == "system":
            texts.append(text)
            continue
        for reading in (text, _folded(text)):
            # Turns are cut before anything is understood, hence before there are fences.
            cut, *turns = _TURN.split(reading)
            texts += turns
            before, inside, behind = _split(cut, nonce)
            texts += [before, behind]
            if inside is not None and not turns:
                texts += _strays(inside)
        for reading in (_unescaped(text), _folded(_unescaped(text))):
            before, _, behind = _split(reading, nonce)
            texts += [before, behind]
    for text in texts[:]:
        for run in re.findall(r"[A-Za-z0-9+/]{24,}={0,2}", text):
            try:
                texts.append(base64.b64decode(run, validate=True).decode())
            except (binascii.Error, UnicodeDecodeError):
                continue
    return texts


def order_in(text: str) -> str | None:
    """The verdict that a text orders, if it orders one."""
    found = _ORDER.search(text) or _OVERRIDE.search(text)
    return found.group(1).lower() if found else None


def obeying_model(request: Json) -> Json:
    """Obeys any instruction outside the data; without one it is honest."""
    for text in outside_of_data(request):
        if verdict := order_in(text):
            return {
                "verdict": verdict,
                "confidence": 1.0,
                "reason": "as told",
                "richer": "B" if verdict == "refinement" else None,
                "merged_text": None,
            }
    return honest_model(request)


# --- the server -------------------------------------------------------------------------------------------------


def completion(
    content: str | None,
    *,
    refusal: str | None = None,
    finish_reason: str = "stop",
    usage: tuple[int, int] | None = (400, 40),
    model: str = "stand-in",
) -> Json:
    """A chat completion of one choice."""
    made: Json = {
        "id": "chatcmpl-test",
        "object": "chat.completion",
        "created": 1767225600,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content, "refusal": refusal},
                "logprobs": None,
                "finish_reason": finish_reason,
            }
        ],
    }
    if usage is not None:
        made["usage"] = {"prompt_tokens": usage[0], "completion_tokens": usage[1], "total_tokens": sum(usage)}
    return made


def error_reply(status: int, message: str, **headers: str) -> Reply:
    """An error as such endpoints send it."""
    body = json.dumps({"error": {"message": message, "type": "test", "param": None, "code": None}})
    return status, {"content-type": "application/json", **headers}, body


@dataclass(eq=False)
class ChatServer:
    """The server, in a separate thread; a context manager. Its attributes may be changed while it runs."""

    answer: Model = honest_model
    latency: float = 0.0
    port: int = 0
    usage: tuple[int, int] | None = (400, 40)
    retry_after: str = "7"
    knows_json_schema: bool = True
    """False: 400 to a response_format of json_schema, as older endpoints do."""
    api_key: str | None = None
    """If set, 401 to any other."""

    received: int = field(default=0, init=False)
    """Requests for a completion, refused ones not among them."""
    answered: int = field(default=0, init=False)
    """Replies of any kind that were written to a client that was still connected."""
    in_flight: int = field(default=0, init=False)
    max_in_flight: int = field(default=0, init=False)
    requests: list[Json] = field(default_factory=list, init=False)
    headers: list[dict[str, str]] = field(default_factory=list, init=False)
    asked: list[Asked] = field(default_factory=list, init=False)
    """One for each request whose data could be read, or whose judgement is known."""

    def __post_init__(self) -> None:
        self._mode = "ok"
        self._script: deque[str | Reply] = deque()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chat server", daemon=True)
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # --- what a test says

    @property
    def base_url(self) -> str:
        """The base_url for clients."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def mode(self) -> str:
        """How requests are answered: one of MODES."""
        return self._mode

    @mode.setter
    def mode(self, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"{mode!r} is none of {', '.join(MODES)}")
        self._mode = mode
        if self._thread.is_alive():
            self._run(self._listen() if mode != "refuse" else self._stop_listening())

    def script(self, *steps: str | Reply) -> None:
        """A mode or a raw reply for each of the next requests, before the mode counts again."""
        self._script.extend(steps)

    def asked_judgements(self, *, answered: bool = False) -> Counter[str]:
        """How often each judgement was asked about (or: was asked about and answered)."""
        return Counter(
            asked.judgement_id
            for asked in list(self.asked)
            if asked.judgement_id is not None and asked.answered >= answered
        )

    def asked_pairs(self, *, answered: bool = False) -> Counter[tuple[str, str]]:
        """How often each pair of contents was asked about (or: and answered), in either order."""
        return Counter(
            asked.pair for asked in list(self.asked) if asked.pair is not None and asked.answered >= answered
        )

    def reset(self) -> None:
        """Forget what was counted."""
        self.received = self.answered = self.max_in_flight = 0
        for items in (self.requests, self.headers, self.asked):
            items.clear()

    def stats(self) -> Json:
        """The counters, as GET /stats returns them."""
        return {
            "received": self.received,
            "answered": self.answered,
            "in_flight": self.in_flight,
            "max_in_flight": self.max_in_flight,
            "mode": self.mode,
            "judgements": dict(self.asked_judgements()),
            "judgements_answered": dict(self.asked_judgements(answered=True)),
        }

    # --- its life

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Any) -> None:
        done: Future[None] = asyncio.run_coroutine_threadsafe(work, self._loop)
        done.result(timeout=10)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(
                self._serve, "127.0.0.1", self.port, reuse_address=True, backlog=512
            )
            self.port = self._listener.sockets[0].getsockname()[1]

    async def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _close(self) -> None:
        await self._stop_listening()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while await self._one_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone, or the server is closing
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ", 2)
        if (method, path) == ("GET", "/stats"):
            return await self._send(
                writer, (200, {"content-type": "application/json"}, json.dumps(self.stats()))
            )
        if (method, path) == ("POST", "/control"):
            self._control(json.loads(body))
            return await self._send(writer, (200, {}, ""))
        if (method, path) != ("POST", "/v1/chat/completions"):
            return await self._send(writer, error_reply(404, f"no {path}"))
        return await self._complete(reader, writer, headers, json.loads(body))

    def _control(self, wishes: Json) -> None:
        """{"latency": 0.2, "retry_after": "1", "mode": "refuse", "for": 2.0}: for so many seconds, then ok."""
        for name in ("latency", "retry_after"):
            if name in wishes:
                setattr(self, name, wishes[name])

        def switch(mode: str) -> None:
            self._mode = mode
            # Not yet, or the reply to this request would be lost.
            work = self._stop_listening() if mode == "refuse" else self._listen()
            self._loop.call_later(0.05, lambda: self._loop.create_task(work))

        if "mode" in wishes:
            switch(wishes["mode"])
            if "for" in wishes:
                self._loop.call_later(float(wishes["for"]), switch, "ok")

    async def _complete(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        headers: dict[str, str],
        request: Json,
    ) -> bool:
        self.received += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        self.requests.append(request)
        self.headers.append(headers)
        asked = self._note(headers, request)
        step = self._script.popleft() if self._script else self.mode
        started = self._loop.time()
        try:
            if step == "stall" or step == "drip":
                scripted = self.mode != step
                if step == "drip":
                    writer.write(b"HTTP/1.1 200 OK\r\n")
                # A step of the script stalls for good, the mode until it is another.
                while (scripted or self.mode == step) and not (reader.at_eof() or writer.is_closing()):
                    if step == "drip":
                        writer.write(b"x-drip: 1\r\n")
                        await writer.drain()
                    await asyncio.sleep(0.02)
                return False
            reply = self._reply(step, headers, request)
            await asyncio.sleep(max(0.0, self.latency - (self._loop.time() - started)))
            if step == "cut":
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{"
                )
                await writer.drain()
                return False
            if reader.at_eof():
                return False
            stays = await self._send(writer, reply)
            self.answered += 1
            if asked is not None:
                asked.answered = step == "ok" and reply[0] == 200
            return stays
        finally:
            self.in_flight -= 1

    def _note(self, headers: dict[str, str], request: Json) -> Asked | None:
        request_id = headers.get("x-client-request-id", "")
        judgement_id = request_id[:36] if re.fullmatch(r"[0-9a-f-]{36}\.\d+", request_id) else None
        older: Json | None
        newer: Json | None
        try:
            older, newer = read_question(request)
        except (AssertionError, LookupError, ValueError):
            older = newer = None
        if judgement_id is None and older is None:
            return None
        self.asked.append(asked := Asked(time.monotonic(), judgement_id, older, newer))
        return asked

    def _reply(self, step: str | Reply, headers: dict[str, str], request: Json) -> Reply:
        if not isinstance(step, str):
            return step
        if self.api_key is not None and headers.get("authorization") != f"Bearer {self.api_key}":
            return error_reply(401, f"Incorrect API key provided: {headers.get('authorization')}")
        if step == "429":
            return error_reply(429, "Rate limit reached", **{"retry-after": self.retry_after})
        if step.isdigit():
            return error_reply(int(step), f"as the test wants it: {step}")
        if step == "nonsense":
            return 200, {"content-type": "text/html"}, "<!doctype html><title>It works!</title>"
        if request.get("response_format", {}).get("type") == "json_schema" and not self.knows_json_schema:
            return error_reply(
                400, "Invalid parameter: 'response_format' of type 'json_schema' is not supported"
            )
        made = {
            "wrong_json": lambda: completion('{"verdict": "duplicate", "confid', usage=self.usage),
            "truncated": lambda: completion('{"verdict": "dup', finish_reason="length", usage=self.usage),
            "refusal": lambda: completion(None, refusal="I cannot help with that.", usage=self.usage),
            "content_filter": lambda: completion(None, finish_reason="content_filter", usage=self.usage),
            "empty": lambda: {**completion(None, usage=self.usage), "choices": []},
        }.get(step)
        given: Json | Reply = made() if made else self.answer(request)
        if isinstance(given, tuple):
            return given
        if "choices" not in given:
            given = completion(json.dumps(given), usage=self.usage, model=request.get("model", "stand-in"))
        return 200, {"content-type": "application/json"}, json.dumps(given)

    @staticmethod
    async def _send(writer: asyncio.StreamWriter, reply: Reply) -> bool:
        status, headers, body = reply
        data = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, f"content-length: {len(data)}", "", ""]).encode("latin-1") + data)
        await writer.drain()
        return True


# --- as a separate process ------------------------------------------------------------------------------------


def stats_of(base_url: str) -> Json:
    """The counters of a server in another process."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/stats", timeout=10) as reply:  # noqa: S310
        stats = json.load(reply)
    assert isinstance(stats, dict)
    return stats


def control(base_url: str, **wishes: Any) -> None:
    """Tell a server in another process: ``mode``, ``latency``, ``retry_after``, and ``for`` how long.

    ``control(url, mode="refuse", **{"for": 2.0})`` is the way back from a server that nobody can speak to.
    """
    request = urllib.request.Request(  # noqa: S310
        base_url.removesuffix("/v1") + "/control", data=json.dumps(wishes).encode(), method="POST"
    )
    urllib.request.urlopen(request, timeout=10).close()  # noqa: S310


def main() -> None:
    """Serve until the process is killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency", type=float, default=0.0)
    parser.add_argument("--model", choices=("honest", "obeying"), default="honest")
    options = parser.parse_args()
    model = honest_model if options.model == "honest" else obeying_model
    with ChatServer(model, latency=options.latency, port=options.port) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
