"""OpenTelemetry spans, with and without content."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import anyio
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import NoOpTracerProvider, SpanKind, StatusCode

from omoide import observe
from omoide.core import freeze
from omoide.stores.async_store import run_in_thread

SECRET = "the vault opens with 1234"


class Recorded:
    """A provider, and what it was told."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def spans(self) -> list[ReadableSpan]:
        return [*self.exporter.get_finished_spans()]

    def only(self) -> ReadableSpan:
        (span,) = self.spans()
        return span

    def attributes(self) -> dict[str, Any]:
        return dict(self.only().attributes or {})


@pytest.fixture(autouse=True)
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for content, unless a test does."""
    monkeypatch.delenv(observe.CAPTURE_CONTENT_ENV, raising=False)


@pytest.fixture
def recorder() -> Iterator[Recorded]:
    found = Recorded()
    with observe.use_provider(found.provider):
        yield found
    found.provider.shutdown()


def run(program: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


def test_a_span_says_what_is_done(recorder: Recorded) -> None:
    """Its name is the operation, and what the caller says has the names of the conventions."""
    with observe.span("search_memory", agent_id="ada", conversation_id="s", store_id="memory://") as span:
        span.set(record_count=3, record_id=None)
    assert recorder.only().name == "search_memory"
    assert recorder.attributes() == {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.agent.id": "ada",
        "gen_ai.conversation.id": "s",
        "gen_ai.memory.store.id": "memory://",
        "gen_ai.memory.record.count": 3,
    }
    assert recorder.only().status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("operation", get_args(observe.Operation))
def test_every_operation_has_its_kind(recorder: Recorded, operation: observe.Operation) -> None:
    """A model is asked as a client; all else happens inside."""
    with observe.span(operation):
        pass
    assert recorder.only().name == operation
    assert recorder.only().kind is (SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL)


@pytest.mark.parametrize(
    ("operation", "attributes", "name"),
    [
        ("invoke_agent", {"name": "Ada"}, "invoke_agent Ada"),
        ("invoke_agent", {"agent_id": "ada", "agent_name": "Ada"}, "invoke_agent Ada"),
        ("invoke_agent", {"agent_id": "ada"}, "invoke_agent"),
        ("chat", {"request_model": "m-1"}, "chat m-1"),
        ("chat", {"name": "m-2", "request_model": "m-1"}, "chat m-2"),
        ("chat", {"request_model": None}, "chat"),
        ("execute_tool", {"tool_name": "add"}, "execute_tool add"),
        ("search_memory", {"name": "mine", "agent_name": "Ada"}, "search_memory"),
    ],
)
def test_agents_models_and_tools_are_named(
    recorder: Recorded, operation: observe.Operation, attributes: Any, name: str
) -> None:
    """What was given as the name, or else what the attributes say; memory operations have no other name."""
    with observe.span(operation, **attributes):
        pass
    assert recorder.only().name == name


def test_every_attribute_has_a_name_and_a_type() -> None:
    """What callers may say, what it is called outside, and what type checkers allow are the same list."""
    names = {**observe.ATTRIBUTE_NAMES, **observe.CONTENT_ATTRIBUTE_NAMES}
    assert {*names} == {*get_type_hints(observe.Attributes)}
    assert len({*names.values()}) == len(names)
    assert all(name.startswith("gen_ai.") for name in names.values())


def test_spans_nest(recorder: Recorded) -> None:
    """A span inside another is its child, and one after it is not."""
    with observe.span("invoke_agent", agent_name="Ada"):
        with observe.span("search_memory"):
            pass
        with observe.span("chat"), observe.span("execute_tool"):
            pass
    with observe.span("create_memory"):
        pass
    spans = {span.name: span for span in recorder.spans()}
    ids = {span.context.span_id: name for name, span in spans.items() if span.context}
    parents = {name: ids[span.parent.span_id] if span.parent else None for name, span in spans.items()}
    assert parents == {
        "search_memory": "invoke_agent Ada",
        "chat": "invoke_agent Ada",
        "execute_tool": "chat",
        "invoke_agent Ada": None,
        "create_memory": None,
    }


def test_spans_of_the_program_are_above_and_below(recorder: Recorded) -> None:
    """Ours stand between those of the caller and those of whatever is called."""
    tracer = recorder.provider.get_tracer("program")
    with tracer.start_as_current_span("outer"), observe.span("chat"), tracer.start_as_current_span("inner"):
        pass
    inner, ours, outer = recorder.spans()
    assert inner.parent == ours.context
    assert ours.parent == outer.context
    assert ours.instrumentation_scope is not None
    assert ours.instrumentation_scope.name == "omoide"


async def test_tasks_and_threads_keep_their_spans_apart(recorder: Recorded) -> None:
    """Each task has its own open span, and what is done for it in a thread is below that one."""

    async def turn(name: str) -> None:
        with observe.span("invoke_agent", agent_name=name):
            await anyio.lowlevel.checkpoint()
            await run_in_thread(search, name)
            await anyio.lowlevel.checkpoint()

    def search(name: str) -> None:
        with observe.span("search_memory", agent_id=name):
            pass

    async with anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(turn, name)
    spans = {span.context.span_id: span for span in recorder.spans() if span.context}
    inner = [span for span in spans.values() if span.parent]
    assert len(inner) == 3
    for span in inner:
        assert span.parent is not None
        outer = spans[span.parent.span_id]
        assert (span.attributes or {})["gen_ai.agent.id"] == (outer.attributes or {})["gen_ai.agent.name"]


@pytest.mark.parametrize("error", [ValueError(SECRET), KeyboardInterrupt(SECRET), StopIteration(SECRET)])
def test_an_error_is_named_and_not_quoted(recorder: Recorded, error: BaseException) -> None:
    """The span fails with the class of the error, which goes on its way unchanged."""
    with pytest.raises(type(error)) as caught, observe.span("execute_tool", tool_name="open"):
        raise error
    assert caught.value is error
    span = recorder.only()
    assert recorder.attributes()["error.type"] == type(error).__name__
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, None)
    assert span.events == ()
    assert SECRET not in span.to_json()


async def test_work_that_is_cancelled_is_told(recorder: Recorded) -> None:
    """A span whose task was cancelled has ended, as a failure."""
    with anyio.CancelScope() as scope, observe.span("chat"):
        scope.cancel()
        await anyio.lowlevel.checkpoint()
    assert recorder.attributes()["error.type"] == "CancelledError"


def test_a_stream_that_is_left_early_is_no_error(recorder: Recorded) -> None:
    """Whoever has heard enough closes it; the span ends well."""

    def words() -> Iterator[str]:
        with observe.span("chat"):
            yield "one"
            yield "two"

    stream = words()
    assert next(stream) == "one"
    stream.close()  # type: ignore[attr-defined]
    assert recorder.only().status.status_code is StatusCode.UNSET


def test_no_content_is_recorded_unasked(recorder: Recorded) -> None:
    """Neither at the start nor later, and what would make it is not even called."""

    def never() -> str:
        raise AssertionError("content was made that nobody asked for")

    said: Any = {"query_text": never, "records": [{"content": SECRET}], "input_messages": never}
    with observe.span("search_memory", **said) as span:
        span.set(output_messages=[SECRET], record_count=1)
    assert recorder.attributes() == {
        "gen_ai.operation.name": "search_memory",
        "gen_ai.memory.record.count": 1,
    }
    assert SECRET not in recorder.only().to_json()


def test_content_is_recorded_when_asked_for(recorder: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text as it is and all else as JSON, given or made by a function; None says nothing."""
    monkeypatch.setenv(observe.CAPTURE_CONTENT_ENV, "true")
    with observe.span("search_memory", query_text="Tea?", input_messages=None) as span:
        span.set(records=lambda: [{"id": "a", "content": "Grüße", "score": 0.5}])
        span.set(output_messages=freeze([{"role": "user", "parts": [1, None]}]))
    attributes = recorder.attributes()
    assert attributes["gen_ai.memory.query.text"] == "Tea?"
    assert json.loads(attributes["gen_ai.memory.records"]) == [{"id": "a", "content": "Grüße", "score": 0.5}]
    assert json.loads(attributes["gen_ai.output.messages"]) == [{"role": "user", "parts": [1, None]}]
    assert "gen_ai.input.messages" not in attributes


def test_content_that_json_has_no_form_for_is_printed(
    recorder: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tracing does not fail over a value."""
    monkeypatch.setenv(observe.CAPTURE_CONTENT_ENV, "1")
    with observe.span("chat", input_messages=[{"value": Recorded, "many": {1: range(2)}}]):
        pass
    (shown,) = json.loads(recorder.attributes()["gen_ai.input.messages"])
    assert shown == {"value": str(Recorded), "many": {"1": [0, 1]}}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("true", True),
        ("True", True),
        ("1", True),
        ("SPAN_ONLY", True),
        ("span_and_event", True),
        ("EVENT_ONLY", False),
        ("NO_CONTENT", False),
        ("false", False),
        ("0", False),
        ("", False),
        ("yes please", False),
    ],
)
def test_content_is_asked_for_by_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool
) -> None:
    """By the variable that other instrumentations read, and only by values that mean spans."""
    assert observe.is_content_captured() is False
    monkeypatch.setenv(observe.CAPTURE_CONTENT_ENV, value)
    assert observe.is_content_captured() is wanted


def test_a_span_that_is_not_sampled_makes_no_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """What would not be recorded is not made, even when content is asked for."""
    monkeypatch.setenv(observe.CAPTURE_CONTENT_ENV, "true")

    def never() -> str:
        raise AssertionError("content was made for a span that is not recorded")

    silent = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    with observe.use_provider(silent), observe.span("chat", input_messages=never) as span:
        span.set(output_messages=never)


def test_the_provider_in_use_can_change(recorder: Recorded) -> None:
    """A block may record elsewhere, and afterwards everything goes where it went before."""
    other = Recorded()
    with observe.span("chat"):
        pass
    with observe.use_provider(other.provider), observe.span("execute_tool"):
        pass
    with observe.span("create_memory"):
        pass
    assert [span.name for span in recorder.spans()] == ["chat", "create_memory"]
    assert [span.name for span in other.spans()] == ["execute_tool"]


def test_without_a_provider_nothing_is_recorded() -> None:
    """Blocks run, nest, say things and fail as they would without spans."""

    def turn() -> None:
        with observe.span("invoke_agent") as outer, observe.span("chat") as inner:
            outer.set(agent_id="ada")
            inner.set(records=lambda: 1 / 0)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        turn()


def test_a_provider_that_does_nothing_counts_as_none() -> None:
    """Given one explicitly, blocks run all the same."""
    with observe.use_provider(NoOpTracerProvider()), observe.span("chat") as span:
        span.set(input_tokens=1)


def test_opentelemetry_is_not_loaded_for_its_own_sake() -> None:
    """A program that does not trace never imports it, whatever it does."""
    assert (
        run(
            "import sys, omoide; from omoide import observe\n"
            "with observe.span('chat', agent_id='ada') as span: span.set(input_tokens=1)\n"
            "print(*(name for name in sys.modules if 'opentelemetry' in name))"
        ).split()
        == []
    )


def test_it_works_where_opentelemetry_is_not_installed() -> None:
    """Spans are then nothing, like everywhere without a provider."""
    assert run(
        "import sys; sys.modules['opentelemetry'] = sys.modules['opentelemetry.trace'] = None\n"
        "from omoide import observe\n"
        "with observe.span('chat') as span: span.set(input_tokens=1)\n"
        "print('fine')"
    ).split() == ["fine"]


def test_the_provider_of_the_program_is_found_when_it_is_set() -> None:
    """Spans begin with the provider that the program sets for all its parts, and not before."""
    assert run(
        "from opentelemetry import trace\n"
        "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry.sdk.trace.export import SimpleSpanProcessor\n"
        "from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter\n"
        "from omoide import observe\n"
        "with observe.span('chat'): pass\n"
        "exporter = InMemorySpanExporter()\n"
        "provider = TracerProvider()\n"
        "provider.add_span_processor(SimpleSpanProcessor(exporter))\n"
        "trace.set_tracer_provider(provider)\n"
        "with observe.span('search_memory', agent_id='ada'): pass\n"
        "print(*(span.name for span in exporter.get_finished_spans()))"
    ).split() == ["search_memory"]
