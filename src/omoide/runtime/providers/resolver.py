"""Resolve aliases to memory providers, and execute memory directives.

Each directive gets exactly one result, whatever the provider does: succeed, fail for some of the keys, raise,
hang or return nonsense.

The program configures the providers. An agent's memory may choose among them, with `world.pointers[alias] =
{"provider": name, …}`, and narrow what it asks of one; it can never name a file or an address, since a model
may have written it.

Requests to one provider run one after the other, in the order of the directives, because each passes its
state to the next; different providers run at the same time. Each request is answered by exactly one signal,
also when the agent restarts meanwhile.
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


MemoryDirective = MemoryQuery | MemoryUpsert | MemoryDelete

IDENTITY_OPTIONS = ("agent_id", "alias")
"""Options that say who asks: a directive cannot give them."""

_STORE_OPTIONS = ("type", "tags", "name")
INLINE_PREFIX = "inline:"
"""The prefix of the memory spaces that hold inline data."""


class Unopened(Enum):
    """The state of a provider that was not initialised yet."""

    UNOPENED = "unopened"


UNOPENED: Final = Unopened.UNOPENED


class BatchStep(NamedTuple):
    """One operation of a batch: a key, the method, its arguments, and further options."""

    key: object
    method: str
    args: tuple[Any, ...] = ()
    opts: Mapping[str, Any] = EMPTY_MAP


class OperationResult(NamedTuple):
    """The result of a directive."""

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
    """Execute a memory directive, and return the provider's new state and the data of the result.

    Nothing is raised but cancellation.

    Args:
        directive: The directive. Its options are passed to the provider, but never override `opts`, nor say
            who asks.
        provider: The provider.
        state: The state that it returned last time, or `UNOPENED`.
        opts: The configured options.
        timeout: Seconds for the whole directive; the result says what was done until then.
    """
    started = monotonic()
    work = _DirectiveExecution(provider, state, timeout)
    # A directive cannot name another agent than the one that it comes from.
    merged_opts = {
        name: value for name, value in directive.opts.items() if name not in (*IDENTITY_OPTIONS, "embedding")
    }
    merged_opts.update(opts)
    if isinstance(directive, MemoryQuery):
        result = await work.query(directive.query, merged_opts, opts)
    elif isinstance(directive, MemoryUpsert):
        result = await work.batch([_put_step(item) for item in directive.items], merged_opts, opts)
    else:
        result = await work.batch([BatchStep(key, "delete") for key in directive.keys], merged_opts, opts)
    return work.state, _result_data(directive, provider_name(provider), result, started)


def refusal_data(directive: MemoryDirective, reason: str, *, provider: str | None = None) -> dict[str, Any]:
    """Return the data of a failed result, where there is no provider to ask."""
    return _result_data(
        directive, provider or directive.provider, OperationResult(reason_text(reason)), monotonic()
    )


def provider_name(provider: Any) -> str:
    """Return the name of a provider in results."""
    name = getattr(provider, "name", None)
    return reason_text(name) if isinstance(name, str) and name else type(provider).__name__


class _DirectiveExecution:
    """One directive at a provider; it holds the last state that came back."""

    def __init__(self, provider: Any, state: Any, timeout: float | None) -> None:
        self.state = state
        self._provider = provider
        self._timeout = timeout

    async def query(
        self, query: Any, merged_opts: Mapping[str, Any], opts: Mapping[str, Any]
    ) -> OperationResult:
        """Run a query."""
        if not isinstance(self._provider, QueryableProvider):
            return OperationResult("query not supported")
        with move_on_after(self._timeout):
            reason = await self._initialize(opts)
            if reason is not None:
                return OperationResult(reason)
            outcome = await self._call("query", query, merged_opts)
            if isinstance(outcome, ProviderFailure):
                return OperationResult(outcome.reason)
            return _query_result(outcome.value)
        return OperationResult(self._timeout_reason)

    async def batch(
        self, steps: Sequence[BatchStep], merged_opts: Mapping[str, Any], opts: Mapping[str, Any]
    ) -> OperationResult:
        """Run every step, whatever became of those before it."""
        reasons: list[str | None] = []
        failed: str | None = self._timeout_reason
        with move_on_after(self._timeout):
            failed = await self._initialize(opts)
            for step in steps if failed is None else ():
                reasons += [await self._run_step(step, merged_opts)]
        reasons += [failed or self._timeout_reason] * (len(steps) - len(reasons))
        details = [_detail(step.key, reason) for step, reason in zip(steps, reasons, strict=True)]
        failures = [reason for reason in reasons if reason is not None]
        if failed is not None or not failures:
            return OperationResult(failed, details=details)
        return OperationResult(
            reason_text(f"{len(failures)} of {len(steps)} failed: {failures[0]}"), details=details
        )

    async def _run_step(self, step: BatchStep, merged_opts: Mapping[str, Any]) -> str | None:
        """Run a step, and return why it failed, or None."""
        try:
            key = check_key(step.key)
        except Invalid as error:
            return error_reason(error)
        outcome = await self._call(step.method, key, *step.args, {**merged_opts, **step.opts})
        return outcome.reason if isinstance(outcome, ProviderFailure) else None

    async def _call(self, method: str, *args: Any) -> Outcome:
        outcome = await call_operation(self._provider, method, self.state, *args)
        self.state = outcome.state
        return outcome

    async def _initialize(self, opts: Mapping[str, Any]) -> str | None:
        """Initialise the provider if need be, and return why that failed, or None."""
        if self.state is not UNOPENED:
            return None
        result = await call_provider(self._provider, "init", opts)
        if isinstance(result, (CallFailure, ProviderFailure)):
            return reason_text(f"could not be opened ({reason_text(result.reason)})")
        self.state = result.state if isinstance(result, ProviderResult) else result
        return None

    @property
    def _timeout_reason(self) -> str:
        return f"timed out after {self._timeout or 0:g} s"


def _put_step(item: Mapping[str, Any]) -> BatchStep:
    opts = {} if item.get("embedding") is None else {"embedding": item["embedding"]}
    return BatchStep(item["key"], "put", (item["value"],), opts)


def _detail(key: object, reason: str | None) -> dict[str, Any]:
    name = reason_text(key) if isinstance(key, str) else type(key).__name__
    detail = {"key": name, "status": "ok" if reason is None else "error"}
    return detail if reason is None else {**detail, "error": reason}


def _query_result(value: Any) -> OperationResult:
    """Return the result of a query, if a signal can carry it."""
    try:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return OperationResult(f"query returned {type(value).__name__}, not a list")
        items = Signal(type=MEMORY_RESULT, id="result", time=None, data={"result": value}).data["result"]
    except Exception as error:
        return OperationResult(reason_text(f"query returned what cannot be stored ({error_reason(error)})"))
    for at, item in enumerate(items):
        if not isinstance(item, Mapping):
            return OperationResult(f"query returned {type(item).__name__} at [{at}], not a mapping")
    return OperationResult(result=items)


def _result_data(
    directive: MemoryDirective, provider: str, result: OperationResult, started: float
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "request_id": directive.request_id,
        "status": "ok" if result.error is None else "error",
        "result": result.result,
        "meta": {"provider": provider, "latency_ms": max(0, int((monotonic() - started) * 1000))},
    }
    if result.error is not None:
        data["error"] = result.error
    if result.details is not None:
        data["details"] = result.details
    return data


class ResolvedProvider(msgspec.Struct, frozen=True):
    """A provider, and the options that it gets with every operation."""

    alias: str
    provider: Any
    opts: FrozenMap[str, Any] = EMPTY_MAP


class _ConfiguredProvider(NamedTuple):
    provider: Any
    opts: FrozenMap[str, Any] = EMPTY_MAP


class Providers:
    """The providers of a program, by their aliases, beside `inline`, `table`, and `store` where there is one.

    Each value is a provider, one of these names, a store or its URL, or a pair of one of them and options. A
    store at a URL is opened by `open`, or on first use, and closed by `close`.
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
        """Return the provider that an agent means by an alias; configured options override its own."""
        pointer = self._pointer(alias, agent)
        name = pointer.get("provider", alias)
        configured = self._find(name)
        if configured is None:
            raise NotFound(
                "memory provider", str(name)[:80], f"use one of {', '.join(self.available_names())}"
            )
        own = {name: value for name, value in pointer.items() if name != "provider"}
        # A model may have written the pointer, so the program's own options override it.
        opts = {**own, **configured.opts, "agent_id": agent.id, "alias": alias}
        return ResolvedProvider(alias, configured.provider, freeze_map(opts, "opts"))

    def available_names(self) -> list[str]:
        """Return the names that a pointer may use."""
        return sorted({*self._built_in, *self._by_alias, *self._by_unique_name()})

    async def open(self) -> None:
        """Open every store that is given by a URL; all of them, or none."""
        async with AsyncExitStack() as stack:
            for provider in self._store_providers():
                await provider.open()
                stack.push_async_callback(provider.close)
            stack.pop_all()

    async def close(self) -> None:
        """Close the stores that were opened here."""
        async with AsyncExitStack() as stack:
            for provider in self._store_providers():
                stack.push_async_callback(provider.close)

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
        raise WrongType(field, "a provider, its name, a store or a URL", value)

    def _pointer(self, alias: str, agent: Agent) -> Mapping[str, Any]:
        """Return what an agent's memory says about an alias."""
        check_text(alias, "provider")
        agent_memory = memory.get(agent)
        pointers = None if agent_memory is None else agent_memory.world_get("pointers")
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
        """Return the providers that no other one shares its name with, by name."""
        pairs = [
            (getattr(configured.provider, "name", None), configured) for configured in self._by_alias.values()
        ]
        names = [name for name, _ in pairs]
        return {
            name: configured for name, configured in pairs if isinstance(name, str) and names.count(name) == 1
        }

    def _store_providers(self) -> Iterator[StoreProvider]:
        return (
            configured.provider
            for configured in self._by_alias.values()
            if isinstance(configured.provider, StoreProvider)
        )


def _configure_store(store: Any, opts: Mapping[str, Any]) -> _ConfiguredProvider:
    """Return a provider over a store; options about the scope and kind of its entries belong to it."""
    scope_fields = {name: opts[name] for name in Scope.__struct_fields__ if name in opts}
    entry_options = {name: opts[name] for name in _STORE_OPTIONS if name in opts}
    rest = {name: value for name, value in opts.items() if name not in (*scope_fields, *entry_options)}
    return _ConfiguredProvider(
        StoreProvider(store, Scope.new(scope_fields), **entry_options), freeze_map(rest)
    )


class ProviderQueue:
    """The pending directives of one provider, under the alias that an agent has for it."""

    __slots__ = ("directives", "is_running", "opts", "provider", "state")

    def __init__(self) -> None:
        self.directives: deque[MemoryDirective] = deque()
        self.provider: object = None
        self.opts: FrozenMap[str, Any] = EMPTY_MAP
        self.state: Any = UNOPENED
        self.is_running = False


class ProviderQueues:
    """The memory requests of an agent, one queue for each alias."""

    __slots__ = ("_pending", "_queues")

    def __init__(self) -> None:
        self._queues: dict[str, ProviderQueue] = {}
        self._pending: dict[str, MemoryDirective] = {}
        """The requests without an answer, by request id."""

    def submit(self, directive: MemoryDirective, server: AgentServer) -> None:
        """Queue a directive behind the earlier ones to the same provider."""
        # Each request is answered by its id, so a repeated one gets another.
        if directive.request_id in self._pending:
            directive = msgspec.structs.replace(directive, request_id=ids.new("req_"))
        self._pending[directive.request_id] = directive
        queue = self._queues.setdefault(directive.provider, ProviderQueue())
        queue.directives.append(directive)
        if not queue.is_running:
            queue.is_running = True
            server.start_job(partial(self._run_queue, queue, server), "memory")

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
            resolved = server.runtime.providers.resolve(directive.provider, server.agent)
        except OmoideError as error:
            return refusal_data(directive, str(error))
        inline = bool(getattr(resolved.provider, "keeps_in_memory", False))
        state = _inline_state(server, resolved) if inline else _provider_state(queue, resolved)
        timeout = server.runtime.provider_timeout
        state, data = await execute_directive(
            directive, resolved.provider, state, resolved.opts, timeout=timeout
        )
        if not inline:
            queue.state = state
            return data
        try:
            _save_inline_state(server, resolved, state)
        except OmoideError as error:
            return refusal_data(directive, str(error), provider=provider_name(resolved.provider))
        return data

    def _reply(self, directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> None:
        # A request that was aborted has its answer already.
        if self._pending.pop(directive.request_id, None) is not None:
            server.enqueue(_result_signal(directive, data, server), internal=True)

    def abort(self, server: AgentServer, reason: str) -> None:
        """Answer all pending requests with a failure, and initialise every provider anew."""
        # A queue that still runs keeps the old objects, so its late answers find no request.
        pending, self._pending, self._queues = self._pending, {}, {}
        for directive in pending.values():
            send_refusal(directive, server, reason)


def send_refusal(directive: MemoryDirective, server: AgentServer, reason: str) -> None:
    """Answer a directive that is not executed."""
    server.enqueue(_result_signal(directive, refusal_data(directive, reason), server), internal=True)


def _result_signal(directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> Signal:
    """Return the result as a signal; an invalid `reply_signal_type` is replaced by the default."""
    subject = directive.request_id if directive.request_id.strip() else None  # a subject may not be blank
    signal = Signal(type=MEMORY_RESULT, data=data, source=server.source, subject=subject)
    try:
        return signal.replace(type=directive.reply_signal_type)
    except Invalid:
        return signal


def _provider_state(queue: ProviderQueue, resolved: ResolvedProvider) -> Any:
    """Return the state of a provider, which starts anew where the alias now means another one."""
    opts = FrozenMap(resolved.opts)
    if queue.provider is not resolved.provider or queue.opts != opts:
        queue.provider, queue.opts, queue.state = resolved.provider, opts, UNOPENED
    return queue.state


def _inline_state(server: AgentServer, resolved: ResolvedProvider) -> Any:
    space = MEMORY.get_or_new(server.agent).space(INLINE_PREFIX + resolved.alias)
    return UNOPENED if space is None else space.data


def _save_inline_state(server: AgentServer, resolved: ResolvedProvider, state: Any) -> None:
    """Write inline data into the agent's memory, within the limits that are set there.

    Nothing was awaited since the data was read, so it cannot have changed.
    """
    if state is UNOPENED or state is _inline_state(server, resolved):
        return
    name, memory = INLINE_PREFIX + resolved.alias, MEMORY.get_or_new(server.agent)
    space = (memory.space(name) or Space()).replace(data=state)
    server.agent = MEMORY.put(server.agent, memory.put_space(name, space))
