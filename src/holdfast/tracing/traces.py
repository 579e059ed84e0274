"""PORT: what the parts know of traces. Implemented by otel.py; where there are no traces, nobody asks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from holdfast.tracing.spans import SpanType

Attributes = Mapping[str, str | int | float | bool]


class Span(Protocol):
    """Something that takes its time. Nothing is kept of one that is not sampled."""

    @property
    def context(self) -> str:
        """As W3C writes it, for whoever goes on with the trace. It stays valid after the end."""
        ...

    def tell(self, attributes: Attributes) -> None: ...

    def happened(self, event: str) -> None: ...

    def fail(self, error_type: str) -> None:
        """A word for the kind of error. Never its text, which may quote a payload."""
        ...

    def end(self) -> None: ...


class Traces(Protocol):
    def start(
        self, kind: SpanType, name: str, attributes: Attributes, *, parent: str = "", links: Sequence[str] = ()
    ) -> Span:
        """`name` is what the operation is about, such as a topic's id. Without a parent it is the first of a trace, and
        the sampler decides about it. Parent and links are contexts."""
        ...

    def current(self) -> str:
        """The context of the span that this code runs in, "" where it runs in none."""
        ...

    def within(self, span: Span | str) -> AbstractContextManager[None]:
        """What runs in it, the user's own code included, belongs to this span, or to the context of one elsewhere."""
        ...


@contextmanager
def ended(span: Span) -> Iterator[None]:
    """Ends it after the block, as failed where the block raises."""
    try:
        yield
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        span.end()
