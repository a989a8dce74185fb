"""Aliases and memory directives.

One result, whatever the provider does: answers, fails for some of the keys, raises, hangs or talks nonsense.

The program says which providers there are. An agent's memory may choose among them, with
`world.pointers[alias] = {"provider": word, …}`, and narrow what it asks of one; it can never name a file or
an address, since a model may have written what stands there.

Requests to one provider are served one after the other, in the order of the directives, because each hands
its state to the next; different providers are asked at the same time. Each request is answered by exactly
one signal, also when the agent begins another life meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from enum import Enum
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from anyio import move_on_after

from omoide import ids, memory
from omoide.core.action import MEMORY_RESULT, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.core.agent import Agent
from omoide.core.entry import Scope
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenMap, check_text, freeze_map
from omoide.core.memory import Space
from omoide.core.signal import Signal
from omoide.core.state import MEMORY
from omoide.errors import Invalid, NotFound, OmoideError, WrongType
from omoide.runtime.providers.backends import InlineProvider, StoreProvider, TableProvider
from omoide.runtime.providers.protocol import (
    CallFailure,
    Outcome,
    Provider,
    ProviderFailure,
    ProviderResult,
    QueryableProvider,
    call_operation,
    call_provider,
    check_key,
    error_reason,
    reason_text,
)
from omoide.stores.protocols import Store

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer


# operating: What becomes of a memory directive?


MemoryDirective = MemoryQuery | MemoryUpsert | MemoryDelete

IDENTITY_OPTIONS = ("agent_id", "alias")
"""Options that say who asks: a directive cannot give them."""


class Unopened(Enum):
    """The state of a provider that was not initialised yet."""

    UNOPENED = "unopened"


UNOPENED: Final = Unopened.UNOPENED


class BatchStep(NamedTuple):
    """One operation of a batch: a key, the method, its arguments, and what else the method is told."""

    key: object
    method: str
    args: tuple[Any, ...] = ()
    opts: Mapping[str, Any] = EMPTY_MAP


class OperationResult(NamedTuple):
    """What came of a directive."""

    error: str | None = None
    result: Any = EMPTY_LIST
    details: list[dict[str, Any]] | None = None


async def execute_directive(
    directive: MemoryDirective,
    provider: Any,
    state: Any,
    opts: Mapping[str, Any],
    *,
    timeout: float | None = None,
) -> tuple[Any, dict[str, Any]]:
    """The provider's new state, and the data of the result; nothing is raised but cancellation.

    `state` is the one that came back last time, or `UNOPENED`. Options of the directive are told to the
    provider, too, but never in place of one of `opts`, nor of who asks.
    """
    began = monotonic()
    work = _DirectiveExecution(provider, state, timeout)
    told = {
        name: value for name, value in directive.opts.items() if name not in (*IDENTITY_OPTIONS, "embedding")
    }
    told.update(opts)
    if isinstance(directive, MemoryQuery):
        done = await work.query(directive.query, told, opts)
    elif isinstance(directive, MemoryUpsert):
        done = await work.batch([_put_step(item) for item in directive.items], told, opts)
    else:
        done = await work.batch([BatchStep(key, "delete") for key in directive.keys], told, opts)
    return work.state, _result_data(directive, provider_name(provider), done, began)


def refusal_data(directive: MemoryDirective, reason: str, *, provider: str | None = None) -> dict[str, Any]:
    """The data of the result where there is no provider to ask."""
    return _result_data(
        directive, provider or directive.provider, OperationResult(reason_text(reason)), monotonic()
    )


def provider_name(provider: Any) -> str:
    """What a provider is called in results."""
    name = getattr(provider, "name", None)
    return reason_text(name) if isinstance(name, str) and name else type(provider).__name__


class _DirectiveExecution:
    """A provider at work on one directive; it keeps the last state that came back."""

    def __init__(self, provider: Any, state: Any, timeout: float | None) -> None:
        self.state = state
        self._provider = provider
        self._timeout = timeout

    async def query(
        self, query: Any, merged_opts: Mapping[str, Any], opts: Mapping[str, Any]
    ) -> OperationResult:
        """Ask a question."""
        if not isinstance(self._provider, QueryableProvider):
            return OperationResult("query not supported")
        with move_on_after(self._timeout):
            reason = await self._initialize(opts)
            if reason is not None:
                return OperationResult(reason)
            answer = await self._call("query", query, merged_opts)
            return (
                OperationResult(answer.reason)
                if isinstance(answer, ProviderFailure)
                else _query_result(answer.value)
            )
        return OperationResult(self._timeout_reason)

    async def batch(
        self, steps: Sequence[BatchStep], merged_opts: Mapping[str, Any], opts: Mapping[str, Any]
    ) -> OperationResult:
        """Try every step, whatever became of those before it."""
        reasons: list[str | None] = []
        failed: str | None = self._timeout_reason
        with move_on_after(self._timeout):
            failed = await self._initialize(opts)
            for step in steps if failed is None else ():
                reasons += [await self._run_step(step, merged_opts)]
        late = len(steps) - len(reasons)
        reasons += [failed or self._timeout_reason] * late
        details = [_detail(step.key, reason) for step, reason in zip(steps, reasons, strict=True)]
        wrong = [reason for reason in reasons if reason is not None]
        if failed is not None or not wrong:
            return OperationResult(failed, details=details)
        return OperationResult(
            reason_text(f"{len(wrong)} of {len(steps)} failed: {wrong[0]}"), details=details
        )

    async def _run_step(self, step: BatchStep, merged_opts: Mapping[str, Any]) -> str | None:
        """Why a step failed, if it did."""
        try:
            key = check_key(step.key)
        except Invalid as error:
            return error_reason(error)
        answer = await self._call(step.method, key, *step.args, {**merged_opts, **step.opts})
        return answer.reason if isinstance(answer, ProviderFailure) else None

    async def _call(self, method: str, *args: Any) -> Outcome:
        answer = await call_operation(self._provider, method, self.state, *args)
        self.state = answer.state
        return answer

    async def _initialize(self, opts: Mapping[str, Any]) -> str | None:
        """Why a provider could not be initialised, where it still had to be."""
        if self.state is not UNOPENED:
            return None
        made = await call_provider(self._provider, "init", opts)
        if isinstance(made, (CallFailure, ProviderFailure)):
            return reason_text(f"could not be opened ({reason_text(made.reason)})")
        self.state = made.state if isinstance(made, ProviderResult) else made
        return None

    @property
    def _timeout_reason(self) -> str:
        return f"timed out after {self._timeout or 0:g} s"


def _put_step(item: Mapping[str, Any]) -> BatchStep:
    given = {} if item.get("embedding") is None else {"embedding": item["embedding"]}
    return BatchStep(item["key"], "put", (item["value"],), given)


def _detail(key: object, reason: str | None) -> dict[str, Any]:
    shown = reason_text(key) if isinstance(key, str) else type(key).__name__
    told = {"key": shown, "status": "ok" if reason is None else "error"}
    return told if reason is None else {**told, "error": reason}


def _query_result(found: Any) -> OperationResult:
    """The answer to a question, if it is one that a signal can carry."""
    try:
        if isinstance(found, (str, bytes)) or not isinstance(found, Sequence):
            return OperationResult(f"query gave {type(found).__name__}, not a list")
        held = Signal(type=MEMORY_RESULT, id="result", time=None, data={"result": found}).data["result"]
    except Exception as error:
        return OperationResult(reason_text(f"query gave what cannot be kept ({error_reason(error)})"))
    for at, item in enumerate(held):
        if not isinstance(item, Mapping):
            return OperationResult(f"query gave {type(item).__name__} at [{at}], not a mapping")
    return OperationResult(result=held)


def _result_data(
    directive: MemoryDirective, provider: str, done: OperationResult, began: float
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "request_id": directive.request_id,
        "status": "ok" if done.error is None else "error",
        "result": done.result,
        "meta": {"provider": provider, "latency_ms": max(0, int((monotonic() - began) * 1000))},
    }
    if done.error is not None:
        data["error"] = done.error
    if done.details is not None:
        data["details"] = done.details
    return data


# resolving: Which provider does an agent mean by an alias?


_STORE_OPTIONS = ("type", "tags", "name")


class ResolvedProvider(msgspec.Struct, frozen=True):
    """A provider, and what it is told with every operation."""

    alias: str
    provider: Any
    opts: FrozenMap[str, Any] = EMPTY_MAP


class _ConfiguredProvider(NamedTuple):
    provider: Any
    opts: FrozenMap[str, Any] = EMPTY_MAP


class Providers:
    """The providers of a program, by their aliases, beside `inline`, `table`, and `store` where there is one.

    Each value is a provider, one of these words, a store or its URL, or a pair of one of them and options.
    What a URL names is opened by `open`, or when it is first needed, and closed by `close`.
    """

    def __init__(self, configured: Mapping[str, Any] = EMPTY_MAP, *, store: Store | None = None) -> None:
        if not isinstance(configured, Mapping):
            raise WrongType("providers", "a mapping from aliases to providers", configured)
        self._built_in: dict[str, Any] = {"inline": InlineProvider(), "table": TableProvider()}
        self._store = store
        if store is not None:
            self._built_in["store"] = StoreProvider(store)
        self._by_alias = {
            check_text(alias, "alias"): self._parse_config(value, f"providers[{alias!r}]")
            for alias, value in configured.items()
        }

    def resolve(self, alias: str, agent: Agent) -> ResolvedProvider:
        """The provider that an agent means; options that were configured count more than its own."""
        pointer = self._pointer(alias, agent)
        word = pointer.get("provider", alias)
        found = self._find(word)
        if found is None:
            raise NotFound(
                "memory provider", str(word)[:80], f"use one of {', '.join(self.available_names())}"
            )
        own = {name: value for name, value in pointer.items() if name != "provider"}
        opts = {**own, **found.opts, "agent_id": agent.id, "alias": alias}
        return ResolvedProvider(alias, found.provider, freeze_map(opts, "opts"))

    def available_names(self) -> list[str]:
        """What a pointer may name."""
        return sorted({*self._built_in, *self._by_alias, *self._by_unique_name()})

    async def open(self) -> None:
        """Open every store that is named by a URL; all of them, or none."""
        async with AsyncExitStack() as opened:
            for provider in self._store_providers():
                await provider.open()
                opened.push_async_callback(provider.close)
            opened.pop_all()

    async def close(self) -> None:
        """Close what was opened here."""
        async with AsyncExitStack() as closing:
            for provider in self._store_providers():
                closing.push_async_callback(provider.close)

    def _parse_config(self, value: Any, field: str) -> _ConfiguredProvider:
        opts: Mapping[str, Any] = EMPTY_MAP
        if isinstance(value, tuple):
            if len(value) != 2:
                raise Invalid(field, f"is a tuple of {len(value)}", "pass (provider, options)")
            value, opts = value[0], freeze_map(value[1], f"{field}[1]")
        if isinstance(value, str) and "://" not in value and value != "store":
            if value not in self._built_in:
                raise Invalid(field, f"is {value!r}", "use inline, table, store, a URL or a provider")
            return _ConfiguredProvider(self._built_in[value], freeze_map(opts))
        if value == "store" and self._store is None:
            raise Invalid(field, "is the store of the runtime, which has none", "give the runtime a store")
        if isinstance(value, Provider):
            return _ConfiguredProvider(value, freeze_map(opts))
        if isinstance(value, (str, Store)):
            return _configure_store(self._store if value == "store" else value, opts)
        raise WrongType(field, "a provider, a word, a store or a URL", value)

    def _pointer(self, alias: str, agent: Agent) -> Mapping[str, Any]:
        """What an agent's memory says about an alias."""
        check_text(alias, "provider")
        held = memory.get(agent)
        pointers = None if held is None else held.world_get("pointers")
        pointer = pointers.get(alias) if isinstance(pointers, Mapping) else None
        if pointer is None:
            return EMPTY_MAP
        if not isinstance(pointer, Mapping):
            raise WrongType(f"world.pointers.{alias}"[:80], "a map with a provider in it", pointer)
        return pointer

    def _find(self, name: object) -> _ConfiguredProvider | None:
        if not isinstance(name, str):
            return None
        if name in self._by_alias:
            return self._by_alias[name]
        if name in self._built_in:
            return _ConfiguredProvider(self._built_in[name])
        return self._by_unique_name().get(name)

    def _by_unique_name(self) -> dict[str, _ConfiguredProvider]:
        """The providers whose own name tells them from all others."""
        named = [(getattr(one.provider, "name", None), one) for one in self._by_alias.values()]
        names = [name for name, _ in named]
        return {name: one for name, one in named if isinstance(name, str) and names.count(name) == 1}

    def _store_providers(self) -> Iterator[StoreProvider]:
        return (one.provider for one in self._by_alias.values() if isinstance(one.provider, StoreProvider))


def _configure_store(store: Any, opts: Mapping[str, Any]) -> _ConfiguredProvider:
    """A provider over a store; options that say whose and of what kind its entries are belong to it."""
    places = {name: opts[name] for name in Scope.__struct_fields__ if name in opts}
    kinds = {name: opts[name] for name in _STORE_OPTIONS if name in opts}
    rest = {name: value for name, value in opts.items() if name not in (*places, *kinds)}
    return _ConfiguredProvider(StoreProvider(store, Scope.new(places), **kinds), freeze_map(rest))


# adapters: How does an agent reach its memory providers?


INLINE_PREFIX = "inline:"
"""How the spaces are called that hold what an agent keeps inline."""


class ProviderQueue:
    """What is asked of one provider, under the alias that an agent has for it."""

    __slots__ = ("directives", "is_running", "opts", "provider", "state")

    def __init__(self) -> None:
        self.directives: deque[MemoryDirective] = deque()
        self.provider: object = None
        self.opts: FrozenMap[str, Any] = EMPTY_MAP
        self.state: Any = UNOPENED
        self.is_running = False


class ProviderQueues:
    """The providers that an agent uses, by their aliases."""

    __slots__ = ("_pending", "_queues")

    def __init__(self) -> None:
        self._queues: dict[str, ProviderQueue] = {}
        self._pending: dict[str, MemoryDirective] = {}
        """What was asked and not answered yet, by request id."""

    def submit(self, directive: MemoryDirective, server: AgentServer) -> None:
        """Have a provider asked, after what it was asked before."""
        if directive.request_id in self._pending:
            directive = msgspec.structs.replace(directive, request_id=ids.new("req_"))
        self._pending[directive.request_id] = directive
        line = self._queues.setdefault(directive.provider, ProviderQueue())
        line.directives.append(directive)
        if not line.is_running:
            line.is_running = True
            server.start_job(partial(self._run_queue, line, server), "memory")

    async def _run_queue(self, queue: ProviderQueue, server: AgentServer) -> None:
        try:
            while queue.directives:
                directive = queue.directives.popleft()
                data = await self._process(queue, directive, server)
                self._reply(directive, data, server)
        finally:
            queue.is_running = False

    async def _process(
        self, queue: ProviderQueue, directive: MemoryDirective, server: AgentServer
    ) -> dict[str, Any]:
        try:
            found = server.runtime.providers.resolve(directive.provider, server.agent)
        except OmoideError as error:
            return refusal_data(directive, str(error))
        inline = bool(getattr(found.provider, "keeps_in_memory", False))
        state = _inline_state(server, found) if inline else _provider_state(queue, found)
        timeout = server.runtime.provider_timeout
        state, data = await execute_directive(directive, found.provider, state, found.opts, timeout=timeout)
        if not inline:
            queue.state = state
            return data
        try:
            _save_inline_state(server, found, state)
        except OmoideError as error:
            return refusal_data(directive, str(error), provider=provider_name(found.provider))
        return data

    def _reply(self, directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> None:
        if self._pending.pop(directive.request_id, None) is not None:
            server.enqueue(_result_signal(directive, data, server), internal=True)

    def abort(self, server: AgentServer, reason: str) -> None:
        """Answer whatever is still open, and begin with every provider anew."""
        unanswered, self._pending, self._queues = self._pending, {}, {}
        for directive in unanswered.values():
            server.enqueue(_result_signal(directive, refusal_data(directive, reason), server), internal=True)


def send_refusal(directive: MemoryDirective, server: AgentServer, reason: str) -> None:
    """Answer a request that is not even passed on."""
    server.enqueue(_result_signal(directive, refusal_data(directive, reason), server), internal=True)


def _result_signal(directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> Signal:
    """The answer; one that cannot be named as was wished has the usual name."""
    about = directive.request_id if directive.request_id.strip() else None  # which no subject may be
    told = Signal(type=MEMORY_RESULT, data=data, source=server.source, subject=about)
    try:
        return told.replace(type=directive.reply_signal_type)
    except Invalid:
        return told


def _provider_state(queue: ProviderQueue, found: ResolvedProvider) -> Any:
    """The state of a provider, new where the alias now means another one."""
    told = FrozenMap(found.opts)
    if queue.provider is not found.provider or queue.opts != told:
        queue.provider, queue.opts, queue.state = found.provider, told, UNOPENED
    return queue.state


def _inline_state(server: AgentServer, found: ResolvedProvider) -> Any:
    space = MEMORY.get_or_new(server.agent).space(INLINE_PREFIX + found.alias)
    return UNOPENED if space is None else space.data


def _save_inline_state(server: AgentServer, found: ResolvedProvider, state: Any) -> None:
    """Keep in the agent's memory what it keeps inline, within the limits that were set there.

    Nothing was awaited since it was read.
    """
    if state is UNOPENED or state is _inline_state(server, found):
        return
    name, memory = INLINE_PREFIX + found.alias, MEMORY.get_or_new(server.agent)
    space = (memory.space(name) or Space()).replace(data=state)
    server.agent = MEMORY.put(server.agent, memory.put_space(name, space))
