"""Items of a space with a TTL expire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Agent, Memory, Space, clock, memory
from omoide.core import FrozenList
from omoide.errors import Conflict, Invalid, WrongType
from omoide.testing import FrozenClock

TTL = 100


def cache(data: Any = None, *, now: int = 0) -> Memory:
    """A memory with a space whose items live for 100 ms."""
    return Memory.new(now=now).ensure_space("rag:cache", {} if data is None else data, ttl_ms=TTL, now=now)


def test_an_item_of_a_map_expires_for_itself() -> None:
    """Each one after its own time; writing it again gives it another one."""
    held = cache().put_in_space("rag:cache", "a", 1, now=0).put_in_space("rag:cache", "b", 2, now=60)
    held = held.put_in_space("rag:cache", "c", 3, now=60)
    assert held.get_in_space("rag:cache", "a", now=99) == 1
    assert held.get_in_space("rag:cache", "a", "gone", now=100) == "gone"
    again = held.put_in_space("rag:cache", "b", 2, now=120)
    space = again.space("rag:cache", now=170)
    assert space is not None
    assert space.data == {"b": 2}
    assert again.get_in_space("rag:cache", "b", now=219) == 2
    assert again.get_in_space("rag:cache", "b", now=220) is None


def test_an_item_of_a_list_expires_for_itself() -> None:
    """Wherever it was inserted, and a changed one has its time from the change."""
    held = cache([]).append_to_space("rag:cache", {"id": "a"}, now=0)
    held = held.prepend_to_space("rag:cache", {"id": "b"}, now=50)
    held = held.append_to_space("rag:cache", {"id": "c"}, now=60)
    held = held.update_in_space("rag:cache", "c", lambda item: {**item, "n": 1}, now=80)
    assert ids_at(held, 99) == ["b", "a", "c"]
    assert ids_at(held, 100) == ["b", "c"]
    assert ids_at(held, 150) == ["c"]
    assert ids_at(held.remove_from_space("rag:cache", "b", now=90), 120) == ["c"]
    assert ids_at(held, 180) == []


def ids_at(held: Memory, now: int) -> list[str]:
    space = held.space("rag:cache", now=now)
    assert space is not None
    return [item["id"] for item in space.data]


def test_a_change_drops_what_expired() -> None:
    """The next write leaves it out of the data; the revisions count the write only."""
    held = cache().put_in_space("rag:cache", "a", 1, now=0)
    after = held.put_in_space("rag:cache", "b", 2, now=200)
    assert after.spaces["rag:cache"].data == {"b": 2}
    assert (after.rev - held.rev, after.spaces["rag:cache"].rev - held.spaces["rag:cache"].rev) == (1, 1)
    seen: list[Any] = []

    def note_data(data: Any) -> Any:
        seen.append(data)
        return data

    def note_space(space: Space) -> Space:
        seen.append(space.data)
        return space

    held.update_space_data("rag:cache", note_data, now=200)
    held.update_space("rag:cache", note_space, now=200)
    assert seen == [{}, {}]
    assert cache([]).append_to_space("rag:cache", 1, now=0).append_to_space("rag:cache", 2, now=200).spaces[
        "rag:cache"
    ].data == [2]


def test_reading_changes_nothing() -> None:
    """What expired is not shown, and stays until the next change of the space."""
    held = cache({"a": 1})
    space = held.space("rag:cache", now=500)
    assert space is not None
    assert (space.data, space.rev) == ({}, held.spaces["rag:cache"].rev)
    assert held.spaces["rag:cache"].data == {"a": 1}
    with pytest.raises(Conflict):
        held.put_in_space("rag:cache", "b", 1, expected_space_rev=7, now=500)


def test_the_functions_on_agents_go_by_the_clock() -> None:
    """Also on the fast path; `now` is theirs to give."""
    frozen = FrozenClock(1_000)
    with clock.override(frozen):
        agent = memory.ensure_space(Agent.new("a"), "rag:cache", {}, ttl_ms=TTL)
        agent = memory.put_in_space(agent, "rag:cache", "a", 1)
        agent = memory.put_in_space(agent, "world", "a", 1)
        frozen.advance(99)
        assert memory.get_in_space(agent, "rag:cache", "a") == 1
        frozen.advance(1)
        assert memory.get_in_space(agent, "rag:cache", "a") is None
        assert memory.get_in_space(agent, "rag:cache", "a", now=1_050) == 1
        assert memory.space(agent, "rag:cache").data == {}  # type: ignore[union-attr]
        assert memory.world_get(agent, "a") == 1
        agent = memory.put_in_space(agent, "rag:cache", "b", 2)
        assert memory.of(agent).spaces["rag:cache"].data == {"b": 2}


def test_the_reserved_spaces_may_have_a_ttl() -> None:
    """The world forgets, and tasks expire, wherever they are read."""
    held = (
        Memory.new()
        .put_space("world", Space.new_kv(ttl_ms=TTL))
        .put_space("tasks", Space.new_list(ttl_ms=TTL))
    )
    held = held.world_put("a", 1, now=0).tasks_add("write", id="t", now=0)
    agent = memory.put(Agent.new("a"), held)
    with clock.override(FrozenClock(99)):
        assert (memory.world(agent), len(memory.tasks(agent)), memory.world_get(agent, "a")) == (
            {"a": 1},
            1,
            1,
        )
    with clock.override(FrozenClock(100)):
        assert (memory.world(agent), [*memory.tasks(agent)], memory.world_get(agent, "a")) == ({}, [], None)
        assert (memory.tasks_next(agent), memory.tasks_open(agent)) == (None, [])


def test_a_ttl_comes_back_from_json() -> None:
    """With the time of each item."""
    for held in (
        cache().put_in_space("rag:cache", "a", 1, now=50),
        cache([]).append_to_space("rag:cache", 1, now=50),
    ):
        again = Memory.from_json(held.to_json())
        assert again == held
        assert len(again.space("rag:cache", now=149).data) == 1  # type: ignore[union-attr]
        assert len(again.space("rag:cache", now=150).data) == 0  # type: ignore[union-attr]


def test_what_a_space_is_made_with_has_its_time() -> None:
    """The data of `ensure_space` and `put_space` counts from that moment."""
    held = Memory.new().ensure_space("a", {"k": 1}, ttl_ms=TTL, now=50)
    held = held.put_space("b", Space.new_list([1, 1], ttl_ms=TTL), now=70)
    assert (held.get_in_space("a", "k", now=149), held.get_in_space("a", "k", now=150)) == (1, None)
    assert held.space("b", now=169).data == [1, 1]  # type: ignore[union-attr]
    assert held.space("b", now=170).data == []  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("ttl", "error"), [(-1, Invalid), (0, Invalid), ("5", WrongType), (True, WrongType), (1.5, WrongType)]
)
def test_a_ttl_is_a_positive_number(ttl: Any, error: type[Exception]) -> None:
    """And only a map or a list has one."""
    with pytest.raises(error, match="ttl_ms"):
        Memory.new().ensure_space("a", {}, ttl_ms=ttl)
    with pytest.raises(WrongType, match="data"):
        Space(data=5, ttl_ms=5)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["put", "delete", "append", "remove"]), st.integers(0, 3), st.integers(0, 60)
        )
    )
)
def test_a_space_with_a_ttl_holds_what_was_written_lately(steps: list[tuple[str, int, int]]) -> None:
    """Against a plain model: each item with the moment of its last write."""
    held, now = cache().ensure_space("log", [], ttl_ms=TTL, now=0), 0
    kv: dict[str, int] = {}
    listed: list[tuple[int, int]] = []
    for step, number, pause in steps:
        now += pause
        kv = {key: at for key, at in kv.items() if now - at < TTL}
        listed = [(item, at) for item, at in listed if now - at < TTL]
        if step == "put":
            held, kv = held.put_in_space("rag:cache", str(number), number, now=now), kv | {str(number): now}
        elif step == "delete":
            held = held.delete_from_space("rag:cache", str(number), now=now)
            kv = {key: at for key, at in kv.items() if key != str(number)}
        elif step == "append":
            held = held.append_to_space("log", {"id": number}, now=now)
            listed = [*listed, (number, now)]
        else:
            held = held.remove_from_space("log", number, now=now)  # type: ignore[arg-type]
            listed = [(item, at) for item, at in listed if item != number]
        space, log = held.space("rag:cache", now=now), held.space("log", now=now)
        assert space is not None
        assert log is not None
        assert {*space.data} == {*kv}
        assert [item["id"] for item in log.data] == [item for item, _ in listed]
        assert isinstance(log.data, FrozenList)
