"""Models of providers, through pydantic-ai; a model is named as `provider:model`.

Errors of a provider's library are mapped to `ModelFailed` here, and nowhere else. A failure of the server
itself (500, 502, 504) is `ModelOverloaded`, since it is transient. A quota that is used up is `ModelRefused`,
since a retry does not help.

The retries of pydantic-ai are off, so one call here is one request there; ours are in `omoide.turns.model`.
Connections belong to the event loop that opened them, so each call opens its own and closes them;
`ProviderModel.connect` keeps them open for several calls.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Any, cast

from omoide.errors import (
    Invalid,
    MissingExtra,
    ModelFailed,
    ModelMisbehaved,
    ModelOverloaded,
    ModelRefused,
    ModelTimedOut,
    ModelUnreachable,
    OmoideError,
    WrongType,
)

try:
    from pydantic_ai import direct, messages, models, providers
    from pydantic_ai.exceptions import UserError
except ImportError as error:
    raise MissingExtra("a provider's model", "models") from error

import anyio
import httpx2
import msgspec
from pydantic_ai import exceptions
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from omoide.core.frozen import check_text, thaw
from omoide.turns.model import Reply, Request
from omoide.turns.prompt import Message, Operation, Prompt, ToolCall, Usage

# Errors

ErrorMapping = tuple[type[ModelFailed], str, str]

RETRY_LATER = "try again later"
OVERLOADED: ErrorMapping = (ModelOverloaded, "is unavailable", RETRY_LATER)
TIMED_OUT: ErrorMapping = (ModelTimedOut, "took too long", "try again, or allow it more time")
UNREACHABLE: ErrorMapping = (
    ModelUnreachable,
    "cannot be reached, or the connection broke",
    "check the network and base_url, then try again",
)
UNREADABLE: ErrorMapping = (ModelMisbehaved, "gave an unreadable answer", "see the cause")
REJECTED: ErrorMapping = (ModelRefused, "rejected the request", "correct what the cause names")
UNUSABLE: ErrorMapping = (
    ModelRefused,
    "cannot be used",
    "check its name, the provider's package and its key",
)
UNKNOWN: ErrorMapping = (ModelFailed, "failed", "see the cause")

ERROR_MAPPINGS: tuple[tuple[type[Exception], ErrorMapping], ...] = (
    (exceptions.ModelAuthenticationError, (ModelRefused, "rejected the API key", "check the key")),
    (
        exceptions.ModelNotFoundError,
        (ModelRefused, "does not exist at the provider", "check its name and base_url"),
    ),
    (
        exceptions.ModelContextWindowExceededError,
        (ModelRefused, "has too small a context window for the request", "lower window.max_tokens"),
    ),
    (exceptions.ModelRequestRejectedError, REJECTED),
    (exceptions.ModelQuotaExceededError, (ModelRefused, "has no quota left", "check the account")),
    (exceptions.ModelRateLimitError, (ModelOverloaded, "is over its rate limit", RETRY_LATER)),
    (exceptions.ModelUnavailableError, OVERLOADED),
    (exceptions.ModelServerError, (ModelOverloaded, "failed on the provider's side", RETRY_LATER)),
    (exceptions.ModelTimeoutError, TIMED_OUT),
    (exceptions.ModelRequestTimeout, TIMED_OUT),
    (exceptions.ModelConnectionError, UNREACHABLE),
    # The base class of the rows above, so it comes after them.
    (exceptions.ModelAPIError, UNREADABLE),
    (exceptions.ContentFilterError, (ModelRefused, "filtered the content", "rephrase it")),
    (exceptions.UnexpectedModelBehavior, UNREADABLE),
    (exceptions.ConcurrencyLimitExceeded, OVERLOADED),
    (exceptions.RunTimedOut, TIMED_OUT),
    (exceptions.UserError, UNUSABLE),
    (httpx2.TimeoutException, TIMED_OUT),
    (httpx2.TransportError, UNREACHABLE),
    # A subclass of OSError, so it comes before it.
    (TimeoutError, TIMED_OUT),
    (OSError, UNREACHABLE),
    (ImportError, UNUSABLE),
)
"""The error class, problem and remedy for each foreign error; the first row that matches is used."""

RETRYABLE_STATUSES = frozenset({408, 409, 425})
"""Statuses that can be retried and have no category of their own."""

_INSTALL = re.compile(r'pip install "?[\w.\[\]-]+"?')


@contextmanager
def map_provider_errors(model: str) -> Iterator[None]:
    """Map every exception of the block to `ModelFailed`, except errors of Omoide."""
    try:
        yield
    except OmoideError:
        raise
    except Exception as error:
        raise to_model_error(error, model) from error


def to_model_error(error: Exception, model: str) -> ModelFailed:
    """Convert an error of a provider's library."""
    if isinstance(error, ExceptionGroup):  # all models of a fallback failed; the last one decides
        return to_model_error(error.exceptions[-1], model)
    kind, problem, remedy = classify_error(error)
    wait = error.retry_after if isinstance(error, exceptions.ModelAPIError) else None
    if remedy == RETRY_LATER and wait is not None:
        remedy = f"try again in {wait:.0f} s"
    elif isinstance(error, ImportError) and (install := _INSTALL.search(str(error))):
        remedy = install.group()
    return kind(model, f"{problem} ({_error_text(error)})", remedy, retry_after=wait)


def classify_error(error: Exception) -> ErrorMapping:
    """Return the error class, the problem and the remedy for an error."""
    if type(error) is exceptions.ModelHTTPError:  # it would be of a subclass if its status had a category
        return OVERLOADED if error.status_code in RETRYABLE_STATUSES else REJECTED
    return next((mapping for kind, mapping in ERROR_MAPPINGS if isinstance(error, kind)), UNKNOWN)


def _error_text(error: Exception) -> str:
    words = " ".join(str(error).split()) or "no reason given"
    words = words if len(words) <= 300 else f"{words[:300]}…"
    known = isinstance(error, (exceptions.AgentRunError, exceptions.UserError))
    return words if known else f"{type(error).__name__}: {words}"


# Requests and replies

MAX_TOOL_NAME_LENGTH = 64  # the longest name of a tool that every provider takes
_INVALID_NAME_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


class ProviderRequest:
    """A prompt in the types of pydantic-ai, for one model."""

    def __init__(self, prompt: Prompt, model: Model) -> None:
        self._tool_names = provider_tool_names(prompt.operations)
        self.messages = self._messages(prompt.messages)
        self.settings = _settings(prompt.generation, model)
        self.parameters = ModelRequestParameters(
            function_tools=[self._tool(operation) for operation in prompt.operations],
            **_output(prompt.result, model),
        )

    def to_reply(self, response: ModelResponse, model: str) -> Reply:
        """Convert the response of the model."""
        if response.finish_reason == "content_filter":
            reason = (response.provider_details or {}).get("refusal") or "it gives no reason"
            raise ModelRefused(model, f"filtered the answer ({reason})", "rephrase it")
        names = {provider_name: name for name, provider_name in self._tool_names.items()}
        try:
            return Reply(
                content="".join(part.content for part in response.parts if isinstance(part, TextPart)),
                calls=tuple(_to_tool_call(part, names) for part in response.tool_calls),
                usage=Usage(
                    input_tokens=response.usage.input_tokens,
                    output_tokens=response.usage.output_tokens,
                    requests=1,
                ),
                model=response.model_name,
                native=response,
            )
        except Invalid as error:
            problem = f"gave an answer that cannot be stored ({error})"
            raise ModelMisbehaved(model, problem, "ask it again") from error

    def _messages(self, messages: Sequence[Message]) -> list[ModelMessage]:
        """Convert messages; those between two answers of the model become one request."""
        converted: list[ModelMessage] = []
        parts: list[ModelRequestPart] = []
        for message in messages:
            if message.role != "assistant":
                parts.append(self._part(message))
                continue
            if parts:
                converted.append(ModelRequest(parts=parts))
                parts = []
            converted.append(self._response(message))
        return [*converted, ModelRequest(parts=parts)] if parts else converted

    def _part(self, message: Message) -> ModelRequestPart:
        match message.role:
            case "system":
                return SystemPromptPart(content=message.content)
            case "tool":
                return ToolReturnPart(
                    tool_name=self._tool_name(message.name or ""),
                    content=message.content,
                    tool_call_id=message.call_id or "",
                )
            case _:
                return UserPromptPart(content=message.content)

    def _response(self, message: Message) -> ModelResponse:
        if isinstance(message.native, ModelResponse):
            return message.native  # it holds what only the provider understands, such as signed thoughts
        parts: list[ModelResponsePart] = [TextPart(content=message.content)] if message.content else []
        parts.extend(
            ToolCallPart(
                tool_name=self._tool_name(call.name),
                args=thaw(call.params) if call.invalid is None else call.invalid,
                tool_call_id=call.id,
            )
            for call in message.calls
        )
        return ModelResponse(parts=parts)

    def _tool(self, operation: Operation) -> ToolDefinition:
        return ToolDefinition(
            name=self._tool_name(operation.name),
            description=operation.description or None,
            parameters_json_schema=thaw(operation.schema) or {"type": "object", "properties": {}},
        )

    def _tool_name(self, name: str) -> str:
        return self._tool_names.get(name) or _provider_tool_name(name)


def provider_tool_names(operations: Iterable[Operation]) -> dict[str, str]:
    """Return a name for each tool that providers accept: without dots, and at most 64 characters."""
    names: dict[str, str] = {}
    # Names that need no change come first, so that no other tool gets one of them.
    for name in sorted(
        {one.name for one in operations}, key=lambda name: (name != _provider_tool_name(name), name)
    ):
        provider_name, taken = _provider_tool_name(name), set(names.values())
        number = 2
        while provider_name in taken:
            suffix = f"_{number}"
            provider_name = _provider_tool_name(name)[: MAX_TOOL_NAME_LENGTH - len(suffix)] + suffix
            number += 1
        names[name] = provider_name
    return names


def _provider_tool_name(name: str) -> str:
    return _INVALID_NAME_CHARACTER.sub("_", name)[:MAX_TOOL_NAME_LENGTH]


def _settings(generation: Mapping[str, Any], model: Model) -> ModelSettings:
    settings = {key: thaw(value) for key, value in generation.items() if value is not None}
    stop = settings.pop("stop", None)
    if stop is not None:
        settings["stop_sequences"] = [stop] if isinstance(stop, str) else list(stop)
    if "max_retries" in model.unsupported_settings:  # its library does not try again, and would warn
        settings.pop("max_retries", None)
    else:
        settings["max_retries"] = 0
    return cast("ModelSettings", settings)


def _output(schema: Mapping[str, Any] | None, model: Model) -> dict[str, Any]:
    if schema is None:
        return {}
    # `prompted` puts the schema into the request as text, for providers without native support.
    native = model.profile.get("supports_json_schema_output", False)
    output = OutputObjectDefinition(json_schema=thaw(schema), name="result")
    return {"output_mode": "native" if native else "prompted", "output_object": output}


def _to_tool_call(part: ToolCallPart, names: Mapping[str, str]) -> ToolCall:
    name = names.get(part.tool_name, part.tool_name)
    args = part.args or {}
    try:
        params = msgspec.json.decode(args) if isinstance(args, str) else args
        if isinstance(params, dict):
            return ToolCall(id=part.tool_call_id, name=name, params=params)
    except (Invalid, msgspec.DecodeError, RecursionError):
        pass  # an invalid id or name is raised below
    invalid = args if isinstance(args, str) else part.args_as_json_str()
    return ToolCall(id=part.tool_call_id, name=name, invalid=invalid)


# The model

PLACEHOLDER_KEY = "no-key"
"""The key that is sent to a `base_url` without an `api_key`."""

CLOSE_TIMEOUT = 5.0
"""Seconds that closing a connection may take, also while the call is cancelled."""


class ProviderModel:
    """A model of a provider: `provider:model`, or a model that pydantic-ai made.

    With `base_url` the request goes to any server that speaks the provider's protocol, with the `api_key`
    given here, or none. Otherwise the key comes from the provider's environment variable.
    """

    def __init__(
        self, model: str | models.Model, *, base_url: str | None = None, api_key: str | None = None
    ) -> None:
        if isinstance(model, models.Model):
            self.name = model.model_id
        elif isinstance(model, str):
            self.name = check_text(model, "model")
            if ":" not in model and model != "test":
                raise Invalid("model", f"is {model!r}", f"name its provider, as in openai-chat:{model}")
        else:
            raise WrongType("model", "a name like provider:model, or a model of pydantic-ai", model)
        self._model = model
        options = {"base_url": base_url, "api_key": api_key}
        self._options = {option: given for option, given in options.items() if given is not None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def complete(self, request: Request) -> Reply:
        """Return the reply in one piece."""
        with map_provider_errors(self.name):
            async with self._open_model() as model:
                provider_request = ProviderRequest(request.prompt, model)
                response = await direct.model_request(
                    model,
                    provider_request.messages,
                    model_settings=provider_request.settings,
                    model_request_parameters=provider_request.parameters,
                )
            return provider_request.to_reply(response, self.name)

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """Yield pieces of text as they arrive, and the whole reply last."""
        with map_provider_errors(self.name):
            async with self._open_model() as model:
                provider_request = ProviderRequest(request.prompt, model)
                async with direct.model_request_stream(
                    model,
                    provider_request.messages,
                    model_settings=provider_request.settings,
                    model_request_parameters=provider_request.parameters,
                ) as events:
                    async for event in events:
                        if piece := _text_delta(event):
                            yield piece
                response = events.get()
            if response.state == "incomplete":
                raise ModelUnreachable(self.name, "broke off in its answer", "try again")
            reply = provider_request.to_reply(response, self.name)
        # After the connection is closed, so that a reader that stops here leaves none open.
        yield reply

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[ProviderModel]:
        """Return this model on connections that stay open inside the block, for several requests."""
        # Only opening is mapped: an error of the block is not one of the provider.
        with map_provider_errors(self.name):
            opened = self._open_model()
            model = await opened.__aenter__()
        try:
            connected = ProviderModel(model)
            connected.name = self.name
            yield connected
        finally:
            await opened.__aexit__(None, None, None)

    @asynccontextmanager
    async def _open_model(self) -> AsyncIterator[models.Model]:
        model = self._build_model()
        await model.__aenter__()
        try:
            yield model
        finally:
            # Also while the call is cancelled: without the shield, the lock in there could not be acquired.
            with anyio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await model.__aexit__(None, None, None)

    def _build_model(self) -> models.Model:
        if not self._options or isinstance(self._model, models.Model):
            return models.infer_model(self._model)
        return models.infer_model(self._model, self._build_provider)

    def _build_provider(self, name: str) -> providers.Provider[Any]:
        make = _provider_factory(name)
        parameters = inspect.signature(make).parameters
        for option in self._options:
            if option not in parameters:
                raise Invalid(
                    option, f"is not supported by provider {name!r}", "pass a model that pydantic-ai made"
                )
        # The key of the environment is for the provider, and must not be sent to the server of a spec.
        key = {"api_key": PLACEHOLDER_KEY} if "api_key" in parameters else {}
        provider = make(**{**key, **self._options})
        if "base_url" in self._options:
            _withhold_environment(provider.client, self._options.get("api_key"))
        return provider


def _withhold_environment(client: Any, api_key: str | None) -> None:
    """Keep what a provider's library reads from the environment out of the requests of its client.

    Such are names of an organisation and a project, tokens, and headers for all requests. They are removed
    from each request, because copies of the client read them again.
    """
    http_client: Any = getattr(client, "_client", None)
    if not hasattr(http_client, "event_hooks"):
        return

    async def remove_headers(request: Any) -> None:
        values = {value for value in os.environ.values() if value != api_key}
        custom = {
            line.partition(":")[0].strip().lower()
            for variable, lines in os.environ.items()
            if variable.endswith("_CUSTOM_HEADERS")
            for line in lines.splitlines()
        }
        for name, value in list(request.headers.items()):
            if name in _OWN_HEADERS:
                continue
            if name.lower() in custom or value in values or value.rpartition(" ")[2] in values:
                del request.headers[name]

    http_client.event_hooks = {
        **http_client.event_hooks,
        "request": [*http_client.event_hooks.get("request", ()), remove_headers],
    }


_OWN_HEADERS = frozenset(
    ("host", "connection", "content-length", "content-type", "accept", "accept-encoding")
)
"""Headers of the request itself."""


def _provider_factory(name: str) -> Callable[..., providers.Provider[Any]]:
    if name.startswith("gateway/"):
        from pydantic_ai.providers.gateway import gateway_provider

        return partial(gateway_provider, name.removeprefix("gateway/"))
    try:
        return providers.infer_provider_class(name)
    except ValueError as error:
        raise UserError(f"Unknown provider: {name}") from error


def _text_delta(event: messages.ModelResponseStreamEvent) -> str:
    match event:
        case messages.PartStartEvent(part=messages.TextPart(content=text)):
            return text
        case messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""
