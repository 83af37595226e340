"""Spans and counters for programs that use OpenTelemetry, and nothing in others.

The program that uses the library chooses where they go: it sets up a provider of OpenTelemetry,
and imports its API to do so. The library never imports the API first, and begins no span without a
provider. Attributes have no values of rows, no predicates and no credentials; errors are named by
their class alone, because their messages have examples of rows. The names are in
docs/guides/monitoring.md.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ParamSpec, Protocol, TypeVar

logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")

Attributes = Mapping[str, str | int | float | bool | None]
# Adds attributes to a span that has not ended.
Note = Callable[[Attributes], None]

# Name of a counter, without the prefix `eventlog.`: its unit, and what it counts.
COUNTERS = {
    "requests": ("{request}", "requests to S3 by `kind`, without the SDK's own repetitions"),
    "bytes": ("By", "bytes of the objects that they wrote or read, by `direction`"),
    "retries": ("{retry}", "requests that were sent again"),
    "attempts_lost": ("{attempt}", "attempts at a commit whose version was taken already"),
    "conflicts": ("{transaction}", "transactions that were refused, by `error`"),
    "combined": ("{transaction}", "transactions whose writer saw others' in the same commit"),
    "waited": ("s", "seconds waited between repeated requests and attempts"),
}


class _Batch(Protocol):
    @property
    def num_rows(self) -> int: ...


_B = TypeVar("_B", bound=_Batch)


class Signals:
    """The tracer and the counters of this process.

    What OpenTelemetry raises, or a processor, an exporter or a provider that the program gave it,
    changes no operation: a commit that was accepted must not seem failed. It is logged once.

    Raises:
        ImportError: OpenTelemetry's API is not installed.
    """

    def __init__(self) -> None:
        from opentelemetry import context, metrics, trace  # noqa: PLC0415 - the extra `otel`

        self._logged = False
        self._trace, self._context = trace, context
        self._tracer = self._safely(trace.get_tracer, "eventlog") or trace.NoOpTracer()
        made = self._safely(_counters_of, metrics.get_meter_provider)
        self._counters = made or _counters_of(metrics.NoOpMeterProvider)

    @property
    def traces(self) -> bool:
        """Whether the program has set up a provider of spans."""
        provider = self._safely(self._trace.get_tracer_provider)
        return not isinstance(provider, self._trace.ProxyTracerProvider | None)

    def add(self, counter: str, amount: float, attributes: Attributes) -> None:
        """Add to a counter."""
        self._safely(self._counters[counter].add, amount, _prefixed(attributes))

    @contextmanager
    def span(self, name: str, attributes: Attributes, *, current: bool = True) -> Iterator[Note]:
        """Have a block of work in a span, and yield what adds attributes to it.

        Args:
            name: of the span.
            attributes: of its beginning.
            current: whether spans that begin in the block are inside of it.
        """
        span = self._safely(self._tracer.start_span, name, attributes=_prefixed(attributes))
        if span is None:
            yield _no_note
            return
        token = self._safely(self._made_current, span) if current else None
        try:
            yield lambda more: self._safely(span.set_attributes, _prefixed(more))
        except GeneratorExit:  # the consumer has enough
            raise
        except BaseException as error:  # also what ends the program: the span has not succeeded
            kind = type(error).__name__  # against example-rows-in-spans
            self._safely(span.set_attribute, "error.type", kind)
            self._safely(span.set_status, self._trace.StatusCode.ERROR, kind)
            raise
        finally:
            if token is not None:
                self._safely(self._context.detach, token)
            self._safely(span.end)

    def streamed(self, name: str, batches: Iterator[_B], attributes: Attributes) -> Iterator[_B]:
        """Yield batches, within a span from the first to the last one that is asked for."""
        # Not the current span: between two batches the consumer's own work goes on.
        with self.span(name, attributes, current=False) as note:
            rows = 0
            try:
                for batch in batches:
                    rows += batch.num_rows
                    yield batch
            finally:
                note({"rows": rows})

    def _made_current(self, span: Any) -> Any:
        """Make a span the current one; what ends that."""
        return self._context.attach(self._trace.set_span_in_context(span))

    def _safely(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Return what a call of OpenTelemetry returns; None if it raises."""
        try:
            return call(*args, **named)
        except Exception as error:  # against telemetry-that-fails-an-operation
            if not self._logged:
                self._logged = True
                logger.warning(
                    "spans or counters are lost, because OpenTelemetry or a part that the program "
                    "gave it raises an error; the operations go on, and no further such error is "
                    "logged",
                    exc_info=error,
                )
            return None


def _counters_of(provider: Callable[[], Any]) -> dict[str, Any]:
    meter = provider().get_meter("eventlog")
    return {
        name: meter.create_counter(f"eventlog.{name}", unit=unit, description=text)
        for name, (unit, text) in COUNTERS.items()
    }


def _no_note(_attributes: Attributes) -> None:
    """Add attributes to no span."""


def signals() -> Signals | None:
    """Return the tracer and the counters; None in a program that does not use OpenTelemetry."""
    # Whoever sets up a provider has imported the API.
    return None if sys.modules.get("opentelemetry") is None else _made()


@functools.cache
def _made() -> Signals | None:
    try:
        return Signals()
    except ImportError:
        return None


def _tracing() -> Signals | None:
    sent = signals()
    return sent if sent is not None and sent.traces else None


_NO_SPAN: AbstractContextManager[Note] = nullcontext(_no_note)


def in_span(name: str, **attributes: Any) -> AbstractContextManager[Note]:
    """Have a block of work in a span `eventlog.…`, and yield what adds attributes to it."""
    sent = _tracing()
    return _NO_SPAN if sent is None else sent.span(name, attributes)


def version_facts(version: Any) -> Attributes:
    """Return the attributes of a version that a writer returned, with the rows that it touched."""
    touched = {name: getattr(version, name, None) for name in ("added", "deleted")}
    return {"version": int(version), **touched}


def traced(
    name: str, facts: Callable[[Any], Attributes] = version_facts
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator of functions whose first argument is a table: a call becomes a span.

    Args:
        name: of the span.
        facts: attributes of the span, from what the function returned.
    """

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            sent = _tracing()
            if sent is None:
                return function(*args, **kwargs)
            table = args[0] if args else kwargs.get("t")
            with sent.span(name, {"table": getattr(table, "uri", None)}) as note:
                result = function(*args, **kwargs)
                note(facts(result))
            return result

        return call

    return decorate


def streamed(name: str, batches: Iterator[_B], **attributes: Any) -> Iterator[_B]:
    """Return batches that are read within a span; the same ones where there are no spans."""
    sent = _tracing()
    return batches if sent is None else sent.streamed(name, batches, attributes)


def add_to(counter: str, amount: float = 1, **attributes: Any) -> None:
    """Add to a counter of `COUNTERS`."""
    sent = signals()
    if sent is not None:
        sent.add(counter, amount, attributes)


def _prefixed(attributes: Attributes) -> dict[str, Any]:
    return {f"eventlog.{name}": v for name, v in attributes.items() if v is not None}
