"""Tests of the storage of sessions: records, lists and redaction."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.sessions import (
    PAY,
    Till,
    WatchedStore,
    a_spec,
    believe,
    captured_entries,
    conversation_of,
    echo,
    echo_conversation,
    everything_in,
    lines,
    reopen,
    talker,
)
from tests.support.turns import tool_calls

from omoide import Scope, action, erase, memory
from omoide.core import codec, thaw
from omoide.errors import Diverged, Invalid, ModelFailed, NotFound, RestoreFailed
from omoide.sessions import Session, SessionRecord, sessions
from omoide.sessions.storage import SessionStore
from omoide.stores import open_store

EVERYBODY = Scope()
IN_CONTEXT = {"namespace": ["context", "tenant"], "capture": "conversation"}


async def document(store: Any, kind: str = "session", id: str = "s1") -> Any:
    """A document as plain data, and its revision."""
    kept = await store.load(kind, id, EVERYBODY)
    return thaw(kept.body), kept


# The record


async def test_a_session_is_data(store: Any) -> None:
    """The record says all there is to say about the session, and survives JSON."""
    till = Till()
    session = await Session.start(
        till.spec(approve=["pay"]), "s1", store=store, model=talker(PAY), metadata={"who": "me"}
    )
    await session.run("pay", request_id="r1", context={"day": "Monday"})
    record = session.record
    assert (record.schema_version, record.session_id, record.agent_id) == (1, "s1", "ada")
    assert (record.status, record.metadata["who"], record.spec) == ("waiting", "me", session.spec)
    assert [review.id for review in record.pending_reviews] == [
        review.id for review in session.pending_reviews
    ]
    assert [one.asked.input for one in record.snapshots] == ["pay"]
    assert codec.decode(codec.encode(record), SessionRecord) == record
    json.loads(codec.encode(record))


async def test_the_record_is_the_one_that_is_kept(store: Any) -> None:
    """After every step the handle that took it and one that reads it now have the same record."""
    session = await Session.start(
        a_spec(), "s1", store=store, model=talker(echo, ModelFailed("m", "is off", "w"))
    )
    assert (await reopen(session)).record == session.record
    await session.run("hello")
    assert (await reopen(session)).record == session.record
    with pytest.raises(ModelFailed):
        await session.run("hello")
    assert (await reopen(session)).record == session.record


@pytest.mark.parametrize("version", [2, 0, None, "1"])
async def test_a_record_of_another_version_is_refused(store: Any, version: Any) -> None:
    """What another version wrote is neither guessed at nor overwritten."""
    session = await Session.start(a_spec(), "s1", store=store, model=talker())
    body, kept = await document(store)
    await store.save(kept.replace(body={**body, "schema_version": version}))
    for make in (reopen(session), Session.load("s1", store=store), session.run("hello")):
        with pytest.raises(RestoreFailed, match="version"):
            await make
    with pytest.warns(UserWarning, match="version"):
        assert await sessions(store) == []
    with pytest.raises(RestoreFailed):
        async with Session.open(a_spec(), "s1", store=store):
            pass
    assert (await document(store))[0]["schema_version"] == version


@pytest.mark.parametrize("change", [{"status": "asleep"}, {"agent_id": None}, {"turns": -1}, {"spec": {}}])
async def test_a_damaged_record_is_refused(store: Any, change: dict[str, Any]) -> None:
    """A record that cannot be is told as ours, with the session's id."""
    session = await Session.start(a_spec(), "s1", store=store)
    body, kept = await document(store)
    await store.save(kept.replace(body={**body, **change}))
    with pytest.raises(RestoreFailed, match="s1"):
        await reopen(session)


async def test_a_session_without_its_transcript_is_refused(store: Any) -> None:
    """A transcript that was lost, or is none, is not replaced by an empty one."""
    session = await Session.start(a_spec(), "s1", store=store, model=talker())
    await session.run("hello")
    _, kept = await document(store, "thread", session.thread.id)
    await store.save(kept.replace(log=(*kept.log[:1], {"kind": ""})))
    with pytest.raises(RestoreFailed, match="transcript"):
        await reopen(session)


async def test_the_header_does_not_grow_with_the_conversation(store: Any) -> None:
    """What was said is in the transcript alone, so that each step writes little."""
    session = await Session.start(a_spec(memory=None), "s1", store=store, model=talker())
    sizes = []
    for said in range(12):
        await session.run(f"Number {said} " + "tea " * 50)
        sizes.append(len(codec.encode(session.record)))
    assert max(sizes) - min(sizes) < 50


# Finding them


async def test_sessions_are_listed(store: Any) -> None:
    """All of a store, or those of one agent, by their ids, each with its status."""
    for agent, id in (("ada", "b"), ("bob", "c"), ("ada", "a")):
        await Session.start(a_spec(id=agent), id, store=store)
    await (await Session.load("a", a_spec(), store=store)).run("hello", model=talker())
    assert [(one.session_id, one.status) for one in await sessions(store)] == [
        ("a", "finished"),
        ("b", "new"),
        ("c", "new"),
    ]
    assert [one.session_id for one in await sessions(store, agent_id="ada")] == ["a", "b"]
    assert await sessions(store, agent_id="nobody") == []
    assert await sessions(store, namespace="elsewhere") == []


async def test_a_project_stays_with_its_session(store: Any) -> None:
    """What is captured or remembered belongs to the session's project, also after it was opened again."""
    session = await Session.start(a_spec(), "s1", store=store, project_id="p1", model=talker())
    await session.run("one")
    other = await reopen(session, model=talker())
    await other.run("two")
    await other.remember("Three.")
    assert other.record.project_id == "p1"
    assert [entry.project_id for entry in await store.list_entries(Scope(agent_id="ada"))] == ["p1"] * 3


# Memory


async def test_the_session_id_is_used_for_recall_and_for_capture(store: Any) -> None:
    """With memory of scope session, two sessions of one agent remember each its own conversation."""
    spec = a_spec(memory={"scope": "session", "capture": "conversation"}, window={"max_tokens": 4_200})
    asked = []

    async def before(name: str, args: Any) -> None:
        if name == "recall":
            asked.append(args[0].session_id)

    watched = WatchedStore(store, before)
    for id in ("s1", "s2"):
        session = await Session.start(spec, id, store=watched, model=talker())
        await session.run(f"My cat is called {id}.")
        model = talker()
        await session.run("What is my cat called?", model=model)
    assert asked == ["s1", "s1", "s2", "s2"]
    for id in ("s1", "s2"):
        kept = await captured_entries(store, session_id=id)
        assert [entry.session_id for entry in kept] == [id, id]
        assert f"My cat is called {id}." in kept[0].content


async def test_remember_knows_its_session(store: Any) -> None:
    """A memory kept by hand names the session it was kept in, whatever the policy's scope."""
    for scope in ("session", "agent"):
        session = await Session.start(
            a_spec(memory={"scope": scope}, id=scope), "s1", store=store, model=talker()
        )
        receipt = await session.remember("Ada likes tea.", metadata={"by": "hand"}, confidence=0.5)
        assert (receipt.status, receipt.entry.session_id, receipt.entry.confidence) == ("ok", "s1", 0.5)
        recalled = (await session.run("Who likes tea?")).recalled
        assert recalled is not None
        assert [entry.content for entry in recalled.entries] == ["Ada likes tea."]
        await store.erase(Scope(agent_id=scope))


async def test_remember_needs_a_memory(store: Any) -> None:
    """An agent without memory keeps none, and says why."""
    session = await Session.start(a_spec(memory=None), "s1", store=store)
    with pytest.raises(Invalid, match="memory"):
        await session.remember("Ada likes tea.")
    assert await store.list_entries(EVERYBODY) == []


async def test_memory_may_lie_elsewhere_than_the_session(store: Any) -> None:
    """With a memory store of its own, a session's words are remembered there and its transcript here."""
    async with open_store("memory://", embedder="none") as elsewhere:
        session = await Session.start(a_spec(), "s1", store=store, memory_store=elsewhere, model=talker())
        await session.run("hello")
        assert len(await captured_entries(elsewhere)) == 1
        assert await captured_entries(store) == []
        fork = await session.fork("s2")
        await fork.run("again")
        assert len(await captured_entries(elsewhere)) == 2
        assert await captured_entries(store) == []


async def test_what_is_captured_points_at_the_transcript(store: Any) -> None:
    """The evidence of a captured turn names the places of the user's words and of the answer."""
    till = Till()
    session = await Session.start(till.spec(), "s1", store=store, model=talker(echo, PAY, "Paid."))
    await session.run("hello")
    await session.run("pay five")
    kept = await captured_entries(store)
    places = [[evidence.ref.rsplit(":", 1) for evidence in entry.evidence] for entry in kept]
    for entry, found, (first, last) in zip(kept, places, ((0, 1), (2, 6)), strict=True):
        assert found == [[session.thread.id, str(first)], [session.thread.id, str(last)]]
        assert entry.message is not None
        assert (entry.message.thread, entry.message.seq) == (session.thread.id, first)
        ends = [session.thread.entries[at].payload["content"] for at in (first, last)]
        assert entry.content == f"User: {ends[0]}\nAssistant: {ends[1]}"


# Replay and fork


async def test_a_replay_calls_nothing(store: Any) -> None:
    """Every turn can be had again with its answer and usage; nothing is asked, run or written for it."""
    till, watched = Till(), WatchedStore(store)
    usage = {"input_tokens": 3, "output_tokens": 4}
    final = {"type": "final", "content": "Paid.", "usage": usage}
    model = talker(PAY, final, echo)
    session = await Session.start(till.spec(), "s1", store=watched, model=model)
    first = await session.run("pay", request_id="r1")
    await session.run("thanks", request_id="r2")
    before, record = [*watched.calls], session.record
    replayed = await session.replay("r1")
    assert (replayed.content, replayed.status, replayed.usage) == ("Paid.", "finished", first.usage)
    assert [effect.key for effect in replayed.journal] == [
        effect.key for effect in first.journal if effect.kind != "recall"
    ]
    assert (await session.replay()).content == "You said thanks"
    assert (till.log, len(model.requests), watched.calls) == (["pay 5"], 3, before)
    assert (session.record, session.requests) == (record, ["r1", "r2"])


async def test_only_what_was_answered_can_be_replayed(store: Any) -> None:
    """An unknown request is not found, and one that failed says what its journal lacks."""
    session = await Session.start(
        a_spec(), "s1", store=store, model=talker(ModelFailed("m", "is off", "wait"))
    )
    with pytest.raises(NotFound):
        await session.replay()
    with pytest.raises(ModelFailed):
        await session.run("hello", request_id="r1")
    with pytest.raises(NotFound, match="nobody"):
        await session.replay("nobody")
    with pytest.raises(Diverged):
        await session.replay("r1")


async def test_a_fork_has_the_same_past_and_a_future_of_its_own(store: Any) -> None:
    """Both go on from the same words and beliefs, and neither hears what is said to the other."""
    model = talker(tool_calls(("believe", {"key": "sky", "value": "grey"})), "So it is.", echo)
    session = await Session.start(a_spec(tools=[believe]), "s1", store=store, model=model)
    await session.run("The sky is grey.")
    past, before = lines(session.thread.entries), await document(store)
    fork = await session.fork("s2")
    assert (fork.id, lines(fork.thread.entries), fork.status) == ("s2", past, "finished")
    assert fork.thread.id != session.thread.id
    assert memory.world_get(fork.agent, "sky") == "grey"
    assert fork.result == "So it is."
    await fork.run("There")
    assert await document(store) == before
    await session.run("Here")
    assert lines((await reopen(session)).thread.entries) == [*past, *echo_conversation("Here")]
    assert lines((await reopen(fork)).thread.entries) == [*past, *echo_conversation("There")]
    assert thaw(fork.record.metadata)["forked_from"]["session"] == "s1"


async def test_a_fork_can_leave_the_end_out(store: Any) -> None:
    """The fork knows nothing of what came after the request it was taken at, nor of turns that failed."""
    model = talker(
        tool_calls(("believe", {"key": "n", "value": "1"})),
        "One.",
        ModelFailed("m", "is off", "wait"),
        tool_calls(("believe", {"key": "n", "value": "2"})),
        "Two.",
        echo,
    )
    session = await Session.start(a_spec(tools=[believe]), "s1", store=store, model=model)
    await session.run("first", request_id="r1")
    with pytest.raises(ModelFailed):
        await session.run("broken", request_id="r2")
    await session.run("second", request_id="r3")
    fork = await session.fork(after="r1")
    assert (fork.id.startswith("sess_"), fork.requests, fork.result) == (True, ["r1"], "One.")
    assert memory.world_get(fork.agent, "n") == "1"
    await fork.run("third")
    assert conversation_of(model.prompts[-1])[-2:] == ["assistant: One.", "user: third"]
    assert not any("second" in line or "broken" in line for line in lines(fork.thread.entries))
    whole = await session.fork()
    assert whole.requests == ["r1", "r3"]
    for unknown in ("nobody", "r2"):
        with pytest.raises(NotFound, match=unknown):
            await session.fork(after=unknown)
    with pytest.raises(Invalid, match="s1"):
        await session.fork("s1")


async def test_an_unfinished_turn_is_not_forked(store: Any) -> None:
    """A fork of a session that waits holds the turns before, and can be used at once."""
    till = Till()
    session = await Session.start(
        till.spec(approve=["pay"]), "s1", store=store, model=talker(echo, PAY, echo)
    )
    await session.run("hello")
    await session.run("pay")
    fork = await session.fork("s2")
    assert (fork.status, lines(fork.thread.entries)) == ("finished", echo_conversation("hello"))
    assert await fork.chat("go on") == "You said go on"
    assert (session.status, (await reopen(session)).status, till.log) == ("waiting", "waiting", [])


# Tenants, secrets, erasure


async def test_tenants_have_sessions_of_their_own_under_one_id(file: Any, tmp_path: Path) -> None:
    """The same session id in two namespaces is two conversations that know nothing of each other."""
    spec, model = a_spec(memory=IN_CONTEXT), talker()
    opened = {
        tenant: await Session.start(spec, "s1", store=file, model=model, context={"tenant": tenant})
        for tenant in ("acme", "Acme")
    }
    for said in ("one", "two"):
        for tenant, session in opened.items():
            await session.run(f"{tenant} {said}")
            assert conversation_of(model.prompts[-1])[-1] == f"user: {tenant} {said}"
            assert all(tenant in line for line in conversation_of(model.prompts[-1]))
    for tenant in opened:
        read = await Session.load("s1", spec, store=file, context={"tenant": tenant})
        assert lines(read.thread.entries) == echo_conversation(f"{tenant} one", f"{tenant} two")
        assert [one.session_id for one in await sessions(file, namespace=tenant)] == ["s1"]
        kept = await captured_entries(file, namespace=tenant)
        assert [tenant in entry.content for entry in kept] == [True, True]
    assert await sessions(file) == []
    with pytest.raises(NotFound):
        await Session.load("s1", spec, store=file, context={"tenant": "other"})
    with pytest.raises(Invalid):
        await opened["acme"].run("mine", context={"tenant": "Acme"})


async def test_memory_of_a_session_needs_the_namespace(store: Any) -> None:
    """Without the key that names the tenant no session is opened."""
    with pytest.raises(Invalid, match="tenant"):
        Session.open(a_spec(memory=IN_CONTEXT), "s1", store=store)


async def test_no_secret_is_written_down(file: Any, tmp_path: Path) -> None:
    """What tools need and nobody may read is in no file: while the turn rests, and when it is over."""
    got: list[Any] = []

    @action(effectful=True)
    async def call(ctx: Any) -> str:
        """Use all of it."""
        got.append(
            (ctx.secrets.get("pin"), ctx.data.get("api_key"), ctx.data["day"], type(ctx.data.get("link")))
        )
        return "called"

    class Link:
        secret = "link-secret-0000"

        def __repr__(self) -> str:
            return self.secret

    context = {
        "day": "Monday",
        "api_key": "key-secret-1111",
        "password": "word-secret-2222",
        "db": {"user": "ada", "password": "deep-secret-word"},
        "list": [{"auth_token": "list-secret-4444"}],
        "link": Link(),
        "note": "Bearer sk-" + "ant-api03-abcdefghijklmnopqrstuvwx5555",
    }
    hidden = [f"{name}-secret-{digit * 4}" for name, digit in (("link", "0"), ("key", "1"), ("word", "2"))]
    hidden += ["deep-secret-word", "list-secret-4444", "abcdefghijklmnopqrstuvwx5555", "pin-secret-6666"]
    spec = a_spec(tools=[call], approve=["call"])
    session = await Session.start(spec, "s1", store=file, model=talker(tool_calls(("call", {})), "Done."))
    result = await session.run("go", context=context, secrets={"pin": "pin-secret-6666"})
    assert (result.status, [word for word in hidden if word.encode() in everything_in(tmp_path)]) == (
        "waiting",
        [],
    )
    other = await reopen(session, model=talker("Done."))
    await other.approve(other.pending_reviews[0].id)
    await other.resume(secrets={"pin": "pin-secret-6666"}, context={"api_key": "key-secret-1111"})
    assert got == [("pin-secret-6666", "key-secret-1111", "Monday", type(None))]
    await other.run("more", context=context, secrets={"pin": "pin-secret-6666"})
    assert [word for word in hidden if word.encode() in everything_in(tmp_path)] == []
    assert b"Monday" in everything_in(tmp_path)


async def test_an_erased_session_leaves_nothing(tmp_path: Path) -> None:
    """Header, transcript and the lease are gone, in the file as well; an open handle finds nothing."""
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as store:
        spec = a_spec(memory={"scope": "session", "capture": "conversation"})
        session = await Session.start(spec, "s1", store=store, model=talker())
        other = await Session.start(spec, "s2", store=store, model=talker())
        await session.run("The word is xylophone.")
        await other.run("The word is trombone.")
        receipt = await erase(store, Scope(agent_id="ada", session_id="s1"))
        assert (receipt.documents, len(receipt.ids)) == (3, 1)
        assert [one.session_id for one in await sessions(store)] == ["s2"]
        with pytest.raises(NotFound, match="s1"):
            await reopen(session)
        for attempt in (session.run("still there?"), session.resume(), session.cancel()):
            with pytest.raises(NotFound, match="s1"):
                await attempt
        assert await other.chat("and you?") == "You said and you?"
        anew = await Session.start(spec, "s1", store=store, model=talker())
        assert (anew.status, len(anew.thread.entries)) == ("new", 0)
        await store.scrub()
    assert b"xylophone" not in everything_in(tmp_path)
    assert b"trombone" in everything_in(tmp_path)


async def test_a_session_erased_while_it_runs_is_not_brought_back(store: Any) -> None:
    """The turn ends with an error, and neither header nor transcript nor memory is there again."""

    async def model(request: Any, journal: Any) -> str:
        await erase(store, Scope(agent_id="ada"))
        return "Too late."

    session = await Session.start(a_spec(), "s1", store=store, model=model)
    with anyio.fail_after(10), pytest.raises((NotFound, Invalid)):
        await session.run("hello")
    assert await sessions(store) == []
    assert await store.documents("thread", EVERYBODY) == []
    assert await store.list_entries(EVERYBODY) == []


async def test_a_child_does_not_hold_the_lease_of_its_parent(tmp_path: Path) -> None:
    """While the parent runs a turn, a session that a forked child inherited is busy there."""
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as store:
        await Session.start(a_spec(), "s1", store=store, model=talker("Yes."))
        kept = SessionStore(store, "s1")
        async with kept.lease(60_000):
            child = os.fork()
            if child == 0:
                claimed = store.sync.claim("session", "s1", EVERYBODY, owner=kept._owner, ttl_ms=60_000)
                os._exit(0 if claimed is None else 1)
            assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - the loop has nothing else to do
