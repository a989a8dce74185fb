"""A projector that fails on one entry reports it, and gets past it after some tries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.projection import NOW, add_entries, agent, answer, coverage_of, errors, mark, message

from omoide import Agent, Memory, Thread, memory
from omoide.core.action import Directive, MemoryUpsert
from omoide.projection import ProjectionContext, project
from omoide.projection.engine import MAX_TRIES


class Reader:
    """Collects texts in `world.read`, and cannot read some of them."""

    name = "reader"
    retry_ms = 0

    def __init__(self, poison: Callable[[str], bool] = lambda text: "poison" in text) -> None:
        self.poison = poison
        self.calls = 0

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        self.calls += 1
        texts = [str(entry.payload["content"]) for entry in ctx.fresh]
        if any(self.poison(text) for text in texts):
            raise ValueError("cannot read that")
        return memory.world_put("read", [*memory.world_get("read", ()), *texts])


def run(given: Agent, reader: Any, times: int = 1) -> tuple[Agent, list[Directive]]:
    directives: list[Directive] = []
    for number in range(times):
        given, more = project(given, [reader], now=NOW + number)
        directives += more
    return given, directives


def test_one_entry_does_not_block_those_before_and_after_it() -> None:
    """Those before it are covered at once, those after it after `MAX_TRIES` tries."""
    given, reader = agent("a", "b", "poison", "c"), Reader()
    given, directives = run(given, reader)
    assert memory.world_get(given, "read") == ["a", "b"]
    assert coverage_of(given, "reader") == [0, 1]
    (error,) = errors(directives)
    assert (error.context, error.action, error.message) == (
        "projection",
        "reader",
        "ValueError: cannot read that",
    )
    given, directives = run(given, reader, MAX_TRIES - 1)
    assert memory.world_get(given, "read") == ["a", "b", "c"]
    assert coverage_of(given, "reader") == [0, 3]
    skipped = errors(directives)[-1]
    assert (skipped.kind, skipped.context, skipped.action) == ("Skipped", "projection", "reader")
    assert "entry 2" in skipped.message
    assert "cannot read that" in skipped.message
    again, directives = run(given, reader)
    assert (again, directives) == (given, [])


def test_an_entry_that_is_read_at_a_later_try_is_not_skipped() -> None:
    """What was wrong may be mended meanwhile; the next failure has all its tries again."""
    given, reader = agent("poison", "b"), Reader()
    given, _ = run(given, reader, MAX_TRIES - 1)
    assert coverage_of(given, "reader") == []
    reader.poison = lambda text: text == "worse"
    given, directives = run(given, reader)
    assert (memory.world_get(given, "read"), directives) == (["poison", "b"], [])
    assert "failures" not in mark(given, "reader")
    given, _ = run(add_entries(given, [message("worse")]), reader, MAX_TRIES - 1)
    assert coverage_of(given, "reader") == [0, 1]
    given, _ = run(given, reader)
    assert coverage_of(given, "reader") == [0, 2]


def test_an_entry_alone_is_passed_too() -> None:
    """The number of tries is bounded, whether others follow or not."""
    given, directives = run(agent("poison"), Reader(), MAX_TRIES + 3)
    assert coverage_of(given, "reader") == [0, 0]
    assert [error.kind for error in errors(directives)] == ["ValueError"] * (MAX_TRIES - 1) + ["Skipped"]


def test_a_projector_that_always_fails_loses_one_entry_at_a_time() -> None:
    """While everything fails, an outage more likely than an entry, a run skips one at most."""
    given, reader = agent(*"abcdef"), Reader(lambda text: True)
    for skipped in range(1, 4):
        given, directives = run(given, reader, MAX_TRIES if skipped == 1 else MAX_TRIES - 1)
        assert coverage_of(given, "reader") == [0, skipped - 1]
        assert [error.kind for error in errors(directives)].count("Skipped") == 1


class Sender:
    """Sends each text to a provider, and cannot send some."""

    name = "sender"
    confirmed: ClassVar[bool] = True
    retry_ms = 0

    def project(
        self, memory: Memory, thread: Thread, ctx: ProjectionContext
    ) -> tuple[Memory, Sequence[Directive]]:
        texts = [str(entry.payload["content"]) for entry in ctx.fresh]
        if "poison" in texts:
            raise ValueError("cannot send that")
        items = [{"key": text, "value": text} for text in texts]
        return memory, [MemoryUpsert(items=items, provider="p")]


def test_a_projector_with_confirmation_gets_past_it_too() -> None:
    """One request is under way at a time; nothing is sent twice, and nothing after it stays behind."""
    from omoide.projection import ProjectionStrategy

    given = agent("a", "b", "poison", "c", "d", strategy=ProjectionStrategy([Sender()]))
    sent: list[str] = []
    for number in range(30):
        given, directives = project(given, [Sender()], now=NOW + number)
        for one in directives:
            if isinstance(one, MemoryUpsert):
                sent += [item["key"] for item in one.items]
                given, _ = answer(given, one, now=NOW + number)
    assert sent == ["a", "b", "c", "d"]
    assert coverage_of(given, "sender") == [0, 4]


@pytest.mark.parametrize("size", [1, 7])
@given(data=st.data())
def test_every_entry_is_read_or_reported(size: int, data: st.DataObject) -> None:
    """However the poison lies, after enough runs the good were read once each, the rest reported."""
    texts = data.draw(st.lists(st.sampled_from(["a", "poison"]), min_size=1, max_size=size))
    named = [f"{text} {number}" for number, text in enumerate(texts)]
    given, directives = run(agent(*named), Reader(), MAX_TRIES * len(texts) + 1)
    assert [*memory.world_get(given, "read", ())] == [text for text in named if "poison" not in text]
    assert coverage_of(given, "reader") == [0, len(texts) - 1]
    skipped = [error.message for error in errors(directives) if error.kind == "Skipped"]
    assert len(skipped) == texts.count("poison")
