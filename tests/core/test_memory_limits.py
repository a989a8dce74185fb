"""Limits of spaces hold through every change."""

from typing import Any

import pytest
from tests.support.memory import Mind, attempt_to, on_both, refusal_of

from omoide import Space
from omoide.errors import Invalid, OmoideError, TooLarge, WrongType


@on_both
@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ({"max_items": -1}, Invalid),
        ({"max_items": "5"}, WrongType),
        ({"max_items": True}, WrongType),
        ({"max_item_bytes": -1}, Invalid),
        ({"max_item_bytes": 1.5}, WrongType),
    ],
)
def test_a_limit_is_a_number_from_zero(mind: Mind, limits: dict[str, Any], error: type[OmoideError]) -> None:
    """A space is not made with a limit that means nothing."""
    refusal_of(mind, error, attempt_to("ensure_space", "new", [], **limits), next(iter(limits)))


@on_both
def test_a_space_is_not_made_with_more_than_it_may_hold(mind: Mind) -> None:
    """The default of `ensure_space` has to fit the limits that come with it."""
    refusal_of(mind, TooLarge, attempt_to("ensure_space", "new", [1, 2], max_items=1), "max_items 1.*make 2")
    refusal_of(mind, TooLarge, attempt_to("ensure_space", "new", {"a": "text"}, max_item_bytes=3), "make 6")


LIMITED: list[tuple[Any, dict[str, int], tuple[Any, ...]]] = [
    ([1], {"max_items": 1}, ("append_to_space", "small", 2)),
    ([1], {"max_items": 1}, ("prepend_to_space", "small", 2)),
    ([1], {"max_items": 1}, ("insert_in_space", "small", 0, 2)),
    ({"a": 1}, {"max_items": 1}, ("put_in_space", "small", "b", 1)),
    ({"a": 1}, {"max_items": 1}, ("update_space_data", "small", lambda old: {**old, "b": 1})),
    ([], {"max_item_bytes": 9}, ("append_to_space", "small", "12345678")),
    ({}, {"max_item_bytes": 9}, ("put_in_space", "small", "a", "12345678")),
    ({"a": 1}, {"max_item_bytes": 9}, ("update_space_data", "small", lambda old: {"a": "12345678"})),
    ([{"id": 1}], {"max_item_bytes": 9}, ("update_in_space", "small", 1, lambda _: "12345678")),
    ([1, 2], {"max_items": 2}, ("update_space", "small", lambda _: Space(data=[1, 2], max_items=1))),
]


@on_both
@pytest.mark.parametrize(("content", "limits", "call"), LIMITED)
def test_a_space_does_not_outgrow_its_limits(
    mind: Mind, content: Any, limits: dict[str, int], call: tuple[Any, ...]
) -> None:
    """A change beyond a limit is refused and says which, what is allowed, and what it would have made."""
    mind = mind.ensure_space("small", content, **limits)
    wrong = refusal_of(mind, TooLarge, attempt_to(*call))
    assert isinstance(wrong, TooLarge)
    assert wrong.limit in (*limits, "max_items")
    assert wrong.actual > wrong.allowed


@on_both
def test_within_its_limits_a_space_can_be_changed(mind: Mind) -> None:
    """Replacing, removing and changing items is possible where adding is not; the limits stay."""
    mind = mind.ensure_space("small", {"a": 1}, max_items=1, max_item_bytes=3)
    mind = mind.put_in_space("small", "a", 2).delete_from_space("small", "a").put_in_space("small", "b", 333)
    refusal_of(
        mind, TooLarge, attempt_to("put_in_space", "small", "c", 1), "'small' allows max_items 1.*make 2"
    )
    refusal_of(mind, TooLarge, attempt_to("put_in_space", "small", "b", 4444), "max_item_bytes 3.*make 4")
    assert (mind.space("small").max_items, mind.space("small").max_item_bytes) == (1, 3)
