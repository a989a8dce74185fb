"""Tests of provider models over HTTP, and of the mapping of their errors."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
from pydantic_ai import exceptions
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.support.http_model import (
    USAGE,
    Answer,
    HttpModel,
    answer_with_calls,
    error_answer,
    make_request,
    serve_model,
)

from omoide.errors import (
    Invalid,
    MissingExtra,
    ModelFailed,
    ModelMisbehaved,
    ModelOverloaded,
    ModelRefused,
    ModelTimedOut,
    ModelUnreachable,
    WrongType,
)
from omoide.testing import eventually
from omoide.turns import Message, Model, Operation, ProviderModel, Reply, SupportsStreaming, ToolCall, Usage
from omoide.turns.provider import classify_error, provider_tool_names, to_model_error

NAMED = "openai-chat:local"
USED = Usage(input_tokens=USAGE["prompt_tokens"], output_tokens=USAGE["completion_tokens"], requests=1)
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (
    Operation(name="weather", description="The weather.", schema=WEATHER),
    Operation(name="clock.now", description="The time."),
)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def at(site: HttpModel) -> ProviderModel:
    return ProviderModel(NAMED, base_url=site.url)


async def pieces(model: ProviderModel, **fields: Any) -> list[str | Reply]:
    return [piece async for piece in model.stream(make_request(**fields))]


async def failure_of(model: ProviderModel, how: str = "complete") -> ModelFailed:
    with pytest.raises(ModelFailed) as caught:
        await (model.complete(make_request()) if how == "complete" else pieces(model))
    return caught.value


async def test_a_model_answers() -> None:
    """Text comes back with its usage and the name of the model that really answered, without any key."""
    with serve_model("You are Alex.") as site:
        model = at(site)
        assert isinstance(model, Model)
        assert isinstance(model, SupportsStreaming)
        reply = await model.complete(
            make_request(
                Message(role="system", content="Be kind."), Message(role="user", content="Who am I?")
            )
        )
    assert (reply.content, reply.calls, reply.usage, reply.model) == ("You are Alex.", (), USED, "local-v1")
    assert site.requests[0]["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Who am I?"},
    ]


async def test_a_key_is_sent_where_it_was_given() -> None:
    """The key that was given goes to the server, and nowhere into what the model shows of itself."""
    with serve_model("Hi.") as site:
        model = ProviderModel(NAMED, base_url=site.url, api_key="my-key")
        await model.complete(make_request())
    assert site.headers[0]["authorization"] == "Bearer my-key"
    assert "my-key" not in repr(model)


@pytest.mark.parametrize("streaming", [False, True])
async def test_tools_are_asked_for_and_their_results_sent_back(streaming: bool) -> None:
    """Two calls come in one reply, and go back with their results as the provider wants them."""
    wanted = answer_with_calls(("weather", {"city": "Kyoto"}), ("clock_now", {}))
    with serve_model(wanted, "It rains.") as site:
        model = at(site)
        last = (await pieces(model, operations=TOOLS))[-1] if streaming else None
        reply = last or await model.complete(make_request(operations=TOOLS))
        assert isinstance(reply, Reply)
        assert reply.calls == (
            ToolCall(id="call_1", name="weather", params={"city": "Kyoto"}),
            ToolCall(id="call_2", name="clock.now"),
        )
        for native in (reply.native, None):
            site.answers.append(Answer(content="It rains."))
            await model.complete(
                make_request(
                    Message(role="user", content="Rain?"),
                    Message(role="assistant", content=reply.content, calls=reply.calls, native=native),
                    Message(role="tool", content='"rain"', call_id="call_1", name="weather"),
                    Message(role="tool", content='"noon"', call_id="call_2", name="clock.now"),
                    operations=TOOLS,
                )
            )
    first, *later = site.requests
    assert [tool["function"]["name"] for tool in first["tools"]] == ["weather", "clock_now"]
    assert first["tools"][0]["function"]["parameters"]["properties"] == WEATHER["properties"]
    for sent in later:
        assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool", "tool"]
        assert [call["id"] for call in sent["messages"][1]["tool_calls"]] == ["call_1", "call_2"]
        assert sent["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city":"Kyoto"}'
        assert [message.get("tool_call_id") for message in sent["messages"][2:]] == ["call_1", "call_2"]
        assert [message["content"] for message in sent["messages"][2:]] == ['"rain"', '"noon"']


async def test_text_comes_in_pieces() -> None:
    """A stream gives the text as it comes, then the whole reply, with the usage of the last event."""
    with serve_model("You are Alex, I think.") as site:
        *texts, reply = await pieces(at(site))
    assert texts == ["You", " are", " Alex,", " I", " think."]
    assert isinstance(reply, Reply)
    assert (reply.content, reply.usage, reply.model) == ("You are Alex, I think.", USED, "local-v1")


@pytest.mark.parametrize("written", ["[1]", "{city: Kyoto", '"Kyoto"', '{"city": "\\ud800"}', "[" * 100_000])
async def test_arguments_that_are_no_object_are_kept_as_they_are(written: str) -> None:
    """What a model wrote in place of a JSON object is in `invalid`, and can be sent back to it."""
    with serve_model(Answer(calls=(("weather", written),)), "Sorry.") as site:
        model = at(site)
        reply = await model.complete(make_request(operations=TOOLS))
        (call,) = reply.calls
        assert (call.invalid, dict(call.params)) == (written, {})
        said = (
            Message(role="assistant", calls=reply.calls),
            Message(role="tool", content="no object", call_id=call.id, name=call.name),
        )
        assert (await model.complete(make_request(*said, operations=TOOLS))).content == "Sorry."


async def test_the_settings_of_a_generation_are_sent() -> None:
    """Temperature and the like reach the provider under its own names; what is None does not."""
    generation = {
        "temperature": 0.5,
        "max_tokens": 9,
        "top_p": 0.25,
        "seed": 3,
        "stop": "END",
        "presence_penalty": 0.1,
        "logit_bias": None,
    }
    with serve_model("Hi.", "Hi.") as site:
        await at(site).complete(make_request(generation=generation))
        await at(site).complete(make_request(generation={"stop": ["A", "B"]}))
    sent = site.requests[0]
    assert {name: sent[name] for name in ("temperature", "top_p", "seed", "presence_penalty")} == {
        "temperature": 0.5,
        "top_p": 0.25,
        "seed": 3,
        "presence_penalty": 0.1,
    }
    assert (sent["max_completion_tokens"], sent["stop"], "logit_bias" in sent) == (9, ["END"], False)
    assert site.requests[1]["stop"] == ["A", "B"]


async def test_the_shape_of_the_answer_is_asked_for() -> None:
    """A JSON Schema goes to the provider where it can hold the model to it, and into the prompt elsewhere."""
    with serve_model('{"city": "Kyoto"}', '{"city": "Kyoto"}') as site:
        reply = await at(site).complete(make_request(result=WEATHER))
        provider = OpenAIProvider(base_url=site.url)
        simple = OpenAIChatModel("local", provider=provider, profile={"supports_json_schema_output": False})
        await ProviderModel(simple).complete(make_request(result=WEATHER))
    assert reply.content == '{"city": "Kyoto"}'
    held, told = site.requests
    assert held["response_format"]["json_schema"]["schema"]["properties"] == WEATHER["properties"]
    assert '"city"' in told["messages"][0]["content"]
    assert told["messages"][0]["role"] == "system"


def test_tools_get_names_that_providers_take() -> None:
    """Names without dots, short enough, and no two the same; a name that is fine stays as it is."""
    names = ["a_b", "a.b", "a-b", "ü", "x" * 70, "x" * 71]
    spoken = provider_tool_names(Operation(name=name) for name in names)
    assert (spoken["a_b"], spoken["a-b"]) == ("a_b", "a-b")
    assert spoken["a.b"] == "a_b_2"
    assert len(set(spoken.values())) == len(names)
    assert all(len(name) <= 64 and name.isascii() and "." not in name for name in spoken.values())


FAILURES: dict[str, tuple[Answer, type[ModelFailed], float | None]] = {
    "a wrong key": (error_answer(401), ModelRefused, None),
    "no access": (error_answer(403), ModelRefused, None),
    "an unknown model": (error_answer(404), ModelRefused, None),
    "a wrong request": (error_answer(400), ModelRefused, None),
    "too much text": (error_answer(400, code="context_length_exceeded"), ModelRefused, None),
    "a teapot": (error_answer(418), ModelRefused, None),
    "no quota": (error_answer(429, code="insufficient_quota"), ModelRefused, None),
    "a conflict": (error_answer(409), ModelOverloaded, None),
    "too many requests": (error_answer(429), ModelOverloaded, None),
    "a wait": (error_answer(429, retry_after="7"), ModelOverloaded, 7.0),
    "a wait until then": (
        error_answer(503, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),  # long ago: no need to wait
        ModelOverloaded,
        0.0,
    ),
    "a wait that is none": (error_answer(429, retry_after="soon"), ModelOverloaded, None),
    "an error inside": (error_answer(500), ModelOverloaded, None),
    "a bad gateway": (error_answer(502), ModelOverloaded, None),
    "an overload": (error_answer(529), ModelOverloaded, None),
    "a body that is cut": (Answer(content="Hello", cut=40), ModelUnreachable, None),
    "nothing at all": (Answer(content="Hello", cut=0), ModelUnreachable, None),
    "no JSON": (Answer(body=b"{nope"), ModelMisbehaved, None),
    "another JSON": (Answer(body=b'{"detail": "no"}'), ModelMisbehaved, None),
    "a web page": (Answer(body=b"<p>Hi", headers={"Content-Type": "text/html"}), ModelMisbehaved, None),
    "filtered content": (Answer(content="Well,", finish="content_filter"), ModelRefused, None),
    "text that nobody can keep": (Answer(content="a\0b"), ModelMisbehaved, None),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failure_is_told_by_its_kind(case: str) -> None:
    """Each failure of a server becomes one error of ours, after exactly one request."""
    answer, kind, wait = FAILURES[case]
    with serve_model(answer, "You should not see this.") as site:
        error = await failure_of(at(site))
        assert len(site.requests) == 1
        await eventually(lambda: site.open == 0)
    assert (type(error), error.retry_after, error.model) == (kind, wait, NAMED)
    assert error.transient == (kind in (ModelOverloaded, ModelUnreachable))
    assert error.remedy


STREAM = {"Content-Type": "text/event-stream"}
STREAM_FAILURES: dict[str, tuple[Answer, type[ModelFailed]]] = {
    "an error inside": (error_answer(500), ModelOverloaded),
    "a cut before the first word": (Answer(content="one two three", cut=0), ModelUnreachable),
    "a cut after some words": (Answer(content="one two three", cut=3), ModelUnreachable),
    "no events": (Answer(body=b"", headers=STREAM), ModelMisbehaved),
    "an event that is no JSON": (Answer(body=b"data: {nope\n\n", headers=STREAM), ModelMisbehaved),
    "an error for an event": (
        Answer(body=b'data: {"error": {"message": "no", "code": "rate_limit_exceeded"}}\n\n', headers=STREAM),
        ModelOverloaded,
    ),
    "filtered content": (Answer(content="Well,", finish="content_filter"), ModelRefused),
}


@pytest.mark.parametrize("case", STREAM_FAILURES)
async def test_a_failure_in_a_stream_is_told_by_its_kind(case: str) -> None:
    """A stream that fails, at its start or later, raises one error of ours and leaves nothing open."""
    answer, kind = STREAM_FAILURES[case]
    with serve_model(answer, "You should not see this.") as site:
        assert type(await failure_of(at(site), "stream")) is kind
        assert len(site.requests) == 1
        await eventually(lambda: site.open == 0)


@pytest.mark.parametrize("how", ["complete", "stream"])
async def test_a_server_that_is_not_there_is_unreachable(how: str) -> None:
    """A connection that is refused is `ModelUnreachable`, which may be tried again."""
    with serve_model() as site:
        pass
    error = await failure_of(at(site), how)
    assert type(error) is ModelUnreachable
    assert error.transient


async def test_a_wait_is_in_the_remedy() -> None:
    """Where the provider said how long to wait, the error says it too."""
    with serve_model(error_answer(429, retry_after="90")) as site:
        assert (await failure_of(at(site))).remedy == "try again in 90 s"


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_call_that_is_cancelled_closes_its_connection(streaming: bool) -> None:
    """Whoever stops waiting leaves no connection behind, in the middle of a stream or before it."""
    with serve_model(Answer(content="one two", cut=2, hang=True)) as site:
        model = at(site)
        async with anyio.create_task_group() as group:
            group.start_soon(failure_of, model, "stream" if streaming else "complete")
            await eventually(lambda: len(site.requests) == 1)
            group.cancel_scope.cancel()
        await eventually(lambda: site.open == 0)


def test_one_model_serves_many_event_loops() -> None:
    """A model can be used in one loop after the other; each call closes what it opened."""
    with serve_model("one", "two", "three") as site:
        model = at(site)
        for expected in ("one", "two", "three"):
            assert anyio.run(model.complete, make_request()).content == expected
        anyio.run(lambda: eventually(lambda: site.open == 0))
    assert site.connections == 3


async def test_connections_can_be_kept() -> None:
    """Inside `connected` several calls share a connection, failed ones included, and none is left after."""
    with serve_model("one", error_answer(500), "two", "three") as site:
        async with at(site).connect() as model:
            assert model.name == NAMED
            assert (await model.complete(make_request())).content == "one"
            assert type(await failure_of(model)) is ModelOverloaded
            assert (await pieces(model))[-1].content == "two"  # type: ignore[union-attr]
            assert (await model.complete(make_request())).content == "three"
        await eventually(lambda: site.open == 0)
    assert site.connections == 1


async def test_a_model_of_theirs_can_be_given() -> None:
    """A model that pydantic-ai made is used as it is, and so is its test model, which needs no server."""
    reply = await ProviderModel(TestModel(custom_output_text="Hi there.")).complete(make_request())
    assert reply.content == "Hi there."
    assert [piece for piece in await pieces(ProviderModel("test")) if isinstance(piece, str)]


@pytest.mark.parametrize(
    ("name", "says"),
    [("nowhere:gpt", "Unknown"), ("openai-chat:gpt-4o", "OPENAI_API_KEY"), ("anthropic:x", "pip install")],
)
async def test_a_model_that_cannot_be_made_is_refused(name: str, says: str) -> None:
    """An unknown provider, a missing key and a missing package are refused with what is missing."""
    for how in ("complete", "stream"):
        error = await failure_of(ProviderModel(name), how)
        assert type(error) is ModelRefused
        assert says in str(error)
    with pytest.raises(ModelRefused, match="cannot be used"):
        async with ProviderModel(name).connect():
            pytest.fail("there is no such model")


@pytest.mark.parametrize(
    ("given", "kind"), [("gpt-5", Invalid), ("", Invalid), (3, WrongType), (None, WrongType)]
)
def test_a_name_without_a_provider_is_wrong(given: Any, kind: type[Exception]) -> None:
    """A model is `provider:model` or an object of pydantic-ai."""
    with pytest.raises(kind, match="model"):
        ProviderModel(given)


async def test_an_option_the_provider_does_not_take_is_wrong() -> None:
    """A provider whose address is said in another way does not silently go to its usual one."""
    with pytest.raises(Invalid, match="base_url is not supported by provider 'azure'"):
        await ProviderModel("azure:gpt", base_url="http://127.0.0.1:9/v1").complete(make_request())


def test_the_package_may_be_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pydantic-ai the error says what to install."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("pydantic_ai"):
            raise ImportError(name)
        return real(name, *rest)

    for name in [name for name in sys.modules if name.startswith("omoide.turns.provider")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"a provider's model needs .* 'omoide\[models\]'"):
        __import__("omoide.turns.provider")


MEANT = {
    ModelRefused: "UserError UndrainedPendingMessagesError ContentFilterError ModelQuotaExceededError "
    "ModelRequestRejectedError ModelContextWindowExceededError ModelAuthenticationError ModelNotFoundError "
    "ModelHTTPError",
    ModelOverloaded: "ModelRateLimitError ModelUnavailableError ModelOverloadedError ModelServerError "
    "ConcurrencyLimitExceeded",
    ModelTimedOut: "ModelTimeoutError ModelRequestTimeout RunTimedOut",
    ModelUnreachable: "ModelConnectionError",
    ModelMisbehaved: "ModelAPIError UnexpectedModelBehavior IncompleteToolCall",
    # What only agents and tools of pydantic-ai raise; a plain request never does.
    ModelFailed: "AgentRunError RunCancelled SuspendedResponseExpired UsageLimitExceeded ModelRetry "
    "ToolFailed CallDeferred ApprovalRequired SkipModelRequest RetryModelRequest "
    "SkipToolValidation SkipToolExecution ToolRetryError ToolFailedError",
}


def theirs() -> Iterator[type[Exception]]:
    other = (Warning, ExceptionGroup)
    for name, kind in vars(exceptions).items():
        is_error = isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, other)
        if is_error and name != "_CategorizedHTTPError":  # that is only ever raised as one of its subclasses
            yield kind


def test_every_error_of_theirs_has_a_meaning() -> None:
    """The map is total: a new error in pydantic-ai has to find its place in it."""
    expected = {name: kind for kind, names in MEANT.items() for name in names.split()}
    for kind in theirs():
        error = (OSError if issubclass(kind, OSError) else kind).__new__(kind)
        error.status_code = 418  # type: ignore[attr-defined]
        assert (kind.__name__, classify_error(error)[0]) == (kind.__name__, expected.get(kind.__name__))


def test_errors_from_below_have_a_meaning() -> None:
    """A broken network has its kind, the last of a group stands for all, and the rest is `ModelFailed`."""
    last = exceptions.ModelHTTPError(429, "local")
    several = exceptions.FallbackExceptionGroup("all failed", [OSError("no"), last])
    for error, kind in [
        (TimeoutError(), ModelTimedOut),
        (ConnectionResetError("gone"), ModelUnreachable),
        (several, ModelRefused),
        (KeyError("x"), ModelFailed),
    ]:
        assert type(to_model_error(error, "local")) is kind
    assert "no reason given" in str(to_model_error(TimeoutError(), "local"))
    assert len(str(to_model_error(OSError("x" * 5_000), "local"))) < 500
