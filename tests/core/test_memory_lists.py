"""Operations on list spaces."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import Mind, on_both, refusal_of
from tests.support.strategies import data, lists

from omoide import Memory, memory
from omoide.errors import NotFound, WrongSpaceType

ITEMS: list[Any] = [{"id": "a", "n": 1}, {"id": "b", "n": 1}, "text", {"n": 1}, {"id": "a", "n": 2}]


def mind_with(mind: Mind, items: list[Any]) -> Mind:
    made: Mind = mind.ensure_space("items", items)
    return made


@on_both
@given(items=lists, item=data)
def test_an_item_is_appended_at_the_end_and_prepended_at_the_front(
    mind: Mind, items: list[Any], item: Any
) -> None:
    """Appending and prepending keep the order of what is there."""
    mind = mind_with(mind, items)
    assert mind.append_to_space("items", item).memory.space("items").data == [*items, item]
    assert mind.prepend_to_space("items", item).memory.space("items").data == [item, *items]


@on_both
@pytest.mark.parametrize(
    ("index", "result"),
    [
        (0, "xabc"),
        (1, "axbc"),
        (3, "abcx"),
        (99, "abcx"),
        (-1, "abcx"),
        (-2, "abxc"),
        (-4, "xabc"),
        (-99, "xabc"),
    ],
)
def test_an_index_counts_from_either_end(mind: Mind, index: int, result: str) -> None:
    """Past the end appends, −1 appends, −2 is before the last, and before the start is the front."""
    mind = mind_with(mind, list("abc")).insert_in_space("items", index, "x")
    assert mind.data("items") == list(result)


@on_both
def test_items_are_removed_by_id(mind: Mind) -> None:
    """All items of the id go, the others stay in order; items without id are passed over."""
    mind = mind_with(mind, ITEMS)
    assert mind.remove_from_space("items", "a").data("items") == [ITEMS[1], ITEMS[2], ITEMS[3]]
    assert mind.remove_from_space("items", "b").remove_from_space("items", "a").data("items") == ITEMS[2:4]


@on_both
def test_items_are_changed_by_id(mind: Mind) -> None:
    """The function is applied to the items of the id, in place, and to no others."""
    seen: list[Any] = []

    def up(item: Any) -> Any:
        seen.append(item)
        return {**item, "n": item["n"] + 10}

    mind = mind_with(mind, ITEMS).update_in_space("items", "a", up)
    assert seen == [ITEMS[0], ITEMS[4]]
    assert mind.data("items") == [{"id": "a", "n": 11}, *ITEMS[1:4], {"id": "a", "n": 12}]


@on_both
def test_a_changed_item_is_found_under_its_new_id(mind: Mind) -> None:
    """A change may give an item another id, one that is taken, or turn it into something without one."""
    mind = mind_with(mind, ITEMS).update_in_space("items", "a", lambda item: {**item, "id": "b"})
    assert mind.remove_from_space("items", "a").memory == mind.memory
    assert mind.remove_from_space("items", "b").data("items") == ITEMS[2:4]
    mind = mind.update_in_space("items", "b", lambda item: item["n"])
    assert mind.data("items") == [1, 1, "text", {"n": 1}, 2]


@on_both
@pytest.mark.parametrize("item_id", ["x", "text", "n", ""])
@pytest.mark.parametrize("given_", [{"now": 9}, {"expected_rev": 1}, {}])
def test_an_unknown_id_changes_nothing_at_all(mind: Mind, item_id: str, given_: dict[str, int]) -> None:
    """Neither items nor revisions nor times change, because nothing did."""
    mind = mind_with(mind, ITEMS)
    assert mind.remove_from_space("items", item_id, **given_).memory == mind.memory
    assert mind.update_in_space("items", item_id, lambda _: 1, **given_).memory == mind.memory


@on_both
def test_an_unknown_id_is_an_error_in_strict_mode(mind: Mind) -> None:
    """`strict` asks for an error instead, which says where to look; a known id is served as ever."""
    mind = mind_with(mind, ITEMS)
    for attempt in (
        lambda m: m.remove_from_space("items", "x", strict=True),
        lambda m: m.update_in_space("items", "x", lambda _: 1, strict=True),
        lambda m: m.tasks_complete("x", strict=True),
        lambda m: m.tasks_remove("x", strict=True),
    ):
        refusal_of(mind, NotFound, attempt, "'x' does not exist.*use an id")
    assert mind.remove_from_space("items", "a", strict=True).data("items") == ITEMS[1:4]


@on_both
@pytest.mark.parametrize(
    ("operation", "args"),
    [
        ("append_to_space", (1,)),
        ("prepend_to_space", (1,)),
        ("insert_in_space", (0, 1)),
        ("remove_from_space", ("a",)),
        ("update_in_space", ("a", lambda item: item)),
    ],
)
def test_list_operations_need_a_list_space_that_exists(
    mind: Mind, operation: str, args: tuple[Any, ...]
) -> None:
    """A map, other data, or no space at all is refused, and nothing is created."""

    def on(space: str) -> Callable[[Mind], object]:
        return lambda mind: getattr(mind, operation)(space, *args)

    mind = mind.ensure_space("odd", "text").ensure_space("board", {})
    refusal_of(mind, NotFound, on("attic"), "'attic' does not exist")
    for name in ("world", "board", "odd"):
        refusal_of(mind, WrongSpaceType, on(name), f"space {name!r} is not a list space")


@given(st.lists(st.sampled_from("abcde"), max_size=200), st.lists(st.sampled_from("abcde"), max_size=5))
def test_removing_by_id_is_removing_from_a_list(ids: list[str], gone: list[str]) -> None:
    """Whatever the repetitions, what remains is what a plain list would keep."""
    kept = Memory.new().ensure_space("items", [{"id": id, "n": n} for n, id in enumerate(ids)])
    for id in gone:
        kept = kept.remove_from_space("items", id)
    space = kept.space("items")
    assert space is not None
    assert [item["n"] for item in space.data] == [n for n, id in enumerate(ids) if id not in gone]


def test_a_long_list_shares_most_of_itself_with_its_older_versions() -> None:
    """A thousand items appended one by one leave a thousand versions, each as it was."""
    versions = [Memory.new()]
    for n in range(1_000):
        versions.append(versions[-1].append_to_space("tasks", {"id": f"t{n}"}))
    assert [len(version.tasks()) for version in versions] == list(range(1_001))
    final = versions[-1].remove_from_space("tasks", "t500")
    assert [item["id"] for item in final.tasks()] == [f"t{n}" for n in range(1_000) if n != 500]
    assert len(versions[-1].tasks()) == 1_000
    assert memory.key() not in versions[-1].world()
