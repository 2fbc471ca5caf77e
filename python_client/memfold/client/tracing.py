"""OpenTelemetry spans for clients and workers. Off until ``enable()`` is called.

Each call (``memfold.ingest``) has a span; its children are one for each transaction, for the embedder and for the judge.
Spans never contain a text, a subject or the message of an error, because they go to systems that must not see memories.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from memfold.client._extras import needs
from memfold.client._version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer, TracerProvider


class Span(Protocol):
    """Lets a caller describe its span."""

    def set_attributes(self, attributes: Mapping[str, Any], /) -> None: ...


class _Off(contextlib.AbstractContextManager["_Off", None]):
    """Used when tracing is off: one object for all, because a generator's context costs a microsecond per step."""

    def __exit__(self, *_: object) -> None:
        pass

    def set_attributes(self, attributes: Mapping[str, Any], /) -> None:
        pass


_OFF = _Off()
_tracer: Tracer | None = None


def enable(provider: TracerProvider | None = None) -> None:
    """Start writing spans, to the given provider or to that of the process.

    Raises MissingExtraError without memfold[otel].
    """
    global _tracer
    with needs("otel"):
        from opentelemetry import trace
    _tracer = trace.get_tracer("memfold", __version__, provider)


def disable() -> None:
    """Stop writing spans; open ones end as usual."""
    global _tracer
    _tracer = None


class Instrumentor:
    """The instrumentor that ``opentelemetry-instrument`` finds by its entry point and turns on."""

    def instrument(self, **options: Any) -> None:
        enable(options.get("tracer_provider"))

    def uninstrument(self, **_: Any) -> None:
        disable()


def span(name: str, **attributes: Any) -> contextlib.AbstractContextManager[Span]:
    """A span around a block, if tracing is on. Only the class and SQLSTATE of an error are recorded."""
    return _OFF if _tracer is None else _span(_tracer, f"memfold.{name}", attributes)


@contextlib.contextmanager
def _span(tracer: Tracer, name: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
    from opentelemetry.trace import Status, StatusCode

    started = tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    )
    with started as made:
        try:
            yield made
        except Exception as error:
            made.set_attribute("error.type", type(error).__qualname__)
            sqlstate = getattr(error, "sqlstate", None)
            if sqlstate:
                made.set_attribute("db.response.status_code", sqlstate)
            made.set_status(Status(StatusCode.ERROR))
            raise


def name_of(steps: object) -> str:
    """The name of the function that created a generator."""
    return str(getattr(steps, "__name__", "call"))


def decision(result: object) -> dict[str, Any]:
    """The attributes of a result for a span: action, tier, method, similarity."""
    told = {name: getattr(result, name, None) for name in ("action", "tier", "method", "similarity")}
    return {f"memfold.{name}": value for name, value in told.items() if value is not None}
