"""The definition of an adoption, and the names of the objects created for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from memfold.adopt import expressions as x
from memfold.adopt.catalog import Table
from memfold.adopt.expressions import Expression
from memfold.client.errors import AdoptError

__all__ = ["PROFILES", "Definition", "define", "index_name", "short_name"]

PROFILES = {"prose": "prose/1", "flat": "flat/1", "code": "code/1", "exact": "exact/1"}


@dataclass(frozen=True)
class Definition:
    """An adoption: a table, the expressions for text and tenant, and the column of the hash."""

    table: Table
    name: str
    hash_column: str
    key: tuple[str, ...]
    profile: str
    content: Expression
    tenant: Expression | None
    bucket: Expression | None
    created: Expression | None
    where: Expression | None
    schemas: tuple[str, ...]

    @property
    def fixed(self) -> list[Expression]:
        """The expressions from which the hash or the index is computed."""
        return [one for one in (self.content, self.tenant, self.bucket, self.where) if one is not None]

    @property
    def scope(self) -> list[Expression]:
        """Tenant and bucket, as far as they distinguish rows."""
        return [one for one in (self.tenant, self.bucket) if one is not None and not one.is_constant]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns from which the hash and its scope are computed, in the table's order."""
        used = {name for one in self.fixed for name in one.columns}
        return tuple(name for name in self.table.columns if name in used)

    def to_json(self) -> dict[str, Any]:
        """The definition as stored in the table of adoptions."""
        return {
            "hash_column": self.hash_column,
            "key": list(self.key),
            "profile": self.profile,
            "content": self.content.given,
            "tenant": self.tenant and self.tenant.given,
            "bucket": self.bucket and self.bucket.given,
            "created": self.created and self.created.given,
            "where": self.where and self.where.given,
            "schemas": list(self.schemas),
        }


def short_name(schema: str, table: str, *, unique: bool = False) -> str:
    """The name on which the names of the adoption's functions are based; with a digest if the plain name is taken."""
    plain = f"{schema}_{table}"
    made = re.sub("[^a-z0-9_]", "_", plain)
    if unique or made != plain or len(made) > 50:
        digest = hashlib.sha256(f"{schema}\0{table}".encode()).hexdigest()[:8]
        made = f"{made[:41]}_{digest}"
    return made


def index_name(table: str) -> str:
    """The name of the unique index; PostgreSQL truncates names at 63 bytes."""
    made = f"{table}_memfold_key"
    if len(made.encode()) > 63:
        digest = hashlib.sha256(table.encode()).hexdigest()[:8]
        made = f"{table.encode()[:42].decode(errors='ignore')}_{digest}_memfold_key"
    return made


def define(
    table: Table,
    name: str,
    key: tuple[str, ...],
    given: Mapping[str, str | None],
    *,
    profile: str = "prose",
    hash_column: str = "content_hash",
) -> Definition:
    """The definition made of these expressions, by option without dashes; the server still has to bind them."""
    if profile not in PROFILES and profile not in PROFILES.values():
        raise AdoptError(f"there is no profile {profile}", hint=f"The profiles are {', '.join(PROFILES)}.")
    parsed: dict[str, Expression | None] = {}
    for option in ("content", "tenant", "bucket", "created", "where"):
        text = given.get(option)
        parsed[option] = None if text is None else x.parse(f"--{option}", text, table.columns, str(table))
    content = parsed["content"]
    if content is None:
        raise AdoptError(
            "--content is missing", hint="Say where the text of a row is, such as --content content."
        )
    for one in parsed.values():
        for used in one.columns if one is not None else ():
            if table.columns[used].generated:
                raise AdoptError(
                    f"{one.option if one else ''}: {used} is a generated column, which triggers cannot read",
                    hint=f"Give its generation expression instead: {table.columns[used].default}",
                )
            if used == hash_column:
                raise AdoptError(f"{used} is the column of the hash, which cannot be part of the hash")
    if content.is_constant:
        raise AdoptError(f"--content names no column: {content.given}")
    return Definition(
        table=table,
        name=name,
        hash_column=hash_column,
        key=key,
        profile=PROFILES.get(profile, profile),
        content=content,
        tenant=parsed["tenant"],
        bucket=parsed["bucket"],
        created=parsed["created"],
        where=parsed["where"],
        schemas=(),
    )
