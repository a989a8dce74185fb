"""A mailbox keeps its order and its size, whoever sends, waits, cancels or closes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from hypothesis import given
from hypothesis import strategies as st

from omoide import Signal
from omoide.runtime import mailbox
from omoide.runtime.mailbox import Envelope, Mailbox, PendingReply

OWN = 4
"""How many of the agent's own letters are let in beyond the size, in these tests."""

STEPS = st.one_of(
    st.tuples(st.sampled_from(("offer", "put", "put", "push", "take", "take")), st.just(0)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
    st.tuples(st.sampled_from(("close", "reopen")), st.just(0)),
)
RACES = st.one_of(
    st.tuples(st.sampled_from(("put", "put", "take", "pause")), st.just(0)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
)


@pytest.fixture(autouse=True)
def _few_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailbox, "INTERNAL_LIMIT", OWN)


async def settle() -> None:
    """Let every task that can go on go on: no task here takes more than a few turns of the loop."""
    for _ in range(5):
        await checkpoint()


def letter(number: int) -> Envelope:
    """A letter that can be told from others."""
    return Envelope(Signal(type="told", id=f"s{number}", time=0))


def read_next(box: Mailbox) -> int | None:
    """The number of the next letter."""
    item = box.get_nowait()
    if item is None:
        return None
    assert isinstance(item, Envelope)
    return int(item.signal.id[1:])


def read_all(box: Mailbox) -> list[int]:
    """The numbers of all letters, those included for which somebody waits."""
    found = []
    while (number := read_next(box)) is not None:
        found.append(number)
    return found


class Senders:
    """Tasks that put letters into a mailbox, and what became of them."""

    def __init__(self, box: Mailbox, group: TaskGroup) -> None:
        self.box = box
        self.group = group
        self.scopes: dict[int, anyio.CancelScope] = {}
        self.ended: dict[int, Any] = {}

    def send(self, number: int) -> None:
        """Begin to put a letter."""
        self.scopes[number] = anyio.CancelScope()
        self.group.start_soon(self._put, number)

    async def _put(self, number: int) -> None:
        with self.scopes[number]:
            self.ended[number] = "cancelled"
            self.ended[number] = await self.box.put(letter(number))

    def cancel(self, number: int) -> None:
        """Give up."""
        self.scopes[number].cancel()


class Model:
    """What a mailbox has to be: a list of letters, and a line of those who wait."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: list[int] = []
        self.waiting: list[int] = []
        self.closed = False
        self.ended: dict[int, Any] = {}

    def offer(self, number: int) -> bool:
        room = not self.closed and not self.waiting and len(self.items) < self.size
        if room:
            self.items.append(number)
        return room

    def put(self, number: int) -> None:
        if self.offer(number) or self.closed:
            self.ended[number] = number in self.items
        else:
            self.waiting.append(number)

    def push(self, number: int) -> bool:
        room = len(self.items) < self.size + OWN
        if room:
            self.items.append(number)
        return room

    def take(self) -> int | None:
        taken = self.items.pop(0) if self.items else None
        if self.waiting and len(self.items) < self.size:
            self.items.append(self.waiting[0])
            self.ended[self.waiting.pop(0)] = True
        return taken

    def close(self) -> None:
        self.closed = True
        self.ended |= dict.fromkeys(self.waiting, False)
        self.waiting = []


class Both:
    """A mailbox and its model, which are done the same things to."""

    def __init__(self, size: int, group: TaskGroup) -> None:
        self.box, self.model = Mailbox(size), Model(size)
        self.senders = Senders(self.box, group)
        self.count = 0

    def offer(self, _: int) -> None:
        assert self.box.put_nowait(letter(self.count)) is self.model.offer(self.count)

    def push(self, _: int) -> None:
        assert self.box.put_internal(letter(self.count)) is self.model.push(self.count)

    def put(self, _: int) -> None:
        self.senders.send(self.count)
        self.model.put(self.count)

    def take(self, _: int) -> None:
        assert read_next(self.box) == self.model.take()

    def cancel(self, at: int) -> None:
        if at < len(self.model.waiting):
            number = self.model.waiting.pop(at)
            self.model.ended[number] = "cancelled"
            self.senders.cancel(number)

    def close(self, _: int) -> None:
        self.box.close()
        self.model.close()

    def reopen(self, _: int) -> None:
        self.box.reopen()
        self.model.closed = False

    async def step(self, what: str, at: int) -> None:
        self.count += 1
        getattr(self, what)(at)
        await settle()
        waiting = dict.fromkeys(self.model.waiting, "cancelled")
        assert self.senders.ended == self.model.ended | waiting
        assert len(self.box) == len(self.model.items)
        assert self.box.closed is self.model.closed


@given(size=st.integers(1, 4), steps=st.lists(STEPS, max_size=40))
async def test_a_mailbox_is_a_list_with_a_line_before_it(size: int, steps: list[tuple[str, int]]) -> None:
    """Letters come out in the order of going in; those who find no room are let in one by one, in turn."""
    async with anyio.create_task_group() as group:
        both = Both(size, group)
        for step in steps:
            await both.step(*step)
        expected = both.model.items + both.model.waiting
        assert read_all(both.box) == expected
        assert read_next(both.box) is None


@given(size=st.integers(1, 3), steps=st.lists(RACES, min_size=4, max_size=60))
async def test_senders_that_give_up_at_any_moment(size: int, steps: list[tuple[str, int]]) -> None:
    """A letter is taken once or never: once if its sender was told so, and in the order of coming."""
    box, taken, count = Mailbox(size), list[int](), 0
    async with anyio.create_task_group() as group:
        senders = Senders(box, group)
        for what, at in steps:
            if what == "put":
                count += 1
                senders.send(count)
            elif what == "cancel" and at < len(senders.scopes):
                senders.cancel([*senders.scopes][-1 - at])
            elif what == "pause":
                await checkpoint()
            elif what == "take" and (number := read_next(box)) is not None:
                taken.append(number)
            assert len(box) <= size
        await settle()
        taken += read_all(box)
    assert taken == sorted(set(taken))
    assert {number for number, how in senders.ended.items() if how is True} <= {*taken}
    assert all(senders.ended[number] in (True, "cancelled") for number in taken)


async def test_a_sender_that_gave_up_is_not_taken() -> None:
    """Who waits and is cancelled leaves no letter behind, and the next one moves up."""
    box = Mailbox(1)
    assert box.put_nowait(letter(0))
    async with anyio.create_task_group() as group:
        senders = Senders(box, group)
        for number in (1, 2, 3):
            senders.send(number)
        await settle()
        senders.cancel(1)
        await settle()
        assert read_all(box) == [0, 2, 3]
    assert senders.ended == {1: "cancelled", 2: True, 3: True}


async def test_nobody_passes_those_who_wait() -> None:
    """While somebody waits for a place, an offer is refused although a place becomes free in between."""
    box = Mailbox(2)
    assert box.put_nowait(letter(0))
    assert box.put_nowait(letter(1))
    async with anyio.create_task_group() as group:
        senders = Senders(box, group)
        for number in (2, 3):
            senders.send(number)
        await settle()
        assert read_next(box) == 0
        assert not box.put_nowait(letter(4))
        assert read_all(box) == [1, 2, 3]
        assert box.put_nowait(letter(5))


async def test_closing_refuses_those_who_wait_and_keeps_what_is_in() -> None:
    """Who waits is told that the letter was not taken; letters that were, and the agent's own, remain."""
    box = Mailbox(1)
    assert box.put_nowait(letter(0))
    async with anyio.create_task_group() as group:
        senders = Senders(box, group)
        for number in (1, 2):
            senders.send(number)
        await settle()
        box.close()
        assert not box.put_nowait(letter(3))
        assert await box.put(letter(4)) is False
        assert box.put_internal(letter(5))
    assert senders.ended == {1: False, 2: False}
    assert read_all(box) == [0, 5]
    box.reopen()
    assert box.put_nowait(letter(6))
    assert [item.signal.id for item in box.drain() if isinstance(item, Envelope)] == ["s6"]
    assert read_next(box) is None


async def test_what_is_its_own_goes_beyond_the_size_and_not_for_ever() -> None:
    """The agent's own letters need no room, up to a limit; others wait until there is less than the size."""
    box = Mailbox(2)
    assert [box.put_internal(letter(number)) for number in range(2 + OWN + 1)] == [True] * (2 + OWN) + [False]
    async with anyio.create_task_group() as group:
        senders = Senders(box, group)
        senders.send(9)
        for _ in range(OWN):
            assert read_next(box) is not None
            await settle()
            assert senders.ended == {9: "cancelled"}
        assert read_next(box) == OWN
        await settle()
        assert senders.ended == {9: True}
    assert read_all(box) == [OWN + 1, 9]


ARRIVALS: dict[str, Callable[[Mailbox], object]] = {
    "offer": lambda box: box.put_nowait(letter(1)),
    "push": lambda box: box.put_internal(letter(1)),
    "wake": lambda box: box.wake(),
    "close": lambda box: box.close(),
}


@pytest.mark.parametrize("how", [*ARRIVALS])
async def test_the_reader_sleeps_until_something_happens(how: str) -> None:
    """It waits while nothing comes, and not at all where something is there already."""
    box, awake = Mailbox(1), list[str]()

    async def wait() -> None:
        await box.wait()
        awake.append(how)

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await settle()
        assert awake == []
        ARRIVALS[how](box)
        await settle()
        assert awake == [how]
    assert box.put_internal(letter(2))
    with anyio.fail_after(1):
        await box.wait()


async def test_the_first_answer_counts() -> None:
    """Everybody who waits gets the first answer, before or after it came; an error is raised."""
    reply, failed, found = PendingReply(), PendingReply(), list[Any]()

    async def wait() -> None:
        found.append(await reply.wait())

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await settle()
        reply.set_result(1)
        reply.set_result(2)
        reply.set_exception(ValueError("late"))
    assert [*found, await reply.wait()] == [1, 1]
    failed.set_exception(ValueError("first"))
    failed.set_result(3)
    with pytest.raises(ValueError, match="first"):
        await failed.wait()
