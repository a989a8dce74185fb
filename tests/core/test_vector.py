"""The persistent vector behaves like a list under any change."""

import random
from collections.abc import Callable, Hashable
from itertools import permutations
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.strategies import lists

from omoide.core import FrozenList, FrozenMap, freeze, frozen
from omoide.errors import WrongType

Model = list[Any]

IDS = ("a", "b", 7, None)
GIVEN_IDS = [one for one in IDS if one is not None]
with_ids = st.fixed_dictionaries({"id": st.sampled_from(IDS), "n": st.integers(0, 3)})
without_ids = st.sampled_from([1, "a", None, ["id"], {"n": 0}])
items = with_ids | with_ids | without_ids


def id_of(item: Any) -> Hashable:
    return item.get("id") if isinstance(item, (dict, FrozenMap)) else None


def with_id(model: Model, wanted: Hashable) -> Model:
    return [item for item in model if id_of(item) is not None and id_of(item) == wanted]


def rename_to(into: dict[str, Any]) -> Callable[[Any], Any]:
    return lambda item: freeze({**into, "was": item["id"]})


def check_same(frozen: FrozenList[Any], model: Model) -> None:
    """Every way of reading gives what the model gives."""
    assert frozen == model
    assert list(frozen) == model
    assert frozen.extends(FrozenList(model[:-1]))
    assert len(frozen) == len(model)
    assert list(reversed(frozen)) == model[::-1]
    assert [frozen[at] for at in range(-len(model), len(model))] == [*model, *model]
    for wanted in {id_of(item) for item in model}:
        assert frozen.find_by_id(wanted) == with_id(model, wanted)


class ListMachine(RuleBasedStateMachine):
    """All changes, on a plain list and on a frozen one with chunks so short that they split all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.width = mock.patch.object(frozen, "CHUNK_SIZE", 3)
        self.width.start()
        self.model: Model = []
        self.frozen: FrozenList[Any] = FrozenList()
        self.older: list[tuple[FrozenList[Any], Model]] = []

    def become(self, frozen: FrozenList[Any], model: Model) -> None:
        self.older.append((self.frozen, self.model))
        self.frozen, self.model = frozen, model

    @rule(item=items)
    def append(self, item: Any) -> None:
        self.become(self.frozen.append(item), [*self.model, item])

    @rule(more=st.lists(items, max_size=12))
    def extend(self, more: Model) -> None:
        self.become(self.frozen + more, self.model + more)

    @rule(before=st.lists(items, max_size=4))
    def extend_in_front(self, before: Model) -> None:
        self.become(before + self.frozen, before + self.model)

    @rule(at=st.integers(-20, 20), item=items)
    def insert(self, at: int, item: Any) -> None:
        place = min(max(at if at >= 0 else at + len(self.model) + 1, 0), len(self.model))
        self.become(self.frozen.insert(at, item), [*self.model[:place], item, *self.model[place:]])

    @precondition(lambda self: self.model)
    @rule(source=st.integers(0, 99), places=st.lists(st.integers(0, 99), min_size=1, max_size=9))
    def insert_one_object_again_and_again(self, source: int, places: list[int]) -> None:
        item = self.frozen[source % len(self.frozen)]
        for place in places:
            place %= len(self.model) + 1
            self.become(self.frozen.insert(place, item), [*self.model[:place], item, *self.model[place:]])

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 99), item=items)
    def set(self, at: int, item: Any) -> None:
        at %= len(self.model)
        self.become(self.frozen.set(at, item), [*self.model[:at], item, *self.model[at + 1 :]])

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 99))
    def delete(self, at: int) -> None:
        at = at % len(self.model) - len(self.model)
        self.become(self.frozen.delete(at), [*self.model[:at], *self.model[len(self.model) + at + 1 :]])

    @rule(start=st.none() | st.integers(-9, 9), stop=st.none() | st.integers(-9, 9), step=st.integers(1, 3))
    def take_a_slice(self, start: int | None, stop: int | None, step: int) -> None:
        assert self.frozen[start:stop:step] == self.model[start:stop:step]
        assert self.frozen[stop:start:-step] == self.model[stop:start:-step]

    @precondition(lambda self: self.older)
    @rule(at=st.integers(0, 99))
    def compare_with_an_older_one(self, at: int) -> None:
        frozen, model = self.older[at % len(self.older)]
        assert self.frozen.extends(frozen) == (self.model[: len(model)] == model)

    @rule(wanted=st.sampled_from(IDS))
    def find(self, wanted: Hashable) -> None:
        assert self.frozen.find_by_id(wanted) == with_id(self.model, wanted)

    @rule(wanted=st.sampled_from(GIVEN_IDS))
    def remove_by_id(self, wanted: Hashable) -> None:
        gone = with_id(self.model, wanted)
        new = self.frozen.remove(wanted)
        assert (new is self.frozen) == (not gone)
        self.become(new, [item for item in self.model if wanted is None or id_of(item) != wanted])

    @rule(wanted=st.sampled_from(GIVEN_IDS), into=items.filter(lambda item: item is not None))
    def change_by_id(self, wanted: Hashable, into: Any) -> None:
        """Also gives items another id, or none."""
        found = with_id(self.model, wanted)
        new = self.frozen.change(wanted, lambda item: freeze(into))
        assert (new is self.frozen) == (not found)
        self.become(new, [into if any(item is f for f in found) else item for item in self.model])

    @rule(wanted=st.sampled_from(IDS[:-1]))
    def count_up_by_id(self, wanted: Hashable) -> None:
        def up(item: Any) -> Any:
            return {**item, "n": item["n"] + 1}

        changed = [up(item) if id_of(item) == wanted else item for item in self.model]
        self.become(self.frozen.change(wanted, lambda item: freeze(up(item))), changed)

    @invariant()
    def same(self) -> None:
        check_same(self.frozen, self.model)

    def teardown(self) -> None:
        try:
            for frozen, model in self.older:
                assert frozen == model
        finally:
            self.width.stop()


TestListMachine = ListMachine.TestCase


@given(st.integers(0, 2**32), st.integers(0, 700))
def test_a_long_list_survives_hundreds_of_changes(seed: int, start: int) -> None:
    """Beyond any number of chunks, changes by position and by id give what a plain list gives."""
    chance = random.Random(seed)
    fresh = iter(range(10**6))

    def item() -> dict[str, Any]:
        return {"id": next(fresh) if chance.random() < 0.8 else chance.randrange(start + 1)}

    model: Model = [item() for _ in range(start)]
    frozen = FrozenList(model)
    before, original = frozen, list(model)
    for _ in range(150):
        at, new = chance.randrange(len(model) + 1), item()
        match chance.randrange(6):
            case 0 | 1:
                frozen = frozen.insert(at, new)
                model.insert(at, new)
            case 2:
                frozen = frozen.append(new)
                model.append(new)
            case 3 if at < len(model):
                wanted = model[at]["id"]
                frozen = frozen.remove(wanted)
                model = [held for held in model if held["id"] != wanted]
            case 4 if at < len(model):
                wanted = model[at]["id"]
                frozen = frozen.change(wanted, rename_to(new))
                model = [{**new, "was": wanted} if held["id"] == wanted else held for held in model]
            case _ if at < len(model):
                frozen = frozen.delete(at)
                del model[at]
            case _:
                pass
    check_same(frozen, model)
    assert before == original


@given(lists, lists)
def test_lists_are_equal_exactly_when_plain_lists_are(one: Model, other: Model) -> None:
    """Comparing with a frozen list, a list or a tuple gives what comparing lists gives."""
    frozen = FrozenList(one)
    for same_as_other in (other, tuple(other), FrozenList(other)):
        assert (frozen == same_as_other) == (one == other)
        assert (same_as_other == frozen) == (one == other)
    assert frozen != {"a": 1}
    assert frozen != "text"


@given(st.lists(st.integers(0, 1), max_size=40), st.integers(0, 40), st.lists(st.integers(0, 1), max_size=3))
def test_a_list_extends_what_it_begins_with(items: Model, cut: int, more: Model) -> None:
    """A longer or equal list extends another exactly when that is its beginning, however each was made."""
    other = items[:cut] + more
    begins = items[: len(other)] == other
    grown = FrozenList(items[:cut]).extend(items[cut:])
    assert FrozenList(items).extends(FrozenList(other)) is begins
    assert grown.extends(FrozenList(items[:cut]).extend(more)) is begins
    assert grown.insert(0, 0).delete(0).extends(FrozenList(other)) is begins


def test_a_list_reads_as_a_sequence() -> None:
    """Membership, count, index and repr work as on any sequence."""
    frozen = FrozenList([1, [2], 1])
    assert (1 in frozen, [2] in frozen, 3 in frozen) == (True, True, False)
    assert (frozen.count(1), frozen.index([2])) == (2, 1)
    assert repr(frozen) == "FrozenList([1, [2], 1])"


def test_items_of_one_id_are_found_in_the_order_of_the_list() -> None:
    """What is found depends on what the list holds, not on how it came to hold it."""
    frozen = FrozenList([{"id": "a", "n": 1}])
    assert len(frozen.find_by_id("a")) == 1
    frozen = frozen.insert(0, {"id": "a", "n": 0}).append({"id": "a", "n": 2})
    assert [item["n"] for item in frozen.find_by_id("a")] == [0, 1, 2]


def test_one_object_held_many_times_can_be_removed() -> None:
    """The same item put into a list until its chunk is cut is found and removed as often as it is there."""
    item = FrozenMap({"id": "a"})
    frozen: FrozenList[Any] = FrozenList([{"id": n} for n in range(64)])
    assert frozen.find_by_id("a") == []
    for _ in range(70):
        frozen = frozen.insert(0, item)
    assert frozen.find_by_id("a") == [item] * 70
    assert frozen.remove("a") == [{"id": n} for n in range(64)]
    assert frozen.change("a", lambda _: FrozenMap({"id": "b"})).find_by_id("b") == [{"id": "b"}] * 70


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_items_of_one_id_are_changed_each_in_its_place(order: tuple[int, ...]) -> None:
    """Items that share an id may trade places: each becomes what the change made of it."""
    held: list[Any] = [FrozenMap({"id": "a", "n": n}) for n in range(3)]
    traded = FrozenList(held).change("a", lambda item: held[order[item["n"]]])
    assert traded == [held[at] for at in order]


@pytest.mark.parametrize("at", [3, -4, 99])
def test_a_position_outside_the_list_is_an_index_error(at: int) -> None:
    """Reading, replacing and deleting need a position that exists."""
    frozen = FrozenList([1, 2, 3])
    attempts: list[Callable[[], object]] = [
        lambda: frozen[at],
        lambda: frozen.set(at, 0),
        lambda: frozen.delete(at),
    ]
    for attempt in attempts:
        with pytest.raises(IndexError):
            attempt()


@pytest.mark.parametrize("at", ["0", None, 1.0, True])
def test_the_place_of_an_insertion_is_an_int(at: Any) -> None:
    """Anything else is of the wrong type."""
    with pytest.raises(WrongType, match="index"):
        FrozenList[Any]().insert(at, 1)
