"""Every memory directive ends in one result, whatever the provider does."""

from __future__ import annotations

import threading
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import data

from omoide import Signal
from omoide.core import freeze
from omoide.core.action import MEMORY_RESULT, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.runtime.providers import (
    UNOPENED,
    InlineProvider,
    ProviderFailure,
    ProviderResult,
    execute_directive,
    refusal_data,
)
from omoide.testing import eventually

OPTS = {"agent_id": "ada", "alias": "notes"}


class Counter:
    """Counts its operations in its state, and remembers what it was told; `doing` stands for the work."""

    name = "counter"
    instant = True

    def __init__(self, doing: Callable[..., Any] = ProviderResult) -> None:
        self.doing = doing
        self.told: list[tuple[Any, ...]] = []
        self.opened: list[Any] = []

    def init(self, opts: Any) -> int:
        self.opened.append(opts)
        return 0

    def _done(self, *told: Any) -> Any:
        self.told.append(told)
        return self.doing(told[1] + 1)

    def get(self, state: int, key: str, opts: Any) -> Any:
        return self._done("get", state, key, opts)

    def put(self, state: int, key: str, value: Any, opts: Any) -> Any:
        return self._done("put", state, key, value, opts)

    def delete(self, state: int, key: str, opts: Any) -> Any:
        return self._done("delete", state, key, opts)

    def query(self, state: int, query: Any, opts: Any) -> Any:
        return self._done("query", state, query, opts)


class Plain:
    """A provider that answers no questions."""

    name = "plain"
    init = Counter.init
    get = Counter.get
    put = Counter.put
    delete = Counter.delete


def upsert(*items: Any, **fields: Any) -> MemoryUpsert:
    """A directive to put some items."""
    return MemoryUpsert(items=items, provider="notes", request_id="r1", **fields)


QUERY = MemoryQuery(query={"text": "tea"}, provider="notes", request_id="r1")
UPSERT = upsert({"key": "a", "value": 1}, {"key": "b", "value": 2})
DELETE = MemoryDelete(keys=["a", "b"], provider="notes", request_id="r1")
ALL = [QUERY, UPSERT, DELETE]


def signal(told: dict[str, Any]) -> Signal:
    """The signal that the data of a result becomes, there and back again."""
    made = Signal(type=MEMORY_RESULT, data=told)
    assert Signal.from_json(made.to_json()) == made
    return made


async def test_a_query_gives_what_was_found() -> None:
    """The result says for which request, that it is well, what was found, where, and how long it took."""
    hits = [{"key": "a", "score": 0.5, "value": {"x": [1]}}]
    provider = Counter(lambda state: ProviderResult(state, hits))
    state, told = await execute_directive(QUERY, provider, UNOPENED, OPTS)
    assert state == 1
    assert isinstance(told["meta"].pop("latency_ms"), int)
    assert told == {"request_id": "r1", "status": "ok", "result": hits, "meta": {"provider": "counter"}}
    hits[0]["value"]["x"].append(2)  # type: ignore[index]
    assert told["result"][0]["value"] == {"x": [1]}
    signal(told)


async def test_a_batch_says_what_became_of_every_key() -> None:
    """Items are put and keys deleted one after the other, each with the state of the one before."""
    provider = Counter()
    state, told = await execute_directive(UPSERT, provider, UNOPENED, OPTS)
    assert (state, told["status"], told["result"]) == (2, "ok", [])
    assert told["details"] == [{"key": "a", "status": "ok"}, {"key": "b", "status": "ok"}]
    assert "error" not in told
    state, told = await execute_directive(DELETE, provider, state, OPTS)
    assert (state, told["status"]) == (4, "ok")
    assert [call[:3] for call in provider.told] == [
        ("put", 0, "a"),
        ("put", 1, "b"),
        ("delete", 2, "a"),
        ("delete", 3, "b"),
    ]
    signal(told)


async def test_a_provider_is_opened_once() -> None:
    """With the options of its place, before the first operation; the state goes on from there."""
    provider = Counter()
    state, _ = await execute_directive(DELETE, provider, UNOPENED, OPTS)
    state, _ = await execute_directive(DELETE, provider, state, OPTS)
    assert (state, provider.opened) == (4, [OPTS])
    state, told = await execute_directive(upsert(), Counter(), UNOPENED, OPTS)
    assert (state, told["status"], told["details"]) == (0, "ok", [])


async def test_an_item_brings_its_vector_along() -> None:
    """Only its own: options cannot give one to all."""
    provider = Counter()
    items = [{"key": "a", "value": 1, "embedding": [0.5, 0.5]}, {"key": "b", "value": 2}]
    await execute_directive(upsert(*items, opts={"embedding": [1.0], "x": 1}), provider, UNOPENED, OPTS)
    assert [call[-1] for call in provider.told] == [
        {**OPTS, "x": 1, "embedding": [0.5, 0.5]},
        {**OPTS, "x": 1},
    ]


async def test_a_directive_cannot_say_who_asks() -> None:
    """Its options come after those of the place, and identity is no option of a directive at all."""
    provider = Counter(lambda state: ProviderResult(state, []))
    forged = {"agent_id": "eve", "alias": "other", "table": "theirs", "mine": 1}
    await execute_directive(QUERY.replace(opts=forged), provider, UNOPENED, {**OPTS, "table": "ours"})
    await execute_directive(QUERY.replace(opts=forged), provider, UNOPENED, {})
    assert provider.told[0][-1] == {**OPTS, "table": "ours", "mine": 1}
    assert provider.told[1][-1] == {"table": "theirs", "mine": 1}


@pytest.mark.parametrize("directive", ALL, ids=["query", "upsert", "delete"])
async def test_a_failure_hands_its_state_back_too(directive: Any) -> None:
    """The state of a failed operation counts as much as that of any other."""
    state, told = await execute_directive(
        directive, Counter(lambda state: ProviderFailure(state, "no room")), 7, OPTS
    )
    assert state == (8 if directive is QUERY else 9)
    assert (told["status"], told["result"]) == ("error", [])
    assert "no room" in told["error"]
    signal(told)


async def test_one_bad_key_does_not_keep_the_others_back() -> None:
    """All are tried; the result is an error that names what failed and what did not."""
    items = [{"key": key, "value": 1} for key in ("a", "bad", "c", "bad", "e")]

    class Picky(InlineProvider):
        def put(self, state: Any, key: str, value: Any, opts: Any) -> Any:
            if key == "bad":
                return ProviderFailure(state, "bad key")
            return super().put(state, key, value, opts)

    state, told = await execute_directive(upsert(*items), Picky(), UNOPENED, OPTS)
    assert state == {"a": 1, "c": 1, "e": 1}
    assert (told["status"], told["error"]) == ("error", "2 of 5 failed: bad key")
    assert [detail["status"] for detail in told["details"]] == ["ok", "error", "ok", "error", "ok"]
    assert told["details"][1] == {"key": "bad", "status": "error", "error": "bad key"}


async def test_keys_that_are_none_fail_by_themselves() -> None:
    """They never reach the provider; the others do."""
    provider = Counter()
    items = [{"key": key, "value": 1} for key in (3, None, "", "x" * 5000, ["a"], "ok")]
    _, told = await execute_directive(upsert(*items), provider, UNOPENED, OPTS)
    assert [call[2] for call in provider.told] == ["ok"]
    assert [detail["status"] for detail in told["details"]] == ["error"] * 5 + ["ok"]
    assert len(str(told)) < 3000
    signal(told)


@pytest.mark.parametrize("directive", ALL, ids=["query", "upsert", "delete"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "NoneType"),
        ({"ok": True}, "dict"),
        (("ok", 1), "tuple"),
        (ProviderResult, "StructMeta"),
    ],
)
async def test_an_answer_that_is_none_is_told_as_nonsense(directive: Any, given: Any, said: str) -> None:
    """The state stays what it was, for none came back."""
    state, told = await execute_directive(directive, Counter(lambda _: given), 7, OPTS)
    assert state == 7
    assert told["status"] == "error"
    assert f"returned {said}, not ProviderResult or ProviderFailure" in told["error"]
    signal(told)


class Trap:
    """A list that cannot be read."""

    def __len__(self) -> int:
        raise RuntimeError("trap")


class Broken(list[Any]):
    """A list that breaks while it is read."""

    def __iter__(self) -> Any:
        raise RuntimeError("trap")


def deep(levels: int) -> Any:
    """Data in that many lists."""
    held: Any = 1
    for _ in range(levels):
        held = [held]
    return held


@pytest.mark.parametrize(
    "found",
    [
        None,
        "text",
        b"bytes",
        {"key": "a"},
        {1, 2},
        7,
        [1],
        ["a"],
        [{"key": "a"}, None],
        [{"key": object()}],
        [{"key": float("nan")}],
        [{1: "x"}],
        [{"key": "a\0"}],
        [{"value": deep(200)}],
        Trap(),
        Broken([1]),
        iter([]),
    ],
    ids=lambda found: type(found).__name__ + str(found)[:12],
)
async def test_results_that_no_signal_can_carry_are_told_as_nonsense(found: Any) -> None:
    """A question is answered with a list of maps that can be kept, or else it failed."""
    state, told = await execute_directive(QUERY, Counter(lambda state: ProviderResult(state, found)), 7, OPTS)
    assert state == 8
    assert (told["status"], told["result"]) == ("error", [])
    assert told["error"].startswith("query returned")
    signal(told)


class Unsayable(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def work_raising(error: BaseException) -> Callable[..., Any]:
    """Work that raises."""

    def work(state: Any) -> Any:
        raise error

    return work


@pytest.mark.parametrize("directive", ALL, ids=["query", "upsert", "delete"])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad\0\ud800" + "x" * 10_000),
        Unsayable(),
        StopIteration(),
        StopAsyncIteration(),
        TimeoutError("mine"),
        CancelledError("not yours"),
        RecursionError(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("instant", [True, False])
async def test_what_a_provider_raises_is_told(directive: Any, error: BaseException, instant: bool) -> None:
    """In a few words, with the type; a cancellation that is the provider's own is one of its failures."""
    provider = Counter(work_raising(error))
    provider.instant = instant
    state, told = await execute_directive(directive, provider, 7, OPTS)
    assert (state, told["status"]) == (7, "error")
    assert len(told["error"]) <= 300
    named = "was cancelled" if isinstance(error, CancelledError) else type(error).__name__
    assert named in told["error"]
    signal(told)


@pytest.mark.parametrize("reason", [None, 3, object(), "x" * 10_000, "a\0b\udfff"])
async def test_a_reason_is_always_short_text(reason: Any) -> None:
    """Whatever a provider gives for one."""
    _, told = await execute_directive(QUERY, Counter(lambda state: ProviderFailure(state, reason)), 7, OPTS)
    assert isinstance(told["error"], str)
    assert 0 < len(told["error"]) <= 300
    signal(told)


async def test_a_question_to_who_answers_none_fails() -> None:
    """The provider is not even opened."""
    state, told = await execute_directive(QUERY, Plain(), UNOPENED, OPTS)
    assert state is UNOPENED
    assert (told["status"], told["error"]) == ("error", "query not supported")


@pytest.mark.parametrize("directive", ALL, ids=["query", "upsert", "delete"])
async def test_a_provider_that_cannot_be_opened_is_tried_again(directive: Any) -> None:
    """The result is an error for every key, and the next directive opens anew."""

    class Closed(Counter):
        broken = True

        def init(self, opts: Any) -> Any:
            if self.broken:
                raise OSError("no disk")
            return ProviderResult(3)

    provider = Closed(lambda state: ProviderResult(state, []))
    state, told = await execute_directive(directive, provider, UNOPENED, OPTS)
    assert (state, provider.told) == (UNOPENED, [])
    assert (told["status"], told["error"]) == ("error", "could not be opened (OSError: no disk)")
    assert {detail["error"] for detail in told.get("details", [])} <= {told["error"]}
    provider.broken = False
    state, told = await execute_directive(directive, provider, state, OPTS)
    assert (state, told["status"]) == (4 if directive is QUERY else 5, "ok")
    unwilling = Counter()
    unwilling.init = lambda opts: ProviderFailure(None, "not today")  # type: ignore[method-assign, assignment, return-value]
    state, told = await execute_directive(directive, unwilling, UNOPENED, OPTS)
    assert (state, told["error"]) == (UNOPENED, "could not be opened (not today)")


class Hanging(InlineProvider):
    """Hangs at one key for ever."""

    async def put(self, state: Any, key: str, value: Any, opts: Any) -> Any:  # type: ignore[override]
        if key == "hang":
            await anyio.sleep_forever()
        return super().put(state, key, value, opts)

    async def query(self, state: Any, query: Any, opts: Any) -> Any:  # type: ignore[override]
        await anyio.sleep_forever()


async def test_who_hangs_is_left_behind() -> None:
    """What was done before time ran out is done; the rest is told as late."""
    items = [{"key": key, "value": 1} for key in ("a", "hang", "c")]
    state, told = await execute_directive(upsert(*items), Hanging(), UNOPENED, OPTS, timeout=0.02)
    assert state == {"a": 1}
    assert told["error"] == "2 of 3 failed: timed out after 0.02 s"
    assert [detail["status"] for detail in told["details"]] == ["ok", "error", "error"]
    state, told = await execute_directive(QUERY, Hanging(), state, OPTS, timeout=0.02)
    assert (state, told["error"]) == ({"a": 1}, "timed out after 0.02 s")
    assert told["meta"]["latency_ms"] >= 20

    class Slow(Counter):
        async def init(self, opts: Any) -> int:  # type: ignore[override]
            await anyio.sleep_forever()
            return 0

    state, told = await execute_directive(DELETE, Slow(), UNOPENED, OPTS, timeout=0.02)
    assert (state, told["error"]) == (UNOPENED, "timed out after 0.02 s")
    assert [detail["status"] for detail in told["details"]] == ["error", "error"]


async def test_plain_methods_do_not_hold_up_the_event_loop() -> None:
    """They run in a thread, and one that hangs there is left behind as well."""
    go, begun = threading.Event(), threading.Event()

    class Blocking(Plain):
        opened: list[Any] = []  # noqa: RUF012 - of one test

        def delete(self, state: int, key: str, opts: Any) -> Any:
            begun.set()
            assert threading.current_thread() is not threading.main_thread()
            go.wait(10)
            return ProviderResult(state + 1)

    try:
        results: list[Any] = []

        async def work() -> None:
            results.append(await execute_directive(DELETE, Blocking(), 0, OPTS))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            await eventually(begun.is_set)
            assert results == []
            late = await execute_directive(DELETE, Blocking(), 5, OPTS, timeout=0.02)
            assert (late[0], late[1]["status"]) == (5, "error")
            go.set()
        ((state, told),) = results
        assert (state, told["status"]) == (2, "ok")
    finally:
        go.set()


async def test_a_plain_method_may_give_something_to_wait_for() -> None:
    """What it gives is awaited, wherever it was made."""

    async def later(state: int) -> ProviderResult:
        await anyio.lowlevel.checkpoint()
        return ProviderResult(state, [])

    for instant in (True, False):
        provider = Counter(later)
        provider.instant = instant
        assert (await execute_directive(QUERY, provider, 0, OPTS))[0] == 1


@pytest.mark.parametrize("directive", ALL, ids=["query", "upsert", "delete"])
async def test_who_is_cancelled_stops(directive: Any) -> None:
    """Cancellation from outside is no result."""

    async def forever(state: int) -> ProviderResult:
        await anyio.sleep_forever()
        raise AssertionError

    ended = False
    with anyio.CancelScope() as scope:
        scope.cancel()
        await execute_directive(directive, Counter(forever), 0, OPTS, timeout=10)
        ended = True
    assert scope.cancelled_caught
    assert not ended


async def test_a_directive_without_a_provider_gets_a_result_too() -> None:
    """It says under which name there is none."""
    told = refusal_data(DELETE, "memory provider 'notes' does not exist; use one of inline")
    assert told["meta"] == {"provider": "notes", "latency_ms": 0}
    assert (told["request_id"], told["status"], told["result"]) == ("r1", "error", [])
    assert "inline" in told["error"]
    signal(told)


async def test_a_provider_without_a_name_is_called_by_its_type() -> None:
    """A result always says where it comes from."""
    provider = Counter()
    for name in (None, 3, ""):
        provider.name = name  # type: ignore[assignment]
        _, told = await execute_directive(DELETE, provider, 0, OPTS)
        assert told["meta"]["provider"] == "Counter"


@given(st.lists(st.tuples(st.text(max_size=3), data), max_size=6), data)
def test_whatever_is_put_and_found_ends_in_a_signal(items: list[tuple[str, Any]], found: Any) -> None:
    """For all keys and values, the result can be sent, and says of each key what became of it."""

    async def play() -> None:
        asked = [(key, freeze(value)) for key, value in items if "\0" not in key and key.isprintable()]
        directive = upsert(*({"key": key, "value": value} for key, value in asked))
        state, told = await execute_directive(directive, InlineProvider(), UNOPENED, OPTS)
        assert state == {key: value for key, value in asked if key.strip()}
        assert [detail["status"] == "ok" for detail in told["details"]] == [bool(k.strip()) for k, _ in asked]
        signal(told)
        _, told = await execute_directive(QUERY, Counter(lambda state: ProviderResult(state, found)), 0, OPTS)
        good = isinstance(found, (list, tuple)) and all(isinstance(item, dict) for item in found)
        assert told["status"] == ("ok" if good else "error")
        signal(told)

    anyio.run(play)
