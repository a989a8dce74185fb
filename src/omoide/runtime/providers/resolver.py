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
from omoide.runtime.providers.backends import Inline, StoreProvider, Table
from omoide.runtime.providers.protocol import (
    Answered,
    Failed,
    Outcome,
    Provider,
    Queries,
    Raised,
    answered,
    called,
    check_key,
    described,
    plain,
)
from omoide.stores.protocols import Store

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer


# operating: What becomes of a memory directive?


MemoryDirective = MemoryQuery | MemoryUpsert | MemoryDelete

IDENTITY = ("agent_id", "alias")
"""Options that say who asks: a directive cannot give them."""


class Unopened(Enum):
    """The state of a provider that was not initialised yet."""

    UNOPENED = "unopened"


UNOPENED: Final = Unopened.UNOPENED


class Step(NamedTuple):
    """One operation of a batch: a key, the method, its arguments, and what else the method is told."""

    key: object
    method: str
    args: tuple[Any, ...] = ()
    opts: Mapping[str, Any] = EMPTY_MAP


class Done(NamedTuple):
    """What came of a directive."""

    error: str | None = None
    result: Any = EMPTY_LIST
    details: list[dict[str, Any]] | None = None


async def carried_out(
    directive: MemoryDirective,
    provider: Any,
    state: Any,
    opts: Mapping[str, Any],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - when time runs out, what was done so far is told
) -> tuple[Any, dict[str, Any]]:
    """The provider's new state, and the data of the result; nothing is raised but cancellation.

    `state` is the one that came back last time, or `UNOPENED`. Options of the directive are told to the
    provider, too, but never in place of one of `opts`, nor of who asks.
    """
    began = monotonic()
    work = _Work(provider, state, timeout)
    told = {name: value for name, value in directive.opts.items() if name not in (*IDENTITY, "embedding")}
    told.update(opts)
    if isinstance(directive, MemoryQuery):
        done = await work.query(directive.query, told, opts)
    elif isinstance(directive, MemoryUpsert):
        done = await work.batch([_put(item) for item in directive.items], told, opts)
    else:
        done = await work.batch([Step(key, "delete") for key in directive.keys], told, opts)
    return work.state, _data(directive, name_of(provider), done, began)


def refused(directive: MemoryDirective, reason: str, *, provider: str | None = None) -> dict[str, Any]:
    """The data of the result where there is no provider to ask."""
    return _data(directive, provider or directive.provider, Done(plain(reason)), monotonic())


def name_of(provider: Any) -> str:
    """What a provider is called in results."""
    name = getattr(provider, "name", None)
    return plain(name) if isinstance(name, str) and name else type(provider).__name__


class _Work:
    """A provider at work on one directive; it keeps the last state that came back."""

    def __init__(self, provider: Any, state: Any, timeout: float | None) -> None:
        self.state = state
        self._provider = provider
        self._timeout = timeout

    async def query(self, query: Any, told: Mapping[str, Any], opts: Mapping[str, Any]) -> Done:
        """Ask a question."""
        if not isinstance(self._provider, Queries):
            return Done("query not supported")
        with move_on_after(self._timeout):
            reason = await self._open(opts)
            if reason is not None:
                return Done(reason)
            answer = await self._ask("query", query, told)
            return Done(answer.reason) if isinstance(answer, Failed) else _listed(answer.value)
        return Done(self._late)

    async def batch(self, steps: Sequence[Step], told: Mapping[str, Any], opts: Mapping[str, Any]) -> Done:
        """Try every step, whatever became of those before it."""
        reasons: list[str | None] = []
        failed: str | None = self._late
        with move_on_after(self._timeout):
            failed = await self._open(opts)
            for step in steps if failed is None else ():
                reasons += [await self._step(step, told)]
        late = len(steps) - len(reasons)
        reasons += [failed or self._late] * late
        details = [_detail(step.key, reason) for step, reason in zip(steps, reasons, strict=True)]
        wrong = [reason for reason in reasons if reason is not None]
        if failed is not None or not wrong:
            return Done(failed, details=details)
        return Done(plain(f"{len(wrong)} of {len(steps)} failed: {wrong[0]}"), details=details)

    async def _step(self, step: Step, told: Mapping[str, Any]) -> str | None:
        """Why a step failed, if it did."""
        try:
            key = check_key(step.key)
        except Invalid as error:
            return described(error)
        answer = await self._ask(step.method, key, *step.args, {**told, **step.opts})
        return answer.reason if isinstance(answer, Failed) else None

    async def _ask(self, method: str, *args: Any) -> Outcome:
        answer = await answered(self._provider, method, self.state, *args)
        self.state = answer.state
        return answer

    async def _open(self, opts: Mapping[str, Any]) -> str | None:
        """Why a provider could not be initialised, where it still had to be."""
        if self.state is not UNOPENED:
            return None
        made = await called(self._provider, "init", opts)
        if isinstance(made, (Raised, Failed)):
            return plain(f"could not be opened ({plain(made.reason)})")
        self.state = made.state if isinstance(made, Answered) else made
        return None

    @property
    def _late(self) -> str:
        return f"timed out after {self._timeout or 0:g} s"


def _put(item: Mapping[str, Any]) -> Step:
    given = {} if item.get("embedding") is None else {"embedding": item["embedding"]}
    return Step(item["key"], "put", (item["value"],), given)


def _detail(key: object, reason: str | None) -> dict[str, Any]:
    shown = plain(key) if isinstance(key, str) else type(key).__name__
    told = {"key": shown, "status": "ok" if reason is None else "error"}
    return told if reason is None else {**told, "error": reason}


def _listed(found: Any) -> Done:
    """The answer to a question, if it is one that a signal can carry."""
    try:
        if isinstance(found, (str, bytes)) or not isinstance(found, Sequence):
            return Done(f"query gave {type(found).__name__}, not a list")
        held = Signal(type=MEMORY_RESULT, id="result", time=None, data={"result": found}).data["result"]
    except Exception as error:
        return Done(plain(f"query gave what cannot be kept ({described(error)})"))
    for at, item in enumerate(held):
        if not isinstance(item, Mapping):
            return Done(f"query gave {type(item).__name__} at [{at}], not a mapping")
    return Done(result=held)


def _data(directive: MemoryDirective, provider: str, done: Done, began: float) -> dict[str, Any]:
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


_OF_STORES = ("type", "tags", "name")


class Resolved(msgspec.Struct, frozen=True):
    """A provider, and what it is told with every operation."""

    alias: str
    provider: Any
    opts: FrozenMap[str, Any] = EMPTY_MAP


class _Known(NamedTuple):
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
        self._words: dict[str, Any] = {"inline": Inline(), "table": Table()}
        self._store = store
        if store is not None:
            self._words["store"] = StoreProvider(store)
        self._known = {
            check_text(alias, "alias"): self._configured(value, f"providers[{alias!r}]")
            for alias, value in configured.items()
        }

    def resolve(self, alias: str, agent: Agent) -> Resolved:
        """The provider that an agent means; options that were configured count more than its own."""
        pointer = self._pointer(alias, agent)
        word = pointer.get("provider", alias)
        found = self._find(word)
        if found is None:
            raise NotFound("memory provider", str(word)[:80], f"use one of {', '.join(self.words())}")
        own = {name: value for name, value in pointer.items() if name != "provider"}
        opts = {**own, **found.opts, "agent_id": agent.id, "alias": alias}
        return Resolved(alias, found.provider, freeze_map(opts, "opts"))

    def words(self) -> list[str]:
        """What a pointer may name."""
        return sorted({*self._words, *self._known, *self._names()})

    async def open(self) -> None:
        """Open every store that is named by a URL; all of them, or none."""
        async with AsyncExitStack() as opened:
            for provider in self._providers():
                await provider.open()
                opened.push_async_callback(provider.close)
            opened.pop_all()

    async def close(self) -> None:
        """Close what was opened here."""
        async with AsyncExitStack() as closing:
            for provider in self._providers():
                closing.push_async_callback(provider.close)

    def _configured(self, value: Any, field: str) -> _Known:
        opts: Mapping[str, Any] = EMPTY_MAP
        if isinstance(value, tuple):
            if len(value) != 2:
                raise Invalid(field, f"is a tuple of {len(value)}", "pass (provider, options)")
            value, opts = value[0], freeze_map(value[1], f"{field}[1]")
        if isinstance(value, str) and "://" not in value and value != "store":
            if value not in self._words:
                raise Invalid(field, f"is {value!r}", "use inline, table, store, a URL or a provider")
            return _Known(self._words[value], freeze_map(opts))
        if value == "store" and self._store is None:
            raise Invalid(field, "is the store of the runtime, which has none", "give the runtime a store")
        if isinstance(value, Provider):
            return _Known(value, freeze_map(opts))
        if isinstance(value, (str, Store)):
            return _over_a_store(self._store if value == "store" else value, opts)
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

    def _find(self, word: object) -> _Known | None:
        if not isinstance(word, str):
            return None
        if word in self._known:
            return self._known[word]
        if word in self._words:
            return _Known(self._words[word])
        return self._names().get(word)

    def _names(self) -> dict[str, _Known]:
        """The providers whose own name tells them from all others."""
        named = [(getattr(one.provider, "name", None), one) for one in self._known.values()]
        names = [name for name, _ in named]
        return {name: one for name, one in named if isinstance(name, str) and names.count(name) == 1}

    def _providers(self) -> Iterator[StoreProvider]:
        return (one.provider for one in self._known.values() if isinstance(one.provider, StoreProvider))


def _over_a_store(store: Any, opts: Mapping[str, Any]) -> _Known:
    """A provider over a store; options that say whose and of what kind its entries are belong to it."""
    places = {name: opts[name] for name in Scope.__struct_fields__ if name in opts}
    kinds = {name: opts[name] for name in _OF_STORES if name in opts}
    rest = {name: value for name, value in opts.items() if name not in (*places, *kinds)}
    return _Known(StoreProvider(store, Scope.new(places), **kinds), freeze_map(rest))


# adapters: How does an agent reach its memory providers?


INLINE = "inline:"
"""How the spaces are called that hold what an agent keeps inline."""


class Line:
    """What is asked of one provider, under the alias that an agent has for it."""

    __slots__ = ("provider", "queue", "state", "told", "working")

    def __init__(self) -> None:
        self.queue: deque[MemoryDirective] = deque()
        self.provider: object = None
        self.told: FrozenMap[str, Any] = EMPTY_MAP
        self.state: Any = UNOPENED
        self.working = False


class Adapters:
    """The providers that an agent uses, by their aliases."""

    __slots__ = ("_lines", "_open")

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._open: dict[str, MemoryDirective] = {}
        """What was asked and not answered yet, by request id."""

    def ask(self, directive: MemoryDirective, server: AgentServer) -> None:
        """Have a provider asked, after what it was asked before."""
        if directive.request_id in self._open:
            directive = msgspec.structs.replace(directive, request_id=ids.new("req_"))
        self._open[directive.request_id] = directive
        line = self._lines.setdefault(directive.provider, Line())
        line.queue.append(directive)
        if not line.working:
            line.working = True
            server.job(partial(self._serve, line, server), "memory")

    async def _serve(self, line: Line, server: AgentServer) -> None:
        try:
            while line.queue:
                directive = line.queue.popleft()
                data = await self._served(line, directive, server)
                self._answer(directive, data, server)
        finally:
            line.working = False

    async def _served(self, line: Line, directive: MemoryDirective, server: AgentServer) -> dict[str, Any]:
        try:
            found = server.runtime.providers.resolve(directive.provider, server.agent)
        except OmoideError as error:
            return refused(directive, str(error))
        inline = bool(getattr(found.provider, "keeps_in_memory", False))
        state = _held(server, found) if inline else _state(line, found)
        timeout = server.runtime.provider_timeout
        state, data = await carried_out(directive, found.provider, state, found.opts, timeout=timeout)
        if not inline:
            line.state = state
            return data
        try:
            _hold(server, found, state)
        except OmoideError as error:
            return refused(directive, str(error), provider=name_of(found.provider))
        return data

    def _answer(self, directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> None:
        if self._open.pop(directive.request_id, None) is not None:
            server.tell(_signal(directive, data, server), own=True)

    def give_up(self, server: AgentServer, reason: str) -> None:
        """Answer whatever is still open, and begin with every provider anew."""
        unanswered, self._open, self._lines = self._open, {}, {}
        for directive in unanswered.values():
            server.tell(_signal(directive, refused(directive, reason), server), own=True)


def refuse(directive: MemoryDirective, server: AgentServer, reason: str) -> None:
    """Answer a request that is not even passed on."""
    server.tell(_signal(directive, refused(directive, reason), server), own=True)


def _signal(directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> Signal:
    """The answer; one that cannot be named as was wished has the usual name."""
    about = directive.request_id if directive.request_id.strip() else None  # which no subject may be
    told = Signal(type=MEMORY_RESULT, data=data, source=server.source, subject=about)
    try:
        return told.replace(type=directive.reply_signal_type)
    except Invalid:
        return told


def _state(line: Line, found: Resolved) -> Any:
    """The state of a provider, new where the alias now means another one."""
    told = FrozenMap(found.opts)
    if line.provider is not found.provider or line.told != told:
        line.provider, line.told, line.state = found.provider, told, UNOPENED
    return line.state


def _held(server: AgentServer, found: Resolved) -> Any:
    space = MEMORY.value(server.agent).space(INLINE + found.alias)
    return UNOPENED if space is None else space.data


def _hold(server: AgentServer, found: Resolved, state: Any) -> None:
    """Keep in the agent's memory what it keeps inline, within the limits that were set there.

    Nothing was awaited since it was read.
    """
    if state is UNOPENED or state is _held(server, found):
        return
    name, memory = INLINE + found.alias, MEMORY.value(server.agent)
    space = (memory.space(name) or Space()).replace(data=state)
    server.agent = MEMORY.put(server.agent, memory.put_space(name, space))
