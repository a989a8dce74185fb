"""Tests of whole turns over HTTP, with memory, tools, streams and failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.http_model import USAGE, Answer, HttpModel, answer_with_calls, error_answer, serve_model

from omoide import AgentSpec, Scope, Session, action, open_store, stream, turn, write
from omoide.errors import ModelFailed, ModelOverloaded, ModelTimedOut, ModelUnreachable
from omoide.stores import AsyncStore
from omoide.testing import eventually
from omoide.turns import model

POLICY = {"scope": "session", "capture": "conversation"}


@action(effectful=True)
async def weather(ctx: Any, city: str) -> dict[str, Any]:
    """The weather of a city."""
    return {"city": city, "degrees": 3}


@pytest.fixture(autouse=True)
def _no_keys_and_no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.setattr(model, "INITIAL_BACKOFF", 0.0)


@pytest.fixture
def store() -> Iterator[AsyncStore]:
    with open_store("memory://", embedder="none") as opened:
        yield opened


def agent(site: HttpModel, **fields: Any) -> AgentSpec:
    return AgentSpec(
        **{
            "id": "greeter",
            "model": "openai-chat:local",
            "base_url": site.url,
            "instructions": "Greet the user.",
            "tools": [weather],
            "memory": POLICY,
            "generation": {"temperature": 0.2},
            **fields,
        }
    )


async def test_a_turn_goes_over_the_wire_with_its_memory(store: AsyncStore) -> None:
    """The server sees instructions, quoted memory, input and tools; the answer is kept and counted."""
    with serve_model("Welcome back, Alex.") as site:
        spec = agent(site)
        await write(spec, "User prefers the name Alex.", store=store, session_id="s")
        result = await turn(spec, "hello", store=store, session_id="s")
    asked = site.requests[0]
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert '"User prefers the name Alex."' in asked["messages"][0]["content"]
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["weather"]
    assert (asked["model"], asked["temperature"]) == ("local", 0.2)
    assert (result.content, result.usage.input_tokens) == ("Welcome back, Alex.", USAGE["prompt_tokens"])
    kept = await store.list_entries(Scope(agent_id="greeter"))
    assert kept[-1].content == "User: hello\nAssistant: Welcome back, Alex."


@pytest.mark.parametrize("streaming", [False, True])
async def test_tools_run_between_two_requests_on_one_connection(streaming: bool, store: AsyncStore) -> None:
    """Two calls run, their results go back under their ids, and the connection serves both rounds."""
    both = answer_with_calls(("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"}))
    with serve_model(both, "Three degrees in both.") as site:
        if streaming:
            async with stream(agent(site), "How warm is it?", store=store, session_id="s") as events:
                said = "".join([piece async for piece in events.text()])
            result = events.result
            assert said == "Three degrees in both."
        else:
            result = await turn(agent(site), "How warm is it?", store=store, session_id="s")
        await eventually(lambda: site.open == 0)
    assert (result.content, result.rounds, site.connections) == ("Three degrees in both.", 2, 1)
    results = [message for message in site.requests[1]["messages"] if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == ["call_1", "call_2"]
    assert [message["content"] for message in results] == [
        '{"city":"Oslo","degrees":3}',
        '{"city":"Rome","degrees":3}',
    ]


@pytest.mark.parametrize(
    "trouble",
    [
        error_answer(500),
        error_answer(429, retry_after="0"),
        error_answer(503),
        Answer(content="Hello", cut=20),
    ],
    ids=["500", "429", "503", "cut"],
)
async def test_what_passes_is_tried_again(trouble: Answer, store: AsyncStore) -> None:
    """A failure that may pass is followed by another request; the turn tells it and ends well."""
    with serve_model(trouble, "Here I am.") as site:
        result = await turn(agent(site), "hello", store=store, session_id="s")
    assert (result.content, len(site.requests)) == ("Here I am.", 2)
    assert [event.kind for event in result.events].count("model_retried") == 1
    assert len(await store.list_entries(Scope(agent_id="greeter"))) == 1


@pytest.mark.parametrize(
    ("trouble", "kind", "requests"),
    [
        (error_answer(500), ModelOverloaded, 3),
        (error_answer(429, retry_after="3600"), ModelOverloaded, 1),
        (Answer(content="Hello", cut=20), ModelUnreachable, 3),
        (Answer(hang=True), ModelTimedOut, 2),
        (error_answer(401), ModelFailed, 1),
    ],
    ids=["500", "wait too long", "cut", "hanging", "401"],
)
async def test_what_stays_is_a_typed_error(
    trouble: Answer, kind: type[ModelFailed], requests: int, store: AsyncStore
) -> None:
    """After the retries, or at once where they are useless, the error comes out and nothing is captured."""
    with serve_model(*[trouble] * 4) as site:
        spec = agent(site, limits={"model_timeout_ms": 1_000, "retries": 1} if trouble.hang else {})
        with pytest.raises(kind) as failed:
            await turn(spec, "hello", store=store, session_id="s")
        assert len(site.requests) == requests
        await eventually(lambda: site.open == 0)
    assert failed.value.remedy
    assert await store.list_entries(Scope(agent_id="greeter")) == []


async def test_a_session_goes_on_after_its_provider_was_away(store: AsyncStore) -> None:
    """The tool that ran before the outage is not run again; its result is sent when the provider is back."""
    with serve_model(answer_with_calls(("weather", {"city": "Oslo"})), error_answer(401)) as site:
        session = await Session.start(agent(site), "s", store=store)
        with pytest.raises(ModelFailed):
            await session.run("How warm is it?")
        assert session.status == "error"
        site.answers.append(Answer(content="Three degrees."))
        result = await session.resume()
    assert (result.content, session.status, len(site.requests)) == ("Three degrees.", "finished", 3)
    assert [entry.kind for entry in session.thread.entries].count("tool_call") == 1
    assert site.requests[2]["messages"][-1]["content"] == '{"city":"Oslo","degrees":3}'


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPENAI_API_KEY", "sk-of-the-environment"),
        ("OPENAI_ADMIN_KEY", "sk-of-the-environment"),
        ("OPENAI_ORG_ID", "org-of-the-environment"),
        ("OPENAI_PROJECT_ID", "proj-of-the-environment"),
        ("OPENAI_CUSTOM_HEADERS", "X-Proxy-Key: key-of-the-environment"),
    ],
)
async def test_what_the_environment_has_for_the_provider_stays_at_home(
    store: AsyncStore, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """A spec that points elsewhere gets neither a key nor the name of an account of the environment."""
    monkeypatch.setenv(variable, value)
    with serve_model("Hi.") as site:
        await turn(agent(site), "hello", store=store, session_id="s")
    assert site.headers
    assert "of-the-environment" not in str(site.headers)
