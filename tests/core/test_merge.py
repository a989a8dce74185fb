"""Two changes of the same agent are merged where they changed different parts of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Agent, Identity, Memory, Plugin, Signal, Space, Thread
from omoide.core.definition import apply_late_result
from omoide.core.state import IDENTITY, MEMORY, STRATEGY, THREAD, StrategyState
from omoide.directives import DeleteKeys, Emit, ReplaceState, SetPath
from omoide.errors import Conflict, InvalidState
from omoide.testing import reproducible

Change = Callable[[Any], Any]

SPACES = ("world", "tasks", "rag:cache", "notes", "log", "fresh")
MAPS = ("world", "rag:cache")
LISTS = ("tasks", "log")


def begin() -> Memory:
    memory = Memory(id="m", created_at=0).ensure_space("rag:cache", {"a": 1}, now=1)
    return memory.ensure_space("log", [{"id": "x"}], now=1).ensure_space("notes", {}, now=1)


def changes_of(name: str) -> st.SearchStrategy[Change]:
    """Changes of one space: of its items, of the whole, its deletion and its creation."""
    keys, values = st.sampled_from("abc"), st.integers(0, 3)
    if name in MAPS:
        return st.one_of(
            st.builds(lambda k, v: lambda memory: memory.put_in_space(name, k, v, now=2), keys, values),
            st.builds(lambda k: lambda memory: memory.delete_from_space(name, k, now=2), keys),
        )
    if name in LISTS:
        item = st.fixed_dictionaries({"id": keys})
        return st.builds(lambda one: lambda memory: memory.append_to_space(name, one, now=2), item)
    return st.one_of(
        st.builds(lambda v: lambda memory: memory.put_space(name, Space(data={"v": v}), now=2), values),
        st.just(lambda memory: memory.delete_space(name, now=2)),
    )


def several(names: tuple[str, ...]) -> st.SearchStrategy[list[Change]]:
    return st.lists(st.sampled_from(names).flatmap(changes_of), max_size=6) if names else st.just([])


def apply_all(memory: Memory, changes: list[Change]) -> Memory:
    for change in changes:
        memory = change(memory)
    return memory


@st.composite
def disjoint(draw: st.DrawFn) -> tuple[list[Change], list[Change]]:
    mine = draw(st.sets(st.sampled_from(SPACES)))
    others = tuple(name for name in SPACES if name not in mine)
    return draw(several(tuple(sorted(mine)))), draw(several(others))


@given(disjoint())
def test_changes_of_different_spaces_merge_as_if_made_one_after_the_other(
    both: tuple[list[Change], list[Change]],
) -> None:
    """In either order, with the revisions and times that they would have then."""
    first, second = both
    base = begin()
    own, other = apply_all(base, first), apply_all(base, second)
    merged = own.merge(base, other)
    assert merged == other.merge(base, own)
    assert merged == apply_all(own, second) == apply_all(other, first)


@given(several(SPACES), several(SPACES))
def test_changes_of_the_same_space_conflict(first: list[Change], second: list[Change]) -> None:
    """The error names a space that both changed; what only one side changed never conflicts."""
    base = begin()
    own, other = apply_all(base, first), apply_all(base, second)
    both = {
        name
        for name in SPACES
        if own.space(name) != base.space(name) != other.space(name) and own.space(name) != other.space(name)
    }
    if both:
        with pytest.raises(Conflict) as caught:
            own.merge(base, other)
        assert caught.value.thing in {f"space {name!r}" for name in both}
        return
    merged = own.merge(base, other)
    for name in SPACES:
        changed = own if own.space(name) != base.space(name) else other
        assert merged.space(name) == changed.space(name)


def test_a_space_that_one_side_deleted_and_the_other_changed_conflicts() -> None:
    """Neither the deletion nor the change is lost in silence; both deleting it is no conflict."""
    base = begin()
    deleted, changed = base.delete_space("rag:cache"), base.put_in_space("rag:cache", "b", 2)
    for own, other in ((deleted, changed), (changed, deleted)):
        with pytest.raises(Conflict, match="'rag:cache' was changed meanwhile"):
            own.merge(base, other)
    assert not deleted.merge(base, base.delete_space("rag:cache")).has_space("rag:cache")


def test_memories_that_both_began_with_none_are_merged() -> None:
    """Two sides that each made the agent's first memory changed different spaces of the default one."""
    own, other = Memory(id="a").world_put("door", "open"), Memory(id="b").tasks_add("Check", id="t")
    merged = own.merge(None, other)
    assert merged.id == "a"
    assert merged.world() == {"door": "open"}
    assert [task["id"] for task in merged.tasks()] == ["t"]


def test_a_memory_that_was_replaced_by_another_conflicts_with_any_change() -> None:
    """A memory with another id has no changes that could be taken over."""
    base = begin()
    with pytest.raises(Conflict, match="'m'"):
        base.world_put("a", 1).merge(base, Memory(id="other"))


texts = st.lists(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=3), max_size=4)


@given(texts, texts, texts)
def test_threads_keep_the_entries_of_both_sides(
    before: list[str], mine: list[str], theirs: list[str]
) -> None:
    """The entries of this side come first, then those of the other, numbered on."""

    def append(thread: Thread, texts: list[str]) -> Thread:
        return thread.append([{"kind": "note", "payload": {"text": text}} for text in texts], now=2)

    base = append(Thread(id="t", created_at=0), before)
    own, other = append(base, mine), append(base, theirs)
    merged = own.merge(base, other)
    assert merged.extends(own)
    assert merged.rev == len(merged.entries) == len([*before, *mine, *theirs])
    assert [entry.payload["text"] for entry in merged.entries] == [*before, *mine, *theirs]
    assert [entry.seq for entry in merged.entries] == [*range(merged.rev)]
    assert {entry.id for entry in other.entries} <= {entry.id for entry in merged.entries}


PARTS: dict[str, Change] = {
    "profile": lambda identity: identity.put_profile("town", "Ulm", now=2),
    "age": lambda identity: identity.evolve(days=400, now=2),
    "action": lambda identity: identity.add_action("cook", now=2),
    "tag": lambda identity: identity.add_tag("fast", now=2),
    "other tag": lambda identity: identity.add_tag("cheap", now=2),
    "limit": lambda identity: identity.set_limit("tokens", 5, now=2),
    "io": lambda identity: identity.set_io("network", True, now=2),
    "extension": lambda identity: identity.put_extension("words", {"n": 1}, now=2),
    "other extension": lambda identity: identity.put_extension("notes", {"n": 2}, now=2),
}
parts = st.lists(st.sampled_from(sorted(PARTS)), unique=True)


@given(parts, st.data())
def test_identities_are_merged_part_by_part(mine: list[str], data: st.DataObject) -> None:
    """Changes of different parts are merged as if made one after the other."""
    left = [name for name in sorted(PARTS) if name not in mine]
    theirs = data.draw(st.lists(st.sampled_from(left), unique=True)) if left else []
    base = Identity(created_at=0).add_tag("old", now=1)

    def change(identity: Identity, names: list[str]) -> Identity:
        for name in names:
            identity = PARTS[name](identity)
        return identity

    own, other = change(base, mine), change(base, theirs)
    merged, expected = own.merge(base, other), change(own, theirs)
    assert merged == expected


def test_parts_of_an_identity_that_both_changed_conflict() -> None:
    """A fact, a limit, an extension and the age are named; a tag that was removed stays removed."""
    base = Identity(created_at=0).add_action("cook").add_action("wash")
    pairs: list[tuple[str, Change, Change]] = [
        ("profile.town", lambda it: it.put_profile("town", "Ulm"), lambda it: it.put_profile("town", "Bonn")),
        ("profile.age", lambda it: it.evolve(days=5), lambda it: it.put_profile("age", 3)),
        ("limits.n", lambda it: it.set_limit("n", 1), lambda it: it.set_limit("n", 2)),
        ("extensions.p", lambda it: it.put_extension("p", {}), lambda it: it.put_extension("p", {"a": 1})),
    ]
    for thing, mine, theirs in pairs:
        with pytest.raises(Conflict) as caught:
            mine(base).merge(base, theirs(base))
        assert caught.value.thing == thing
    merged = base.remove_action("cook").merge(base, base.add_action("iron"))
    assert merged.actions() == ["wash", "iron"]


# Results of actions that began earlier


class Words(Plugin):
    name = "words"

    def mount(self, agent: Agent, config: object) -> dict[str, Any]:
        return {"counts": {"a": 1}, "language": "en"}


def put_door(memory: Memory | None) -> Memory:
    assert memory is not None
    return memory.world_put("door", "open")


def append_one(thread: Thread | None) -> Thread:
    assert thread is not None
    return thread.append({"kind": "note", "payload": {"n": 1}})


def start() -> Agent:
    agent = Agent.new("late", plugins=[Words()], state={"own": {"x": 1}})
    return MEMORY.put(agent, begin())


def test_a_late_result_keeps_what_changed_meanwhile() -> None:
    """In other spaces, other slots, the slices of plugins and the rest of the state."""
    with reproducible():
        before = start()
        now = MEMORY.update(before, put_door)
        now = IDENTITY.put(now, Identity().add_tag("busy"))
        now, _ = apply_late_result(now, now, {"words": {"language": "ja"}, "own": {"y": 2}})
        result = {
            MEMORY.key: MEMORY.get_or_new(before).put_in_space("rag:cache", "b", 2),
            "words": {"counts": {"b": 1}},
            "own": {"z": 3},
        }
        after, directives = apply_late_result(before, now, (result, []))
        memory = MEMORY.get_or_new(after)
        assert memory.world() == {"door": "open"}
        assert memory.get_in_space("rag:cache", "b") == 2
        assert after.state["words"] == {"counts": {"a": 1, "b": 1}, "language": "ja"}
        assert after.state["own"] == {"x": 1, "y": 2, "z": 3}
        assert IDENTITY.get_or_new(after).has_tag("busy")
        assert directives == []


@pytest.mark.parametrize("form", ["value", "mapping", "path", "replaced state"])
def test_a_late_result_that_changed_the_same_space_changes_nothing(form: str) -> None:
    """However the action returned the slot, the error names the space and the slot."""
    before = start()
    now = MEMORY.update(before, put_door)
    stale = MEMORY.get_or_new(before).world_put("door", "shut")
    results: dict[str, Any] = {
        "value": stale,
        "mapping": {MEMORY.key: stale, "own": {"x": 2}},
        "path": (None, [SetPath(path=(MEMORY.key,), value=stale)]),
        "replaced state": (None, [ReplaceState(state={MEMORY.key: stale})]),
    }
    with pytest.raises(Conflict) as caught:
        apply_late_result(before, now, results[form])
    assert caught.value.thing == "space 'world' of __memory__"


def test_a_late_result_appends_to_the_thread_as_it_is_by_then() -> None:
    """What both sides appended is there, and a thread that lost entries is refused as before."""
    before = THREAD.put(start(), Thread(id="t").append({"kind": "note", "payload": {"n": 0}}))
    now = THREAD.update(before, append_one)
    late = THREAD.get_or_new(before).append({"kind": "note", "payload": {"n": 2}})
    after, _ = apply_late_result(before, now, late)
    assert [entry.payload["n"] for entry in THREAD.get_or_new(after).entries] == [0, 1, 2]
    with pytest.raises(InvalidState):
        apply_late_result(before, now, Thread(id="t"))
    with pytest.raises(InvalidState):
        apply_late_result(before, now, (None, [DeleteKeys(keys=(THREAD.key,))]))


def test_slots_without_parts_conflict_as_a_whole() -> None:
    """The state of a strategy that changed meanwhile is not replaced by an older one."""
    before = STRATEGY.put(start(), StrategyState(status="running"))
    now = STRATEGY.put(before, StrategyState(status="waiting"))
    with pytest.raises(Conflict, match="__strategy__ was changed meanwhile"):
        apply_late_result(before, now, {STRATEGY.key: StrategyState(status="success")})
    after, _ = apply_late_result(before, now, {STRATEGY.key: STRATEGY.get(before), "own": {"x": 9}})
    assert STRATEGY.get_or_new(after).status == "waiting"


def test_directives_of_a_late_result_are_returned() -> None:
    """As those of any other result."""
    before = start()
    emit = Emit(signal=Signal(type="done"))
    assert apply_late_result(before, before, (None, [emit]))[1] == [emit]
