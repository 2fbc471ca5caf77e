"""Derives a calibration from the labelled pairs of a database, stores it and applies it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from memfold.client._dsn import read_dsn
from memfold.client.errors import UnknownModelError, translate
from memfold.tools.calibrate import queries
from memfold.tools.calibrate.bands import Budget
from memfold.tools.calibrate.calibration import Calibration, Kind, Method
from memfold.tools.calibrate.choosing import calibrate_pairs
from memfold.tools.calibrate.pairs import DB, feature_names, stored


@contextlib.contextmanager
def connected(where: str | DB) -> Iterator[DB]:
    """A connection, which stays open if it was passed in; errors of the database are raised as memfold's."""
    try:
        if isinstance(where, str):
            with psycopg.connect(read_dsn(where), autocommit=True) as connection:
                yield connection
        else:
            yield where
    except psycopg.Error as error:
        raise translate(error) from error


def calibrate(
    where: str | DB,
    embedding_model: str,
    max_false_merge: float = 0.01,
    max_false_keep: float = 0.05,
    max_escalation: float = 0.35,
    holdout: float = 0.2,
    confidence: float = 0.95,
    method: Method = "budget",
    score: Kind = "cosine",
    *,
    tenant_id: str | None = None,
    guard: bool = True,
    allow_refinements: bool = False,
    weak: bool = False,
    seed: int = 0,
    floor: float | None = None,
    store: bool = True,
) -> Calibration:
    """Derive the thresholds of an embedding model from labelled pairs, and store them as a calibration.

    It changes nothing else: ``apply`` puts it in force. Needs a member of memfold_owner; a role that sees several
    tenants uses the pairs of all of them unless ``tenant_id`` is given. ``weak``: also pairs that nobody has looked
    at (collect_pairs). ``floor``: the minimum cosine for a score (calibrate_pairs). Raises CalibrationRefusedError,
    which says why, and what is possible.
    """
    budget = Budget(max_false_merge, max_false_keep, max_escalation, confidence, allow_refinements)
    with connected(where) as connection:
        check_model(connection, embedding_model)
        fits = score != "cosine"
        pairs, left_out = stored(connection, embedding_model, tenant_id, weak=weak, features=fits)
        # always, so that a role that may not calibrate is refused even if it sees no pairs
        names = feature_names(connection)
        made = calibrate_pairs(
            pairs,
            embedding_model,
            budget=budget,
            holdout=holdout,
            method=method,
            score=score,
            guard=guard,
            seed=seed,
            names=names,
            floor=floor,
        )
        made = replace(made, left_out=left_out)
        return save(connection, made) if store else made


def check_model(connection: DB, embedding_model: str) -> dict[str, Any]:
    """The row of a registered model. Raises UnknownModelError."""
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(queries.EMBEDDING_MODEL, {"model": embedding_model}).fetchone()
        if row is None:
            names = cursor.execute("select model from memfold.embedding_models order by model").fetchall()
            raise UnknownModelError(
                "unknown embedding model",
                detail=f"{embedding_model!r} is not registered. Registered models:"
                f" {', '.join(name['model'] for name in names) or 'none'}.",
                hint="Pass one of them, or register it: select memfold.register_embedding_model(model, dimensions).",
            )
    return dict(row)


def save(where: str | DB, made: Calibration) -> Calibration:
    """Store a calibration; returns it with its id."""
    with connected(where) as connection:
        row = connection.execute(
            queries.ADD_CALIBRATION,
            {
                "model": made.model,
                "merge_threshold": made.bands.merge,
                "judge_threshold": made.bands.judge,
                "method": made.method,
                "score": None if made.score is None else made.score.to_json(),
                "score_sql": None if made.score is None else made.score.body(),
                "candidate_threshold": made.candidate_threshold,
                "report": Jsonb(made.report()),
                "fingerprint": made.fingerprint,
            },
        ).fetchone()
    return replace(made, calibration_id=None if row is None else row[0])


def apply(where: str | DB, calibration_id: UUID) -> None:
    """Put the calibration in force for its model. It is logged; ``undo_calibration(model)`` reverses it."""
    with connected(where) as connection:
        connection.execute("select memfold.apply_calibration(%s)", [calibration_id])
