"""The summary in the world space covers the conversation."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.projection import NOW, add_entries, agent, coverage_of, entries, message, note, splits

from omoide import Agent, Thread, memory, thread
from omoide.core.state import THREAD
from omoide.errors import Invalid, WrongType
from omoide.projection import ConversationSummary, project
from omoide.retrieval import TokenCounter, estimate_tokens, token_counter
from omoide.shortterm.summary import SUMMARY_HEADING

NAME = ConversationSummary().name

COUNTERS: dict[str, TokenCounter] = {
    "estimate": estimate_tokens,
    "exact": token_counter(),
    "letters": len,
    "words": lambda text: len(text.split()),
}

prose = st.lists(
    st.builds(
        message,
        st.lists(
            st.sampled_from(
                [
                    "We decided on Rust.",
                    "Ok!",
                    "The test failed at line 3.",
                    "Why?",
                    "思い出。",
                    "- a\n- b",
                    "x" * 90,
                ]
            ),
            max_size=4,
        ).map(" ".join),
        st.sampled_from(["user", "assistant", "tool", "system", "narrator"]),
    ),
    max_size=30,
)


def summarize(given: Agent, now: int = NOW, **options: Any) -> Agent:
    after, directives = project(given, [ConversationSummary(**options)], now=now)
    assert directives == []
    return after


def summary(given: Agent) -> Any:
    return memory.world_get(given, "summary")


def test_the_summary_lies_in_the_world() -> None:
    """It says what was said, who made it and when, and which messages it covers."""
    given = add_entries(agent(), [note(), message("We decided to use Rust."), message("Fine.", "ai"), note()])
    assert summary(summarize(given)) == {
        "content": f"{SUMMARY_HEADING}\n- user: We decided to use Rust.\n- assistant: Fine.",
        "source": "projector",
        "thread": thread.of(given).id,
        "projected_at": NOW,
        "covers_seq": [1, 2],
    }


def test_what_was_said_in_another_thread_is_no_part_of_it() -> None:
    """Also where the new thread begins with entries that nobody said."""
    first = summarize(agent("We decided to use Rust."))
    other = summarize(add_entries(THREAD.put(first, Thread.new(id="thr_other")), [note(), note()]))
    second = summary(summarize(add_entries(other, [message("Hello.")])))
    assert (second["content"], second["covers_seq"]) == (f"{SUMMARY_HEADING}\n- user: Hello.", [2, 2])


def test_what_is_new_joins_what_was_known() -> None:
    """A second run adds the fresh messages to the summary, and covers both."""
    first = summarize(agent("We decided to use Rust."))
    second = summarize(add_entries(first, [note(), message("It must run on ARM.")]), now=NOW + 5)
    assert summary(second)["content"].split("\n")[1:] == [
        "- user: We decided to use Rust.",
        "- user: It must run on ARM.",
    ]
    assert summary(second)["covers_seq"] == [0, 2]
    assert summary(second)["projected_at"] == NOW + 5


def test_old_entries_are_not_read_again() -> None:
    """What somebody took out of the summary does not come back from the thread."""
    first = summarize(agent("My name is Ada.", "I like tea."))
    content = summary(first)["content"].replace("- user: My name is Ada.\n", "")
    first = memory.world_put(first, "summary", summary(first).set("content", content))
    second = summarize(add_entries(first, [message("Hello.")]))
    assert "tea" in summary(second)["content"]
    assert "Ada" not in summary(second)["content"]


def test_what_decides_outlasts_small_talk() -> None:
    """A decision of the user's survives many rounds of chatter that alone would fill the summary."""
    given = agent("We decided to use Rust because we must never leak memory.")
    for at in range(60):
        given = summarize(
            add_entries(given, [message(f"Sure thing, ok, yes, fine, all of it {'so ' * at}.", "assistant")])
        )
    assert "Rust" in summary(given)["content"]


def test_without_messages_there_is_no_summary() -> None:
    """Entries of other kinds, and messages without words, are passed over; the older summary stays."""
    empty = summarize(
        add_entries(agent(), [note(), message(" "), {"kind": "message", "payload": {"content": 5}}])
    )
    assert summary(empty) is None
    assert coverage_of(empty, NAME) == [0, 2]
    known = summarize(agent("Hello."))
    assert summary(summarize(add_entries(known, [note()]))) is summary(known)


def test_other_kinds_can_be_summed_up() -> None:
    """Which entries count is a setting, and so is where the summary is kept."""
    given = summarize(add_entries(agent("Hello."), [note("It rained.")]), kinds=["note"], key="weather")
    assert memory.world_get(given, "weather")["covers_seq"] == [1, 1]
    assert "rained" in memory.world_get(given, "weather")["content"]


@pytest.mark.parametrize(
    "other",
    [
        None,
        "words",
        {"content": "old words", "source": "user", "covers_seq": [0, 0]},
        {"content": "old words", "source": "projector"},
        {"content": "old words", "source": "projector", "covers_seq": [0]},
        {"content": "old words", "source": "projector", "covers_seq": ["0", 0]},
        {"content": "old words", "source": "projector", "covers_seq": [0, 9]},
        {"content": 7, "source": "projector", "covers_seq": [0, 0]},
    ],
)
def test_a_summary_by_others_is_not_taken_for_ours(other: Any) -> None:
    """What is no summary of this projector's does not count as what was said, and nothing breaks."""
    known = memory.world_put(summarize(agent("First.")), "summary", other)
    after = summarize(add_entries(known, [message("Second.")]))
    assert summary(after)["content"] == f"{SUMMARY_HEADING}\n- user: Second."
    assert summary(after)["covers_seq"] == [1, 1]


def test_another_thread_has_a_summary_of_its_own() -> None:
    """Words of one conversation do not slip into the summary of the next."""
    known = summarize(agent("We decided to use Rust."))
    other = summarize(thread.put(known, Thread.new(id="other").append(message("Hello."))))
    assert summary(other)["content"] == f"{SUMMARY_HEADING}\n- user: Hello."


@given(prose, st.data(), st.integers(1, 80), st.integers(1, 7), st.sampled_from(sorted(COUNTERS)))
def test_a_summary_is_never_longer_than_it_may_be(
    said: list[dict[str, Any]], data: st.DataObject, most: int, keep: int, how: str
) -> None:
    """Whatever was said, in however many runs, and whoever counts, the summary keeps to its tokens."""
    given = agent()
    for run in data.draw(splits(said)):
        given = summarize(add_entries(given, run), max_tokens=most, batch_size=keep, count=COUNTERS[how])
        if summary(given) is not None:
            text = summary(given)["content"]
            assert text == "" or COUNTERS[how](text) <= most


@given(entries, st.data())
def test_however_the_thread_is_parted_the_same_messages_are_covered(
    said: list[dict[str, Any]], data: st.DataObject
) -> None:
    """The range that the summary covers does not depend on when it was made."""
    parted = agent()
    for run in data.draw(splits(said)):
        parted = summarize(add_entries(parted, run))
    whole = summarize(add_entries(agent(), said))
    covers = [given and given["covers_seq"] for given in (summary(parted), summary(whole))]
    assert covers[0] == covers[1]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_tokens": 0}, Invalid),
        ({"batch_size": 0}, Invalid),
        ({"count": 5}, WrongType),
        ({"kinds": "note"}, WrongType),
    ],
)
def test_a_wrong_setting_is_refused(options: dict[str, Any], problem: type[Exception]) -> None:
    """A summary has room for something, and a counter is a function."""
    with pytest.raises(problem):
        ConversationSummary(**options)
