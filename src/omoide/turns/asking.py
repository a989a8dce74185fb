"""How is the model asked, in the course of a turn?"""

from __future__ import annotations

from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, Self

from omoide import observe
from omoide.errors import ModelMisbehaved
from omoide.turns.calling import ask
from omoide.turns.context import TurnContext
from omoide.turns.messages import Message, ToolCall
from omoide.turns.model import Connects, Model, Reply, Request
from omoide.turns.progress import Progress
from omoide.turns.prompt import Prompt
from omoide.turns.window import clipped


class Asking:
    """A model for the length of a turn: one connection serves all its rounds."""

    def __init__(self, turn: Progress) -> None:
        self._turn = turn
        self._open = AsyncExitStack()
        self._model: Model | None = None

    async def __aenter__(self) -> Self:
        await self._open.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.__aexit__(kind, error, trace)

    async def reply(self, model: Model, prompt: Prompt, round: int) -> Reply:
        """What the model says to a prompt."""
        turn, world = self._turn, self._turn.world
        name = world.model_name
        await turn.tell("model_called", model=name, round=round)
        with observe.span("chat", name=name, **_about(name, turn.asked.session_id)) as span:
            reply = await ask(
                await self._connected(model),
                self._request(prompt, round),
                retries=world.spec.limits.retries,
                timeout_ms=world.spec.limits.model_timeout_ms,
                on_text=partial(self._streamed, round) if world.streaming and not world.watched else None,
                on_retry=self._retried,
            )
            span.set(
                response_model=reply.model,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
                input_messages=lambda: [_told(one) for one in prompt.messages],
                output_messages=lambda: [_told(_message(reply))],
            )
        if not reply.content.strip() and not reply.calls:
            raise ModelMisbehaved(name or "model", "answered with nothing", "try again")
        await turn.tell("model_replied", round=round, calls=len(reply.calls), model=reply.model)
        return self._named(reply if reply.usage.requests else _counted(reply))

    async def _connected(self, model: Model) -> Model:
        if self._model is None:
            self._model = model
            if isinstance(model, Connects):
                self._model = await self._open.enter_async_context(model.connected())
        return self._model

    def _request(self, prompt: Prompt, round: int) -> Request:
        turn = self._turn
        return Request(
            prompt=prompt,
            request_id=turn.asked.id,
            agent_id=turn.world.spec.id,
            session_id=turn.asked.session_id,
            round=round,
            journal=turn.journal,
            context=TurnContext(turn.agent, turn.asked, data=turn.world.data),  # secrets are for tools
        )

    async def _streamed(self, round: int, piece: str) -> None:
        await self._turn.tell("text", text=piece, round=round)

    async def _retried(self, error: Exception, attempt: int, wait: float) -> None:
        await self._turn.tell("model_retried", error=type(error).__name__, attempt=attempt, wait_s=wait)

    def _named(self, reply: Reply) -> Reply:
        """The reply with an id of its own for each call, whatever the provider gave."""
        done, world = self._turn.done, self._turn.world
        taken = {*done.began, *done.ended}
        calls: list[ToolCall] = []
        for call in reply.calls:
            if call.invalid is not None:
                room = world.spec.limits.max_observation_tokens
                call = call.replace(invalid=clipped(call.invalid, room, world.count))
            if call.id in taken:
                call = ToolCall.new(call.name, call.params).replace(invalid=call.invalid)
            taken.add(call.id)
            calls.append(call)
        same = all(new is old for new, old in zip(calls, reply.calls, strict=True))
        return reply if same else reply.replace(calls=tuple(calls), native=None)


def _counted(reply: Reply) -> Reply:
    return reply.replace(usage=reply.usage.replace(requests=1))


def _about(model: str | None, session_id: str | None) -> Any:
    """What a span says of a model: the provider and the name that the provider knows."""
    provider, _, name = (model or "").rpartition(":")
    return {
        "request_model": name or None,
        "provider_name": provider or None,
        "conversation_id": session_id,
    }


def _message(reply: Reply) -> Message:
    return Message(role="assistant", content=reply.content, calls=reply.calls)


def _told(message: Message) -> dict[str, Any]:
    """A message in the form of the conventions for spans."""
    parts: list[dict[str, Any]] = []
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.call_id, "response": message.content})
    elif message.content:
        parts.append({"type": "text", "content": message.content})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.params.to_python()}
        for call in message.calls
    ]
    return {"role": message.role, "parts": parts}
