"""The working context holds values, counts tokens, and evicts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.core import codec
from omoide.errors import Invalid, InvalidRecord
from omoide.retrieval import estimate_tokens
from omoide.shortterm import ContextItem, WorkingContext, infer_type
from omoide.shortterm.context import KEYS, SOURCES, SUMMARY_KEY
from omoide.testing import reproducible

EMPTY = WorkingContext.new()


def put_value(context: WorkingContext, key: str, value: Any, **fields: Any) -> WorkingContext:
    return context.put(key, value, **{"now": 0, **fields})[0]


def item(context: WorkingContext, key: str) -> ContextItem:
    found = context.item(key)
    assert found is not None
    return found


def test_the_conventional_keys() -> None:
    """Ten of them say what a session understands, and one holds the gist of what was said."""
    assert (
        *("active_file", "project_root", "primary_language", "framework", "current_task", "user_intent"),
        *("discovered_patterns", "active_errors", "pending_questions", "file_relationships"),
        SUMMARY_KEY,
    ) == KEYS
    assert SUMMARY_KEY == "conversation_summary"


@pytest.mark.parametrize("key", [*KEYS, "release_date", "Ünïcode", "a b"])
def test_every_key_is_taken(key: str) -> None:
    """The conventional ones and any other; only the summary is no value of the context."""
    context = put_value(EMPTY, key, "x")
    assert context.peek(key) == "x"
    assert context.to_dict() == ({} if key == SUMMARY_KEY else {key: "x"})


def test_a_new_item_has_its_defaults() -> None:
    """Inferred, 0.7 sure, used once, seen and used now."""
    with reproducible(at=5):
        context, evicted = EMPTY.put("framework", "Phoenix 1.7")
    found = item(context, "framework")
    assert evicted == ()
    assert (found.key, found.value, found.source, found.confidence) == (
        "framework",
        "Phoenix 1.7",
        "inferred",
        0.7,
    )
    assert (found.access_count, found.first_seen, found.last_accessed) == (1, 5, 5)


def test_an_item_made_by_hand_has_the_same_defaults() -> None:
    """Inferred, 0.7 sure, used once, of no type, and unchanged since it was first seen."""
    found = ContextItem(key="framework", first_seen=5, last_accessed=9)
    assert (found.value, found.source, found.confidence, found.access_count) == (None, "inferred", 0.7, 1)
    assert (found.suggested_type, found.type_given, found.changed_at) == (None, False, 5)


def test_a_context_has_twelve_thousand_tokens_unless_told_otherwise() -> None:
    """Made by itself or as a part of something."""
    assert WorkingContext.new().max_tokens == WorkingContext().max_tokens == 12_000


def test_an_update_counts_and_keeps_when_it_was_first_seen() -> None:
    """One use more, used now."""
    context = put_value(
        put_value(EMPTY, "framework", "Phoenix 1.6", now=5), "framework", "Phoenix 1.7", now=9
    )
    found = item(context, "framework")
    assert (found.value, found.access_count, found.first_seen, found.last_accessed) == (
        "Phoenix 1.7",
        2,
        5,
        9,
    )
    assert context.size == 1


def test_source_and_confidence_are_those_of_the_new_value() -> None:
    """A value that is less sure than the one before is not as sure as the one before."""
    context = put_value(EMPTY, "framework", "Phoenix", source="tool", confidence=0.95)
    found = item(put_value(context, "framework", "Rails", source="inferred", confidence=0.3), "framework")
    assert (found.source, found.confidence, found.suggested_type) == ("inferred", 0.3, None)


@pytest.mark.parametrize(
    ("key", "source", "type"),
    [
        ("framework", "tool", "fact"),
        ("primary_language", "tool", "fact"),
        ("project_root", "tool", "fact"),
        ("active_file", "tool", None),
        ("user_intent", "inferred", "assumption"),
        ("current_task", "inferred", "assumption"),
        *(("discovered_patterns", source, "discovery") for source in SOURCES),
        *(("file_relationships", source, "discovery") for source in SOURCES),
        *(("pending_questions", source, "unknown") for source in SOURCES),
        *(("active_errors", source, None) for source in SOURCES),
        ("framework", "inferred", None),
        ("framework", "explicit", None),
        ("primary_language", "explicit", None),
        ("project_root", "inferred", None),
        ("active_file", "inferred", None),
        ("user_intent", "explicit", None),
        ("user_intent", "tool", None),
        ("current_task", "tool", None),
        (SUMMARY_KEY, "inferred", None),
        ("anything_else", "tool", None),
    ],
)
def test_the_type_follows_from_key_and_source(key: str, source: str, type: str | None) -> None:
    """As a memory, a framework that a tool found is a fact, and an error is nothing at all."""
    assert infer_type(key, source) == type
    assert item(put_value(EMPTY, key, "x", source=source), key).suggested_type == type


def test_a_type_that_is_given_wins() -> None:
    """Over what would follow, even for errors and for keys of one's own, and it stays with its key."""
    for key in ("active_errors", "framework", "database"):
        context = put_value(EMPTY, key, "x", source="tool", memory_type="decision")
        assert item(context, key).suggested_type == "decision"
        again = put_value(context, key, "y", source="inferred")
        assert item(again, key).suggested_type == "decision"
        assert item(put_value(again, key, "z", memory_type="risk"), key).suggested_type == "risk"


def test_a_type_that_was_inferred_is_inferred_again() -> None:
    """From the source that the value has now."""
    context = put_value(
        put_value(EMPTY, "framework", "x", source="inferred"), "framework", "y", source="tool"
    )
    assert item(context, "framework").suggested_type == "fact"


def test_reading_counts_as_a_use() -> None:
    """`get` gives the value and a context that knows of it; `peek` counts nothing."""
    context = put_value(EMPTY, "framework", "Phoenix", now=5)
    used, value = context.get("framework", now=9)
    assert value == "Phoenix"
    found = item(used, "framework")
    assert (found.access_count, found.first_seen, found.last_accessed) == (2, 5, 9)
    assert context.peek("framework") == "Phoenix"
    assert item(context, "framework").access_count == 1


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_a_value_that_is_nothing_is_not_missing(value: Any) -> None:
    """What is falsy is held and read like anything else."""
    context = put_value(EMPTY, "flag", value)
    used, found = context.get("flag", "missing")
    assert found == value
    assert item(used, "flag").access_count == 2
    assert context.peek("flag", "missing") == value
    assert (context.has("flag"), context.has("other")) == (True, False)


def test_reading_what_is_missing_changes_nothing() -> None:
    """The default comes back, and the very same context."""
    assert EMPTY.get("framework") == (EMPTY, None)
    context, value = EMPTY.get("framework", "unknown")
    assert context is EMPTY
    assert value == "unknown"
    assert EMPTY.item("framework") is None
    assert EMPTY.peek("framework", 3) == 3
    assert EMPTY.delete("framework") is EMPTY


def test_items_can_be_listed_and_removed() -> None:
    """By key, as items or as values; the conversation's summary is no value of the context."""
    context = put_value(put_value(put_value(EMPTY, "b", 2), "a", 1), SUMMARY_KEY, "They talked.")
    assert [one.key for one in context.to_list()] == ["a", "b", SUMMARY_KEY]
    assert context.to_dict() == {"a": 1, "b": 2}
    assert context.delete("a").to_dict() == {"b": 2}
    assert context.delete("a").current_tokens == context.current_tokens - item(context, "a").tokens
    assert context.clear() == EMPTY
    assert WorkingContext.new(50).put("a", 1)[0].clear().max_tokens == 50


def test_values_cannot_be_changed_from_outside() -> None:
    """What is put is copied and frozen."""
    patterns = ["repository"]
    context = put_value(EMPTY, "discovered_patterns", patterns)
    patterns.append("singleton")
    assert context.peek("discovered_patterns") == ["repository"]
    with pytest.raises(TypeError):
        context.peek("discovered_patterns")[0] = "singleton"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"key": ""}, "key is empty"),
        ({"key": 7}, "key must be a string"),
        ({"value": object()}, "value is of type object, which cannot be stored"),
        ({"value": [float("nan")]}, r"value\[0\] is nan"),
        ({"source": "rumour"}, "source is 'rumour'; use one of inferred, explicit, tool"),
        ({"confidence": 1.5}, "confidence is 1.5; pass a number from 0 to 1"),
        ({"confidence": "high"}, "confidence must be a number"),
        ({"confidence": float("nan")}, "confidence is nan"),
        ({"memory_type": "rumour"}, "memory_type is 'rumour'; use one of fact"),
        ({"memory_type": ""}, "memory_type is ''"),
        ({"now": -1}, "now is -1"),
    ],
)
def test_bad_input_is_refused(fields: dict[str, Any], problem: str) -> None:
    """The error names the part."""
    given: dict[str, Any] = {"key": "framework", "value": "x", "now": 0, **fields}
    with pytest.raises(Invalid, match=problem):
        EMPTY.put(given.pop("key"), given.pop("value"), **given)


@pytest.mark.parametrize("value", [{"a": [1, {"b": None}]}, ["x", 2], 3.5, None, b"raw", {"x", "y"}])
def test_any_value_can_be_counted(value: Any) -> None:
    """Maps and lists as well as text."""
    context = put_value(EMPTY, "file_relationships", value)
    assert context.current_tokens > 2


def test_a_pair_takes_its_words_and_two_tokens() -> None:
    """With the counter that is given."""
    assert (
        put_value(EMPTY, "framework", "Phoenix").current_tokens == estimate_tokens("framework: Phoenix") + 2
    )
    assert put_value(EMPTY, "framework", "Phoenix", count=len).current_tokens == len("framework: Phoenix") + 2
    assert item(put_value(EMPTY, "ports", [80, 443]), "ports").text == "ports: [80,443]"


def test_the_least_important_leaves_when_there_is_no_room() -> None:
    """What was used long ago and will be no memory goes first; what was just put never goes."""
    room = WorkingContext.new(24)
    room = put_value(room, "old", "x", count=lambda text: 8, now=0)
    room = put_value(room, "new", "x", count=lambda text: 8, now=3_600_000)
    room, evicted = room.put("third", "x", confidence=0.0, count=lambda text: 8, now=3_600_000)
    assert [one.key for one in evicted] == ["old"]
    assert sorted(room.items) == ["new", "third"]
    room, evicted = room.put("fourth", "x", confidence=0.0, count=lambda text: 8, now=3_600_000)
    assert [one.key for one in evicted] == ["third"]


def test_what_will_be_a_memory_stays_longer() -> None:
    """Of two that were used alike, the one that matters as a memory stays."""
    room = WorkingContext.new(20)
    for key, kind in (("a", "decision"), ("b", None)):
        room = put_value(room, key, "x", memory_type=kind, count=lambda text: 8)
    _, evicted = room.put("c", "x", count=lambda text: 8, now=0)
    assert [one.key for one in evicted] == ["b"]


def test_a_value_larger_than_the_whole_context_is_refused() -> None:
    """Nothing leaves for it."""
    room = put_value(WorkingContext.new(20), "a", "x")
    with pytest.raises(InvalidRecord, match=r"value takes .* tokens, and the whole context has 20"):
        room.put("b", "word " * 50)
    assert room.to_dict() == {"a": "x"}
    assert put_value(room, "b", "x", count=lambda text: 18).to_dict() == {"b": "x"}
    with pytest.raises(InvalidRecord, match="value takes 21 tokens"):
        put_value(room, "b", "x", count=lambda text: 19)


def test_a_smaller_context_keeps_what_matters_most() -> None:
    """What no longer fits is handed back; with more room all stay."""
    room = WorkingContext.new(100)
    for key, kind in (("a", "decision"), ("b", None), ("c", "fact")):
        room = put_value(room, key, "x", memory_type=kind, count=lambda text: 8)
    smaller, evicted = room.resize(20, now=0)
    assert ([one.key for one in evicted], smaller.current_tokens, smaller.max_tokens) == (["b"], 20, 20)
    smallest, evicted = room.resize(9, now=0)
    assert ([one.key for one in evicted], smallest.size) == (["b", "c", "a"], 0)
    assert room.resize(200)[0].to_list() == room.to_list()
    with pytest.raises(Invalid, match="max_tokens is 0"):
        room.resize(0)


def test_a_context_refuses_what_no_put_could_have_made() -> None:
    """Items under another key, and what is no item."""
    made = item(put_value(EMPTY, "a", 1), "a")
    with pytest.raises(InvalidRecord, match=r"items.b.key is 'a'"):
        WorkingContext(items={"b": made})  # type: ignore[arg-type]
    with pytest.raises(InvalidRecord, match=r"items.b must be a ContextItem"):
        WorkingContext(items={"b": 1})  # type: ignore[arg-type]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(
    st.integers(20, 80),
    st.lists(
        st.tuples(st.sampled_from([*KEYS, "x", "y"]), VALUES, st.floats(0, 1), st.integers(0, 9)), max_size=25
    ),
)
def test_a_context_keeps_its_budget_and_its_books(
    max_tokens: int, puts: list[tuple[str, Any, float, int]]
) -> None:
    """Whatever is put: the tokens add up, never exceed the limit, and it is read back as it was written."""
    context = WorkingContext.new(max_tokens)
    for key, value, confidence, minute in puts:
        before = context
        try:
            context, evicted = context.put(key, value, confidence=confidence, now=minute * 60_000)
        except Invalid:
            assert context is before
            continue
        assert context.current_tokens == sum(one.tokens for one in context.to_list()) <= max_tokens
        assert context.peek(key, "missing") == value
        assert {one.key for one in evicted} == {*before.items, key} - {*context.items}
    assert codec.from_builtins(codec.to_builtins(context), WorkingContext) == context


def test_an_everyday_word_is_the_type_of_a_value() -> None:
    """A value put as a preference is promoted as a fact."""
    assert item(put_value(EMPTY, "drink", "tea", memory_type="preference"), "drink").suggested_type == "fact"
