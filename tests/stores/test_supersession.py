"""A superseded memory always leads to its current successor."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import FEW
from tests.support.stores import ADA, KINDS, a_store, keep, recall_ids, url, write_request
from tests.support.turns import Talker, tool_calls

from omoide import Scope, verbs
from omoide.core import DELETED
from omoide.errors import Invalid
from omoide.stores import open_store
from omoide.tools import memory_tools
from omoide.turns import AgentSpec, turn

IDS = tuple("abcde")
BOTH = pytest.mark.parametrize("kind", KINDS)
ids = st.sampled_from(IDS)
Step = tuple[str, str, str | None]
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("supersede"), ids, st.none() | ids),
    st.tuples(st.just("write"), ids, ids),
    st.tuples(st.just("restore"), ids, st.none()),
)


def act(store: Any, step: Step) -> None:
    verb, id, other = step
    if verb == "supersede":
        store.supersede(id, ADA, by=other)
    elif verb == "restore":
        store.reinstate(id, ADA)
    elif id != other:
        keep(store, f"Tea of {id}.", id=id, supersedes=other)


def successors(store: Any) -> dict[str, str | None]:
    return {entry.id: entry.superseded_by for entry in store.list_entries(Scope())}


def ends_of(heirs: dict[str, str | None]) -> set[str]:
    """What memories lead to in the end; a circle has none and is told."""
    found = set()
    for id in heirs:
        seen = [id]
        while (heir := heirs.get(seen[-1])) is not None and heir != DELETED:
            assert heir not in seen, f"a circle: {seen}"
            seen.append(heir)
        found.add(seen[-1])
    return found


@FEW
@given(life=st.lists(steps, max_size=25))
def test_successors_never_lead_in_a_circle(life: list[Step]) -> None:
    """After every step of any life, each memory leads to one that holds, or that somebody forgot."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stores = [stack.enter_context(a_store(kind, Path(folder))) for kind in KINDS]
        for store in stores:
            store.write_many([write_request(f"Tea of {id}.", id=id) for id in IDS])
        for step in life:
            before = successors(stores[0])
            for store in stores:
                with suppress(Invalid):
                    act(store, step)
            heirs = successors(stores[0])
            assert successors(stores[1]) == heirs, step
            assert {heirs[id] for id in ends_of(heirs)} <= {None, DELETED}
            if heirs[step[1]] not in (before[step[1]], DELETED, None):
                assert before[str(heirs[step[1]])] is None, "a successor holds when it is named"


# What is refused

REPLACE: dict[str, Callable[[Any, str, str], Any]] = {
    "supersede": lambda store, id, by: store.supersede(id, ADA, by=by),
    "write": lambda store, id, by: keep(store, "Tea.", id=by, supersedes=id),
}


@BOTH
@pytest.mark.parametrize("how", REPLACE)
@pytest.mark.parametrize("gone", ["replaced", "forgotten"])
def test_what_does_not_hold_replaces_nothing(kind: str, how: str, gone: str, tmp_path: Path) -> None:
    """A memory that was replaced or forgotten takes nobody's place, and both stay as they are."""
    with a_store(kind, tmp_path) as store:
        for id in ("a", "b", "c"):
            keep(store, f"Tea of {id}.", id=id)
        store.supersede("b", ADA, by="c" if gone == "replaced" else None)
        before = [store.get(id, ADA) for id in ("a", "b", "c")]
        with pytest.raises(Invalid, match="'b', which is superseded itself"):
            REPLACE[how](store, "a", "b")
        assert [store.get(id, ADA) for id in ("a", "b", "c")] == before
        store.reinstate("b", ADA)
        REPLACE[how](store, "a", "b")
        assert sorted(recall_ids(store)) == ["b", "c"]


@BOTH
def test_two_memories_do_not_replace_each_other(kind: str, tmp_path: Path) -> None:
    """The second replacement is refused, and one of the two still holds."""
    with a_store(kind, tmp_path) as store:
        for id in ("a", "b"):
            keep(store, f"Tea of {id}.", id=id)
        store.supersede("a", ADA, by="b")
        with pytest.raises(Invalid, match="by names 'a', which is superseded itself"):
            store.supersede("b", ADA, by="a")
        assert recall_ids(store) == ["b"]


@BOTH
async def test_forget_needs_a_replacement_that_holds(kind: str, tmp_path: Path) -> None:
    """Through the verb as through the store."""
    async with open_store(url(kind, tmp_path), embedder="none") as store:
        for id in ("a", "b"):
            await verbs.remember(store, f"Tea of {id}.", ADA, id=id)
        await verbs.forget(store, "b", ADA, reason="it was wrong")
        with pytest.raises(Invalid, match="name what holds now"):
            await verbs.forget(store, "a", ADA, replacement="b")
        assert (await store.get("a", ADA)).superseded_by is None


GIVE_UP: dict[str, dict[str, str]] = {
    "forget": {"memory_id": "a", "replacement_id": "b"},
    "relate": {"source_id": "a", "relation": "superseded_by", "target_id": "b"},
}


@BOTH
@pytest.mark.parametrize("tool", GIVE_UP)
async def test_a_model_is_told_that_its_replacement_does_not_hold(
    kind: str, tool: str, tmp_path: Path
) -> None:
    """The tool says so, and what was to be replaced is recalled as before."""
    async with open_store(url(kind, tmp_path), embedder="none") as store:
        for id in ("a", "b"):
            await verbs.remember(store, f"Tea of {id}.", ADA, id=id, type="fact")
        model = Talker(
            tool_calls(("forget", {"memory_id": "b"})),
            tool_calls((tool, GIVE_UP[tool]), prefix="then_"),
            "Done.",
        )
        spec = AgentSpec.new(id="ada", memory={"scope": "agent"}, tools=memory_tools())
        await turn(spec, "Tidy up.", llm=model, memory_store=store, session_id="s1")
        told = [one.content for one in model.prompts[-1].messages if one.role == "tool"]
        assert "It is not recalled any more." in told[0]
        assert "'b', which is superseded itself" in told[1]
        assert (await store.get("a", ADA)).superseded_by is None
