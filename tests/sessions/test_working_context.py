"""Tests of the working context: values, counts and evidence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sessions import a_spec, reopen, talker
from tests.support.turns import tool_calls

from omoide import Evidence, action, clock
from omoide.errors import Invalid
from omoide.sessions import Session
from omoide.shortterm import TokenBudget
from omoide.stores import open_store
from omoide.testing import FrozenClock

SMALL = TokenBudget(total=2_000, conversation=1_000, context=60)


def words(text: str) -> int:
    """A counter that counts words."""
    return len(text.split())


async def start_session(store: Any, *replies: Any, **options: Any) -> Session:
    """A new session whose model gives these replies."""
    spec = options.pop("spec", a_spec(memory=True))
    return await Session.start(spec, options.pop("id", "s1"), store=store, model=talker(*replies), **options)


# Values


async def test_a_value_is_there_until_it_is_removed(store: Any) -> None:
    """It can be put, read, looked for, listed, replaced, deleted, and all of them cleared."""
    context = (await start_session(store)).context
    context.put("framework", "Phoenix")
    context.put("active_file", "a.py")
    assert (context.get("framework"), "framework" in context, "nothing" in context) == (
        "Phoenix",
        True,
        False,
    )
    assert ([*context], len(context)) == (["active_file", "framework"], 2)
    context.put("framework", "Rails")
    assert context.to_dict() == {"framework": "Rails", "active_file": "a.py"}
    assert (context.delete("framework"), context.delete("framework")) == (True, False)
    assert context.get("framework", "none") == "none"
    context.clear()
    assert (context.to_dict(), len(context)) == ({}, 0)


@pytest.mark.parametrize("value", [None, False, 0, 0.0, "", [], {}])
async def test_a_value_that_counts_for_nothing_is_still_there(store: Any, value: Any) -> None:
    """None, False, zero and empty ones are told from no value at all, also after they were saved."""
    session = await start_session(store)
    missing = object()
    session.context.put("k", value)
    for one in (session, await _save_and_load(session)):
        assert one.context.get("k", missing) == value
        assert one.context.peek("k", missing) == value
        assert "k" in one.context
        assert one.context.to_dict() == {"k": value}
        assert one.context.get("other", missing) is missing
    assert session.context.delete("k") is True


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=5).filter(str.strip),
        st.integers(-(2**63), 2**63 - 1) | st.none(),
        max_size=5,
    )
)
async def test_whatever_is_put_is_read_back(values: dict[str, Any]) -> None:
    """Any names and values come back as they were, from the same session and from a later one."""
    async with open_store("memory://", embedder="none") as store:
        session = await start_session(store)
        for key, value in values.items():
            session.context.put(key, value)
        assert session.context.to_dict() == values
        assert (await _save_and_load(session)).context.to_dict() == values


async def test_reading_counts_as_use_and_looking_does_not(store: Any) -> None:
    """`get` counts an access and its time; `peek`, `item`, `in` and listing count nothing."""
    with clock.override(FrozenClock(1_000_000)) as time:
        session = await start_session(store)
        session.context.put("framework", "Phoenix")
        time.advance(5_000)
        session.context.peek("framework")
        session.context.to_dict()
        assert "framework" in session.context
        item = session.context.item("framework")
        assert item is not None
        assert (item.access_count, item.last_accessed) == (1, 1_000_000)
        session.context.get("framework")
        session.context.get("missing")
        item = session.context.item("framework")
        assert item is not None
        assert (item.access_count, item.first_seen, item.last_accessed) == (2, 1_000_000, 1_005_000)
        log = session.short_term.access_log
        assert log.get_stats("framework").frequency == 2
        assert log.get_stats("missing").frequency == 0


async def test_use_makes_a_value_matter_more(store: Any) -> None:
    """A value that was not good enough is, after it was read often enough."""
    session = await start_session(store)
    session.context.put("framework", "Phoenix", source="tool")
    assert [one.verdict for one in (await session.promote(dry_run=True)).plan.candidates] == ["below"]
    session.context.get("framework")
    assert [one.verdict for one in (await session.promote(dry_run=True)).plan.candidates] == ["promote"]


@pytest.mark.parametrize(
    ("key", "given", "field"),
    [
        ("", {}, "key"),
        (7, {}, "key"),
        ("k", {"source": "rumour"}, "source"),
        ("k", {"confidence": 1.5}, "confidence"),
        ("k", {"confidence": "high"}, "confidence"),
        ("k", {"confidence": float("nan")}, "confidence"),
        ("k", {"memory_type": "gossip"}, "memory_type"),
        ("k", {"evidence": "he said so"}, "evidence"),
        ("k", {"value": object()}, "value"),
    ],
)
async def test_a_value_that_makes_no_sense_is_refused(
    store: Any, key: Any, given: dict[str, Any], field: str
) -> None:
    """The field is named, and the context is as it was."""
    session = await start_session(store)
    session.context.put("framework", "Phoenix")
    before = session.short_term
    with pytest.raises(Invalid, match=field):
        session.context.put(key, **{"value": 1, **given})
    assert session.short_term == before
    assert (await _save_and_load(session)).context.to_dict() == {"framework": "Phoenix"}


# Where values come from


async def test_a_value_comes_from_what_was_said_last(store: Any) -> None:
    """Its evidence is the last message, and reaches the memory that it becomes."""
    session = await start_session(store)
    await session.add_message("user", "We use Phoenix.")
    await session.add_message("user", "In version 1.7.")
    session.context.put("framework", "Phoenix 1.7", source="tool", confidence=0.9)
    await session.add_message("user", "Thanks.")
    plan = (await session.promote(dry_run=True)).plan
    assert plan.candidates[0].entry.evidence == (Evidence(kind="message", ref=f"{session.thread.id}:1"),)


async def test_what_a_tool_found_comes_from_the_tool(store: Any) -> None:
    """A value with the source `tool` has the last tool result as evidence."""

    @action
    def look(ctx: Any) -> str:
        """Look it up."""
        return "Phoenix 1.7"

    spec = a_spec(memory=True, tools=[look])
    session = await start_session(store, tool_calls(("look", {})), "It is Phoenix.", spec=spec)
    await session.run("Which framework?")
    session.context.put("framework", "Phoenix 1.7", source="tool", confidence=0.9)
    (evidence,) = (await session.promote(dry_run=True)).plan.candidates[0].entry.evidence
    found = next(one for one in session.thread.entries if one.kind == "tool_result")
    assert evidence == Evidence(kind="tool", ref=f"{session.thread.id}:{found.seq}")


async def test_evidence_can_be_given(store: Any) -> None:
    """What somebody names comes before what was said last; a new value has a new origin."""
    session = await start_session(store)
    await session.add_message("user", "Hello.")
    readme = Evidence(kind="document", ref="README.md", quote="Phoenix")
    session.context.put("framework", "Phoenix", source="tool", confidence=0.9, evidence=readme)
    assert (await session.promote(dry_run=True)).plan.candidates[0].entry.evidence == (readme,)
    session.context.put("framework", "Rails", source="tool", confidence=0.9)
    (other,) = (await session.promote(dry_run=True)).plan.candidates[0].entry.evidence
    assert other == Evidence(kind="message", ref=f"{session.thread.id}:0")


async def test_before_anything_is_said_there_is_no_evidence(store: Any) -> None:
    """A value in an empty conversation stands for itself."""
    session = await start_session(store)
    session.context.put("framework", "Phoenix", source="tool", confidence=0.9)
    assert (await session.promote(dry_run=True)).plan.candidates[0].entry.evidence == ()


# What has to leave


async def test_a_value_that_has_to_leave_waits_for_promotion(store: Any) -> None:
    """Where there is no room for it any more, it becomes a candidate, with its key, evidence and time."""
    session = await start_session(store, token_budget=SMALL, count_tokens=words)
    await session.add_message("user", "We use Phoenix.")
    session.context.put("framework", "Phoenix", source="tool", confidence=0.8)
    session.context.put("notes", "word " * 55, confidence=1.0)
    assert "framework" not in session.context
    (waiting,) = session.short_term.pending.list_implicit()
    assert (waiting.content, waiting.memory_type) == ("framework: Phoenix", "fact")
    assert waiting.evidence == (Evidence(kind="message", ref=f"{session.thread.id}:0"),)
    done = await session.promote()
    assert done.run is not None
    assert [one.item for one in done.run.promoted] == [waiting.id]


async def test_what_is_no_kind_of_memory_leaves_without_a_trace(store: Any) -> None:
    """A value without a type does not wait for anything."""
    session = await start_session(store, token_budget=SMALL, count_tokens=words)
    session.context.put("mood", "fine")
    session.context.put("notes", "word " * 55, confidence=1.0)
    assert [*session.context] == ["notes"]
    assert session.short_term.pending.size == 0


async def test_what_does_not_fit_at_all_is_refused(store: Any) -> None:
    """A value larger than the whole context changes nothing."""
    session = await start_session(store, token_budget=SMALL, count_tokens=words)
    session.context.put("framework", "Phoenix", source="tool", confidence=0.8)
    with pytest.raises(Invalid, match="tokens"):
        session.context.put("notes", "word " * 550)
    assert session.context.to_dict() == {"framework": "Phoenix"}
    assert session.short_term.pending.size == 0


# Proposals


async def test_a_proposal_waits_with_the_last_message_as_evidence(store: Any) -> None:
    """It is the session's, has an importance, and is not written before it is promoted."""
    session = await start_session(store, project_id="shop")
    await session.add_message("user", "Never deploy on Fridays.")
    item = session.propose(
        "No deploys on Fridays.", type="convention", confidence=0.9, rationale="It went wrong."
    )
    assert session.short_term.pending.get(item.id) == item
    assert item.evidence == (Evidence(kind="message", ref=f"{session.thread.id}:0"),)
    assert (item.entry.agent_id, item.entry.session_id, item.entry.project_id) == ("ada", "s1", "shop")
    assert item.importance_score == pytest.approx(0.2 + 0.03 + 0.9 * 0.25 + 0.25)
    assert (await session.promote(dry_run=True)).plan.to_promote[0].entry.rationale == "It went wrong."
    plain = session.propose("Deploys are slow.")
    assert (plain.memory_type, plain.confidence) == (None, 0.7)
    assert (plain.source_type, plain.access_count) == ("agent", 1)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"type": "gossip"}, "type"),
        ({"confidence": 2}, "confidence"),
        ({"confidence": True}, "confidence"),
        ({"importance": -1}, "importance"),
        ({"content": ""}, "content"),
        ({"nonsense": 1}, "nonsense"),
        ({"evidence": ["he said so"]}, "evidence"),
    ],
)
async def test_a_proposal_that_makes_no_sense_is_refused(
    store: Any, fields: dict[str, Any], field: str
) -> None:
    """The field is named, and nothing waits."""
    session = await start_session(store)
    with pytest.raises(Invalid, match=field):
        session.propose(**{"content": "We use tabs.", **fields})
    assert session.short_term.pending.size == 0


async def _save_and_load(session: Session) -> Session:
    """The same session, read again after a pause."""
    await session.pause()
    return await reopen(session)
