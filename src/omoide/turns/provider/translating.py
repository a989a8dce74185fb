"""How is a prompt said to a provider, and its answer understood?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
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

from omoide.core.frozen import thaw
from omoide.errors import Invalid, ModelMisbehaved, ModelRefused
from omoide.turns.messages import Message, ToolCall, Usage
from omoide.turns.model import Reply
from omoide.turns.prompt import Operation, Prompt

NAME_LENGTH = 64  # the longest name of a tool that every provider takes
_UNSPEAKABLE = re.compile(r"[^A-Za-z0-9_-]")


class Translation:
    """A prompt in the words of pydantic-ai, for one model."""

    def __init__(self, prompt: Prompt, model: Model) -> None:
        self._spoken = spoken_names(prompt.operations)
        self.messages = self._messages(prompt.messages)
        self.settings = _settings(prompt.generation, model)
        self.parameters = ModelRequestParameters(
            function_tools=[self._tool(operation) for operation in prompt.operations],
            **_output(prompt.result, model),
        )

    def reply(self, response: ModelResponse, model: str) -> Reply:
        """The answer of the model, as one of ours."""
        if response.finish_reason == "content_filter":
            said = (response.provider_details or {}).get("refusal") or "it gives no reason"
            raise ModelRefused(model, f"did not let the answer pass ({said})", "say it in another way")
        meant = {spoken: name for name, spoken in self._spoken.items()}
        try:
            return Reply(
                content="".join(part.content for part in response.parts if isinstance(part, TextPart)),
                calls=tuple(_call(part, meant) for part in response.tool_calls),
                usage=Usage(
                    input_tokens=response.usage.input_tokens,
                    output_tokens=response.usage.output_tokens,
                    requests=1,
                ),
                model=response.model_name,
                native=response,
            )
        except Invalid as error:
            problem = f"gave an answer that cannot be kept ({error})"
            raise ModelMisbehaved(model, problem, "ask it again") from error

    def _messages(self, said: Sequence[Message]) -> list[ModelMessage]:
        """What was said, with all that comes between two answers of the model in one request."""
        found: list[ModelMessage] = []
        parts: list[ModelRequestPart] = []
        for message in said:
            if message.role != "assistant":
                parts.append(self._part(message))
                continue
            if parts:
                found.append(ModelRequest(parts=parts))
                parts = []
            found.append(self._answer(message))
        return [*found, ModelRequest(parts=parts)] if parts else found

    def _part(self, message: Message) -> ModelRequestPart:
        match message.role:
            case "system":
                return SystemPromptPart(content=message.content)
            case "tool":
                return ToolReturnPart(
                    tool_name=self._speak(message.name or ""),
                    content=message.content,
                    tool_call_id=message.call_id or "",
                )
            case _:
                return UserPromptPart(content=message.content)

    def _answer(self, message: Message) -> ModelResponse:
        if isinstance(message.native, ModelResponse):
            return message.native  # it holds what only the provider understands, such as signed thoughts
        parts: list[ModelResponsePart] = [TextPart(content=message.content)] if message.content else []
        parts.extend(
            ToolCallPart(
                tool_name=self._speak(call.name),
                args=thaw(call.params) if call.invalid is None else call.invalid,
                tool_call_id=call.id,
            )
            for call in message.calls
        )
        return ModelResponse(parts=parts)

    def _tool(self, operation: Operation) -> ToolDefinition:
        return ToolDefinition(
            name=self._speak(operation.name),
            description=operation.description or None,
            parameters_json_schema=thaw(operation.schema) or {"type": "object", "properties": {}},
        )

    def _speak(self, name: str) -> str:
        return self._spoken.get(name) or _spoken(name)


def spoken_names(operations: Iterable[Operation]) -> dict[str, str]:
    """A name for each tool that providers take: theirs have no dots, and no more than 64 characters."""
    found: dict[str, str] = {}
    # A name that can be said as it is comes first, so that no other one takes its place.
    for name in sorted({one.name for one in operations}, key=lambda name: (name != _spoken(name), name)):
        spoken, others = _spoken(name), set(found.values())
        number = 2
        while spoken in others:
            ending = f"_{number}"
            spoken = _spoken(name)[: NAME_LENGTH - len(ending)] + ending
            number += 1
        found[name] = spoken
    return found


def _spoken(name: str) -> str:
    return _UNSPEAKABLE.sub("_", name)[:NAME_LENGTH]


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
    native = model.profile.get("supports_json_schema_output", False)
    wanted = OutputObjectDefinition(json_schema=thaw(schema), name="result")
    return {"output_mode": "native" if native else "prompted", "output_object": wanted}


def _call(part: ToolCallPart, meant: Mapping[str, str]) -> ToolCall:
    name = meant.get(part.tool_name, part.tool_name)
    given = part.args or {}
    try:
        params = msgspec.json.decode(given) if isinstance(given, str) else given
        if isinstance(params, dict):
            return ToolCall(id=part.tool_call_id, name=name, params=params)
    except (Invalid, msgspec.DecodeError, RecursionError):
        pass  # where it is the id or the name that is wrong, it is so below as well
    wrong = given if isinstance(given, str) else part.args_as_json_str()
    return ToolCall(id=part.tool_call_id, name=name, invalid=wrong)
