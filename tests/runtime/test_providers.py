"""All providers store values under keys in the same way."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from inspect import isawaitable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import data, scramble

from omoide.core import FrozenMap, freeze
from omoide.runtime.providers import (
    InlineProvider,
    Outcome,
    Provider,
    ProviderFailure,
    ProviderResult,
    QueryableProvider,
    StoreProvider,
    TableProvider,
    drop_table,
    drop_tables_of,
)
from omoide.runtime.providers.protocol import MAX_KEY_BYTES
from omoide.stores import open_store

KINDS = ("inline", "table", "memory", "sqlite")
OPTS = {"agent_id": "ada", "alias": "notes"}
_agents = count()


class Held:
    """A provider with the state that came back last."""

    def __init__(self, provider: Any, opts: dict[str, Any]) -> None:
        self.provider = provider
        self.opts = opts
        self.state: Any = None

    async def open(self) -> Held:
        self.state = await self.settled(self.provider.init(self.opts))
        return self

    async def settled(self, given: Any) -> Any:
        return await given if isawaitable(given) else given

    async def ask(self, method: str, *args: Any, **opts: Any) -> Outcome:
        answer = await self.settled(getattr(self.provider, method)(self.state, *args, {**self.opts, **opts}))
        assert isinstance(answer, (ProviderResult, ProviderFailure))
        self.state = answer.state
        return answer

    async def get(self, key: str) -> Any:
        answer = await self.ask("get", key)
        return ("failed", answer.reason) if isinstance(answer, ProviderFailure) else answer.value


@asynccontextmanager
async def open_provider(kind: str, folder: Path) -> AsyncIterator[Held]:
    """A fresh provider of a kind."""
    opts = {**OPTS, "agent_id": f"agent-{next(_agents)}"}
    if kind == "inline":
        yield await Held(InlineProvider(), opts).open()
    elif kind == "table":
        yield await Held(TableProvider(), opts).open()
        drop_tables_of(opts["agent_id"])
    else:
        url = "memory://" if kind == "memory" else f"sqlite:///{folder / 'memory.db'}"
        async with open_store(url, embedder="none") as store:
            yield await Held(StoreProvider(store), opts).open()


@pytest.mark.parametrize("kind", KINDS)
class TestEveryProvider:
    """What holds of each of them."""

    async def test_it_is_a_provider(self, kind: str, tmp_path: Path) -> None:
        """It has what is asked of one, with a name, and answers questions, too."""
        async with open_provider(kind, tmp_path) as held:
            assert isinstance(held.provider, Provider)
            assert isinstance(held.provider, QueryableProvider)
            assert held.provider.name in ("inline", "table", "store")

    async def test_what_was_put_comes_back(self, kind: str, tmp_path: Path) -> None:
        """Under its key, as it was, until something else is put there."""
        async with open_provider(kind, tmp_path) as held:
            assert await held.ask("put", "a", {"x": [1, None, True]}) == ProviderResult(held.state)
            assert await held.get("a") == {"x": [1, None, True]}
            await held.ask("put", "a", "tea")
            assert await held.get("a") == "tea"

    async def test_a_missing_key_is_not_found(self, kind: str, tmp_path: Path) -> None:
        """To get it fails, to delete it does not."""
        async with open_provider(kind, tmp_path) as held:
            assert await held.ask("get", "a") == ProviderFailure(held.state, "not_found")
            assert await held.ask("delete", "a") == ProviderResult(held.state)

    async def test_what_was_deleted_is_gone_and_can_be_put_again(self, kind: str, tmp_path: Path) -> None:
        """The same value too, which a store might take for no change."""
        async with open_provider(kind, tmp_path) as held:
            await held.ask("put", "a", "tea")
            await held.ask("put", "b", "coffee")
            await held.ask("delete", "a")
            assert await held.get("a") == ("failed", "not_found")
            assert await held.get("b") == "coffee"
            await held.ask("put", "a", "tea")
            assert await held.get("a") == "tea"

    async def test_what_a_caller_does_to_a_value_later_changes_nothing(
        self, kind: str, tmp_path: Path
    ) -> None:
        """Values are taken over frozen."""
        async with open_provider(kind, tmp_path) as held:
            value = {"list": [1, 2], "map": {"x": 1}}
            await held.ask("put", "a", value)
            scramble(value)
            assert await held.get("a") == {"list": [1, 2], "map": {"x": 1}}

    @pytest.mark.parametrize("key", ["", "  ", "a\0b", "\ud800", "k" * (MAX_KEY_BYTES + 1)])
    async def test_a_key_that_cannot_be_one_is_refused(self, kind: str, tmp_path: Path, key: str) -> None:
        """Empty, beyond every codec, or too long: the answer says that it failed, and quotes no long key."""
        async with open_provider(kind, tmp_path) as held:
            answer = await held.ask("put", key, 1)
            assert isinstance(answer, ProviderFailure)
            assert "key" in answer.reason
            assert len(answer.reason) < 200

    @pytest.mark.parametrize(
        "key",
        [
            "ключ",
            "🗝️",
            "a/../b",
            "a'; DROP TABLE entries; --",
            "\t\n",
            "deleted",
            "k" * MAX_KEY_BYTES,
            "\u00e9",
            "e\u0301",
        ],
    )
    async def test_a_key_may_be_any_other_text(self, kind: str, tmp_path: Path, key: str) -> None:
        """Nothing in it has a meaning, and what looks alike is not the same."""
        async with open_provider(kind, tmp_path) as held:
            key = key if key.strip() else f"x{key}"
            await held.ask("put", key, "here")
            assert await held.get(key) == "here"
            assert await held.get(key[:-1] + "?") == ("failed", "not_found")
            await held.ask("delete", key)
            assert await held.get(key) == ("failed", "not_found")

    @pytest.mark.parametrize("value", [object(), {"x": float("nan")}, {1: "int key"}, "a\0"])
    async def test_a_value_that_cannot_be_kept_is_refused(
        self, kind: str, tmp_path: Path, value: Any
    ) -> None:
        """What was there before stays."""
        async with open_provider(kind, tmp_path) as held:
            await held.ask("put", "a", 1)
            assert isinstance(await held.ask("put", "a", value), ProviderFailure)
            assert await held.get("a") == 1

    async def test_a_question_that_is_not_understood_is_no_empty_answer(
        self, kind: str, tmp_path: Path
    ) -> None:
        """A part that would be passed over is named, and what is understood is said."""
        async with open_provider(kind, tmp_path) as held:
            answer = await held.ask("query", {"colour": "blue"})
            assert isinstance(answer, ProviderFailure)
            assert "query.colour" in answer.reason
            assert "top_k" in answer.reason
            for wrong in (0, -1, "5", True, 10**6):
                assert isinstance(await held.ask("query", {"top_k": wrong, "text": "tea"}), ProviderFailure)


@pytest.mark.parametrize("kind", ["inline", "table"])
async def test_maps_find_by_prefix_and_fields(kind: str, tmp_path: Path) -> None:
    """Both conditions count, results go by their keys, and `top_k` cuts."""
    async with open_provider(kind, tmp_path) as held:
        for key, value in {
            "user:2": {"team": "red", "on": True},
            "user:1": {"team": "red", "on": 1},
            "user:3": {"team": "blue"},
            "other": {"team": "red"},
            "text": "red",
        }.items():
            await held.ask("put", key, value)

        async def found(**query: Any) -> list[str]:
            answer = await held.ask("query", query)
            assert isinstance(answer, ProviderResult)
            return [item["key"] for item in answer.value]

        assert await found() == ["other", "text", "user:1", "user:2", "user:3"]
        assert await found(prefix="user:") == ["user:1", "user:2", "user:3"]
        assert await found(where={"team": "red"}) == ["other", "user:1", "user:2"]
        assert await found(prefix="user:", where={"team": "red"}, top_k=1) == ["user:1"]
        assert await found(where={"on": True}) == ["user:2"]
        assert await found(where={"absent": None}) == []
        answer = await held.ask("query", {"prefix": "other"})
        assert isinstance(answer, ProviderResult)
        assert answer.value == [{"key": "other", "score": 1.0, "value": {"team": "red"}}]


def test_inline_changes_nothing_but_its_answer() -> None:
    """The state that was given stays what it was: the data is a value like any other."""
    inline = InlineProvider()
    empty = inline.init({})
    full = inline.put(empty, "a", 1, {}).state
    assert empty == {}
    assert isinstance(full, FrozenMap)
    assert inline.delete(full, "a", {}).state == {}
    assert full == {"a": 1}


def test_a_named_table_is_the_same_for_all_and_others_are_private() -> None:
    """Who names no table has one of their own for each alias, which no name leads to."""
    table, name = TableProvider(), f"shared-{next(_agents)}"
    ada, bob = {"agent_id": "ada", "alias": "x"}, {"agent_id": "bob", "alias": "x"}
    try:
        table.put(None, "a", 1, {**ada, "table": name})
        assert table.get(None, "a", {**bob, "table": name}) == ProviderResult(None, 1)
        table.put(None, "b", 2, ada)
        for other in (bob, {**ada, "alias": "y"}, {"table": "ada"}, {"table": "('agent', 'ada', 'x')"}):
            assert table.get(None, "b", other) == ProviderFailure(None, "not_found")
        assert table.get(None, "b", ada) == ProviderResult(None, 2)
        drop_tables_of("ada")
        assert table.get(None, "b", ada) == ProviderFailure(None, "not_found")
        assert drop_table(name)
        assert not drop_table(name)
        assert table.get(None, "a", {**bob, "table": name}) == ProviderFailure(None, "not_found")
    finally:
        drop_table(name)


def test_many_threads_can_use_one_table() -> None:
    """Every write of every thread is there in the end, and no question ever sees a torn table."""
    table, opts, threads, each = TableProvider(), {"table": f"busy-{next(_agents)}"}, 8, 300
    wrong: list[Any] = []
    begin = threading.Barrier(threads)

    def work(me: int) -> None:
        begin.wait()
        for number in range(each):
            table.put(None, f"{me}:{number}", {"me": me, "number": number}, opts)
            if number % 3 == 0:
                table.delete(None, f"{me}:{number}", opts)
            seen = table.query(None, {"prefix": f"{me}:", "top_k": 1000}, opts)
            wanted = sum(at % 3 != 0 for at in range(number + 1))
            if not isinstance(seen, ProviderResult) or len(seen.value) != wanted:
                wrong.append(seen)

    running = [threading.Thread(target=work, args=(me,)) for me in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    try:
        assert wrong == []
        for me in range(threads):
            for number in range(each):
                found = table.get(None, f"{me}:{number}", opts)
                assert isinstance(found, ProviderFailure) == (number % 3 == 0)
    finally:
        drop_table(opts["table"])


steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "delete", "get"]), st.sampled_from(["a", "b", "ä"]), data),
    max_size=15,
)


@pytest.mark.parametrize("kind", KINDS)
@given(steps=steps)
def test_a_provider_is_a_dictionary(kind: str, steps: list[tuple[str, str, Any]]) -> None:
    """Whatever is put and deleted, each key gives exactly the value that was put last."""

    async def play(folder: Path) -> None:
        model: dict[str, Any] = {}
        async with open_provider(kind, folder) as held:
            for step, key, value in steps:
                if step == "put":
                    assert isinstance(await held.ask("put", key, value), ProviderResult)
                    model[key] = freeze(value)
                elif step == "delete":
                    await held.ask("delete", key)
                    model.pop(key, None)
                found = await held.get(key)
                wanted = model.get(key, ("failed", "not_found"))
                assert (found, type(found)) == (wanted, type(wanted))
            for key, wanted in model.items():
                assert await held.get(key) == wanted

    with TemporaryDirectory() as folder:
        anyio.run(play, Path(folder))
