"""Tasks of a memory: order, status and removal."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import Mind, on_both, refusal_of
from tests.support.strategies import names

from omoide import Memory
from omoide.errors import Invalid, NotFound, Unsupported, WrongType

RAW: list[Any] = [{"id": "r1", "text": "Check sensor array"}, {"id": "r2", "text": "Report status"}]


def with_tasks(mind: Mind, *ids: str) -> Mind:
    for id in ids:
        mind = mind.tasks_add(f"do {id}", id=id)
    return mind


def order(mind: Mind) -> list[Any]:
    return [task.get("id") for task in mind.tasks()]


@on_both
@given(text=names)
def test_a_new_task_is_open_and_comes_last(mind: Mind, text: str) -> None:
    """A task is an id, its text and a status, and takes its place behind the others."""
    mind = with_tasks(mind, "t1").tasks_add(text)
    first, task = mind.tasks()
    assert first == {"id": "t1", "text": "do t1", "status": "open"}
    assert set(task) == {"id", "text", "status"}
    assert (task["text"], task["status"]) == (text, "open")
    assert task["id"].startswith("task_")


@on_both
def test_tasks_lie_in_the_tasks_space(mind: Mind) -> None:
    """What the task functions show is the data of the space `tasks`."""
    mind = with_tasks(mind, "a", "b")
    assert mind.tasks() == mind.memory.space("tasks").data == mind.data("tasks")  # type: ignore[union-attr]


@on_both
def test_generated_ids_are_all_different(mind: Mind) -> None:
    """Tasks of the same text are different tasks."""
    for _ in range(5):
        mind = mind.tasks_add("again")
    assert len(set(order(mind))) == 5


@on_both
def test_a_task_may_carry_more_fields(mind: Mind) -> None:
    """An id, a status and fields of one's own can be given."""
    fields = {"status": "done", "notes": ["x"], "due": 5}
    mind = mind.tasks_add("Check", id="mine", fields=fields)
    fields.clear()
    done = {"id": "mine", "text": "Check", "status": "done", "notes": ["x"], "due": 5}
    assert mind.tasks() == [done]
    mind = mind.tasks_insert(0, "First", id="first", fields={"due": 1})
    assert mind.tasks()[0] == {"id": "first", "text": "First", "status": "open", "due": 1}


@on_both
@pytest.mark.parametrize(("index", "at"), [(0, 0), (1, 1), (2, 2), (9, 2), (-1, 2), (-2, 1), (-9, 0)])
def test_a_task_is_inserted_where_its_priority_puts_it(mind: Mind, index: int, at: int) -> None:
    """The index counts as in any list space."""
    expected = ["a", "b"]
    expected.insert(at, "new")
    assert order(with_tasks(mind, "a", "b").tasks_insert(index, "New", id="new")) == expected


@on_both
def test_a_completed_task_is_done_and_stays(mind: Mind) -> None:
    """Completing marks a task and keeps its place and its other fields; again changes no content."""
    mind = with_tasks(mind, "a").tasks_add("B", id="b", fields={"due": 5}).tasks_add("C", id="c")
    mind = mind.tasks_complete("b")
    assert order(mind) == ["a", "b", "c"]
    assert mind.tasks()[1] == {"id": "b", "text": "B", "status": "done", "due": 5}
    assert [task["status"] for task in mind.tasks_complete("b").tasks()] == ["open", "done", "open"]


@on_both
def test_removing_a_task_is_another_thing_than_completing_it(mind: Mind) -> None:
    """A removed task is gone, open or done."""
    mind = with_tasks(mind, "a", "b", "c").tasks_complete("b")
    assert order(mind.tasks_remove("b").tasks_remove("c")) == ["a"]


@on_both
def test_the_next_task_is_the_first_open_one(mind: Mind) -> None:
    """Done tasks are passed over; without an open one there is no next."""
    assert mind.tasks_next() is None
    mind = with_tasks(mind, "a", "b", "c").tasks_complete("a")
    assert mind.tasks_next()["id"] == "b"
    assert [task["id"] for task in mind.tasks_open()] == ["b", "c"]
    mind = mind.tasks_complete("b").tasks_complete("c")
    assert mind.tasks_next() is None
    assert mind.tasks_open() == []
    assert len(mind.tasks()) == 3


@on_both
def test_a_task_without_a_status_is_open(mind: Mind) -> None:
    """Items appended raw count as open until they are completed."""
    for item in RAW:
        mind = mind.append_to_space("tasks", item)
    assert mind.tasks_open() == RAW
    assert mind.tasks_next() == RAW[0]
    mind = mind.tasks_complete("r1")
    assert mind.tasks()[0] == {**RAW[0], "status": "done"}
    assert mind.tasks_next() == RAW[1]


@on_both
def test_items_that_are_no_tasks_are_passed_over(mind: Mind) -> None:
    """Raw items of any kind may lie between tasks: they are kept, and nobody's next."""
    mind = mind.append_to_space("tasks", "buy milk").append_to_space("tasks", {"text": "no id"})
    mind = with_tasks(mind.append_to_space("tasks", None), "a")
    assert mind.tasks_open() == [{"text": "no id"}, {"id": "a", "text": "do a", "status": "open"}]
    assert mind.tasks_reorder(["a"]).data("tasks")[1:] == ["buy milk", {"text": "no id"}, None]


@on_both
@given(st.data())
def test_named_tasks_come_first_and_the_others_keep_their_order(mind: Mind, choose: st.DataObject) -> None:
    """Reordering puts the named ones in the order given, the rest after them as they were."""
    ids = [f"t{n}" for n in range(6)]
    mind = with_tasks(mind, *ids)
    wanted = choose.draw(st.permutations(ids))[: choose.draw(st.integers(0, 6))]
    after = mind.tasks_reorder(wanted)
    assert order(after) == [*wanted, *(id for id in ids if id not in wanted)]
    assert order(mind) == ids


@on_both
def test_reordering_takes_any_kind_of_list(mind: Mind) -> None:
    """A tuple or an iterator of ids serves as well."""
    mind = with_tasks(mind, "a", "b", "c")
    assert order(mind.tasks_reorder(("c", "a"))) == ["c", "a", "b"]
    assert order(mind.tasks_reorder(iter(["b"]))) == ["b", "a", "c"]


@on_both
def test_tasks_that_share_an_id_move_together_in_order(mind: Mind) -> None:
    """Raw items may repeat an id: naming it moves all of them, and equal memories move alike."""
    mind = mind.append_to_space("tasks", {"id": "b"}).append_to_space("tasks", {"id": "a", "n": 1})
    mind = mind.tasks_complete("unknown").insert_in_space("tasks", 1, {"id": "a", "n": 0})
    twin = Memory.from_json(mind.memory.to_json())
    assert twin == mind.memory
    assert mind.tasks_reorder(["a"]).data("tasks") == [{"id": "a", "n": 0}, {"id": "a", "n": 1}, {"id": "b"}]
    assert twin.tasks_reorder(["a"]).tasks() == mind.tasks_reorder(["a"]).tasks()


BAD_ORDERS: dict[str, tuple[Any, type[Exception], str]] = {
    "unknown": (["a", "x"], NotFound, "'x' does not exist.*tasks"),
    "twice": (["b", "a", "a"], Invalid, "'a' twice"),
    "number": ([5], Invalid, "ids"),
    "none-inside": ([None], Invalid, "ids"),
    "empty-id": ([""], Invalid, "ids"),
    "list-inside": ([["a"]], Invalid, "ids"),
    "one-id": ("ab", WrongType, "ids"),
    "none": (None, WrongType, "ids"),
    "int": (5, WrongType, "ids"),
}


@on_both
@pytest.mark.parametrize(("ids", "error", "match"), BAD_ORDERS.values(), ids=BAD_ORDERS)
def test_an_order_names_tasks_once_each(mind: Mind, ids: Any, error: Any, match: str) -> None:
    """Unknown ids, repeated ids and what is no list of ids are refused; the order stays."""
    refusal_of(with_tasks(mind, "a", "b"), error, lambda m: m.tasks_reorder(ids), match)


BAD_TASKS: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "empty": ("", {}, Invalid, "text is empty.*describe the task"),
    "blank": (" \t", {}, Invalid, "text is empty"),
    "none": (None, {}, WrongType, "text must be a string"),
    "number": (5, {}, WrongType, "text must be a string"),
    "map": ({"text": "a"}, {}, WrongType, "text must be a string"),
    "nul": ("a\0", {}, Unsupported, "text contains a NUL"),
    "surrogate": ("\ud800", {}, Unsupported, "text contains a lone surrogate"),
    "taken-id": ("x", {"id": "a"}, Invalid, "'a' is the id of another task"),
    "empty-id": ("x", {"id": ""}, Invalid, "id must be a non-empty string"),
    "number-id": ("x", {"id": 5}, Invalid, "id must be a non-empty string"),
    "control-id": ("x", {"id": "a\n"}, Invalid, "id contains a control character"),
    "long-id": ("x", {"id": "a" * 513}, Invalid, "id has 513 bytes"),
    "status": ("x", {"fields": {"status": "paused"}}, Invalid, "'open' or 'done'.*leave it out"),
    "status-none": ("x", {"fields": {"status": None}}, Invalid, "'open' or 'done'"),
    "status-list": ("x", {"fields": {"status": ["open"]}}, Invalid, "'open' or 'done'"),
    "fields": ("x", {"fields": [1]}, WrongType, "fields must be a mapping"),
    "fields-id": ("x", {"fields": {"id": "b"}}, Invalid, "pass id="),
    "fields-text": ("x", {"fields": {"text": "b"}}, Invalid, "pass text="),
    "fields-object": ("x", {"fields": {"f": [object()]}}, Unsupported, r"fields\.f\[0\]"),
}


@on_both
@pytest.mark.parametrize(("text", "given_", "error", "match"), BAD_TASKS.values(), ids=BAD_TASKS)
def test_a_task_needs_text_a_free_id_and_a_known_status(
    mind: Mind, text: Any, given_: dict[str, Any], error: Any, match: str
) -> None:
    """Each wrong part is refused by name, whether the task is added or inserted."""
    mind = with_tasks(mind, "a")
    refusal_of(mind, error, lambda m: m.tasks_add(text, **given_), match)
    refusal_of(mind, error, lambda m: m.tasks_insert(0, text, **given_), match)


@on_both
@pytest.mark.parametrize("index", [None, "0", 1.0, True])
def test_the_place_of_a_task_is_an_int(mind: Mind, index: Any) -> None:
    """Any other index is of the wrong type."""
    refusal_of(mind, WrongType, lambda m: m.tasks_insert(index, "x"), "index must be an int")
