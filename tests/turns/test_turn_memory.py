"""Tests of the memory of turns: recall, writes and scopes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.turns import ALEX, KINDS, Spy, Talker, a_spec, a_store, entries_of, system_of

from omoide import Entry, RecallRequest, WriteRequest, turns
from omoide.errors import Invalid, MissingNamespace, MissingScope, MissingStore
from omoide.turns import MemoryPolicy, preflight, turn, write

SESSION = MemoryPolicy(scope="session")
TENANT = MemoryPolicy(namespace=("context", "tenant_id"))


async def put_entry(store: Any, content: str = ALEX, /, **fields: Any) -> None:
    entry = Entry.new({"agent_id": "memory_agent", "content": content, **fields})
    await store.write(WriteRequest(entry=entry))


async def recall_contents(store: Any, memory: Any = True, **options: Any) -> list[str]:
    result = await turns.recall(a_spec(memory=memory), "hello", store=store, **options)
    assert result is not None
    return sorted(entry.content for entry in result.entries)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_written_comes_back_into_the_prompt_and_the_answer(kind: str, tmp_path: Path) -> None:
    """A fact written for a session is recalled, is in its prompt, and the turn is answered with it."""
    spec = a_spec(memory={"scope": "session", "capture": "conversation", "max_entries": 5})
    async with a_store(kind, tmp_path) as store:
        receipt = await write(spec, ALEX, store=store, session_id="conv-1")
        assert (receipt.status, receipt.entry.agent_id, receipt.entry.session_id) == (
            "ok",
            "memory_agent",
            "conv-1",
        )
        seen = await preflight(spec, "hello", store=store, session_id="conv-1")
        assert "prefers the name Alex" in system_of(seen.prompt)
        talker = Talker()
        result = await turn(spec, "hello", model=talker, store=store, session_id="conv-1")
        assert "Alex" in result.content
        assert "prefers the name Alex" in system_of(talker.prompts[0])
        assert [entry.content for entry in await entries_of(store, session_id="conv-1")] == [
            ALEX,
            "User: hello\nAssistant: Welcome back, Alex.",
        ]


@pytest.mark.parametrize("memory", [None, False, {"enabled": False}])
async def test_an_agent_without_memory_recalls_nothing(memory: Any) -> None:
    """Without a policy, or with a disabled one, the answer is None and the store is not asked."""
    store = Spy()
    await put_entry(store)
    assert await turns.recall(a_spec(memory=memory), "hello", store=store) is None
    result: Any = await turn(a_spec(memory=memory), "hello", model=Talker(), store=store)
    assert result.recalled is None
    assert result.prompt.memory is None
    assert store.recalls == []


@pytest.mark.parametrize("policy", [MemoryPolicy(), SESSION, TENANT])
async def test_recalling_without_a_store_is_no_error(policy: MemoryPolicy) -> None:
    """Where no store is given there is nothing to recall, whatever else is missing."""
    assert await turns.recall(a_spec(memory=policy), "hello") is None


async def test_the_store_is_asked_what_the_policy_says() -> None:
    """Agent, query, limit and metadata of the request are those of the spec, the input and the policy."""
    store = Spy()
    policy = MemoryPolicy(max_entries=3, metadata={"purpose": "greeting"})
    await turns.recall(a_spec(memory=policy), "hello there", store=store)
    request = store.recalls[0]
    assert (request.agent_id, request.query, request.limit) == ("memory_agent", "hello there", 3)
    assert (request.scope, request.session_id, request.namespace) == ("agent", None, "default")
    assert request.metadata == {"purpose": "greeting"}


async def test_a_session_is_named_to_the_store_only_when_memory_is_of_the_session() -> None:
    """The request carries the session id under scope session, and none under scope agent."""
    store = Spy()
    await turns.recall(a_spec(memory=SESSION), "hello", store=store, session_id="conv-1")
    await turns.recall(a_spec(), "hello", store=store, session_id="conv-1")
    assert [(one.scope, one.session_id) for one in store.recalls] == [("session", "conv-1"), ("agent", None)]


async def test_a_turn_asks_its_store_once_and_for_the_same() -> None:
    """What a turn asks of the store is what `recall` asks."""
    store = Spy()
    await turn(a_spec(memory=SESSION), "hello", model=Talker(), store=store, session_id="conv-1")
    await turns.recall(a_spec(memory=SESSION), "hello", store=store, session_id="conv-1")
    first, second = (request.replace(at=0) for request in store.recalls)
    assert first == second


async def test_writing_needs_a_store() -> None:
    """Without a store nothing can be kept, and the error says what to pass."""
    with pytest.raises(MissingStore, match="store"):
        await write(a_spec(), ALEX)


@pytest.mark.parametrize(("memory", "session"), [(True, None), (SESSION, "conv-1")])
async def test_an_entry_belongs_to_the_session_only_when_memory_does(
    memory: Any, session: str | None
) -> None:
    """What is written carries the session under scope session alone, and the metadata as given."""
    store = Spy()
    receipt = await write(
        a_spec(memory=memory), ALEX, store=store, session_id="conv-1", metadata={"kind": "preference"}
    )
    entry = receipt.entry
    assert (entry.agent_id, entry.session_id, entry.content) == ("memory_agent", session, ALEX)
    assert entry.metadata == {"kind": "preference"}
    assert await entries_of(store) == [entry]


async def test_fields_of_an_entry_go_with_a_write() -> None:
    """Type, confidence, project and an id of one's own reach the store."""
    store = Spy()
    fields: dict[str, Any] = {"type": "fact", "confidence": 0.83, "id": "name-1"}
    receipt = await write(a_spec(), ALEX, store=store, project_id="shop", **fields)
    entry = receipt.entry
    assert (entry.type, entry.confidence, entry.id, entry.project_id) == ("fact", 0.83, "name-1", "shop")


@pytest.mark.parametrize("session_id", [None, ""])
@pytest.mark.parametrize("verb", ["recall", "write", "turn", "preflight"])
async def test_memory_of_a_session_needs_the_session(verb: str, session_id: str | None) -> None:
    """Under scope session, no verb takes a missing or empty session id, and nothing is asked or kept."""
    store, talker, spec = Spy(), Talker(), a_spec(memory=SESSION)
    given: dict[str, Any] = {"store": store, "session_id": session_id}
    if verb == "turn":
        given["model"] = talker
    with pytest.raises((MissingScope, Invalid), match="session_id"):
        await getattr(turns, verb)(spec, "hello", **given)
    assert (store.recalls, store.writes, talker.requests) == ([], [], [])


@pytest.mark.parametrize("memory", [None, False, {"enabled": False, "capture": "conversation"}])
async def test_memory_that_is_off_takes_no_writes(memory: Any) -> None:
    """Writing for an agent whose memory is absent or disabled is refused, and nothing is kept."""
    store = Spy()
    with pytest.raises(Invalid, match="memory") as refused:
        await write(a_spec(memory=memory), ALEX, store=store)
    assert refused.value.field == "memory"
    assert (store.writes, store.kept) == ([], [])


@pytest.mark.parametrize("capture", ["manual", "off", "conversation"])
async def test_an_explicit_write_works_whatever_is_captured(capture: str) -> None:
    """The capture mode is about what the runtime writes by itself, not about `write`."""
    store = Spy()
    await write(a_spec(memory={"capture": capture}), ALEX, store=store)
    assert [entry.content for entry in store.kept] == [ALEX]


@pytest.mark.parametrize("kind", KINDS)
async def test_memory_of_an_agent_is_that_of_all_its_sessions(kind: str, tmp_path: Path) -> None:
    """Scope agent recalls what any of the agent's sessions wrote, whether a session is named or not."""
    async with a_store(kind, tmp_path) as store:
        await put_entry(store, "global")
        await put_entry(store, "of one", session_id="conv-1")
        await put_entry(store, "of two", session_id="conv-2")
        everything = ["global", "of one", "of two"]
        assert await recall_contents(store) == everything
        assert await recall_contents(store, session_id="conv-1") == everything


@pytest.mark.parametrize("kind", KINDS)
async def test_memory_of_a_session_is_that_session_and_no_other(kind: str, tmp_path: Path) -> None:
    """Scope session recalls exact matches: no other session, and nothing without a session."""
    async with a_store(kind, tmp_path) as store:
        await put_entry(store, "global")
        for session in ("conv-1", "conv-10", "CONV-1", "conv-2"):
            await put_entry(store, f"of {session}", session_id=session)
        assert await recall_contents(store, SESSION, session_id="conv-1") == ["of conv-1"]
        assert await recall_contents(store, SESSION, session_id="conv") == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_session_without_a_name_is_no_session(kind: str, tmp_path: Path) -> None:
    """A store that is asked for a session and not told which finds nothing, not even what has no session."""
    async with a_store(kind, tmp_path) as store:
        await put_entry(store, "global")
        await put_entry(store, "of one", session_id="conv-1")
        request = RecallRequest(agent_id="memory_agent", scope="session", query="hello")
        assert (await store.recall(request)).entries == ()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_limit_applies_to_what_is_the_agents_own(kind: str, tmp_path: Path) -> None:
    """Newer entries of other agents, sessions and namespaces neither show up nor use up the limit."""
    policy = SESSION.replace(max_entries=2)
    async with a_store(kind, tmp_path) as store:
        await put_entry(store, "mine one", session_id="conv-1")
        await put_entry(store, "mine two", session_id="conv-1")
        for at in range(6):
            await put_entry(store, f"hello {at}", agent_id="another", session_id="conv-1")
            await put_entry(store, f"hello {at}", session_id="conv-2")
            await put_entry(store, f"hello {at}", session_id="conv-1", namespace="elsewhere")
        assert await recall_contents(store, policy, session_id="conv-1") == ["mine one", "mine two"]


@pytest.mark.parametrize("kind", KINDS)
async def test_no_more_than_max_entries_come_back(kind: str, tmp_path: Path) -> None:
    """A turn is shown at most as many entries as the policy says."""
    async with a_store(kind, tmp_path) as store:
        for at in range(7):
            await put_entry(store, f"fact {at}")
        talker = Talker()
        await turn(a_spec(memory={"max_entries": 3}), "hello", model=talker, store=store)
        memory = talker.prompts[0].memory
        assert memory is not None
        assert (memory["count"], len(memory["entries"])) == (3, 3)


@pytest.mark.parametrize(("given", "namespace"), [("acme", "acme"), (7, "7"), (True, "True")])
async def test_a_namespace_comes_from_the_context(given: Any, namespace: str) -> None:
    """What the context holds under the key, as text, is the namespace of recall and write."""
    store = Spy()
    context = {"tenant_id": given}
    receipt = await write(a_spec(memory=TENANT), ALEX, store=store, context=context)
    result = await turns.recall(a_spec(memory=TENANT), "hello", store=store, context=context)
    assert receipt.entry.namespace == store.recalls[0].namespace == namespace
    assert result is not None
    assert [entry.content for entry in result.entries] == [ALEX]


@pytest.mark.parametrize("context", [{}, {"tenant_id": None}, {"tenant": "acme"}])
@pytest.mark.parametrize("verb", ["recall", "write", "turn", "preflight"])
async def test_a_missing_namespace_is_an_error_and_never_the_default(
    verb: str, context: dict[str, Any]
) -> None:
    """Where the context lacks the key, the error names it, and no store and no model is asked."""
    store, talker, spec = Spy(), Talker(), a_spec(memory=TENANT)
    given: dict[str, Any] = {"store": store, "context": context}
    if verb == "turn":
        given["model"] = talker
    with pytest.raises(MissingNamespace, match="tenant_id") as missing:
        await getattr(turns, verb)(spec, "hello", **given)
    assert missing.value.key == "tenant_id"
    assert (store.recalls, store.writes, talker.requests) == ([], [], [])


async def test_a_namespace_may_be_fixed() -> None:
    """A namespace that is text is used as it stands, for reading and writing."""
    store = Spy()
    spec = a_spec(memory={"namespace": "shared:team"})
    receipt = await write(spec, ALEX, store=store)
    await turn(spec, "hello", model=Talker(), store=store)
    assert receipt.entry.namespace == store.recalls[0].namespace == "shared:team"


async def test_recall_that_fails_fails_the_turn() -> None:
    """A turn does not go on as if it remembered nothing: the error is raised and the model is not asked."""
    store, talker = Spy(), Talker()
    store.recall_fails = RuntimeError("the disk is on fire")
    with pytest.raises(Exception, match="on fire"):
        await turn(a_spec(), "hello", model=talker, store=store)
    assert talker.requests == []


async def test_the_store_and_the_model_have_other_names() -> None:
    """`memory_store` and `llm` mean `store` and `model`; two different values are refused."""
    store, talker = Spy(), Talker("Hi.")
    await write(a_spec(), ALEX, memory_store=store)
    result = await turn(a_spec(), "hello", llm=talker, memory_store=store)
    assert (result.content, [entry.content for entry in store.kept]) == ("Hi.", [ALEX])
    with pytest.raises(Invalid, match="memory_store"):
        await write(a_spec(), ALEX, store=store, memory_store=Spy())
    with pytest.raises(Invalid, match="llm"):
        await turn(a_spec(), "hello", model=Talker(), llm=talker)
