"""Tests of the order of memories for a hint."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.sessions import a_spec, talker

from omoide import clock
from omoide.sessions import Session
from omoide.stores import open_store
from omoide.testing import FrozenClock

START = 1_800_000_000_000
DAY = 86_400_000
HINT = "Where does the zebra sleep?"
PLACES = ("barn", "yard", "shed", "loft", "cave", "nest")
EMPTY_WORDS = ("the", "of", "and", "it", "is", "then", "very", "own", "such", "to")


@asynccontextmanager
async def taught(store: Any, *memories: tuple[str, float, int]) -> AsyncIterator[Session]:
    """A session with these memories: what they say, how sure, and how many days ago; and with others."""
    with clock.override(FrozenClock(START)):
        async with Session.open(a_spec(memory=True), "s1", store=store, model=talker()) as session:
            for content, confidence, days in memories:
                await session.remember(content, confidence=confidence, created_at=START - days * DAY)
            for at in range(4):
                paid = f"Invoice {at} was paid by Acme."
                await session.remember(paid, confidence=0.6, created_at=START - 500 * DAY)
            yield session


def equal_memories(*about: tuple[float, int]) -> Iterable[tuple[str, float, int]]:
    """Memories that answer the hint equally well, one for each place."""
    for place, (confidence, days) in zip(PLACES, about, strict=False):
        yield f"The zebra can sleep in the {place}.", confidence, days


async def found_words(session: Session, hint: str = HINT) -> list[str]:
    """The last word of each memory that the hint finds, in order."""
    found = (await session.assemble_context(hint)).long_term_memories
    return [one.content.rstrip(".").split()[-1] for one in found]


async def test_what_is_about_the_hint_comes_first(store: Any) -> None:
    """Before what is newer, surer and used more, but about something else."""
    old = ("The zebra can sleep in the barn.", 0.1, 700)
    new = ("The budget of Acme was approved by everybody in the yard.", 1.0, 0)
    async with taught(store, old, new) as session:
        for _ in range(5):
            await session.assemble_context("budget approved")
        assert (await found_words(session))[0] == "barn"
        assert (await found_words(session, "Who approved the budget?"))[0] == "yard"


async def test_what_answers_more_of_the_hint_comes_first(store: Any) -> None:
    """However old and unsure it is beside a memory that has a single word of it."""
    both = ("The zebra does sleep at night, in a barn.", 0.2, 700)
    one = ("There is a zebra on the flag of the yard.", 1.0, 0)
    async with taught(store, both, one) as session:
        assert (await found_words(session))[:2] == ["barn", "yard"]


@pytest.mark.parametrize("newest", [0, 1, 2])
async def test_of_those_alike_the_newer_comes_first(store: Any, newest: int) -> None:
    """Memories that answer the hint equally well, and are equally sure, are shown newest first."""
    about = equal_memories(*((0.8, (at - newest) % 3 * 100) for at in range(3)))
    async with taught(store, *about) as session:
        assert (await found_words(session))[:3] == [PLACES[(newest + at) % 3] for at in range(3)]


@pytest.mark.parametrize("surest", [0, 1, 2])
async def test_of_those_alike_the_surer_comes_first(store: Any, surest: int) -> None:
    """Memories that answer the hint equally well, and are equally old, are shown surest first."""
    about = equal_memories(*((0.9 - (at - surest) % 3 * 0.3, 100) for at in range(3)))
    async with taught(store, *about) as session:
        assert (await found_words(session))[:3] == [PLACES[(surest + at) % 3] for at in range(3)]


@given(
    st.lists(
        st.tuples(st.sampled_from((0.1, 0.4, 0.7, 1.0)), st.integers(0, 10)), min_size=2, max_size=len(PLACES)
    )
)
async def test_nothing_older_and_less_sure_comes_before_its_like(known: list[tuple[float, int]]) -> None:
    """Of two memories that say as much, the one that is newer and surer is never shown after the other."""
    about = equal_memories(*((sure, age * 50) for sure, age in known))
    async with open_store("memory://", embedder="none") as store, taught(store, *about) as session:
        order = await found_words(session)
    ranks = [order.index(PLACES[at]) for at in range(len(known))]
    for first, (sure, age) in enumerate(known):
        for second, (other_sure, other_age) in enumerate(known):
            if sure > other_sure and age < other_age:
                assert ranks[first] < ranks[second]


async def test_words_that_every_text_has_find_nothing(store: Any) -> None:
    """A memory that shares only such words with the hint comes after one that shares what it is about."""
    full = ("Where does it go, and what is the very same to the yard?", 1.0, 0)
    async with taught(store, full, *equal_memories((0.1, 700))) as session:
        assert (await found_words(session, "What is it and where does the very same zebra go to?"))[
            0
        ] == "barn"


@given(st.lists(st.tuples(st.sampled_from(EMPTY_WORDS), st.integers(0, 9)), max_size=8))
async def test_words_that_every_text_has_change_no_order(more: list[tuple[str, int]]) -> None:
    """However many of them stand in a hint, and wherever, it finds the same memories in the same order."""
    known = equal_memories((0.3, 10), (0.8, 300), (1.0, 50))
    full = (" ".join(EMPTY_WORDS) + " roof.", 1.0, 0)
    async with open_store("memory://", embedder="none") as store, taught(store, full, *known) as session:
        hint = ["zebra", "sleep"]
        for word, place in more:
            hint.insert(place, word)
        assert await found_words(session, " ".join(hint)) == await found_words(session, "zebra sleep")


async def test_a_small_store_gives_the_newest_that_are_sure(file: Any) -> None:
    """Without a hint, five of those that are at least 0.7 sure, the surest first, from any store."""
    async with Session.open(a_spec(memory=True), "s1", store=file, memory_store=ListStore()) as session:
        for at, confidence in enumerate((1.0, 0.95, 0.7, 0.69, 0.9, 0.8, 0.5, 0.75)):
            await session.remember(f"This is {at}.", confidence=confidence)
        found = (await session.assemble_context()).long_term_memories
    assert [one.confidence for one in found] == [0.95, 0.9, 0.8, 0.75, 0.7]


async def test_the_same_hint_finds_the_same_again(store: Any) -> None:
    """However often it is given: being shown makes no memory better than its like."""
    async with taught(store, *equal_memories(*((0.8, at) for at in range(len(PLACES))))) as session:
        first = await found_words(session)
        assert first[: len(PLACES)] == [*PLACES]
        for _ in range(5):
            assert await found_words(session) == first
