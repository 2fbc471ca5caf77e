"""A class for each error that the database raises, by its SQLSTATE. docs/errors.md has them all."""

from __future__ import annotations

from typing import Any

from memfold.client.errors.base import MemfoldError


class TenantMissingError(MemfoldError):
    """tenant_id was given neither to the call nor to the client."""

    code = "MF001"


class WrongTenantError(MemfoldError):
    """The session belongs to another tenant."""

    code = "MF002"


class InvalidIdentifierError(MemfoldError):
    """An id, a subject or the like is missing, empty or longer than 512 bytes."""

    code = "MF003"


class EmptyContentError(MemfoldError):
    """The content is empty, as it is or in canonical form."""

    code = "MF004"


class ContentTooLongError(MemfoldError):
    """The content is longer than the policy accepts."""

    code = "MF005"


class InvalidConfidenceError(MemfoldError):
    """A confidence is outside [0, 1]."""

    code = "MF006"


class InvalidMetadataError(MemfoldError):
    """The metadata is not a JSON object."""

    code = "MF007"


class MetadataTooLargeError(MemfoldError):
    """The metadata is larger than the policy accepts."""

    code = "MF008"


class UnknownOriginError(MemfoldError):
    """The origin is not observed, inferred or recalled."""

    code = "MF009"


class InvalidObservedAtError(MemfoldError):
    """observed_at is in the future, or has no time zone."""

    code = "MF010"


class UnknownCanonicalizerError(MemfoldError):
    """There is no canonicalizer profile with that name."""

    code = "MF011"


class ModelMissingError(MemfoldError):
    """An embedding was given without the name of its model."""

    code = "MF012"


class UnknownModelError(MemfoldError):
    """The embedding model is not registered."""

    code = "MF013"


class WrongDimensionsError(MemfoldError):
    """The embedding's dimensions differ from its model's."""

    code = "MF014"


class ZeroVectorError(MemfoldError):
    """The embedding has no direction."""

    code = "MF015"


class TooManySourceTurnsError(MemfoldError):
    """More than 1,000 source turns in one call."""

    code = "MF016"


class InvalidOptionError(MemfoldError):
    """A policy, option, predicate or model was given a value that is not allowed."""

    code = "MF017"


class MemoryNotFoundError(MemfoldError):
    """The tenant has no memory with that id."""

    code = "MF018"


class EmbeddingExistsError(MemfoldError):
    """The memory already has a vector of that model."""

    code = "MF019"


class ImmutableMemoryError(MemfoldError):
    """An attempt to change immutable columns, or to delete a memory."""

    code = "MF020"


class AppendOnlyLedgerError(MemfoldError):
    """An attempt to change or delete a row of the ledger."""

    code = "MF021"


class InvalidArgumentError(MemfoldError):
    """An argument is missing or out of range."""

    code = "MF022"


class ModelConflictError(MemfoldError):
    """The model is registered with another number of dimensions."""

    code = "MF023"


class HashWouldChangeError(MemfoldError):
    """The policy would change the hash of stored memories."""

    code = "MF024"


class IsolationLevelError(MemfoldError):
    """The call requires READ COMMITTED, and the transaction has another isolation level."""

    code = "MF025"


class JudgementNotFoundError(MemfoldError):
    """The tenant has no judgement with that id."""

    code = "MF026"


class JudgementClosedError(MemfoldError):
    """The judgement is already answered (the first answer counts), or there is nothing left to decide."""

    code = "MF027"


class InvalidAnswerError(MemfoldError):
    """A verdict, a confidence, a richer_memory_id, a cost or the limits of a claim are not allowed."""

    code = "MF028"


class EventNotFoundError(MemfoldError):
    """The tenant's ledger has no event with that id."""

    code = "MF029"


class InvalidTextError(MemfoldError):
    """A text with a NUL or a lone surrogate, which PostgreSQL cannot store. Nothing was sent."""

    code = "MF030"


class InvalidEmbeddingError(MemfoldError):
    """Not a flat list of finite numbers. Nothing was sent."""

    code = "MF031"


class NotUndoableError(MemfoldError):
    """The event decided nothing that can be undone."""

    code = "MF032"


class AlreadyUndoneError(MemfoldError):
    """The event is already undone; or it is an undo, and not the last one of its event."""

    code = "MF033"


class MemoryStateError(MemfoldError):
    """The state of a memory does not allow it: rejected, withdrawn, the same memory, or another bucket."""

    code = "MF034"


class InvalidBatchError(MemfoldError):
    """A batch is not a JSON array, is too large, has new facts for more than 500 buckets, or a different number of
    embeddings."""

    code = "MF035"


class InvalidCandidateError(MemfoldError):
    """An element of a batch is not an object, or has a key that is not an argument of ingest_memory."""

    code = "MF036"


class TooManyDimensionsError(MemfoldError):
    """The model's vectors have too many dimensions for an index."""

    code = "MF037"


class RunNotFoundError(MemfoldError):
    """The tenant has no such maintenance run."""

    code = "MF038"


class RunStateError(MemfoldError):
    """The run is already undone, or its kind cannot be undone."""

    code = "MF039"


class RehashUnderWayError(MemfoldError):
    """A rehash of the bucket to other rules is in progress."""

    code = "MF041"


class InvalidPairError(MemfoldError):
    """A labelled pair has two equal texts, an unknown label, or a similarity that is not a cosine; or there is no
    such pair."""

    code = "MF042"


class CalibrationNotFoundError(MemfoldError):
    """There is no calibration with that id, or none to undo."""

    code = "MF043"


class CalibrationRefusedError(MemfoldError):
    """The labelled pairs do not allow the calibration: DETAIL says what is missing, or what they do allow.

    ``reason``: no_pairs, contradictions, sample, one_group, overlap or held_out. ``frontier``: for overlap, the best
    possible rates (``memfold.tools.calibrate.Frontier``). ``attempt``: the calibration as far as it got.
    """

    code = "MF044"

    def __init__(self, message: str, *, reason: str | None = None, frontier: Any = None, **told: Any) -> None:
        super().__init__(message, **told)
        self.reason = reason
        self.frontier = frontier
        self.attempt: Any = None


class InvalidScoreError(MemfoldError):
    """The score of a calibration contains more than arithmetic."""

    code = "MF045"


class EmbeddingsMissingError(MemfoldError):
    """Some memories have a vector of the old embedding model but not of the new one: run ``memfold reembed``."""

    code = "MF046"


class ModelReplacedError(MemfoldError):
    """The embedding model has been replaced by another: pass that model's vectors."""

    code = "MF047"


class ModelInUseError(MemfoldError):
    """The embedding model has not been replaced, or has vectors or an index left."""

    code = "MF048"


class BucketNotEmptyError(MemfoldError):
    """An export can be imported only into an empty bucket."""

    code = "MF053"


class NotAnExportError(MemfoldError):
    """Not a line of an export, out of order, in a later format, or with a hash or dimensions that do not match."""

    code = "MF054"


class SessionRepeatsError(MemfoldError):
    """The session has stated this fact as often as the policy's max_session_repeats accepts."""

    code = "MF055"


class PythonMissingError(MemfoldError):
    """The policy needs the extension memfold_py, which is not installed in this database."""

    code = "MF056"


class ModelSessionsError(MemfoldError):
    """The maximum number of sessions already hold an embedding model, and this session is not one of them."""

    code = "MF057"


class ServerPackageError(MemfoldError):
    """The server's Python lacks a package or a model, or cannot load it."""

    code = "MF058"


class ServerVersionError(MemfoldError):
    """The server's Python has a different version of memfold_py, or of the lemmatiser, than the database requires."""

    code = "MF059"


class WrongNodeError(MemfoldError):
    """On Citus: the call does not run on its tenant's node."""

    code = "MF060"


class TooManyMarksError(MemfoldError):
    """The content has more than 30 combining marks in a row."""

    code = "MF061"


class IdempotencyKeyReusedError(MemfoldError):
    """The idempotency key was used with another candidate; DETAIL names its event."""

    code = "MF062"


class LinkError(MemfoldError):
    """Two names cannot be linked: a cycle, a chain across buckets, or an alias that already stands for another name."""

    code = "MF063"


class UnknownLinkError(MemfoldError):
    """The name is not an alias in this bucket."""

    code = "MF064"


class InvalidValidityError(MemfoldError):
    """valid_from is not before valid_until, or one of them is infinite or has no time zone."""

    code = "MF065"


class AgentLimitError(MemfoldError):
    """The agent has changed as many memories of the bucket within an hour as the policy's agent_actions_per_hour allows."""

    code = "MF066"


CLASSES: dict[str, type[MemfoldError]] = {
    cls.code: cls for cls in MemfoldError.__subclasses__() if cls.code and cls.code.startswith("MF")
}
"""SQLSTATE to class, for all errors that memfold itself raises."""
