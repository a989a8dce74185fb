"""Threads and the functions on agents that read and extend them."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from omoide import Agent, Thread, thread
from omoide.core import ThreadEntry
from omoide.core.thread import ENTRY_KINDS
from omoide.errors import Conflict, Invalid, OmoideError, WrongType
from omoide.testing import reproducible


def test_a_new_thread_is_empty_at_revision_zero() -> None:
    """Id with its prefix, no entries, both times equal, no metadata, a count of none."""
    fresh = Thread.new(now=7)
    assert fresh.id.startswith("thread_")
    assert (fresh.rev, fresh.created_at, fresh.updated_at) == (0, 7, 7)
    assert fresh.entries == []
    assert fresh.metadata == {}
    assert fresh.stats == {"entry_count": 0}


def test_an_entry_has_its_defaults() -> None:
    """A generated id, the time of the append, the kind note, empty payload and refs."""
    entry = Thread.new().append({}, now=9).entries[0]
    assert entry.id.startswith("entry_")
    assert (entry.seq, entry.at, entry.kind) == (0, 9, "note")
    assert entry.payload == {}
    assert entry.refs == {}


def test_an_entry_made_by_itself_has_its_defaults_too() -> None:
    """Time and id come from the clock and the id source in use."""
    with reproducible(at=5):
        assert ThreadEntry() == ThreadEntry(id="entry_1", seq=0, at=5, kind="note")


@pytest.mark.parametrize("kind", [*ENTRY_KINDS, "anything_else"])
def test_kinds_are_open(kind: str) -> None:
    """The conventional kinds and any other name are taken."""
    assert [entry.kind for entry in Thread.new().append({"kind": kind}).filter_by_kind(kind)] == [kind]


def test_append_takes_one_entry_or_several_in_either_form() -> None:
    """Mappings, entries, lists of both, and any other iterable."""
    log = Thread.new().append({"kind": "a"}).append(ThreadEntry(kind="b"))
    log = log.append([{"kind": "c"}, ThreadEntry(kind="d")])
    log = log.append({"kind": kind} for kind in "ef")
    assert "".join(entry.kind for entry in log.entries) == "abcdef"
    assert [entry.seq for entry in log.entries] == [0, 1, 2, 3, 4, 5]


def test_the_position_is_assigned_whatever_the_entry_says() -> None:
    """`seq` of the caller is ignored, `id` is kept."""
    log = Thread.new().append([{"seq": 7, "id": "mine"}, ThreadEntry(seq=9, id="yours")])
    assert [(entry.seq, entry.id) for entry in log.entries] == [(0, "mine"), (1, "yours")]


def test_the_revision_counts_entries() -> None:
    """A batch of three is three revisions at one time."""
    log = Thread.new(now=1).append([{}, {}, {}], now=9)
    assert (log.rev, log.updated_at, log.stats["entry_count"]) == (3, 9, 3)


def test_appending_nothing_changes_nothing() -> None:
    """An empty list is no revision."""
    log = Thread.new(now=1)
    assert log.append([], now=9) is log


def test_the_older_thread_stays_as_it_was() -> None:
    """Appending makes another value; both can go on from there."""
    trunk = Thread.new().append({"kind": "a"})
    left, right = trunk.append({"kind": "b"}), trunk.append({"kind": "c"})
    assert [entry.kind for entry in trunk.entries] == ["a"]
    assert [entry.kind for entry in left.entries] == ["a", "b"]
    assert [entry.kind for entry in right.entries] == ["a", "c"]


def test_a_slice_includes_both_ends() -> None:
    """What lies outside is left out, and nothing is counted from the end."""
    log = Thread.new().append([{} for _ in range(5)])
    assert [entry.seq for entry in log.slice(1, 3)] == [1, 2, 3]
    assert [entry.seq for entry in log.slice(4, 99)] == [4]
    assert [entry.seq for entry in log.slice(-5, 0)] == [0]
    assert log.slice(5, 9) == log.slice(3, 2) == log.slice(-3, -1) == []


def test_an_entry_is_found_by_its_position() -> None:
    """A position that does not exist is None, negative ones included."""
    log = Thread.new().append([{"kind": "a"}, {"kind": "b"}])
    second = log.get_entry(1)
    assert second is not None
    assert second.kind == "b"
    assert log.get_entry(2) is log.get_entry(-1) is None


def test_the_last_entry_of_an_empty_thread_is_none() -> None:
    """`last` is the newest entry where there is one."""
    assert Thread.new().last() is None
    newest = Thread.new().append([{}, {"kind": "b"}]).last()
    assert newest is not None
    assert newest.kind == "b"


def test_entries_are_filtered_by_one_kind_or_several() -> None:
    """The order of the log is kept; a kind nobody used gives nothing."""
    log = Thread.new().append([{"kind": kind} for kind in "abca"])
    assert [entry.seq for entry in log.filter_by_kind("a")] == [0, 3]
    assert [entry.seq for entry in log.filter_by_kind(["c", "a"])] == [0, 2, 3]
    assert log.filter_by_kind("z") == log.filter_by_kind([]) == []


def test_reading_an_agent_without_a_thread_gives_nothing() -> None:
    """No thread reads as an empty one, and is not created."""
    bare = Agent.new("a")
    assert thread.entries(bare) == thread.slice(bare, 0, 9) == thread.filter_by_kind(bare, "note") == []
    assert thread.last(bare) is None
    assert thread.get_entry(bare, 0) is None
    assert thread.get(bare) is None
    assert not thread.has_thread(bare)
    assert bare.state == {}


def test_append_on_an_agent_creates_the_thread() -> None:
    """The thread lives under its reserved key, and the agent given is unchanged."""
    bare = Agent.new("a")
    agent = thread.append(bare, {"kind": "message", "payload": {"role": "user"}}, now=3)
    assert thread.key() == "__thread__"
    assert agent.state["__thread__"] is thread.get(agent)
    assert thread.last(agent) == thread.get_entry(agent, 0) == thread.entries(agent)[0]
    assert not thread.has_thread(bare)


def test_of_is_the_thread_or_the_one_that_ensure_would_make() -> None:
    """It reads and creates nothing."""
    bare = Agent.new("a")
    assert thread.of(bare).entries == []
    assert bare.state == {}
    agent = thread.append(bare, {})
    assert thread.of(agent) is thread.get(agent)


def test_ensure_makes_a_thread_once() -> None:
    """Metadata is taken for a new thread, and an existing one is never overwritten."""
    agent = thread.ensure(Agent.new("a"), metadata={"topic": "tea"}, now=5)
    made = thread.of(agent)
    assert (made.metadata["topic"], made.created_at) == ("tea", 5)
    assert thread.ensure(agent, metadata={"topic": "coffee"}) is agent


def test_put_and_update_work_on_the_slot() -> None:
    """`update` sees None where there is no thread."""
    mine = Thread.new()
    agent = thread.update(Agent.new("a"), lambda old: mine if old is None else old.append({}))
    assert thread.get(agent) is mine
    assert len(thread.entries(thread.update(agent, lambda old: mine.append({})))) == 1
    assert thread.get(thread.put(agent, Thread.new(now=1))) is not mine


def test_a_stale_append_is_a_conflict() -> None:
    """The error carries both revisions, and the agent is unchanged."""
    agent = thread.append(Agent.new("a"), {})
    before = agent.to_json()
    with pytest.raises(Conflict, match="read it again") as raised:
        thread.append(agent, {}, expected_rev=0)
    assert (raised.value.expected, raised.value.actual) == (0, 1)
    assert agent.to_json() == before


WRONG_ENTRIES: dict[str, tuple[Any, str]] = {
    "number": (5, "entries"),
    "text": ("hello", "entries"),
    "nothing": (None, "entries"),
    "list of numbers": ([{}, 5], "entry"),
    "unknown field": ({"text": "hello"}, "entry.text"),
    "key that is no text": ({1: 2}, "entry.1"),
    "empty kind": ({"kind": ""}, "kind"),
    "kind": ({"kind": 5}, "kind"),
    "payload": ({"payload": [1]}, "payload"),
    "refs": ({"refs": "x"}, "refs"),
    "at": ({"at": -1}, "at"),
    "empty id": ({"id": ""}, "id"),
    "value no codec holds": ({"payload": {"x": object()}}, "payload.x"),
}


@pytest.mark.parametrize(("entries", "field"), WRONG_ENTRIES.values(), ids=WRONG_ENTRIES)
def test_a_wrong_entry_is_refused_by_name(entries: Any, field: str) -> None:
    """The error names the field and what to do, and nothing was appended, not even the good ones before."""
    agent = thread.append(Agent.new("a"), {})
    before = agent.to_json()
    with pytest.raises(Invalid) as raised:
        thread.append(agent, entries)
    assert raised.value.field == field
    assert raised.value.remedy
    assert agent.to_json() == before


WRONG_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "id": ({"id": ""}, "id"),
    "id with control": ({"id": "a\n"}, "id"),
    "rev": ({"rev": -1}, "rev"),
    "created_at": ({"created_at": "now"}, "created_at"),
    "updated_at": ({"updated_at": 1.5}, "updated_at"),
    "metadata": ({"metadata": 5}, "metadata"),
    "entries": ({"entries": 5}, "entries"),
    "entries of maps": ({"entries": [{}]}, "entries[0]"),
    "misplaced": ({"entries": [ThreadEntry(seq=3)]}, "entries[0].seq"),
}


@pytest.mark.parametrize(("fields", "field"), WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_a_thread_made_wrongly_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    """Each field of a thread is checked."""
    with pytest.raises(Invalid) as raised:
        Thread(**fields)
    assert raised.value.field == field
    assert raised.value.remedy


READS: dict[str, Callable[[Thread], object]] = {
    "slice from": lambda log: log.slice(cast("int", "0"), 1),
    "slice to": lambda log: log.slice(0, cast("int", None)),
    "get_entry": lambda log: log.get_entry(cast("int", 1.0)),
    "kind that is no text": lambda log: log.filter_by_kind(cast("str", 5)),
    "kinds that are no text": lambda log: log.filter_by_kind(cast("list[str]", [[]])),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_thread_read_wrongly_says_so(read: Callable[[Thread], object]) -> None:
    """Positions are ints, kinds are text."""
    with pytest.raises(WrongType):
        read(Thread.new().append({}))


@pytest.mark.parametrize("value", [{}, None, "thread"])
def test_the_slot_takes_threads_only(value: Any) -> None:
    """What is no thread is refused, and the agent stays as it was."""
    agent = Agent.new("a")
    with pytest.raises(OmoideError, match="__thread__ must be a Thread"):
        thread.put(agent, value)
    assert agent.state == {}
