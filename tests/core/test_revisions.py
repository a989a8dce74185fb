"""Revisions of a memory and its spaces; stale revisions raise `Conflict`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import Mind, on_both, refusal_of

from omoide import Agent, Memory, Space, clock, memory
from omoide.errors import Conflict, OmoideError
from omoide.testing import FrozenClock

Call = tuple[Any, ...]


def prepare_mind(mind: Mind) -> Mind:
    """A mind with content in every space: container at 4, `world` and `tasks` at 1, `list` and `map` at 0."""
    mind = mind.ensure_space("list", [{"id": "i"}], now=10).ensure_space("map", {"k": 1}, now=10)
    done: Mind = mind.world_put("k", 1, now=10).tasks_add("Check", id="t", now=10)
    return done


def apply(mind: Mind, call: Call, **options: Any) -> Mind:
    operation, *args = call
    result: Mind = getattr(mind, operation)(*args, **options)
    return result


IN_A_SPACE: dict[str, list[Call]] = {
    "map": [
        ("put_in_space", "map", "k", 1),
        ("delete_from_space", "map", "k"),
        ("delete_from_space", "map", "absent"),
        ("update_space_data", "map", lambda old: old),
        ("update_space", "map", lambda old: old),
        ("space_update", "map", lambda old: Space.new_kv()),
        ("put_space", "map", Space.new_kv()),
        ("space_put", "map", Space.new_list()),
    ],
    "list": [
        ("append_to_space", "list", 1),
        ("prepend_to_space", "list", 1),
        ("insert_in_space", "list", 0, 1),
        ("remove_from_space", "list", "i"),
        ("update_in_space", "list", "i", lambda item: item),
    ],
    "world": [
        ("world_put", "k", 1),
        ("world_delete", "k"),
        ("world_delete", "absent"),
        ("world_update", lambda old: old),
        ("put_in_space", "world", "k", 1),
        ("put_space", "world", Space.new_kv()),
    ],
    "tasks": [
        ("tasks_add", "More"),
        ("tasks_insert", 0, "More"),
        ("tasks_complete", "t"),
        ("tasks_remove", "t"),
        ("tasks_reorder", ["t"]),
        ("tasks_reorder", []),
        ("append_to_space", "tasks", "raw"),
    ],
}
CHANGES = [(space, call) for space, calls in IN_A_SPACE.items() for call in calls]
OF_THE_CONTAINER: list[Call] = [
    ("ensure_space", "new", {}),
    ("put_space", "new", Space.new_list([1])),
    ("delete_space", "map"),
    ("space_delete", "list"),
    ("delete_space", "unknown"),
]
NOTHING_NEW: list[Call] = [
    ("ensure_space", "map", []),
    ("ensure_space", "world", {"k": 2}),
    ("remove_from_space", "list", "unknown"),
    ("update_in_space", "list", "unknown", lambda item: item),
    ("tasks_complete", "unknown"),
    ("tasks_remove", "unknown"),
]


def call_name(call: Any) -> str:
    parts = [str(part) for part in call if isinstance(part, (str, list))]
    return call if isinstance(call, str) else "-".join(parts)


@on_both
@pytest.mark.parametrize(("space", "call"), CHANGES, ids=call_name)
def test_a_change_in_a_space_counts_in_the_space_and_in_the_container(
    mind: Mind, space: str, call: Call
) -> None:
    """Both go up by one and the time is now; the other spaces stay where they were."""
    mind = prepare_mind(mind)
    after = apply(mind, call, now=20)
    before = mind.revs()
    assert after.revs() == {**before, "": before[""] + 1, space: before[space] + 1}
    assert (after.memory.updated_at, after.memory.created_at) == (20, mind.memory.created_at)


@on_both
@pytest.mark.parametrize("call", OF_THE_CONTAINER, ids=call_name)
def test_making_and_deleting_a_space_counts_in_the_container(mind: Mind, call: Call) -> None:
    """The container goes up by one, a new space begins at 0, and no other space moves."""
    mind = prepare_mind(mind)
    after, before = apply(mind, call, now=20), mind.revs()
    expected = {name: rev for name, rev in before.items() if call[0].startswith("ensure") or name != call[1]}
    if "delete" not in call[0]:
        expected["new"] = 0
    assert after.revs() == {**expected, "": before[""] + 1}
    assert after.memory.updated_at == 20


@on_both
@pytest.mark.parametrize("call", NOTHING_NEW, ids=call_name)
def test_what_changes_nothing_counts_nothing(mind: Mind, call: Call) -> None:
    """No revision and no time moves when there was nothing to do."""
    mind = prepare_mind(mind)
    assert apply(mind, call, now=20).memory == mind.memory


def test_ensuring_reading_and_putting_the_container_count_nothing() -> None:
    """A new memory is at 0; reads, `ensure`, `put` and `update` leave all revisions to others."""
    agent = memory.ensure(Agent.new("a"), now=5)
    assert Mind(agent).revs() == {"": 0, "world": 0, "tasks": 0}
    memory.get(agent), memory.has_memory(agent), memory.spaces(agent), memory.space(agent, "world")
    (
        memory.world(agent),
        memory.tasks(agent),
        memory.tasks_next(agent),
        memory.get_in_space(agent, "world", "a"),
    )
    agent = memory.put(memory.ensure(agent, now=9), memory.of(agent))
    agent = memory.update(agent, lambda old: old or Memory.new())
    assert Mind(agent).revs() == {"": 0, "world": 0, "tasks": 0}
    assert memory.of(agent).updated_at == 5


@on_both
def test_the_first_value_makes_revision_one(mind: Mind) -> None:
    """The container counts changes since creation: one `put_in_space` is one, creation is none."""
    mind = mind.put_in_space("world", "temperature", 22)
    assert mind.revs() == {"": 1, "world": 1, "tasks": 0}
    assert mind.ensure_space("more").revs() == {"": 2, "world": 1, "tasks": 0, "more": 0}


@on_both
@given(calls=st.lists(st.sampled_from([call for _, call in CHANGES if "remove" not in call[0]]), max_size=9))
def test_the_revision_is_the_number_of_changes(mind: Mind, calls: list[Call]) -> None:
    """After any changes the container's revision is their number."""
    mind = prepare_mind(mind)
    done = 4
    for call in calls:
        try:
            mind = apply(mind, call)
            done += 1
        except OmoideError:
            assert call[0].endswith("_space") or "data" in call[0]
    assert mind.memory.rev == done
    assert mind.memory.rev >= sum(rev for name, rev in mind.revs().items() if name)


@on_both
@pytest.mark.parametrize(("old", "supplied", "after"), [(0, 0, 1), (2, 0, 3), (2, 7, 8), (2, 2, 3)])
def test_replacing_a_space_never_lowers_its_revision(mind: Mind, old: int, supplied: int, after: int) -> None:
    """A new space keeps the revision it comes with; one that replaces another goes on from the higher."""
    mind = mind.put_space("board", Space(rev=old))
    assert mind.revs()["board"] == old
    assert mind.put_space("board", Space(rev=supplied)).revs()["board"] == after
    assert mind.update_space("board", lambda _: Space(rev=supplied)).revs()["board"] == after


@on_both
def test_time_is_told_by_the_clock_unless_given(mind: Mind) -> None:
    """A change is stamped with the clock in use, or with `now`."""
    with clock.override(FrozenClock(77)) as frozen:
        assert mind.world_put("k", 1).memory.updated_at == 77
        assert mind.world_put("k", 1, now=5).memory.updated_at == 5
        assert mind.tasks_add("x").memory.updated_at == frozen()
        assert mind.ensure_space("new").memory.updated_at == 77
        assert mind.delete_space("new", now=0).memory.updated_at == 0


@on_both
@pytest.mark.parametrize(("space", "call"), CHANGES, ids=call_name)
def test_a_change_of_what_was_read_last_is_made(mind: Mind, space: str, call: Call) -> None:
    """The expected revisions of container and space let a change through, alone or together."""
    mind = prepare_mind(mind)
    for options in (
        {"expected_rev": 4},
        {"expected_space_rev": mind.revs()[space]},
        {"expected_rev": 4, "expected_space_rev": mind.revs()[space]},
        {"expected_rev": None, "expected_space_rev": None},
    ):
        assert apply(mind, call, **options).memory.rev == 5


@on_both
@pytest.mark.parametrize(("space", "call"), CHANGES, ids=call_name)
@pytest.mark.parametrize("off", [-1, 1])
def test_a_change_of_something_older_is_a_conflict(mind: Mind, space: str, call: Call, off: int) -> None:
    """A stale revision of container or space is refused with both numbers, whatever the other one says."""
    mind = prepare_mind(mind)
    rev = mind.revs()[space]
    stale = refusal_of(
        mind, Conflict, lambda m: apply(m, call, expected_rev=4 + off), "revision 4.*read it again"
    )
    assert isinstance(stale, Conflict)
    assert (stale.expected, stale.actual) == (4 + off, 4)
    stale = refusal_of(mind, Conflict, lambda m: apply(m, call, expected_space_rev=rev + off), f"'{space}'")
    assert isinstance(stale, Conflict)
    assert (stale.expected, stale.actual) == (rev + off, rev)
    refusal_of(mind, Conflict, lambda m: apply(m, call, expected_rev=4, expected_space_rev=rev + off))
    refusal_of(mind, Conflict, lambda m: apply(m, call, expected_rev=4 + off, expected_space_rev=rev))


@on_both
@pytest.mark.parametrize("call", OF_THE_CONTAINER, ids=call_name)
def test_making_and_deleting_a_space_may_expect_a_revision_too(mind: Mind, call: Call) -> None:
    """The container's revision is compared before a space comes or goes."""
    mind = prepare_mind(mind)
    assert apply(mind, call, expected_rev=4).memory.rev == 5
    refusal_of(mind, Conflict, lambda m: apply(m, call, expected_rev=3))
    if call[0] != "ensure_space":
        assert apply(mind, call, expected_space_rev=0).memory.rev == 5
        refusal_of(mind, Conflict, lambda m: apply(m, call, expected_space_rev=3), f"'{call[1]}'")


@on_both
@pytest.mark.parametrize("call", NOTHING_NEW, ids=call_name)
def test_a_stale_expectation_is_a_conflict_even_where_nothing_would_change(mind: Mind, call: Call) -> None:
    """Whoever expects a revision learns that it is gone."""
    refusal_of(prepare_mind(mind), Conflict, lambda m: apply(m, call, expected_rev=3))


def test_of_two_writers_the_second_learns_about_the_first() -> None:
    """Writers of different spaces do not disturb each other; writers of one space do."""
    read = Memory.new().world_put("door", "closed")
    won = read.world_put("door", "open", expected_space_rev=1)
    assert won.tasks_add("Close it", expected_space_rev=0).world_get("door") == "open"
    with pytest.raises(Conflict, match="'world' is at revision 2, not 1"):
        won.world_put("door", "locked", expected_space_rev=read.spaces["world"].rev)
