"""The extractive summary of a conversation."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.errors import Invalid, WrongType
from omoide.retrieval import TokenCounter, estimate_tokens, token_counter
from omoide.shortterm import BufferMessage, sentences, summarize_messages
from omoide.shortterm.summary import CONTENT_WEIGHT, RECENCY_WEIGHT, ROLE_WEIGHT, SUMMARY_HEADING


def make_message(content: str, role: str = "user") -> BufferMessage:
    return BufferMessage(id="m", role=role, content=content, timestamp=0, token_count=1)


TALK = [
    make_message("Good morning! I hope you are well."),
    make_message("Good morning, how can I help?", "assistant"),
    make_message("We decided to use Postgres because of pgvector. The weather is nice."),
    make_message("Noted.", "assistant"),
    make_message("{'rows': 17}", "tool"),
    make_message("The import fails on large files. What should we do about it?"),
]


def test_everything_is_taken_where_there_is_room() -> None:
    """In the order it was said, a line for each message, under a mark that says what this is."""
    assert summarize_messages(TALK, 1000).splitlines() == [
        SUMMARY_HEADING,
        "- user: Good morning! I hope you are well.",
        "- assistant: Good morning, how can I help?",
        "- user: We decided to use Postgres because of pgvector. The weather is nice.",
        "- assistant: Noted.",
        "- tool: {'rows': 17}",
        "- user: The import fails on large files. What should we do about it?",
    ]


def test_what_tells_much_and_is_recent_comes_first() -> None:
    """A decision stays when a greeting has to go, and words about the weather go before it."""
    short = summarize_messages(TALK, 45)
    assert "We decided to use Postgres because of pgvector." in short
    assert "The import fails on large files." in short
    assert "Good morning" not in short
    assert "weather" not in short
    assert short.index("Postgres") < short.index("import")


def test_the_newer_of_two_alike_is_taken() -> None:
    """But the user's words before those of a tool that answers."""
    twice = [make_message("The sky is blue."), make_message("The sea is green.")]
    room = estimate_tokens(SUMMARY_HEADING) + 9
    assert summarize_messages(twice, room) == f"{SUMMARY_HEADING}\n- user: The sea is green."
    mixed = [make_message("The sky is blue."), make_message("The sea is green.", "tool")]
    assert summarize_messages(mixed, room) == f"{SUMMARY_HEADING}\n- user: The sky is blue."


def test_when_it_was_said_counts_most() -> None:
    """Who said it and what it tells count three tenths each; an older one wins by both, not by one."""
    assert (ROLE_WEIGHT, RECENCY_WEIGHT, CONTENT_WEIGHT) == (0.3, 0.4, 0.3)
    between, late = make_message("Yes.", "tool"), make_message("The sky is blue.", "assistant")
    for first, wins in (
        (make_message("The sea is green.", "user"), False),
        (make_message("We must decide.", "assistant"), False),
        (make_message("We agreed: never 7?", "user"), True),
    ):
        found = summarize_messages([first, between, between, late], estimate_tokens(SUMMARY_HEADING) + 9)
        assert (first.content in found, late.content in found) == (wins, not wins)


@pytest.mark.parametrize("room", [0, 1, 5, 12])
def test_a_summary_of_nothing_is_nothing(room: int) -> None:
    """No mark stands alone."""
    assert summarize_messages(TALK, room) == ""
    assert summarize_messages([], 1000) == ""
    assert summarize_messages([make_message(""), make_message("```\ncode()\n```")], 1000) == ""


def test_one_token_decides() -> None:
    """The mark is counted: what fits exactly is taken, and with one token less it is not."""
    whole = f"{SUMMARY_HEADING}\n- user: The import fails."
    assert summarize_messages([make_message("The import fails.")], len(whole), count=len) == whole
    assert summarize_messages([make_message("The import fails.")], len(whole) - 1, count=len) == ""


def by_words(text: str) -> int:
    return len(text.split())


def awkward(text: str) -> int:
    """A counter that does not add up: the whole takes more than its parts."""
    return len(text) ** 2 // 40


@pytest.mark.parametrize("count", [estimate_tokens, None, len, by_words, awkward])
def test_no_summary_exceeds_its_room(count: TokenCounter | None) -> None:
    """By any way of counting, in any room."""
    if count is None:
        pytest.importorskip("splintr")
        count = token_counter()
    for room in range(140):
        assert count(summarize_messages(TALK, room, count=count)) <= room


def test_words_can_be_quoted() -> None:
    """What was said is shown as the caller wants it, and counted like that."""
    quoted = summarize_messages([make_message("One. Two.")], 99, count=len, quote=lambda text: f"«{text}»")
    assert quoted == f"{SUMMARY_HEADING}\n- user: «One. Two.»"
    assert (
        summarize_messages(
            [make_message("One. Two.")], len(quoted) - 1, count=len, quote=lambda text: f"«{text}»"
        )
        != quoted
    )


def test_bad_input_is_refused() -> None:
    """Messages are messages, and room is a number."""
    with pytest.raises(WrongType, match=r"messages\[0\] must be a BufferMessage"):
        summarize_messages(["hello"], 10)  # type: ignore[list-item]
    with pytest.raises(Invalid, match="max_tokens is -1"):
        summarize_messages([], -1)


WORDS = st.sampled_from(["is", "failed at", "was decided because of"])


@given(st.lists(st.lists(WORDS, max_size=4), max_size=9), st.integers(0, 200))
def test_a_summary_is_made_of_what_was_said(talk: list[list[str]], room: int) -> None:
    """Whole sentences in their order under whoever said them, no more than fit, the same every time."""
    messages = [
        make_message(
            " ".join(f"It {verb} {at}-{number}." for number, verb in enumerate(verbs)),
            ("user", "tool")[at % 2],
        )
        for at, verbs in enumerate(talk)
    ]
    summary = summarize_messages(messages, room)
    assert estimate_tokens(summary) <= room
    assert summarize_messages(messages, room) == summary
    lines = summary.splitlines()
    assert lines[:1] in ([], [SUMMARY_HEADING])
    rest = iter(messages)
    for line in lines[1:]:
        role, _, words = line.removeprefix("- ").partition(": ")
        taken = sentences(words)
        source = next(one for one in rest if taken[0] in one.content)
        assert source.role == role
        assert taken == [one for one in sentences(source.content) if one in taken]


@given(st.lists(st.text(max_size=60), max_size=9), st.integers(0, 200))
def test_no_words_make_a_summary_too_long(talk: list[str], room: int) -> None:
    """Whatever was said."""
    messages = [make_message(words) for words in talk if "\0" not in words]
    assert estimate_tokens(summarize_messages(messages, room)) <= room


def test_a_long_conversation_is_summed_up_in_time() -> None:
    """Ten times as many messages take about ten times as long, not a hundred."""

    def cost(length: int) -> float:
        talk = [
            make_message(f"The import of file {at} fails because of line {at % 7}.") for at in range(length)
        ]
        tries = []
        for _ in range(3):
            start = time.process_time()
            summarize_messages(talk, length * 5)
            tries.append(time.process_time() - start)
        return min(tries)

    assert cost(2000) < 50 * cost(200)
