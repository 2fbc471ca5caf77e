"""Vectors for texts that tier 1 does not know. A failing embedder loses no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from memfold.client import errors, queries
from memfold.client._checks import check_text
from memfold.client._log import logger, quoted
from memfold.client._text import describe_error
from memfold.client.calls.sending import Sending
from memfold.client.calls.steps import Embed, Steps
from memfold.client.embedding import EmbedderProtocol
from memfold.client.embedding.anchors import anchor_texts, compared
from memfold.client.embedding.embedders import dimensions_of
from memfold.client.embedding.vectors import VectorBinary, checked_vectors, is_one_vector
from memfold.client.types import KnownMemory, Row

_NEVER_EMBEDDED = "; it has returned none so far: embed takes a list of texts and returns a list of vectors"

_ANCHORS = 100
"""Anchors embedded at a time."""


def _no_embedder(embedder: EmbedderProtocol, detail: str) -> errors.EmbedderError:
    return errors.EmbedderError(
        f"the embedder of {embedder.model} does not take a list of texts",
        detail=detail,
        hint="embed takes a list of texts and returns a vector for each. For a function of one text:"
        " Embedder(lambda texts: [embed_one(text) for text in texts], ...).",
    )


class Vectors(Sending):
    """A client's requests to its embedder."""

    embedder: EmbedderProtocol | None
    _registered = False
    _has_embedded = False
    vector_type: int | None = None
    """The oid of the type vector, once it has been looked up."""

    def register_embedding_model(
        self,
        embedding_model: str,
        dimensions: int,
        merge_threshold: float | None = None,
        judge_threshold: float | None = None,
    ) -> Steps[bool]:
        check_text("embedding_model", embedding_model)
        given = {
            "embedding_model": embedding_model,
            "dimensions": dimensions,
            "merge_threshold": merge_threshold,
            "judge_threshold": judge_threshold,
        }
        rows = yield from self.run(queries.REGISTER_MODEL, given, repeatable=True)
        return bool(rows[0][queries.REGISTER_MODEL])

    def measure_thresholds(self, embedder: EmbedderProtocol | None) -> Steps[Row]:
        """Embed the anchors, and put the resulting thresholds in force."""
        if embedder is None:
            raise ValueError(
                "the thresholds of a model are measured with an embedder, and the client has none"
            )
        made: dict[str, VectorBinary] = {}
        texts = anchor_texts()
        for start in range(0, len(texts), _ANCHORS):
            part = texts[start : start + _ANCHORS]
            made.update(zip(part, (yield from self._vectors(embedder, part)), strict=True))
            logger.info("%s: %s of %s anchors are embedded", embedder.model, len(made), len(texts))
        yield from self.register_embedding_model(embedder.model, made[texts[0]].dimensions)
        given = {"embedding_model": embedder.model, "pairs": Jsonb(compared(made))}
        return (yield from self.run(queries.CALIBRATE_BY_ANCHORS, given, repeatable=True))[0]

    def _is_to_embed(self, arguments: dict[str, Any]) -> bool:
        """Whether the embedder is asked for the vector; then the arguments name no model until it has answered."""
        if self.embedder is None or arguments.get("embedding") is not None:
            return False
        arguments.pop("embedding", None)
        arguments.pop("embedding_model", None)
        return True

    def _embed_or_not(self, arguments: dict[str, Any]) -> Steps[None]:
        """Add the vector of the content to the arguments, if one is available."""
        assert self.embedder is not None  # noqa: S101 (_is_to_embed)
        vectors = yield from self.vectors_or_none(self.embedder, [arguments["content"]])
        if vectors[0] is not None:
            yield from self.register(self.embedder, vectors[0])
            arguments.update(embedding=vectors[0], embedding_model=self.embedder.model)

    def _known(self, arguments: Mapping[str, Any]) -> Steps[KnownMemory | None]:
        probe = {name: arguments[name] for name in queries.KNOWN_ARGUMENTS if name in arguments}
        rows = yield from self.run(queries.KNOWN, probe, reads=True)
        return KnownMemory.from_row(rows[0]) if rows else None

    def _vectors(self, embedder: EmbedderProtocol, texts: list[str]) -> Steps[list[VectorBinary]]:
        try:
            answer = yield Embed(texts)
        except (TypeError, AttributeError) as error:
            if self._has_embedded:
                raise
            raise _no_embedder(
                embedder, f"Called with a list of texts, it raised {describe_error(error)}."
            ) from error
        if is_one_vector(answer):
            raise _no_embedder(embedder, "Called with a list of texts, it returned one flat vector.")
        vectors = checked_vectors(answer, texts, dimensions_of(embedder))
        self._has_embedded = True
        return vectors

    def vectors_or_none(
        self, embedder: EmbedderProtocol, texts: list[str]
    ) -> Steps[list[VectorBinary | None]]:
        """A failing embedder loses no data: a caller that gets None stores without a vector."""
        try:
            return list((yield from self._vectors(embedder, texts)))
        except errors.EmbedderError:
            raise  # it would fail for every text, and nobody would see why
        except Exception as error:
            if len(texts) == 1:
                logger.warning(
                    "DEDUP_FAIL: %s by %s failed (%s), continuing without a vector%s",
                    quoted(texts[0]),
                    embedder.model,
                    describe_error(error),
                    "" if self._has_embedded else _NEVER_EMBEDDED,
                )
                return [None]
        # One text may have made the batch fail; the others must not wait for it. After two failures the embedder
        # counts as down.
        made: list[VectorBinary | None] = []
        for text in texts:
            made += yield from self.vectors_or_none(embedder, [text])
            if made == [None, None]:
                return [None] * len(texts)
        return made

    def register(self, embedder: EmbedderProtocol, vector: VectorBinary) -> Steps[None]:
        if self._registered:
            return
        dimensions = dimensions_of(embedder) or vector.dimensions
        self._registered = True
        try:
            is_measured = yield from self.register_embedding_model(embedder.model, dimensions)
        except errors.MemfoldError as error:
            if error.sqlstate != "42501":  # not permitted: then somebody else must have registered it
                self._registered = False
                raise
            logger.debug("the model %s could not be registered: %s", embedder.model, error.message)
            return
        # An embedder other than the client's only names a model: the caller makes the vectors.
        if not is_measured and embedder is self.embedder:
            yield from self._measure_or_not(embedder)

    def _measure_or_not(self, embedder: EmbedderProtocol) -> Steps[None]:
        """Without thresholds the model's cosines merge nothing, which is harmless: a failure is only logged."""
        logger.warning(
            "no thresholds are known for %s: measuring them, once, on %s short texts",
            embedder.model,
            len(anchor_texts()),
        )
        try:
            row = yield from self.measure_thresholds(embedder)
        except Exception as error:
            logger.warning(
                "the thresholds of %s could not be measured (%s), so it merges nothing until: memfold calibrate --anchors",
                embedder.model,
                describe_error(error),
            )
        else:
            logger.warning(
                "%s merges above %.3f, and asks from %.3f",
                embedder.model,
                row["merge_threshold"],
                row["judge_threshold"],
            )
