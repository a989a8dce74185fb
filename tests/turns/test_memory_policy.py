"""Tests of memory policies: accepted forms, and errors for wrong ones."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import maps, names

from omoide.core.entry import DEFAULT_MIN_RELEVANCE
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.turns import Limits, MemoryPolicy, Window
from omoide.turns.spec import as_policy

DEFAULTS = {
    "enabled": True,
    "scope": "agent",
    "namespace": None,
    "capture": "manual",
    "inject": "instructions",
    "max_entries": 5,
    "max_tokens": 1000,
    "min_relevance": DEFAULT_MIN_RELEVANCE,
    "max_pinned_tokens": 500,
    "metadata": {},
}


def fields(policy: MemoryPolicy) -> dict[str, Any]:
    return {name: getattr(policy, name) for name in policy.__struct_fields__}


def test_every_field_has_its_default() -> None:
    """A policy without arguments remembers five entries of the agent, and writes nothing by itself."""
    assert fields(MemoryPolicy()) == DEFAULTS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enabled", False),
        ("scope", "session"),
        ("namespace", "team"),
        ("capture", "conversation"),
        ("capture", "messages"),
        ("capture", "user"),
        ("capture", "off"),
        ("inject", "message"),
        ("max_pinned_tokens", 1),
        ("inject", "context"),
        ("max_entries", 8),
        ("max_tokens", 1),
        ("min_relevance", 0.3),
        ("min_relevance", None),
        ("metadata", {"a": [1]}),
    ],
)
def test_every_field_can_be_set(field: str, value: object) -> None:
    """The constructor, `new` with a mapping and `new` with keywords agree."""
    made = MemoryPolicy(**{field: value})  # type: ignore[arg-type]
    assert fields(made) == {**DEFAULTS, field: value}
    assert made == MemoryPolicy.new({field: value}) == MemoryPolicy.new(**{field: value})


@pytest.mark.parametrize(
    "form", [("context", "tenant_id"), ["context", "tenant_id"], {"context": "tenant_id"}]
)
def test_a_namespace_may_come_from_the_context(form: Any) -> None:
    """A pair, a list and a mapping mean the same, and the list is what is written."""
    for policy in (MemoryPolicy(namespace=form), MemoryPolicy.new(namespace=form)):
        assert policy.namespace == ("context", "tenant_id")
        assert b'"namespace":["context","tenant_id"]' in policy.to_json()
        assert MemoryPolicy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize(
    ("older", "today"),
    [
        ({"namespace": "per_agent"}, {}),
        ({"namespace": "per_agent", "scope": "agent"}, {}),
        ({"namespace": "session"}, {"scope": "session"}),
        ({"namespace": "session", "scope": "session"}, {"scope": "session"}),
        ({"namespace": "shared", "shared_namespace": "team"}, {"namespace": "shared:team"}),
        (
            {"namespace": "shared", "shared_namespace": "team", "scope": "session"},
            {"namespace": "shared:team", "scope": "session"},
        ),
        (
            {"namespace": "context", "context_namespace_key": "tenant_id"},
            {"namespace": ("context", "tenant_id")},
        ),
        ({"namespace": "per_agent", "shared_namespace": None, "context_namespace_key": None}, {}),
        ({"retrieve": {"limit": 3}}, {"max_entries": 3}),
        ({"retrieve": {"limit": "3"}}, {"max_entries": 3}),
        ({"retrieve": {"limit": 3}, "max_entries": "3"}, {"max_entries": 3}),
        ({"retrieve": {}}, {}),
        ({"max_entries": "8"}, {"max_entries": 8}),
    ],
)
def test_older_forms_are_understood(older: dict[str, Any], today: dict[str, Any]) -> None:
    """Each becomes what it is called today."""
    for made in (MemoryPolicy.new(older), MemoryPolicy.new(**older), as_policy(older)):
        assert made is not None
        assert fields(made) == {**DEFAULTS, **today}


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"enabled": "yes"}, "enabled"),
        ({"scope": "tenant"}, "scope"),
        ({"scope": None}, "scope"),
        ({"capture": "always"}, "capture"),
        ({"inject": "system"}, "inject"),
        ({"min_relevance": 1.1}, "min_relevance"),
        ({"min_relevance": "high"}, "min_relevance"),
        ({"max_entries": 0}, "max_entries"),
        ({"max_entries": "0"}, "max_entries"),
        ({"max_entries": -1}, "max_entries"),
        ({"max_entries": "-1"}, "max_entries"),
        ({"max_entries": "many"}, "max_entries"),
        ({"max_entries": "9" * 5000}, "max_entries"),
        ({"max_entries": 2.0}, "max_entries"),
        ({"max_entries": True}, "max_entries"),
        ({"max_entries": None}, "max_entries"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"metadata": [1]}, "metadata"),
        ({"metadata": {"a": object()}}, "metadata.a"),
        ({"namespace": ""}, "namespace"),
        ({"namespace": 5}, "namespace"),
        ({"namespace": "a\nb"}, "namespace"),
        ({"namespace": ["context"]}, "namespace"),
        ({"namespace": ["tenant", "id"]}, "namespace"),
        ({"namespace": ["context", "a", "b"]}, "namespace"),
        ({"namespace": {"context": "a", "b": "c"}}, "namespace"),
        ({"namespace": {}}, "namespace"),
        ({"namespace": ["context", ""]}, "namespace key"),
        ({"namespace": ["context", 5]}, "namespace key"),
        ({"namespace": "shared"}, "shared_namespace"),
        ({"namespace": "shared", "shared_namespace": ""}, "shared_namespace"),
        ({"namespace": "context"}, "context_namespace_key"),
        ({"namespace": "per_agent", "scope": "session"}, "scope"),
        ({"namespace": "session", "scope": "agent"}, "scope"),
        ({"namespace": "team", "shared_namespace": "other"}, "shared_namespace"),
        ({"retrieve": {"limit": 3}, "max_entries": 4}, "max_entries"),
        ({"retrieve": {"limit": 0}}, "max_entries"),
        ({"retrieve": 3}, "retrieve"),
        ({"retrieve": {"top": 3}}, "retrieve.top"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, Any], field: str) -> None:
    """The error says that it is a memory policy, which field it is, and what to do."""
    attempts: list[Callable[[], object]] = [
        lambda: MemoryPolicy.new(wrong),
        lambda: MemoryPolicy.new(**wrong),
        lambda: as_policy(wrong),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidRecord, match=r"^invalid memory policy: ") as raised:
            attempt()
        assert raised.value.field == field
        assert raised.value.remedy


@pytest.mark.parametrize("word", ["per_agent", "session", "shared", "context"])
def test_the_constructor_does_not_guess_what_an_older_word_meant(word: str) -> None:
    """It is refused there, so that no policy is read back as another than it was."""
    with pytest.raises(Invalid, match="older form"):
        MemoryPolicy(namespace=word)
    with pytest.raises(Invalid, match="older form"):
        MemoryPolicy().replace(namespace=word)


def test_a_policy_is_taken_with_changes() -> None:
    """`new` from a policy keeps what is not named, and an older word changes the scope it stands for."""
    policy = MemoryPolicy(max_entries=3, capture="off")
    assert MemoryPolicy.new(policy) == policy
    assert MemoryPolicy.new(policy, max_entries="4") == policy.replace(max_entries=4)
    assert MemoryPolicy.new(policy, namespace="session") == policy.replace(scope="session")


def test_a_policy_can_be_given_in_short() -> None:
    """True is the defaults, False and None are no memory, a mapping and a policy are themselves."""
    policy = MemoryPolicy(scope="session")
    assert as_policy(True) == MemoryPolicy()
    assert as_policy(False) is None
    assert as_policy(None) is None
    assert as_policy({"scope": "session"}) == policy
    assert as_policy(policy) == policy
    for other in ("agent", 1, 0, [], [("scope", "session")]):
        with pytest.raises(WrongType, match="memory must be True, False, a mapping or a MemoryPolicy"):
            as_policy(other)


policies = st.builds(
    MemoryPolicy,
    enabled=st.booleans(),
    scope=st.sampled_from(["agent", "session"]),
    namespace=st.none() | st.just("team") | st.tuples(st.just("context"), names),
    capture=st.sampled_from(["manual", "conversation", "messages", "user", "off"]),
    inject=st.sampled_from(["instructions", "context"]),
    max_entries=st.integers(1, 2**40),
    max_tokens=st.integers(1, 2**40),
    metadata=maps,
)


@given(policies)
def test_a_policy_survives_json(policy: MemoryPolicy) -> None:
    """What was written is read back as the same, and written as the same bytes."""
    again = MemoryPolicy.from_json(policy.to_json())
    assert again == policy
    assert hash(again) == hash(policy)
    assert again.to_json() == policy.to_json()


@pytest.mark.parametrize("kind", [Limits, Window])
def test_limits_are_whole_numbers(kind: type[Limits] | type[Window]) -> None:
    """Every field refuses what is no count, names itself, and survives JSON where it is one."""
    for field in kind.__struct_fields__:
        for wrong in (-1, 1.5, "3", True, None):
            with pytest.raises(InvalidRecord) as raised:
                kind.new({field: wrong})
            assert raised.value.field == field
    assert kind.from_json(kind().to_json()) == kind()


@pytest.mark.parametrize("field", [field for field in Limits.__struct_fields__ if field != "retries"])
def test_a_turn_needs_some_of_everything(field: str) -> None:
    """Only retries may be 0."""
    with pytest.raises(InvalidRecord, match=rf"^invalid limits: {field} is 0; pass 1 or more"):
        Limits.new({field: 0})
    assert Limits(retries=0).retries == 0


def test_a_window_has_room_for_what_goes_in() -> None:
    """What is reserved for the answer is less than the whole."""
    assert Window(max_tokens=10, reserve_output_tokens=9).minimum_recent_turns == 0
    with pytest.raises(InvalidRecord, match=r"^invalid window: reserve_output_tokens is 10, of 10 tokens"):
        Window(max_tokens=10, reserve_output_tokens=10)
    with pytest.raises(InvalidRecord, match="max_tokens is 0"):
        Window(max_tokens=0, reserve_output_tokens=0)
