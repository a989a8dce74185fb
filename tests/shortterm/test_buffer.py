"""The conversation buffer keeps the newest messages that fit."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.core import codec
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.retrieval import estimate_tokens
from omoide.shortterm import BufferMessage, ConversationBuffer, ShortTerm, TokenBudget
from omoide.shortterm.memory import ROLES
from omoide.testing import reproducible


def make_message(token_count: int, id: str = "m") -> BufferMessage:
    return BufferMessage(id=id, role="user", content="words", timestamp=0, token_count=token_count)


def make_buffer(max_tokens: int, *sizes: int) -> tuple[ConversationBuffer, tuple[BufferMessage, ...]]:
    return ConversationBuffer.new(max_tokens).add_all(
        make_message(size, str(at)) for at, size in enumerate(sizes)
    )


def names(messages: object) -> str:
    assert isinstance(messages, (list, tuple))
    return "".join(message.id for message in messages)


def test_a_message_has_its_defaults() -> None:
    """An id and a time of its own, no tool calls, no metadata, and no place in the thread."""
    with reproducible(at=7):
        message = BufferMessage(role="tool", content="", token_count=4)
    assert (message.id, message.timestamp, message.tool_calls, message.seq) == ("msg_1", 7, None, None)
    assert message.metadata == {}


@pytest.mark.parametrize("role", ROLES)
def test_four_roles_speak(role: str) -> None:
    """User, assistant, system and tool."""
    assert BufferMessage.new(role=role, content="hello").role == role


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"role": "robot"}, "role is 'robot'; use one of user, assistant, system, tool"),
        ({"token_count": 0}, "token_count is 0; pass 1 or more"),
        ({"token_count": -3}, "token_count is -3"),
        ({"token_count": 2.5}, "token_count must be an int, not float"),
        ({"token_count": True}, "token_count must be an int, not bool"),
        ({"content": None}, "content must be a string, not NoneType"),
        ({"content": "a\0b"}, "content contains a NUL character"),
        ({"id": ""}, "id must be a non-empty string"),
        ({"timestamp": -1}, "timestamp is -1"),
        ({"tool_calls": "look_up"}, "tool_calls must be a list"),
        ({"metadata": [1]}, "metadata must be a mapping"),
        ({"seq": -1}, "seq is -1"),
        ({"colour": "red"}, "colour is an unknown field"),
    ],
)
def test_a_wrong_part_of_a_message_is_named(fields: dict[str, object], problem: str) -> None:
    """Each part is checked, and the error says which one, of what."""
    with pytest.raises(InvalidRecord) as raised:
        BufferMessage.new({"role": "user", "content": "hi", "token_count": 1, **fields})
    assert f"invalid buffer message: {problem}" in str(raised.value)


def test_a_message_counts_its_own_tokens() -> None:
    """Its words, its tool calls, and a few around them; a count that is given stays."""
    words, calls = "What is the weather?", [{"name": "look_up", "params": {"city": "Kyoto"}}]
    assert BufferMessage.new(role="user", content=words).token_count == estimate_tokens(words) + 4
    assert BufferMessage.new(role="user", content=words, count=len).token_count == len(words) + 4
    alone = BufferMessage.new(role="assistant", content="", count=len).token_count
    calling = BufferMessage.new(role="assistant", content="", tool_calls=calls, count=len).token_count
    assert alone == 4
    assert calling > alone + len("look_up" + "Kyoto")
    assert BufferMessage.new(role="user", content=words, token_count=3).token_count == 3


def test_nothing_leaves_while_there_is_room() -> None:
    """Messages stay oldest first, up to the very last token."""
    buffer, evicted = make_buffer(10, 4, 3, 3)
    assert names(buffer.to_list()) == "012"
    assert (buffer.current_tokens, buffer.size, evicted) == (10, 3, ())


def test_no_more_leaves_than_must() -> None:
    """A large message that lacks one token of room pushes one small message out, not its own size."""
    buffer, _ = make_buffer(100, 1, 1, 1, 1, 50)
    buffer, evicted = buffer.add(make_message(47, "n"))
    assert names(evicted) == "0"
    assert names(buffer.to_list()) == "1234n"
    assert buffer.current_tokens == 100


def test_what_leaves_comes_back_oldest_first() -> None:
    """Several may have to leave for one."""
    buffer, evicted = make_buffer(10, 3, 3, 3, 7)
    assert names(evicted) == "01"
    assert names(buffer.to_list()) == "23"


def test_a_message_that_is_too_large_stays_alone() -> None:
    """The buffer says that it overflows, and recovers with the next message."""
    buffer, evicted = make_buffer(10, 3, 3, 11)
    assert (names(evicted), names(buffer.to_list())) == ("01", "2")
    assert buffer.overflow
    assert buffer.current_tokens == 11
    buffer, evicted = buffer.add(make_message(1, "n"))
    assert (names(evicted), names(buffer.to_list())) == ("2", "n")
    assert not buffer.overflow


def test_a_buffer_that_overflows_is_read_as_it_was_written() -> None:
    """Its one message is larger than it should be, and still there."""
    buffer, _ = make_buffer(10, 11)
    assert ConversationBuffer.from_json(buffer.to_json()) == buffer


def test_a_buffer_has_twenty_thousand_tokens_unless_told_otherwise() -> None:
    """Made by itself or as a part of something."""
    assert ConversationBuffer.new().max_tokens == ConversationBuffer().max_tokens == 20_000


def test_a_smaller_buffer_keeps_the_newest() -> None:
    """What no longer fits leaves, but the newest message never does."""
    buffer, _ = make_buffer(10, 3, 3, 3)
    smaller, evicted = buffer.resize(6)
    assert (names(evicted), names(smaller.to_list()), smaller.max_tokens) == ("0", "12", 6)
    smallest, evicted = buffer.resize(1)
    assert (names(evicted), names(smallest.to_list()), smallest.overflow) == ("01", "2", True)
    assert buffer.resize(99)[0].to_list() == buffer.to_list()
    with pytest.raises(Invalid, match="max_tokens is 0"):
        buffer.resize(0)


def test_clearing_keeps_the_room() -> None:
    """An empty buffer has no tokens, and the same limit."""
    assert make_buffer(10, 3)[0].clear() == ConversationBuffer.new(10)


def test_a_buffer_refuses_what_is_no_message() -> None:
    """And what could never have come about by adding."""
    buffer = ConversationBuffer.new(10)
    with pytest.raises(WrongType, match="message must be a BufferMessage, not dict"):
        buffer.add({"role": "user"})  # type: ignore[arg-type]
    with pytest.raises(InvalidRecord, match="max_tokens is 0"):
        ConversationBuffer.new(0)
    with pytest.raises(InvalidRecord, match="messages take 12 tokens, and 10 are allowed"):
        ConversationBuffer(messages=[make_message(6), make_message(6)], max_tokens=10)  # type: ignore[arg-type]
    with pytest.raises(InvalidRecord, match=r"messages\[0\] must be a BufferMessage"):
        ConversationBuffer(messages=["hello"])  # type: ignore[arg-type]


@given(st.integers(1, 40), st.lists(st.integers(1, 60), max_size=60))
def test_a_buffer_is_the_longest_tail_that_fits(max_tokens: int, sizes: list[int]) -> None:
    """Nothing is lost or kept twice, the newest always stays, and one more would not have fitted."""
    buffer = ConversationBuffer.new(max_tokens)
    gone: list[BufferMessage] = []
    for at, size in enumerate(sizes):
        before = buffer.to_list()
        buffer, evicted = buffer.add(make_message(size, str(at)))
        gone += evicted
        kept = buffer.to_list()
        assert [*evicted, *kept[:-1]] == before
        assert buffer.current_tokens == sum(one.token_count for one in kept)
        assert buffer.overflow == (buffer.current_tokens > max_tokens)
        assert len(kept) == 1 or not buffer.overflow
        if evicted:
            assert evicted[-1].token_count + buffer.current_tokens > max_tokens
    assert [one.id for one in [*gone, *buffer.to_list()]] == [str(at) for at in range(len(sizes))]


@given(
    st.integers(1, 30), st.lists(st.one_of(st.integers(1, 12), st.integers(-30, -1)), min_size=1, max_size=40)
)
def test_what_left_is_nowhere_in_the_buffer(max_tokens: int, steps: list[int]) -> None:
    """By adding or by making the buffer smaller: not in its list, nor its count, nor what is written."""
    buffer, gone, added = ConversationBuffer.new(max_tokens), list[str](), 0
    for step in steps:
        if step > 0:
            buffer, left = buffer.add(make_message(step, f"<{added}>"))
            added += 1
        else:
            buffer, left = buffer.resize(-step)
        gone += [one.id for one in left]
        kept = [one.id for one in buffer.to_list()]
        assert [*gone, *kept] == [f"<{at}>" for at in range(added)]
        assert buffer.size == len(kept)
        assert buffer.current_tokens == sum(one.token_count for one in buffer.to_list())
        written = codec.encode(codec.to_builtins(buffer)).decode()
        assert not [id for id in gone if id in written]


@pytest.mark.parametrize("most", [1, 3, 100])
def test_a_number_of_messages_can_be_the_limit(most: int) -> None:
    """Where each message counts as one, the buffer holds so many of them and no more."""
    buffer, left = make_buffer(most, *[1] * most)
    assert (buffer.size, left) == (most, ())
    buffer, left = buffer.add_all(make_message(1, str(most + at)) for at in range(250))
    assert [one.id for one in left] == [str(at) for at in range(250)]
    assert [one.id for one in buffer.to_list()] == [str(250 + at) for at in range(most)]


@given(st.integers(10, 2_000), st.lists(st.integers(1, 50), max_size=60))
def test_a_part_of_the_budget_can_be_the_limit(total: int, sizes: list[int]) -> None:
    """With nine tenths of the whole for the conversation, messages leave before it is more than that."""
    share = total * 9 // 10
    budget = TokenBudget(total=total, conversation=share, context=total - share)
    buffer, left = ShortTerm.new("s1", token_budget=budget).conversation.add_all(map(make_message, sizes))
    assert buffer.max_tokens == share
    assert buffer.current_tokens <= share or buffer.size == 1
    assert not left or left[-1].token_count + buffer.current_tokens > share


@given(st.lists(st.integers(1, 9), max_size=30))
def test_a_buffer_is_read_as_it_was_written(sizes: list[int]) -> None:
    """Through JSON types and back, with calls and metadata."""
    buffer, _ = make_buffer(20, *sizes)
    full, _ = buffer.add(
        BufferMessage(
            role="assistant",
            content="…",
            token_count=1,
            tool_calls=[{"id": 1}],
            metadata={"a": [None]},
            seq=3,
        )
    )
    assert codec.from_builtins(codec.to_builtins(full), ConversationBuffer) == full
    assert ConversationBuffer.from_json(full.to_json()) == full


def test_adding_does_not_depend_on_the_length() -> None:
    """Adding to a full buffer of many messages costs about what it costs with few."""

    def cost(length: int) -> float:
        buffer, _ = ConversationBuffer.new(length).add_all([make_message(1)] * length)
        tries = []
        for _ in range(5):
            start, grown = time.process_time(), buffer
            for _ in range(200):
                grown, _ = grown.add(make_message(1))
            tries.append(time.process_time() - start)
        return min(tries)

    assert cost(20_000) < 25 * cost(200)
