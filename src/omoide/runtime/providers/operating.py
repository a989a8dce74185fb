"""What becomes of a memory directive?

One result, whatever the provider does: answers, fails for some of the keys, raises, hangs or talks nonsense.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from time import monotonic
from typing import Any, Final, NamedTuple

from anyio import move_on_after

from omoide.core.directives import MEMORY_RESULT, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP
from omoide.core.signal import Signal
from omoide.errors import Invalid
from omoide.runtime.providers.calling import Raised, answered, called, described, plain
from omoide.runtime.providers.items import check_key
from omoide.runtime.providers.protocol import Answered, Failed, Outcome, Queries

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
