"""A thread behaves like a list that only grows."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.strategies import maps, scramble

from omoide import Thread
from omoide.core import ThreadEntry
from omoide.core.thread import ENTRY_KINDS
from omoide.errors import Conflict

START = 1_000
kinds = st.sampled_from([*ENTRY_KINDS[:3], "own kind", "日本"])
positions = st.integers(-3, 40)
optional: dict[str, st.SearchStrategy[Any]] = {
    "id": st.sampled_from(["mine", "e:2", "é"]),
    "seq": st.integers(0, 99),
    "at": st.integers(0, 10**13),
    "kind": kinds,
    "payload": maps,
    "refs": maps,
}
entries = st.fixed_dictionaries({}, optional=optional)


class ThreadMachine(RuleBasedStateMachine):
    """A thread beside a list of dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.thread = Thread.new(now=self.now, metadata={"topic": ["tests"]})
        self.id = self.thread.id
        self.model: list[dict[str, Any]] = []
        self.updated_at = self.now
        self.versions: list[tuple[Thread, bytes]] = []

    def appended(self, thread: Thread, given: list[dict[str, Any]], now: int) -> None:
        """Take over a thread to which these entries were added at this time."""
        self.versions.append((self.thread, self.thread.to_json()))
        if not given:
            assert thread is self.thread
            return
        self.thread, self.updated_at = thread, now
        for entry in given:
            blank = {"kind": "note", "payload": {}, "refs": {}, "at": now}
            self.model.append({**blank, **entry, "seq": len(self.model)})

    @rule(by=st.integers(0, 1_000))
    def wait(self, by: int) -> None:
        self.now += by

    @rule(entry=entries)
    def append_one(self, entry: dict[str, Any]) -> None:
        copy = deepcopy(entry)
        thread = self.thread.append(entry, now=self.now)
        assert entry == copy
        scramble(entry)
        self.appended(thread, [copy], self.now)

    @rule(batch=st.lists(st.tuples(entries, st.booleans()), max_size=4), right=st.booleans())
    def append_several(self, batch: list[tuple[dict[str, Any], bool]], right: bool) -> None:
        copies = [{"at": START, **deepcopy(entry)} for entry, _ in batch]
        given = [
            ThreadEntry(**copy) if made else dict(copy) for copy, (_, made) in zip(copies, batch, strict=True)
        ]
        options = {"expected_rev": len(self.model)} if right else {}
        self.appended(self.thread.append(given, now=self.now, **options), copies, self.now)

    @rule(entry=entries, off=st.integers(1, 5))
    def append_stale(self, entry: dict[str, Any], off: int) -> None:
        with pytest.raises(Conflict):
            self.thread.append(entry, expected_rev=len(self.model) + off, now=self.now)

    @rule()
    def write_and_read(self) -> None:
        self.thread = Thread.from_json(self.thread.to_json())

    @rule(first=positions, last=positions)
    def slice_includes_both_ends(self, first: int, last: int) -> None:
        wanted = [at for at in range(len(self.model)) if first <= at <= last]
        assert [entry.seq for entry in self.thread.slice(first, last)] == wanted

    @rule(seq=positions)
    def get_entry_is_by_position(self, seq: int) -> None:
        entry = self.thread.get_entry(seq)
        assert (None if entry is None else entry.seq) == (seq if 0 <= seq < len(self.model) else None)

    @rule(wanted=st.lists(kinds, max_size=2))
    def filter_keeps_the_order(self, wanted: list[str]) -> None:
        expected = [entry["seq"] for entry in self.model if entry["kind"] in wanted]
        assert [entry.seq for entry in self.thread.filter_by_kind(wanted)] == expected
        for kind in wanted:
            assert all(entry.kind == kind for entry in self.thread.filter_by_kind(kind))

    @invariant()
    def holds_what_was_appended(self) -> None:
        assert len(self.thread.entries) == len(self.model)
        for entry, model in zip(self.thread.entries, self.model, strict=True):
            assert {name: getattr(entry, name) for name in model} == model
            assert entry.id == model.get("id") or entry.id.startswith("entry_")

    @invariant()
    def counts_every_entry(self) -> None:
        assert self.thread.rev == self.thread.stats["entry_count"] == len(self.model)
        assert (self.thread.created_at, self.thread.updated_at) == (START, self.updated_at)
        assert (self.thread.id, self.thread.metadata) == (self.id, {"topic": ["tests"]})

    @invariant()
    def last_is_the_newest(self) -> None:
        last = self.thread.last()
        assert (None if last is None else last.seq) == (len(self.model) - 1 if self.model else None)

    @invariant()
    def survives_json(self) -> None:
        assert Thread.from_json(self.thread.to_json()) == self.thread

    def teardown(self) -> None:
        for version, written in self.versions:
            assert version.to_json() == written
            assert self.thread.slice(0, version.rev - 1) == [*version.entries]


TestThread = ThreadMachine.TestCase
