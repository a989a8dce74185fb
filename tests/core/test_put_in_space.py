"""The fast path of `put_in_space` gives the same result as the general one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Agent, Memory, Space, memory
from omoide.errors import OmoideError
from omoide.testing import reproducible

names = st.sampled_from(["world", "tasks", "facts", "small", "absent", "", "\0"])
keys = st.one_of(st.text(max_size=4), st.sampled_from(["a", "ä", "\0", "\ud800"]), st.integers(0, 1))
values: st.SearchStrategy[Any] = st.one_of(
    st.integers(), st.floats(), st.text(max_size=4), st.lists(st.integers()), st.just(object())
)


def _agents() -> list[Agent]:
    bare = Agent.new("short")
    facts = memory.put_space(bare, "facts", Space.new_kv({"a": 1}))
    return [bare, memory.ensure(bare), memory.ensure_space(facts, "small", {}, max_items=1, max_item_bytes=9)]


def _outcome(change: Any) -> Any:
    try:
        return change()
    except OmoideError as error:
        return type(error), str(error)


@pytest.mark.parametrize("which", [0, 1, 2], ids=["no memory", "fresh memory", "own spaces"])
@given(name=names, key=keys, value=values)
def test_the_short_way_and_the_long_way_agree(which: int, name: Any, key: Any, value: Any) -> None:
    """Whatever is put where, the result or error is that of `Memory.put_in_space`; the agent is untouched."""
    with reproducible():
        agent = _agents()[which]
        before = agent.to_json()
        short = _outcome(lambda: memory.get(memory.put_in_space(agent, name, key, value)))
    with reproducible():
        twin = _agents()[which]
        long = _outcome(lambda: memory.of(twin).put_in_space(name, key, value))
    assert short == long
    assert agent.to_json() == before
    if isinstance(short, Memory):
        assert short.rev == memory.of(agent).rev + 1
