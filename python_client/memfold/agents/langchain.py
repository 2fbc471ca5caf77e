"""LangChain's ``VectorStore`` over memfold: documents by id, each fact found once. Needs ``memfold[langchain]``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from memfold.agents._core import CONNECTIONS, Connections, slot_of
from memfold.agents._items import Item, Items, Under, rules
from memfold.client._extras import needs
from memfold.client.calls.core import Core
from memfold.client.calls.steps import Steps

with needs("langchain"):
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore

__all__ = ["LangChainEmbedder", "MemfoldVectorStore"]


@dataclass(frozen=True)
class LangChainEmbedder:
    """Use a LangChain model as memfold's embedder, in the other adapters too.

    ``name``: the name under which vectors are registered and compared; default: the name that the model gives itself.
    """

    embeddings: Embeddings
    name: str | None = None
    dimensions: int | None = None

    @property
    def model(self) -> str:
        """The name of its vectors."""
        own = (getattr(self.embeddings, name, None) for name in ("model", "model_name"))
        return self.name or next(
            (name for name in own if isinstance(name, str)), type(self.embeddings).__name__
        )

    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        return self.embeddings.embed_documents(texts)

    async def aembed(self, texts: list[str]) -> list[list[float]]:
        """As ``embed``."""
        return await self.embeddings.aembed_documents(texts)


class MemfoldVectorStore(VectorStore):
    """The documents of one bucket. An id is a source turn: adding an id again makes it stand for the new text.

    Subject, predicate and object in a document's metadata are the fact's slot. A search returns each fact once, by cosine,
    under the id that first stated it. ``filter`` accepts equality and $ne, $gt, $gte, $lt, $lte. There is no MMR: texts
    that say the same are already one document.
    """

    def __init__(
        self,
        dsn: str,
        *,
        tenant_id: str,
        embedding: Embeddings,
        bucket_id: str = "default",
        embedding_model: str | None = None,
        connections: int = CONNECTIONS,
    ) -> None:
        embedder = LangChainEmbedder(embedding, embedding_model)
        self._embedding = embedding
        self._connections = Connections(dsn, tenant_id, embedder, connections=connections)
        self._bucket_id = bucket_id
        self._items = Items("lc")

    @property
    def embeddings(self) -> Embeddings:
        """The model."""
        return self._embedding

    def close(self) -> None:
        """Close its connections, except those of event loops."""
        self._connections.close()

    async def aclose(self) -> None:
        """Close its connections, including those of the running event loop."""
        await self._connections.aclose()

    @classmethod
    def from_texts(
        cls, texts: list[str], embedding: Embeddings, metadatas: list[dict[str, Any]] | None = None, *,
        ids: list[str] | None = None, **kwargs: Any,
    ) -> MemfoldVectorStore:  # fmt: skip
        """A store with these texts; further arguments are those of the class."""
        store = cls(embedding=embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(
        cls, texts: list[str], embedding: Embeddings, metadatas: list[dict[str, Any]] | None = None, *,
        ids: list[str] | None = None, **kwargs: Any,
    ) -> MemfoldVectorStore:  # fmt: skip
        """As ``from_texts``."""
        store = cls(embedding=embedding, **kwargs)
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Store documents, 500 per transaction; returns their ids, or new ones."""
        ids, steps = self._adding(documents, kwargs.get("ids"))
        self._connections.run(steps)
        return ids

    async def aadd_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """As ``add_documents``."""
        ids, steps = self._adding(documents, kwargs.get("ids"))
        await self._connections.arun(steps)
        return ids

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents of these ids, as they were last added."""
        return [_document(item) for item in self._connections.run(self._getting(ids))]

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """As ``get_by_ids``."""
        return [_document(item) for item in await self._connections.arun(self._getting(ids))]

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Forget ids, with what only they support. Raises ValueError if there are none."""
        self._connections.run(self._deleting(ids))
        return True

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """As ``delete``."""
        await self._connections.arun(self._deleting(ids))
        return True

    def similarity_search(
        self, query: str, k: int = 4, filter: Mapping[str, Any] | None = None, **kwargs: Any  # noqa: A002
    ) -> list[Document]:  # fmt: skip
        """The nearest facts."""
        return [document for document, _ in self.similarity_search_with_score(query, k, filter)]

    async def asimilarity_search(
        self, query: str, k: int = 4, filter: Mapping[str, Any] | None = None, **kwargs: Any  # noqa: A002
    ) -> list[Document]:  # fmt: skip
        """As ``similarity_search``."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, filter)]

    def similarity_search_with_score(
        self, query: str, k: int = 4, filter: Mapping[str, Any] | None = None, **kwargs: Any  # noqa: A002
    ) -> list[tuple[Document, float]]:  # fmt: skip
        """The nearest facts, each with its cosine."""
        return _scored(self._connections.run(self._finding(self._embedding.embed_query(query), k, filter)))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, filter: Mapping[str, Any] | None = None, **kwargs: Any  # noqa: A002
    ) -> list[tuple[Document, float]]:  # fmt: skip
        """As ``similarity_search_with_score``."""
        vector = await self._embedding.aembed_query(query)
        return _scored(await self._connections.arun(self._finding(vector, k, filter)))

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Mapping[str, Any] | None = None, **kwargs: Any  # noqa: A002
    ) -> list[Document]:  # fmt: skip
        """The facts nearest to a vector of the model."""
        return [_document(item) for item in self._connections.run(self._finding(embedding, k, filter))]

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, filter: Mapping[str, Any] | None = None, **kwargs: Any  # noqa: A002
    ) -> list[Document]:  # fmt: skip
        """As ``similarity_search_by_vector``."""
        return [_document(item) for item in await self._connections.arun(self._finding(embedding, k, filter))]

    def similarity_search_with_score_by_vector(
        self, embedding: list[float], k: int = 4, filter: Mapping[str, Any] | None = None, **kwargs: Any  # noqa: A002
    ) -> list[tuple[Document, float]]:  # fmt: skip
        """As ``similarity_search_by_vector``, with the cosine of each: what mem0's provider ``langchain`` calls."""
        return _scored(self._connections.run(self._finding(embedding, k, filter)))

    def max_marginal_relevance_search(self, *args: Any, **kwargs: Any) -> list[Document]:
        """Not supported: raises NotImplementedError. ``similarity_search`` returns each fact once."""
        raise NotImplementedError(
            "MemfoldVectorStore has no MMR: use similarity_search, which returns each fact once"
        )

    max_marginal_relevance_search_by_vector = max_marginal_relevance_search

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda cosine: max(cosine, 0.0)

    # the steps

    def _adding(
        self, documents: list[Document], ids: Sequence[str | None] | None
    ) -> tuple[list[str], Callable[[Core], Steps[None]]]:
        given = [document.id for document in documents] if ids is None else list(ids)
        named = [str(uuid4()) if key is None else key for key in given]
        puts = [
            (key, document.page_content, document.metadata, slot_of(document.metadata))
            for key, document in zip(named, documents, strict=True)
        ]
        known = any(key is not None for key in given)
        return named, lambda core: self._items.put_many(core, self._bucket_id, puts, known=known)

    def _getting(self, ids: Sequence[str]) -> Callable[[Core], Steps[list[Item]]]:
        return lambda core: self._items.get(core, self._bucket_id, ids)

    def _deleting(self, ids: Iterable[str] | None) -> Callable[[Core], Steps[int]]:
        if ids is None:
            raise ValueError(
                "ids is None: pass the documents to delete; erase_bucket() deletes all of a bucket's"
            )
        return lambda core: self._items.delete(core, self._bucket_id, ids)

    def _finding(
        self, vector: list[float], k: int, wanted: Mapping[str, Any] | None
    ) -> Callable[[Core], Steps[list[Item]]]:
        under, asked = Under(self._bucket_id, None), rules(wanted)
        return lambda core: self._items.find(core, under, None, asked, k, embedding=vector)


def _document(item: Item) -> Document:
    return Document(id=item.key, page_content=item.content, metadata=item.value or {})


def _scored(items: Iterable[Item]) -> list[tuple[Document, float]]:
    return [(_document(item), item.score or 0.0) for item in items]
