"""Execute tools and convert their results to text.

Errors of a tool become its result: the model reads them, and the turn goes on. A tool that did its work never
fails because of the value it returned.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from base64 import b64encode
from collections.abc import Mapping
from contextvars import copy_context
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from functools import partial
from typing import Any

import msgspec
from anyio import current_effective_deadline, get_cancelled_exc_class, move_on_after, to_thread

from omoide import observe
from omoide.core.action import Action, Directive
from omoide.core.agent import Agent
from omoide.core.definition import apply_result
from omoide.core.identity import Identity
from omoide.core.memory import Memory
from omoide.core.state import SLOTS, Context
from omoide.core.thread import Thread
from omoide.errors import InvalidParams, NotFound, OmoideError
from omoide.turns.controls import TurnContext
from omoide.turns.prompt import Operation, ToolCall
from omoide.turns.spec import AgentSpec

DONE = "done"
MAX_DEPTH = 32


def result_text(result: Any) -> str:
    """Convert a result to text for a model: text as it is, data as JSON without empty fields."""
    if result is None or isinstance(result, (Agent, Identity, Memory, Thread)):
        return DONE
    if isinstance(result, str):
        return clean(result)
    try:
        return msgspec.json.encode(_to_plain(result, 0), order="sorted").decode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"It ran; its result cannot be shown ({type(error).__name__}: {clean(str(error))})."


def clean(text: str) -> str:
    """Replace characters that cannot be persisted: NUL and lone surrogates."""
    return text.replace("\0", "␀").encode(errors="replace").decode()


def _to_plain(value: Any, depth: int) -> Any:
    """Convert data to the types of JSON."""
    if depth > MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    match value:
        case None | bool() | int():
            return value
        case float():
            # JSON has neither NaN nor infinity.
            return value if value == value and abs(value) != float("inf") else str(value)
        case str():
            return clean(value)
        case Enum():
            return _to_plain(value.value, depth + 1)
        case datetime() | date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case Mapping():
            return {
                clean(str(key)): _to_plain(inner, depth + 1)
                for key, inner in value.items()
                # Slots hold the memory, thread and identity of an agent, which are not the result of a tool.
                if key not in SLOTS
            }
        case list() | tuple():
            return [_to_plain(inner, depth + 1) for inner in value]
        case set() | frozenset():
            return sorted((_to_plain(inner, depth + 1) for inner in value), key=msgspec.json.encode)
        case _:
            return _object_to_plain(value, depth)


def _object_to_plain(value: Any, depth: int) -> Any:
    if hasattr(value, "to_python"):
        return _to_plain(value.to_python(), depth + 1)
    if isinstance(value, msgspec.Struct):
        fields_of = {name: getattr(value, name) for name in value.__struct_fields__}
    elif hasattr(value, "model_dump"):
        fields_of = value.model_dump()
    elif is_dataclass(value) and not isinstance(value, type):
        fields_of = {field.name: getattr(value, field.name) for field in fields(value)}
    else:
        raise TypeError(f"{type(value).__name__} is not data")
    plain = {name: _to_plain(inner, depth + 1) for name, inner in fields_of.items()}
    return {name: inner for name, inner in plain.items() if inner not in (None, [], {}, "")}


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a tool call; that of a pure action includes the new agent."""

    ok: bool
    content: str
    agent: Agent | None = None
    directives: tuple[Directive, ...] = ()


def operations(spec: AgentSpec) -> tuple[Operation, ...]:
    """Return the tools of an agent in the form that models are offered."""
    actions = [spec.tool(name) for name in spec.tools]
    return tuple(
        Operation(name=action.name, description=action.description, schema=action.json_schema())
        for action in actions
    )


def find_action(spec: AgentSpec, call: ToolCall) -> Action | ToolOutcome:
    """Return the action of a call, or a failed outcome if there is none or its parameters are wrong."""
    if call.name not in spec.tools:
        known = ", ".join(spec.tools) or "no tools"
        return ToolOutcome(ok=False, content=f"There is no tool {call.name!r}. You have {known}.")
    if call.invalid is not None:
        return ToolOutcome(ok=False, content=f"The parameters of {call.name!r} are no JSON object.")
    try:
        action = spec.tool(call.name)
        action.check(call.params)
    except (InvalidParams, NotFound) as error:
        return ToolOutcome(ok=False, content=str(error))
    return action


def run_pure(action: Action, call: ToolCall, ctx: TurnContext) -> ToolOutcome:
    """Run a pure action and return its outcome with the new agent."""
    try:
        result = action.run(ctx, **action.check(call.params))
        agent, directives = apply_result(ctx.agent, result)
        # A pair is a result and its directives; the model reads the result only.
        answer = result[0] if isinstance(result, tuple) else result
        return ToolOutcome(ok=True, content=result_text(answer), agent=agent, directives=tuple(directives))
    except (Exception, asyncio.CancelledError) as error:  # nothing is awaited, so the action raised it itself
        return ToolOutcome(ok=False, content=_error_text(error))


async def run_effectful(action: Action, call: ToolCall, ctx: TurnContext, timeout_ms: int) -> ToolOutcome:
    """Run an effectful action with a timeout and return its outcome."""
    try:
        with (
            observe.span("execute_tool", name=action.name, tool_name=action.name, tool_call_id=call.id),
            move_on_after(timeout_ms / 1000),
        ):
            try:
                return ToolOutcome(
                    ok=True, content=result_text(await call_action(action, ctx, action.check(call.params)))
                )
            # Awaiting something that was cancelled raises what a cancellation of the turn raises.
            except get_cancelled_exc_class():
                if _is_cancelled():
                    raise
                return ToolOutcome(ok=False, content="Something that it waited for was cancelled.")
    except Exception as error:
        return ToolOutcome(ok=False, content=_error_text(error))
    late = f"It did not answer within {timeout_ms / 1000:g} s. It may or may not have taken effect."
    return ToolOutcome(ok=False, content=late)


def _is_cancelled() -> bool:
    """Return whether the turn itself is being cancelled, by a scope around it or by its task."""
    task = asyncio.current_task()
    return current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)


async def call_action(action: Action, ctx: Context, params: dict[str, Any]) -> Any:
    """Call an action: await it if it is async, run it in a thread otherwise."""
    if inspect.iscoroutinefunction(inspect.unwrap(action.run)):
        return await action.run(ctx, **params)
    call = partial(copy_context().run, partial(action.run, ctx, **params))
    # A thread cannot be stopped; abandoning it lets the timeout take effect.
    result = await to_thread.run_sync(call, abandon_on_cancel=True)
    return await result if inspect.isawaitable(result) else result


def _error_text(error: BaseException) -> str:
    """Return the text of an error for a model; errors of Omoide say what to do."""
    try:
        # `__str__` of a foreign exception may raise, too.
        text = str(error).strip()
    except Exception:
        text = ""
    if not isinstance(error, OmoideError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return clean(text)
