"""Short-term memory starts empty and survives serialization."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.core import codec
from omoide.errors import InvalidRecord, WrongType
from omoide.shortterm import AccessLog, BufferMessage, PendingItem, PendingMemories, ShortTerm, TokenBudget
from omoide.testing import reproducible


def test_a_session_begins_with_nothing_but_room() -> None:
    """32,000 tokens, of which 20,000 are for the conversation and 12,000 for the working context."""
    with reproducible(at=7):
        memory = ShortTerm.new("conv-1")
    assert (memory.session_id, memory.created_at) == ("conv-1", 7)
    assert memory.token_budget == TokenBudget(total=32_000, conversation=20_000, context=12_000)
    assert (memory.conversation.max_tokens, memory.conversation.size) == (20_000, 0)
    assert (memory.context.max_tokens, memory.context.size) == (12_000, 0)
    assert memory.pending == PendingMemories()
    assert memory.access_log == AccessLog()


@pytest.mark.parametrize(
    "given", [TokenBudget(total=9, conversation=5, context=4), {"conversation": 5, "context": 4}]
)
def test_the_budget_is_where_all_room_comes_from(given: Any) -> None:
    """As a value or as a mapping."""
    memory = ShortTerm.new("conv-1", token_budget=given)
    assert (memory.conversation.max_tokens, memory.context.max_tokens) == (5, 4)
    assert memory.token_budget == TokenBudget.new(given)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"total": 0}, "total is 0; pass 1 or more"),
        ({"conversation": -5}, "conversation is -5"),
        ({"context": 1.5}, "context must be an int"),
        ({"total": 31_999}, "total is 31999, and its parts together are 32000"),
        ({"working": 5}, "working is an unknown field"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(given: dict[str, Any], problem: str) -> None:
    """Parts are positive, and together no more than the whole."""
    with pytest.raises(InvalidRecord, match=f"invalid token budget: {problem}"):
        ShortTerm.new("conv-1", token_budget=given)


def test_short_term_memory_belongs_to_a_session() -> None:
    """One with a name, and a budget that is one."""
    with pytest.raises(InvalidRecord, match="session_id must be a non-empty string"):
        ShortTerm.new("")
    with pytest.raises(WrongType, match="token_budget must be a TokenBudget, not int"):
        ShortTerm.new("conv-1", token_budget=9)  # type: ignore[arg-type]


@given(st.text(min_size=1, max_size=20).filter(str.isprintable), st.integers(1, 5))
def test_all_of_it_is_read_back_as_it_was_written(words: str, count: int) -> None:
    """Messages, values, items and uses, through JSON and back."""
    memory = ShortTerm.new("conv-1", now=0)
    conversation, context, pending, log = (
        memory.conversation, memory.context, memory.pending, memory.access_log,
    )  # fmt: skip
    for at in range(count):
        conversation, _ = conversation.add(BufferMessage.new(role="user", content=words, seq=at))
        context, _ = context.put(f"key {at}", {"words": [words, at]}, source="tool")
        item = PendingItem.new(
            agent_id="a", content=f"x{words}", type="fact", confidence=0.5, source="user", evidence=["doc"]
        )
        pending, _ = pending.add_implicit(item)
        pending, _ = pending.add_agent_decision(item.replace(entry=item.entry.replace(id=f"d{at}")))
        log = log.record(f"key {at}").record(("memory", item.id), "query")
    full = memory.replace(conversation=conversation, context=context, pending=pending, access_log=log)
    assert codec.from_builtins(codec.to_builtins(full), ShortTerm) == full
    assert ShortTerm.from_json(full.to_json()) == full


def test_sessions_share_nothing() -> None:
    """What one holds is not in another that began alike."""
    one, other = ShortTerm.new("one", now=0), ShortTerm.new("other", now=0)
    one.context.put("framework", "Phoenix")
    one = one.replace(context=one.context.put("framework", "Phoenix")[0])
    assert one.context.has("framework")
    assert not other.context.has("framework")
