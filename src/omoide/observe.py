"""OpenTelemetry spans, named by the semantic conventions for generative AI.

Nothing is recorded until the program sets a tracer provider, and OpenTelemetry is not imported here before
that: a program that sets a provider has imported it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import msgspec

if TYPE_CHECKING:
    from opentelemetry import trace


Operation = Literal[
    "invoke_agent",
    "chat",
    "execute_tool",
    "search_memory",
    "create_memory",
    "upsert_memory",
    "update_memory",
    "delete_memory",
]

OPERATION_NAME = "gen_ai.operation.name"
ERROR_TYPE = "error.type"
CAPTURE_CONTENT_ENV = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

ATTRIBUTE_NAMES: Mapping[str, str] = {
    "agent_id": "gen_ai.agent.id",
    "agent_name": "gen_ai.agent.name",
    "conversation_id": "gen_ai.conversation.id",
    "provider_name": "gen_ai.provider.name",
    "request_model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "tool_name": "gen_ai.tool.name",
    "tool_call_id": "gen_ai.tool.call.id",
    "store_id": "gen_ai.memory.store.id",
    "record_id": "gen_ai.memory.record.id",
    "record_count": "gen_ai.memory.record.count",
}
"""Attributes that are always recorded, with their names in the conventions."""

CONTENT_ATTRIBUTE_NAMES: Mapping[str, str] = {
    "query_text": "gen_ai.memory.query.text",
    "records": "gen_ai.memory.records",
    "input_messages": "gen_ai.input.messages",
    "output_messages": "gen_ai.output.messages",
}
"""Attributes with content of people and models; recorded only if `is_content_captured` returns True."""

_SPAN_NAME_ATTRIBUTES = {"invoke_agent": "agent_name", "chat": "request_model", "execute_tool": "tool_name"}


class Attributes(TypedDict, total=False):
    """Attributes of a span; None is left out, and content may be a function that returns it."""

    agent_id: str | None
    agent_name: str | None
    conversation_id: str | None
    provider_name: str | None
    request_model: str | None
    response_model: str | None
    input_tokens: int | None
    output_tokens: int | None
    tool_name: str | None
    tool_call_id: str | None
    store_id: str | None
    record_id: str | None
    record_count: int | None
    query_text: str | Callable[[], str | None] | None
    records: Any
    input_messages: Any
    output_messages: Any


class Span:
    """A running span, which takes more attributes until it ends."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span | None) -> None:
        self._span = span

    def set(self, **attributes: Unpack[Attributes]) -> None:
        """Set attributes."""
        if self._span is not None and self._span.is_recording():
            self._span.set_attributes({**_standard_attributes(attributes), **_content_attributes(attributes)})


_NO_SPAN = nullcontext(Span(None))  # shared: without a provider a span must cost next to nothing

_provider_override: ContextVar[trace.TracerProvider | None] = ContextVar(
    "omoide_tracer_provider", default=None
)
_cached_tracer: tuple[trace.TracerProvider, trace.Tracer] | None = None


@contextmanager
def use_provider(provider: trace.TracerProvider) -> Iterator[None]:
    """Record to `provider` inside the block, in this thread and task only."""
    token = _provider_override.set(provider)
    try:
        yield
    finally:
        _provider_override.reset(token)


def is_content_captured() -> bool:
    """Return True if the program asks to record the content of messages and memories."""
    return os.environ.get(CAPTURE_CONTENT_ENV, "").strip().lower() in (
        "1",
        "true",
        "span_only",
        "span_and_event",
    )


def span(
    operation: Operation, *, name: str | None = None, **attributes: Unpack[Attributes]
) -> AbstractContextManager[Span]:
    """Return a context manager that records a span.

    Args:
        operation: the operation by the semantic conventions.
        name: the agent, model or tool in the span's name, if no attribute has it.
        attributes: the attributes known at the start.
    """
    tracer = _tracer()
    return _NO_SPAN if tracer is None else _record_span(tracer, operation, name, attributes)


def _tracer() -> trace.Tracer | None:
    """Return the tracer of the current provider, or None if nothing records."""
    global _cached_tracer  # noqa: PLW0603 - creating a tracer takes longer than most spans
    provider = _provider_override.get()
    if provider is None:
        api: Any = sys.modules.get("opentelemetry.trace")
        if api is None or not hasattr(api, "use_span"):  # absent, or another thread is importing it
            return None
        provider = api.get_tracer_provider()
        if isinstance(provider, (api.ProxyTracerProvider, api.NoOpTracerProvider)):
            return None
    # One read and one write of a tuple: a race between threads costs a second tracer, never a wrong one.
    last = _cached_tracer
    if last is None or last[0] is not provider:
        last = _cached_tracer = (provider, provider.get_tracer("omoide"))
    return last[1]


@contextmanager
def _record_span(
    tracer: trace.Tracer, operation: Operation, name: str | None, attributes: Attributes
) -> Iterator[Span]:
    from opentelemetry import trace

    standard = _standard_attributes(attributes)
    subject = operation in _SPAN_NAME_ATTRIBUTES and (
        name or standard.get(ATTRIBUTE_NAMES[_SPAN_NAME_ATTRIBUTES[operation]])
    )
    otel_span = tracer.start_span(
        f"{operation} {subject}" if subject else operation,
        kind=trace.SpanKind.CLIENT if operation == "chat" else trace.SpanKind.INTERNAL,
        attributes={OPERATION_NAME: operation, **standard},
    )
    if otel_span.is_recording():  # content is encoded only for spans that the sampler keeps
        otel_span.set_attributes(_content_attributes(attributes))
    # OpenTelemetry would record the text of the exception, which may quote content.
    with trace.use_span(otel_span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield Span(otel_span)
        except GeneratorExit:  # the reader of a stream stopped early: no error
            raise
        except BaseException as error:
            otel_span.set_attribute(ERROR_TYPE, type(error).__name__)
            otel_span.set_status(trace.StatusCode.ERROR)
            raise


def _standard_attributes(attributes: Attributes) -> dict[str, Any]:
    return {
        ATTRIBUTE_NAMES[key]: value
        for key, value in attributes.items()
        if value is not None and key in ATTRIBUTE_NAMES
    }


def _content_attributes(attributes: Attributes) -> dict[str, str]:
    """Return the content as text; spans hold no nested data, so it is encoded as JSON."""
    values = {key: value for key, value in attributes.items() if key in CONTENT_ATTRIBUTE_NAMES}
    if not values or not is_content_captured():
        return {}
    content = {key: value() if callable(value) else value for key, value in values.items()}
    return {
        CONTENT_ATTRIBUTE_NAMES[key]: _to_text(value) for key, value in content.items() if value is not None
    }


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=_encode_unknown).decode()


def _encode_unknown(value: Any) -> Any:
    """Convert frozen maps and lists to JSON types, and any other value to its text."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) else str(value)
