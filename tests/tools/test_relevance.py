"""The recall tool leaves out what is not relevant, and says so."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.custom_stores import RatedStore
from tests.support.memory_tools import a_spec, call_error, call_tool

from omoide import Entry, WriteRequest
from omoide.core.entry import DEFAULT_MIN_RELEVANCE


async def rated_store() -> RatedStore:
    store = RatedStore(near=0.846, far=DEFAULT_MIN_RELEVANCE - 0.02, some=None)
    for id in ("near", "far", "some"):
        await store.write(WriteRequest(entry=Entry(id=id, agent_id="ada", content=f"Tea is {id}.")))
    return store


async def recall(params: dict[str, Any] | None = None, **options: Any) -> tuple[set[str], Any]:
    answer = await call_tool(await rated_store(), "recall", {"query": "tea", **(params or {})}, **options)
    return {memory["id"] for memory in answer["memories"]}, answer


async def test_the_tool_gives_what_is_relevant_and_says_how_many_are_not() -> None:
    """Below the default are counted in `withheld` and in a note for the model."""
    found, answer = await recall()
    assert found == {"near", "some"}
    assert (answer["count"], answer["withheld"]) == (2, 1)
    assert f"below {DEFAULT_MIN_RELEVANCE}: 1." in answer["note"]


async def test_memories_have_their_relevance_and_the_newer_one() -> None:
    """Relevance is rounded; where it is not known, and where nothing is newer, there is no field."""
    store = await rated_store()
    store.newer = {"near": "some"}
    answer = await call_tool(store, "recall", {"query": "tea"})
    shown = {memory["id"]: memory for memory in answer["memories"]}
    assert (shown["near"]["relevance"], shown["near"]["newer"]) == (0.85, "some")
    assert not {"relevance", "newer"} & {*shown["some"]}


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"min_relevance": 0}, {"near", "far", "some"}),
        ({"min_relevance": 0.9}, {"some"}),
        ({"min_relevance": -3}, {"near", "far", "some"}),
    ],
)
async def test_a_call_may_name_another_relevance(params: dict[str, Any], expected: set[str]) -> None:
    """The number of the call goes before that of the policy, brought into 0 to 1."""
    assert (await recall(params))[0] == expected


@pytest.mark.parametrize(("floor", "expected"), [(None, {"near", "far", "some"}), (0.9, {"some"})])
async def test_without_a_number_the_policy_decides(floor: float | None, expected: set[str]) -> None:
    """The tool is as strict as the prompt of its turn."""
    assert (await recall(spec=a_spec(memory={"min_relevance": floor})))[0] == expected


async def test_a_relevance_that_is_no_number_is_refused() -> None:
    """The model is told what it may pass."""
    told = await call_error(await rated_store(), "recall", {"query": "tea", "min_relevance": "high"})
    assert "min_relevance" in told
