"""Correction of arguments that do not keep to the schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.mcp_clients import ADA, call, call_error, connect_client

from omoide.core import MEMORY_TYPES, ontology_class
from omoide.errors import Invalid
from omoide.integrations.mcp.arguments import coerce
from omoide.integrations.mcp.schemas import input_schema
from omoide.integrations.mcp.tools import ALL_TOOLS, tool_action

SCHEMAS = {name: tool_action(name).json_schema() for name in ALL_TOOLS}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=10,
)
WORDS = st.sampled_from(sorted({name for schema in SCHEMAS.values() for name in schema["properties"]}))


@pytest.mark.parametrize(
    ("tool", "given", "meant"),
    [
        ("remember", {"text": "x"}, {"content": "x"}),
        ("remember", {"content": "x", "confidence": "0.9"}, {"content": "x", "confidence": 0.9}),
        ("remember", {"content": "x", "confidence": "90%"}, {"content": "x", "confidence": 0.9}),
        ("remember", {"content": "x", "confidence": " 90 % "}, {"content": "x", "confidence": 0.9}),
        ("remember", {"content": "x", "confidence": "High"}, {"content": "x", "confidence": "high"}),
        ("remember", {"content": "x", "confidence": None}, {"content": "x"}),
        ("remember", {"content": 42}, {"content": "42"}),
        ("remember", {"content": "x", "tags": "a, b;c"}, {"content": "x", "tags": ["a", "b", "c"]}),
        ("remember", {"content": "x", "tags": '["a", "b"]'}, {"content": "x", "tags": ["a", "b"]}),
        ("remember", {"content": "x", "tags": ["a", 7, ""]}, {"content": "x", "tags": ["a", "7"]}),
        ("remember", {"content": "x", "Type": "Root Cause"}, {"content": "x", "type": "root_cause"}),
        ("remember", {"content": "x", "kind": "trade-off"}, {"content": "x", "type": "trade_off"}),
        (
            "remember",
            {"content": "x", "type": "jido:LessonLearned"},
            {"content": "x", "type": "lesson_learned"},
        ),
        ("remember", {"content": "x", "why": "y"}, {"content": "x", "rationale": "y"}),
        ("recall", {"question": "x", "limit": "7"}, {"query": "x", "limit": 7}),
        ("recall", {"query": "x", "type": "Facts"}, {"query": "x", "type": "fact"}),
        ("remember", {"content": "x", "type": "Preference"}, {"content": "x", "type": "fact"}),
        ("recall", {"query": "x", "type": "Instructions"}, {"query": "x", "type": "agent_rule"}),
        ("recall", {"query": "x", "type": "any"}, {"query": "x", "type": "all"}),
        ("recall", {"query": "x", "minConfidence": ".5"}, {"query": "x", "min_confidence": 0.5}),
        ("recall", {"query": "x", "relevance": "0.5"}, {"query": "x", "min_relevance": 0.5}),
        ("recall", {"query": "x", "top_k": 3.0}, {"query": "x", "limit": 3}),
        ("forget", {"id": "m1", "replaced_by": "m2"}, {"memory_id": "m1", "replacement_id": "m2"}),
        ("relate", {"source": "a", "type": "Derived From", "to": "b"}, None),
        ("list", {"forgotten": "Yes"}, {"forgotten": True}),
        ("who_can", {"limits": '{"max_tokens": 8000}'}, {"limits": {"max_tokens": 8000}}),
    ],
)
def test_slips_that_can_only_mean_one_thing_are_taken_so(
    tool: str, given: dict[str, Any], meant: dict[str, Any] | None
) -> None:
    """Numbers as text, names in another case or with another word, and lists with commas are understood."""
    wanted = meant or {"source_id": "a", "relation": "derived_from", "target_id": "b"}
    assert coerce(SCHEMAS[tool], given) == (wanted, [])


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_schema_that_is_offered_says_no_less(name: str) -> None:
    """It has every parameter with its description, choices, limits and default, and no empty default."""
    whole, short = SCHEMAS[name], input_schema(SCHEMAS[name])
    assert [*short["properties"]] == [*whole["properties"]]
    assert short.get("required", []) == whole["required"]
    for parameter, told in short["properties"].items():
        meant = whole["properties"][parameter]
        lost = {key: value for key, value in meant.items() if key not in told}
        assert lost.pop("default", None) in (None, "", [])
        assert lost in ({}, {"anyOf": [{"type": told.get("type")}, {"type": "null"}]})


@pytest.mark.parametrize("name", MEMORY_TYPES)
def test_every_type_is_known_in_every_spelling(name: str) -> None:
    """Capitals, spaces, hyphens and the name in the ontology mean the same type."""
    spellings = (name.upper(), name.title().replace("_", " "), name.replace("_", "-"), ontology_class(name))
    for spelling in spellings:
        assert coerce(SCHEMAS["remember"], {"content": "x", "type": spelling})[0]["type"] == name


@pytest.mark.parametrize(
    ("given", "notice"),
    [
        ({"limit": 500}, "limit 500 was taken as 50."),
        ({"limit": "0"}, "limit 0 was taken as 1."),
        ({"limit": 10**5_000}, "limit (very large) was taken as 50."),
        ({"min_confidence": 90}, "min_confidence 90 was taken as 1.0."),
        ({"min_confidence": "-1"}, "min_confidence -1.0 was taken as 0.0."),
        (
            {"namespace": "theirs", "agentId": "mallory"},
            "Ignored: 'namespace', 'agent_id'. Whose memory this is was fixed when the server was started.",
        ),
    ],
)
def test_what_was_taken_otherwise_is_told(given: dict[str, Any], notice: str) -> None:
    """Numbers beyond a limit are brought to it, and a scope is left out, each with a notice."""
    meant, notices = coerce(SCHEMAS["recall"], given)
    assert {*meant} <= {"limit", "min_confidence"}
    assert notices[-1].endswith(notice)


@given(
    name=st.sampled_from(sorted(SCHEMAS)), data=st.dictionaries(WORDS | st.text(max_size=9), JSON, max_size=5)
)
def test_whatever_is_given_only_what_is_known_comes_out(name: str, data: dict[str, Any]) -> None:
    """Data is refused or corrected, and what is right already stays as it is."""
    try:
        meant, _ = coerce(SCHEMAS[name], data)
    except Invalid:
        return
    assert {*meant} <= {*SCHEMAS[name]["properties"]}
    assert coerce(SCHEMAS[name], meant)[0] == meant


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        ("recall", {"limt": 1}, "'limt' is an unknown argument; did you mean 'limit'?"),
        ("recall", {"minRelevnce": 1}, "'minRelevnce' is an unknown argument; did you mean 'min_relevance'?"),
        (
            "forget",
            {"memory_id": "m", "reeson": "x"},
            "'reeson' is an unknown argument; did you mean 'reason'?",
        ),
        (
            "forget",
            {"memory_id": "m", "mood": "good"},
            "'mood' is an unknown argument; use reason, replacement_id, or leave it out",
        ),
        ("memory_status", {"mood": "good"}, "'mood' is an unknown argument; use no other, or leave it out"),
    ],
)
async def test_a_misspelt_argument_is_refused_with_the_near_name(
    store: Any, tool: str, given: dict[str, Any], message: str
) -> None:
    """Nothing is done with an argument left out of account: the model learns the name that it meant."""
    async with connect_client(store) as client:
        assert await call_error(client, tool, **given) == message


@pytest.mark.parametrize("tool", SCHEMAS)
def test_every_tool_refuses_what_it_does_not_know(tool: str) -> None:
    """An argument with a name like no parameter's is an error for each of them, however long its name."""
    with pytest.raises(Invalid, match="is an unknown argument") as caught:
        coerce(SCHEMAS[tool], {"zzz" * 10_000: 1})
    assert len(str(caught.value)) < 250


async def test_a_model_that_slips_is_served_and_told(store: Any) -> None:
    """What was meant is done, the notices come with the answer, and no scope is taken from the model."""
    async with connect_client(store) as client:
        answer = await call(
            client,
            "remember",
            text="Prices are kept in cents.",
            type="Coding Standard",
            confidence="90%",
            tags="money, shop",
            agent_id="mallory",
        )
        assert answer["notices"] == [
            "Ignored: 'agent_id'. Whose memory this is was fixed when the server was started."
        ]
        (kept,) = await store.list_entries(ADA)
        assert (kept.type, kept.confidence, kept.tags) == ("coding_standard", 0.9, ("money", "shop"))
        assert (await call(client, "recall", query="prices", limit="1000"))["notices"] == [
            "limit 1000 was taken as 50."
        ]


@pytest.mark.parametrize(
    ("tool", "params", "words"),
    [
        ("remember", {}, "content"),
        ("remember", {"content": "x", "type": "feeling"}, "use one of fact"),
        ("remember", {"content": "x", "confidence": "rather"}, "confidence"),
        ("remember", {"content": "   "}, "is empty"),
        ("remember", {"content": "x" * 2_001}, "use at most 2000"),
        ("remember", {"content": "x", "tags": ["y" * 101]}, "use at most 100"),
        ("remember", {"content": "x", "tags": [str(number) for number in range(21)]}, "tags"),
        ("recall", {"query": "x" * 1_001}, "use at most 1000"),
        ("recall", {"limit": "many"}, "limit"),
        ("forget", {"memory_id": ""}, "memory_id"),
        ("forget", {"memory_id": "absent"}, "use an id that recall or remember returned"),
    ],
)
async def test_what_cannot_be_meant_is_refused_in_words_that_help(
    store: Any, tool: str, params: dict[str, Any], words: str
) -> None:
    """An error is an answer that says what is wrong and what to do, and nothing is kept."""
    async with connect_client(store) as client:
        assert words in await call_error(client, tool, **params)
        assert await store.list_entries(ADA) == []


async def test_programs_find_the_parts_of_an_error(store: Any) -> None:
    """Beside the words there are the kind of problem, its status and the remedy."""
    async with connect_client(store) as client:
        result = await client.call_tool("forget", {"memory_id": "absent"})
    assert result.meta is not None
    problem = result.meta["omoide/problem"]
    assert (problem["type"], problem["status"]) == ("not-found", 404)
    assert problem["remedy"] in problem["detail"]
