"""The access log counts what was used."""

import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.core import codec
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.shortterm import AccessEvent, AccessLog
from omoide.shortterm.importance import AccessKey
from omoide.testing import reproducible

EMPTY = AccessLog.new()
MEMORY = ("memory", "mem_1")


def make_log(*uses: tuple[AccessKey, str, int], max_entries: int = 1000) -> AccessLog:
    log = AccessLog.new(max_entries)
    for key, kind, at in uses:
        log = log.record(key, kind, at)
    return log


LOG = make_log(
    ("framework", "write", 1), (MEMORY, "query", 2), ("framework", "read", 5), ("mem_1", "read", 7)
)


def test_a_use_is_a_read_of_now() -> None:
    """Unless it is said otherwise."""
    with reproducible(at=9):
        (access,) = EMPTY.record("framework").entries
    assert (access.key, access.access_type, access.timestamp) == ("framework", "read", 9)


def test_how_often_and_when_something_was_used() -> None:
    """A memory is another thing than a key of the same name."""
    assert [LOG.get_frequency(key) for key in ("framework", MEMORY, "mem_1", "other")] == [2, 1, 1, 0]
    assert [LOG.get_recency(key) for key in ("framework", MEMORY, "mem_1", "other")] == [5, 2, 7, None]
    stats = LOG.get_stats("framework")
    assert (stats.frequency, stats.recency) == (2, 5)


def test_uses_are_listed_newest_first() -> None:
    """All, the last few, or those of one thing."""
    assert [one.timestamp for one in LOG.entries] == [7, 5, 2, 1]
    assert [one.timestamp for one in LOG.recent_accesses(2)] == [7, 5]
    assert LOG.recent_accesses(0) == ()
    assert len(LOG.recent_accesses(99)) == 4
    assert [one.timestamp for one in LOG.entries_for("framework")] == [5, 1]
    assert [one.key for one in LOG.entries_for(MEMORY)] == [MEMORY]
    assert LOG.unique_keys() == ("mem_1", "framework", MEMORY)
    assert LOG.access_type_counts() == {"read": 2, "write": 1, "query": 1}


def test_the_oldest_use_leaves_a_full_log() -> None:
    """And is no longer counted, nor its thing known when that was the only use."""
    log = make_log(("a", "read", 1), ("b", "read", 2), ("a", "read", 3), ("c", "read", 4), max_entries=3)
    assert [one.timestamp for one in log.entries] == [4, 3, 2]
    assert (log.size, log.get_frequency("a"), log.get_recency("a")) == (3, 1, 3)
    log = log.record("c", now=5)
    assert (log.get_frequency("b"), log.get_recency("b")) == (0, None)


def test_a_thousand_uses_are_kept() -> None:
    """Unless another limit is set."""
    log = EMPTY
    for at in range(1001):
        log = log.record("key", now=at)
    assert (log.size, log.get_frequency("key"), log.entries[-1].timestamp) == (1000, 1000, 1)
    assert AccessLog().max_entries == 1000
    assert [one.timestamp for one in log.recent_accesses()] == [*range(1000, 990, -1)]


def test_clearing_keeps_the_limit() -> None:
    """Nothing is known any more."""
    assert make_log(("a", "read", 1), max_entries=3).clear() == AccessLog.new(3)


@pytest.mark.parametrize(
    ("key", "kind", "at", "problem"),
    [
        ("", "read", 0, "key is empty"),
        (None, "read", 0, "key must be a string"),
        (("memory",), "read", 0, 'key must be a key, or \\("memory", id\\)'),
        (("thing", "x"), "read", 0, "key must be a key"),
        (("memory", ""), "read", 0, "id is empty"),
        ("a", "steal", 0, "access_type is 'steal'; use one of read, write, query"),
        ("a", "read", -1, "now is -1"),
    ],
)
def test_bad_input_is_refused(key: Any, kind: str, at: int, problem: str) -> None:
    """The error names the part."""
    with pytest.raises(Invalid, match=problem):
        EMPTY.record(key, kind, at)


def test_a_log_refuses_what_is_no_use() -> None:
    """And a limit that is none."""
    with pytest.raises(InvalidRecord, match=r"log\[0\] must be an Access"):
        AccessLog(log=[1])  # type: ignore[arg-type]
    with pytest.raises(InvalidRecord, match="max_entries is 0"):
        AccessLog.new(0)
    with pytest.raises(WrongType, match="n must be an int"):
        LOG.recent_accesses("all")  # type: ignore[arg-type]


KEYS = st.sampled_from(["a", "b", ("memory", "a"), ("memory", "b")])
USES = st.tuples(KEYS, st.sampled_from(["read", "write", "query"]), st.integers(0, 9))


@given(st.integers(1, 8), st.lists(USES, max_size=30))
def test_figures_are_those_of_the_uses_that_are_left(
    limit: int, uses: list[tuple[AccessKey, str, int]]
) -> None:
    """However many left; and a log that was read back knows the same."""
    log = make_log(*uses, max_entries=limit)
    left = uses[-limit:]
    assert [(one.key, one.access_type, one.timestamp) for one in log.entries] == left[::-1]
    counts = Counter(key for key, _, _ in left)
    for key in ("a", "b", ("memory", "a"), ("memory", "b")):
        assert log.get_frequency(key) == counts[key]
        assert log.get_recency(key) == next((at for other, _, at in left[::-1] if other == key), None)
    written = codec.to_builtins(log)
    assert "figures" not in written
    again = codec.from_builtins(written, AccessLog)
    assert again == log
    assert again.record("a", now=9) == log.record("a", now=9)


def test_a_log_made_of_too_many_uses_keeps_the_newest() -> None:
    """As if they had been recorded one by one."""
    uses = [AccessEvent(name=str(at), timestamp=at) for at in range(5)]
    log = AccessLog(log=uses, max_entries=2)  # type: ignore[arg-type]
    assert [one.timestamp for one in log.entries] == [4, 3]
    assert log.get_frequency("0") == 0


def test_recording_does_not_depend_on_the_length() -> None:
    """A full log of many takes a use about as fast as one of few."""

    def cost(limit: int) -> float:
        log = make_log(*(("key", "read", at) for at in range(limit)), max_entries=limit)
        tries = []
        for _ in range(5):
            start, grown = time.process_time(), log
            for at in range(200):
                grown = grown.record("key", "read", at)
            tries.append(time.process_time() - start)
        return min(tries)

    assert cost(10_000) < 25 * cost(100)
