"""Tests of traces: spans of a turn, without its content."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from omoide import AgentSpec, Session, action, observe, open_store, turn, write
from omoide.errors import ModelFailed
from omoide.testing import ScriptedModel
from omoide.turns import Reply, ToolCall, Usage

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


@action(effectful=True)
async def weigh(ctx: Any, thing: str) -> str:
    """Weigh something."""
    return f"{thing}: 3 kg"


SPEC = AgentSpec(
    id="scales",
    model="openai:some-model",
    tools=[weigh],
    memory={"scope": "session", "capture": "conversation"},
)
ASKS = Reply(
    calls=(ToolCall(id="c1", name="weigh", params={"thing": "zebra"}),),
    usage=Usage(input_tokens=7, output_tokens=2, requests=1),
    model="some-model-2026",
)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with observe.use_provider(provider):
        yield exporter
    provider.shutdown()


def span_named(spans: InMemorySpanExporter, name: str) -> ReadableSpan:
    return next(span for span in spans.get_finished_spans() if span.name == name)


async def run_weighing() -> None:
    async with open_store("memory://", embedder="none") as store:
        await write(SPEC, "The zebra was light.", store=store, session_id="s")
        model = ScriptedModel(ASKS, "It has 3 kg.")
        await turn(SPEC, "How heavy is the zebra?", store=store, session_id="s", model=model)


async def test_a_turn_is_a_tree_of_spans(spans: InMemorySpanExporter) -> None:
    """Recall, each call of the model, each tool and the capture lie inside the span of the agent."""
    await run_weighing()
    root = span_named(spans, "invoke_agent scales")
    inside = [span.name for span in spans.get_finished_spans() if span.parent is not None]
    assert inside == [
        "search_memory",
        "chat scripted",
        "execute_tool weigh",
        "chat scripted",
        "upsert_memory",
    ]
    parents = {span.parent.span_id for span in spans.get_finished_spans() if span.parent is not None}
    assert root.context is not None
    assert parents == {root.context.span_id}


async def test_spans_have_the_names_of_the_conventions(spans: InMemorySpanExporter) -> None:
    """Operation, agent, conversation, models, tokens, tool and records are told under their agreed names."""
    await run_weighing()
    said = {
        name: dict(span_named(spans, name).attributes or {})
        for name in ("invoke_agent scales", "search_memory", "chat scripted", "execute_tool weigh")
    }
    assert said["invoke_agent scales"]["gen_ai.agent.id"] == "scales"
    assert said["search_memory"]["gen_ai.operation.name"] == "search_memory"
    assert said["search_memory"]["gen_ai.memory.record.count"] == 1
    assert said["search_memory"]["gen_ai.conversation.id"] == "s"
    chat = said["chat scripted"]
    assert (chat["gen_ai.request.model"], chat["gen_ai.response.model"]) == (
        "scripted",
        "some-model-2026",
    )
    assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]) == (7, 2)
    assert said["execute_tool weigh"]["gen_ai.tool.call.id"] == "c1"


@pytest.mark.parametrize("wanted", [False, True])
async def test_content_is_told_only_where_it_was_asked_for(
    wanted: bool, spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No span holds a word of what was said or remembered, unless the program opted in."""
    monkeypatch.setenv(CAPTURE, "true" if wanted else "false")
    await run_weighing()
    told = str([dict(span.attributes or {}) for span in spans.get_finished_spans()])
    assert ("zebra" in told) is wanted


async def test_what_failed_says_its_kind_and_no_more(spans: InMemorySpanExporter) -> None:
    """An error is told by its class; its words may hold content."""
    with pytest.raises(ModelFailed):
        await turn(
            SPEC.replace(memory=None), "Hi.", model=ScriptedModel(ModelFailed("m", "saw a zebra", "x"))
        )
    failed = span_named(spans, "invoke_agent scales")
    assert dict(failed.attributes or {})["error.type"] == "ModelFailed"
    assert "zebra" not in str([(s.attributes, s.events, s.status.description) for s in [failed]])


async def test_the_turns_of_a_session_are_told_as_well(spans: InMemorySpanExporter) -> None:
    """A session's turn has the same spans, under the session's id."""
    async with (
        open_store("memory://", embedder="none") as store,
        Session.open(SPEC, "conv", store=store, model=ScriptedModel("Hello.")) as session,
    ):
        await session.chat("Hi.")
    assert dict(span_named(spans, "invoke_agent scales").attributes or {})["gen_ai.conversation.id"] == "conv"
