"""Adoption of the tables of mem0 and langchain-postgres while they are in use:
``python bench/adopting_peers.py DSN``.

Needs both libraries and memfold, best in a separate environment (`pip install mem0ai langchain-postgres
'memfold[adopt,migrate]'`), and DSN: a server with pgvector, as a role that may create databases. It creates the
database ``memfold_peers``, and replaces an earlier one. Each library writes rows, is adopted while another of its
clients continues to write, and is then used as before; finally the adoption absorbs, and the library adds 1,000 texts
of which 100 are duplicates. Vectors are made up, and no model is asked. Writes bench/results/adopting_peers.md; any
surprise is an error.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import random
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

os.environ.setdefault("MEM0_TELEMETRY", "False")
os.environ.setdefault("MEM0_DIR", tempfile.mkdtemp(prefix="mem0-"))

import psycopg
import sqlalchemy
from langchain_core.documents import Document
from langchain_postgres import PGVector
from mem0 import Memory
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Json

from memfold.adopt import Adopter, Options, conflict_of
from memfold.client.errors import MemoryHashConflict
from memfold.tools.admin import migrate

DATABASE = "memfold_peers"
RESULT = Path(__file__).resolve().parent / "results" / "adopting_peers.md"
ROWS = 2000
USERS = 5
DIMENSIONS = 8
ABSORBED = 100


def vector(text: str) -> list[float]:
    """A vector that depends only on the text."""
    return [byte / 255 - 0.5 for byte in hashlib.sha256(text.encode()).digest()[:DIMENSIONS]]


def texts(seed: int, rows: int) -> Iterator[tuple[str, str]]:
    """User and text; one in twelve repeats an earlier text in another spelling."""
    chance = random.Random(seed)
    made: list[tuple[str, str]] = []
    for n in range(rows):
        if made and chance.random() < 1 / 12:
            user, said = chance.choice(made)
            made.append((user, chance.choice(["  {}", "{}!", "{} "]).format(said.upper())))
        else:
            made.append((f"user-{n % USERS}", f"Fact {seed}-{n}: likes tea number {n}."))
        yield made[-1]


class Peer(Protocol):
    """A library over its own table."""

    name: str
    version: str
    table: str
    options: dict[str, str | None]

    def add(self, user: str, text: str) -> str: ...
    def add_all(self, user: str, texts: list[str]) -> list[str]: ...
    def get(self, key: str) -> str | None: ...
    def row(self, user: str, text: str) -> dict[str, Any]: ...
    def search(self, user: str, text: str) -> list[str]: ...
    def change(self, key: str, user: str, text: str) -> None: ...
    def remove(self, key: str) -> None: ...


class Mem0:
    """mem0's Memory over its pgvector store, without a model: infer=False stores texts as they are."""

    name = "mem0ai"
    version = importlib.metadata.version("mem0ai")
    table = "public.mem0"

    def __init__(self, dsn: str) -> None:
        self.options: dict[str, str | None] = {
            "content": "payload->>'data'",
            "tenant": "payload->>'user_id'",
            "created": "(payload->>'created_at')::timestamptz",
        }
        self.memory = Memory.from_config(
            {
                "vector_store": {
                    "provider": "pgvector",
                    "config": {
                        "connection_string": dsn,
                        "collection_name": "mem0",
                        "embedding_model_dims": DIMENSIONS,
                    },
                },
                # constructed but never called: there is no key
                "llm": {"provider": "openai", "config": {"api_key": "none"}},
                "embedder": {"provider": "openai", "config": {"api_key": "none"}},
                "history_db_path": ":memory:",
            }
        )
        self.memory.embedding_model = self

    def embed(self, text: str, *_: object, **__: object) -> list[float]:
        return vector(text)

    def add(self, user: str, text: str) -> str:
        return str(self.memory.add(text, user_id=user, infer=False)["results"][0]["id"])

    def add_all(self, user: str, texts: list[str]) -> list[str]:
        return [self.add(user, text) for text in texts]

    def get(self, key: str) -> str | None:
        found = self.memory.get(key)
        return found and str(found["memory"])

    def row(self, user: str, text: str) -> dict[str, Any]:
        return {"payload": Json({"data": text, "user_id": user})}

    def search(self, user: str, text: str) -> list[str]:
        found = self.memory.search(text, filters={"user_id": user}, top_k=1)["results"]
        return [one["memory"] for one in found]

    def change(self, key: str, user: str, text: str) -> None:
        self.memory.update(key, text)

    def remove(self, key: str) -> None:
        self.memory.delete(key)


class Langchain:
    """langchain-postgres' PGVector store."""

    name = "langchain-postgres"
    version = importlib.metadata.version("langchain-postgres")
    table = "public.langchain_pg_embedding"

    def __init__(self, dsn: str) -> None:
        self.options: dict[str, str | None] = {
            "content": "document",
            "tenant": "cmetadata->>'user_id'",
            "bucket": "collection_id",
        }
        parts = conninfo_to_dict(dsn)
        url = sqlalchemy.URL.create(
            "postgresql+psycopg",
            username=str(parts["user"]),
            database=str(parts["dbname"]),
            query={name: str(parts[name]) for name in ("host", "port") if name in parts},
        )
        self.store = PGVector(
            embeddings=self, collection_name="memories", connection=sqlalchemy.create_engine(url)
        )

    def embed_documents(self, given: list[str]) -> list[list[float]]:
        return [vector(one) for one in given]

    def embed_query(self, text: str) -> list[float]:
        return vector(text)

    def _document(self, user: str, text: str) -> Document:
        return Document(page_content=text, metadata={"user_id": user})

    def add(self, user: str, text: str) -> str:
        return str(self.store.add_documents([self._document(user, text)], ids=[str(uuid.uuid4())])[0])

    def add_all(self, user: str, texts: list[str]) -> list[str]:
        return list(self.store.add_documents([self._document(user, text) for text in texts]))

    def get(self, key: str) -> str | None:
        found = self.store.get_by_ids([key])
        return found[0].page_content if found else None

    def row(self, user: str, text: str) -> dict[str, Any]:
        with self.store.session_maker() as session:
            collection = self.store.get_collection(session)
            return {
                "document": text,
                "cmetadata": Json({"user_id": user}),
                "collection_id": collection.uuid,
            }

    def search(self, user: str, text: str) -> list[str]:
        found = self.store.similarity_search(text, k=1, filter={"user_id": user})
        return [one.page_content for one in found]

    def change(self, key: str, user: str, text: str) -> None:
        self.store.add_documents([self._document(user, text)], ids=[key])

    def remove(self, key: str) -> None:
        self.store.delete([key])


class Writer(threading.Thread):
    """Another client of the library, which continues while the table is adopted."""

    def __init__(self, peer: Peer) -> None:
        super().__init__(daemon=True)
        self.peer = peer
        self.stop = threading.Event()
        self.added = self.conflicts = 0
        self.longest = 0.0
        self.errors: list[str] = []

    def run(self) -> None:
        for user, text in texts(2, 1_000_000):
            if self.stop.is_set():
                return
            began = time.monotonic()
            try:
                self.peer.add(user, text)
                self.added += 1
            except Exception as error:
                if of_database(error).sqlstate == "23505":
                    self.conflicts += 1
                else:
                    self.errors.append(str(error))
            self.longest = max(self.longest, time.monotonic() - began)


def of_database(error: BaseException) -> psycopg.Error:
    """The server's error, unwrapped from the library's exceptions."""
    if isinstance(error, sqlalchemy.exc.DBAPIError) and isinstance(error.orig, psycopg.Error):
        return error.orig
    if isinstance(error, psycopg.Error):
        return error
    raise error


def must(what: bool, why: str) -> None:
    if not what:
        raise SystemExit(f"adopting_peers: {why}")


def ask(dsn: str, make: Callable[[str], Peer]) -> list[object]:
    """Write, adopt, continue; returns a line of the table."""
    peer = make(dsn)
    for user, text in texts(1, ROWS):
        peer.add(user, text)
    said: list[str] = []
    writer = Writer(make(dsn))
    writer.start()
    began = time.monotonic()
    with Adopter(dsn, said.append) as adopter:
        definition, known = adopter.define(peer.table, peer.options)
        state = adopter.run(definition, known, Options(), confirm=True)
    took = time.monotonic() - began
    writer.stop.set()
    writer.join()
    must(writer.errors == [], f"{peer.name}: a writer's error: {writer.errors[:1]}")
    must(writer.added > 0, f"{peer.name}: nothing was added during the adoption")
    must(state.step == 6, f"{peer.name}: step {state.step}")
    with psycopg.connect(dsn, autocommit=True) as db:

        def one(query: str) -> Any:
            row = db.execute(query.encode()).fetchone()
            return row and row[0]

        archived = one("select count(*) from memfold.adoption_archive where restored_at is null"
                       f" and table_name = '{peer.table.split('.')[1]}'")  # fmt: skip
        live = one(f"select count(*) from {peer.table}")
        must(live + archived == ROWS + writer.added, f"{peer.name}: {live} live, {archived} archived")
        content, tenant = peer.options["content"], peer.options["tenant"]
        distinct = one(
            f"select count(distinct ({tenant}, memfold.canonicalize({content}, 'prose/1'))) from {peer.table}"
        )
        must(distinct == live, f"{peer.name}: {live} rows of {distinct} texts")
        # and the library continues
        key = peer.add("user-1", "Plays the cello.")
        must(peer.search("user-1", "Plays the cello.") == ["Plays the cello."], f"{peer.name}: search")
        try:
            peer.add("user-1", "plays  the CELLO")
        except Exception as error:
            conflict = conflict_of(db, of_database(error), peer.row("user-1", "plays  the CELLO"))
            must(isinstance(conflict, MemoryHashConflict), f"{peer.name}: {conflict!r}")
            must(str(getattr(conflict, "existing_id", None)) == key, f"{peer.name}: another row is named")
        else:
            must(False, f"{peer.name}: a duplicate went in")
        peer.add("user-2", "plays  the CELLO")
        peer.change(key, "user-1", "Plays the harp.")
        again = peer.add("user-1", "Plays the cello.")
        must(again != key, f"{peer.name}: the text of a changed row is not free")
        peer.remove(again)
        peer.add("user-1", "PLAYS the cello")
        known = adopter_run(dsn, peer, absorb=True)
        must(known.absorbs, f"{peer.name}: it does not absorb")
        given = [f"Fact 3-{n}: likes tea number {n}." for n in range(1000 - ABSORBED)]
        given += [f"  {text.upper()}" for text in given[:ABSORBED]]
        random.Random(3).shuffle(given)
        before = one(f"select count(*) from {peer.table}")
        began = time.monotonic()
        keys = peer.add_all("user-3", given)
        absorbing = time.monotonic() - began
        counted = one(f"select sum(repeats) from memfold.adoption_repeats where adoption = '{known.name}'")
        rows = one(f"select count(*) from {peer.table}") - before
        must((rows, counted) == (1000 - ABSORBED, ABSORBED), f"{peer.name}: {rows} rows, {counted} absorbed")
        must(len(keys) == 1000, f"{peer.name}: {len(keys)} keys")
        must([peer.get(key) for key in keys].count(None) == ABSORBED, f"{peer.name}: keys of absorbed texts")
        must(peer.search("user-3", given[0]) != [], f"{peer.name}: search after absorbing")
        peer.remove(keys[0])
    return [
        f"{peer.name} {peer.version}",
        ROWS + writer.added,
        archived,
        live,
        writer.added,
        writer.conflicts,
        f"{took:.1f}",
        f"{writer.longest * 1000:.0f}",
        rows,
        counted,
        f"{absorbing:.1f}",
    ]


def adopter_run(dsn: str, peer: Peer, *, absorb: bool) -> Any:
    """Run again, to change the result of a duplicate insert."""
    with Adopter(dsn) as adopter:
        definition, known = adopter.define(peer.table, {})
        adopter.run(definition, known, Options(), absorb=absorb)
        return adopter.known(peer.table)


def main() -> int:
    """Both libraries, one after the other."""
    server = sys.argv[1]
    with psycopg.connect(server, autocommit=True) as db:
        name = sql.Identifier(DATABASE)
        db.execute(sql.SQL("drop database if exists {} with (force)").format(name))
        db.execute(sql.SQL("create database {}").format(name))
    dsn = make_conninfo(server, dbname=DATABASE)
    migrate.install(dsn)
    heads = ["library", "rows written", "archived", "live", "of them added since", "conflicts",
             "seconds", "slowest add, ms", "of 1,000 texts rows", "absorbed", "seconds"]  # fmt: skip
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *(ask(dsn, make) for make in (Mem0, Langchain))]
    printed = "\n".join("| " + " | ".join(f"{one:,}" if isinstance(one, int) else str(one) for one in line) + " |"
                        for line in lines)  # fmt: skip
    text = (
        "# Adoption of what mem0 and langchain-postgres keep, by the libraries themselves\n\n"
        "Each library has written 2,000 memories, one in twelve a duplicate in another spelling; all six steps were"
        " run while another client of it continued to add, without pause. Every row written is live or archived, no text"
        " is stored twice, and afterwards each library adds, searches, changes and removes as before; a duplicate"
        " raises 23505, which `conflict_of` translates into a `MemoryHashConflict` with the id of the existing row. Then,"
        " with `--absorb`, each library adds 1,000 texts, 100 of them duplicates in another spelling (mem0 one by one,"
        " LangChain by one `add_documents`): no call fails, and the table of repeats counts 100.\n\n"
        f"{printed}\n"
    )
    RESULT.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
