"""An agent that was saved is the same when it is loaded, in every checkpoint store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checkpoint_stores import (
    CLERK,
    PLACES,
    Crash,
    DictCheckpointStore,
    RecordingCheckpointStore,
    a_checkpoint_store,
    clerk,
    crash_at,
    entry,
    messages_of,
)
from tests.support.strategies import maps

from omoide import (
    Agent,
    Checkpoint,
    Context,
    Definition,
    Plugin,
    Scope,
    Thread,
    checkpoint,
    erase_user,
    identity,
    memory,
    open_store,
    remember,
    thread,
)
from omoide.core import Externalize
from omoide.errors import CheckpointFailed, Conflict, Invalid, NotFound, RestoreFailed, WrongType
from omoide.runtime.checkpoints import (
    CheckpointStore,
    DocumentCheckpointStore,
    SupportsCheckpointDelete,
    SupportsCheckpointList,
    load_agent,
    save_agent,
)
from omoide.stores import Document


@pytest.fixture(params=PLACES)
async def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A checkpoint store of each place."""
    async with a_checkpoint_store(request.param, tmp_path) as opened:
        yield opened


async def test_the_agent_that_was_put_aside_is_taken_up(checkpoints: CheckpointStore) -> None:
    """State, memory, identity and thread, with the revision to build on."""
    agent = memory.world_put(clerk("Hello", "Bye"), "door", "open")
    agent = identity.add_tag(agent, "web")
    agent = thread.put(agent, thread.of(agent).replace(metadata={"topic": "doors"}, updated_at=7))
    assert await save_agent(agent, checkpoints) == 1
    assert await load_agent("me", CLERK, checkpoints) == (agent, 1)
    agent = thread.append(agent, entry("Again"))
    assert await save_agent(agent, checkpoints, expected_rev=1) == 2
    assert await load_agent("me", CLERK, checkpoints) == (agent, 2)


@given(own=maps, world=maps, payloads=st.lists(maps, max_size=4), metadata=maps)
async def test_whatever_it_holds_comes_back(own: Any, world: Any, payloads: Any, metadata: Any) -> None:
    """In a store and in files, all that an agent can hold."""
    agent = Agent.new("a", id="me", state={"own": own})
    agent = memory.update_space_data(memory.ensure(agent), "world", lambda old: world)
    log = Thread.new(metadata=metadata).append([{"payload": payload} for payload in payloads])
    agent = thread.put(agent, log)
    async with open_store("memory://", embedder="none") as store:
        checkpoints = DocumentCheckpointStore(store)
        await save_agent(agent, checkpoints)
        assert await load_agent("me", agent.definition, checkpoints) == (agent, 1)


@pytest.mark.parametrize(
    "id", ["../../up", "..", ".", "/", "Ä" * 200, "x" * 512, "Me", "a b", "%2e", "con.", "~"]
)
async def test_any_id_is_kept_under_its_own_name(checkpoints: Any, id: str) -> None:
    """Ids that look like paths, are long, or differ from another in their case only."""
    for name in (id, "me", id.lower()):
        await checkpoints.delete(name)
    await save_agent(clerk("a", id="me"), checkpoints)
    await save_agent(clerk("b", id=id), checkpoints)
    assert messages_of((await load_agent(id, CLERK, checkpoints))[0]) == ["b"]
    assert messages_of((await load_agent("me", CLERK, checkpoints))[0]) == ["a"]
    assert await checkpoints.ids() == sorted(["me", id])


async def test_what_nests_as_deep_as_it_may_is_kept(checkpoints: CheckpointStore) -> None:
    """In the state, in memory and in an entry of the thread."""
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"deeper": deep}
    agent = memory.world_put(Agent.new(CLERK, id="me", state={"deep": deep}), "deep", deep)
    agent = thread.append(agent, {"payload": deep})
    await save_agent(agent, checkpoints)
    assert await load_agent("me", CLERK, checkpoints) == (agent, 1)


async def test_only_entries_that_the_journal_lacks_are_written(checkpoints: CheckpointStore) -> None:
    """One step for the entries that are new, and one for the checkpoint; the journal is not even read."""
    agent, seen = clerk("a", "b"), []

    class Counting(RecordingCheckpointStore):
        async def append_thread(self, *args: Any, **options: Any) -> int:
            seen.append([one.payload["text"] for one in args[2]])
            return await super().append_thread(*args, **options)

    watched = Counting(checkpoints)
    for said in ([], ["c"], ["d", "e"]):
        agent = thread.append(agent, [entry(text) for text in said])
        await save_agent(agent, watched)
    assert seen == [["a", "b"], ["c"], ["d", "e"]]
    assert watched.steps == ["load", "append_thread", "save"] * 3


async def test_putting_aside_again_adds_nothing(checkpoints: CheckpointStore) -> None:
    """Not a step is written for the same agent, and only the checkpoint where its thread is the same."""
    agent = clerk("a", "b")
    await save_agent(agent, checkpoints)
    before = await checkpoints.load("me"), await checkpoints.read_thread("me", thread.of(agent).id)
    watched = RecordingCheckpointStore(checkpoints)
    for expected_rev in (None, 1, 1):
        assert await save_agent(agent, watched, expected_rev=expected_rev) == 1
    assert watched.steps == ["load"] * 3
    assert (await checkpoints.load("me"), await checkpoints.read_thread("me", thread.of(agent).id)) == before
    assert await save_agent(memory.world_put(agent, "door", "open"), watched) == 2
    assert watched.steps[3:] == ["load", "save"]


@pytest.mark.parametrize("said", [None, ()])
async def test_no_thread_and_an_empty_one_make_no_journal(checkpoints: CheckpointStore, said: Any) -> None:
    """An empty one comes back with its id all the same."""
    agent = Agent.new(CLERK, id="me")
    agent = agent if said is None else thread.put(agent, Thread.new(id="t"))
    watched = RecordingCheckpointStore(checkpoints)
    await save_agent(agent, watched)
    assert watched.steps == ["load", "save"]
    assert (await load_agent("me", CLERK, watched))[0] == agent
    assert (await checkpoints.read_thread("me", "t")).rev == 0
    agent = thread.append(agent, entry("a"))
    await save_agent(agent, checkpoints)
    assert (await load_agent("me", CLERK, checkpoints))[0] == agent


async def test_where_nothing_was_put_aside_nothing_is_found(checkpoints: Any) -> None:
    """`NotFound`, also after the agent was deleted, and also where the first attempt never finished."""
    with pytest.raises(NotFound, match="'me'"):
        await load_agent("me", CLERK, checkpoints)
    for at, done in ((0, True), (1, False)):
        with pytest.raises(Crash):
            await save_agent(clerk("a"), crash_at(checkpoints, at, done=done))
        with pytest.raises(NotFound):
            await load_agent("me", CLERK, checkpoints)
    await save_agent(clerk("a"), checkpoints)
    await checkpoints.delete("me")
    with pytest.raises(NotFound):
        await load_agent("me", CLERK, checkpoints)


async def test_a_second_writer_is_told_of_the_first(checkpoints: CheckpointStore) -> None:
    """Whoever builds on an older revision changes nothing; 0 means that there must be none."""
    agent = clerk("a")
    await save_agent(agent, checkpoints, expected_rev=0)
    one, two = thread.append(agent, entry("one")), thread.append(agent, entry("two"))
    await save_agent(one, checkpoints, expected_rev=1)
    for expected_rev in (0, 1, 3):
        with pytest.raises(Conflict) as raised:
            await save_agent(two, checkpoints, expected_rev=expected_rev)
        assert (raised.value.expected, raised.value.actual) == (expected_rev, 2)
    with pytest.raises(WrongType):
        await save_agent(two, checkpoints, expected_rev=cast("int", "2"))
    assert await load_agent("me", CLERK, checkpoints) == (one, 2)


async def test_an_agent_with_another_past_is_not_put_in_its_place(checkpoints: CheckpointStore) -> None:
    """A thread that is shorter, was cut, or says something else is refused, and the old one stays."""
    agent = clerk("a", "b", "c")
    log = thread.of(agent)
    await save_agent(agent, checkpoints)
    other = Thread(id=log.id).append([entry("a"), entry("b"), entry("x"), entry("y")])
    for past, problem in (
        (Thread(id=log.id).append([*log.entries][:2]), "thread_rev_regression"),
        (Thread(id=log.id, rev=3, entries=log.entries[:2]), "thread_history_truncated"),
        (other, "thread_mismatch"),
    ):
        with pytest.raises(CheckpointFailed, match=problem):
            await save_agent(thread.put(agent, past), checkpoints)
        assert await load_agent("me", CLERK, checkpoints) == (agent, 1)


async def test_a_thread_whose_revision_counts_more_than_its_entries_comes_back(
    checkpoints: CheckpointStore,
) -> None:
    """The revision is that of the thread, the entries are those that it has."""
    log = Thread(id="t", rev=7, entries=thread.of(clerk("a", "b")).entries)
    agent = thread.put(clerk(), log)
    await save_agent(agent, checkpoints)
    assert await load_agent("me", CLERK, checkpoints) == (agent, 1)
    agent = thread.append(agent, entry("c"))
    await save_agent(agent, checkpoints)
    assert await load_agent("me", CLERK, checkpoints) == (agent, 2)


async def test_an_agent_may_begin_another_thread(checkpoints: CheckpointStore) -> None:
    """Each thread has a journal of its own, and the checkpoint says which counts."""
    first = clerk("a", "b")
    await save_agent(first, checkpoints)
    second = thread.put(first, Thread.new().append(entry("new")))
    await save_agent(second, checkpoints)
    assert await load_agent("me", CLERK, checkpoints) == (second, 2)
    await save_agent(thread.append(first, entry("c")), checkpoints)
    assert messages_of((await load_agent("me", CLERK, checkpoints))[0]) == ["a", "b", "c"]


async def test_agents_made_from_one_another_do_not_mix(checkpoints: CheckpointStore) -> None:
    """They share the id of their thread and what was said so far, and go on apart."""
    first = clerk("a")
    second = first.replace(id="you")
    await save_agent(first, checkpoints)
    await save_agent(second, checkpoints)
    await save_agent(thread.append(first, entry("to me")), checkpoints)
    await save_agent(thread.append(second, entry("to you")), checkpoints)
    assert messages_of((await load_agent("me", CLERK, checkpoints))[0]) == ["a", "to me"]
    assert messages_of((await load_agent("you", CLERK, checkpoints))[0]) == ["a", "to you"]


async def test_an_agent_that_is_deleted_is_gone_with_its_journals(checkpoints: Any) -> None:
    """Others stay, and a new one of the same id begins anew, even with the same thread."""
    assert all(
        isinstance(checkpoints, kind)
        for kind in (CheckpointStore, SupportsCheckpointDelete, SupportsCheckpointList)
    )
    assert await checkpoints.delete("me") is False
    for id in ("me", "you", "him"):
        await save_agent(clerk("a", id=id), checkpoints)
    agent = thread.append(clerk("a"), [entry("b")])
    await save_agent(agent.replace(id="her"), checkpoints)
    assert await checkpoints.ids() == ["her", "him", "me", "you"]
    assert await checkpoints.delete("her") is True
    assert await checkpoints.delete("her") is False
    assert (await checkpoints.read_thread("her", thread.of(agent).id)).entries == ()
    assert await checkpoints.ids() == ["him", "me", "you"]
    assert messages_of((await load_agent("you", CLERK, checkpoints))[0]) == ["a"]
    assert await save_agent(agent.replace(id="her"), checkpoints, expected_rev=0) == 1
    assert messages_of((await load_agent("her", CLERK, checkpoints))[0]) == ["a", "b"]


async def test_a_checkpoint_store_lists_more_agents_than_fit_on_a_page(checkpoints: Any) -> None:
    """All of them, in order."""
    names = [f"a{n:03}" for n in range(230)]
    for name in names[::-1]:
        await save_agent(Agent.new(CLERK, id=name), checkpoints)
    assert await checkpoints.ids() == names


class Shelf(Plugin):
    """Keeps its slice on a shelf; two others drop and keep theirs."""

    name = "shelf"
    books: ClassVar[dict[str, Any]] = {}

    def mount(self, agent: Agent, config: Any) -> dict[str, Any]:
        """A shelf has books."""
        return {"books": ["A"]}

    def on_checkpoint(self, state: Any, ctx: Context) -> Externalize:
        """Put the books away."""
        self.books[ctx.agent.id] = state
        return Externalize(key="books", pointer={"shelf": ctx.agent.id})

    def on_restore(self, pointer: Any, ctx: Context) -> Any:
        """Fetch the books."""
        return self.books.get(pointer["shelf"])


class Cache(Plugin):
    """Drops its slice, and writes to the thread when it is mounted."""

    name = "cache"

    def mount(self, agent: Agent, config: Any) -> Any:
        """Begin with nothing, and say so."""
        return thread.append(agent, entry("mounted")), {"hits": 0}

    def on_checkpoint(self, state: Any, ctx: Context) -> Any:
        """It is made again."""
        return "drop"


class Notes(Plugin):
    """Keeps its slice where it is."""

    name = "notes"

    def mount(self, agent: Agent, config: Any) -> dict[str, Any]:
        """One note."""
        return {"lines": ["A"]}


async def test_each_plugin_decides_what_becomes_of_its_slice(checkpoints: Any) -> None:
    """Kept, brought back by its pointer, or mounted anew, which sees the thread and may write to it."""
    agent = Agent.new("reader", id="me", plugins=[Shelf, Cache, Notes], state={"own": 1})
    await save_agent(agent, checkpoints)
    kept = (await checkpoints.load("me")).checkpoint
    assert sorted(kept.state) == ["notes", "own"]
    assert kept.externalized["books"] == {"shelf": "me"}
    again, _ = await load_agent("me", agent.definition, checkpoints)
    assert messages_of(again) == ["mounted", "mounted"]
    assert thread.put(again, thread.of(agent)) == agent
    Shelf.books.clear()
    with pytest.raises(RestoreFailed, match="'shelf'"):
        await load_agent("me", agent.definition, checkpoints)


async def test_a_plugin_that_fails_leaves_the_checkpoint_store_as_it_was(
    checkpoints: CheckpointStore,
) -> None:
    """Nothing is written where one cannot say what becomes of its slice."""

    class Unsure(Notes):
        def on_checkpoint(self, state: Any, ctx: Context) -> Any:
            raise OSError("no shelf")

    await save_agent(clerk("a"), checkpoints)
    unsure = thread.append(Agent.new("clerk", id="me", plugins=[Unsure]), entry("b"))
    watched = RecordingCheckpointStore(checkpoints)
    with pytest.raises(CheckpointFailed, match=r"notes.*no shelf"):
        await save_agent(unsure, watched)
    assert watched.steps == []
    assert messages_of((await load_agent("me", CLERK, checkpoints))[0]) == ["a"]


async def test_an_older_agent_is_migrated_when_it_is_taken_up(checkpoints: CheckpointStore) -> None:
    """With its thread, and the newer state is what is put aside next."""
    agent = clerk("a").replace(state=clerk("a").state.set("n", 1))
    await save_agent(agent, checkpoints)
    newer = Definition.new("clerk", version=2, migrate=lambda state, version: {**state, "n": 2})
    again, rev = await load_agent("me", newer, checkpoints)
    assert (again.state["n"], messages_of(again)) == (2, ["a"])
    await save_agent(again, checkpoints, expected_rev=rev)
    assert (await load_agent("me", newer, checkpoints))[0] == again
    with pytest.raises(RestoreFailed, match="version 2"):
        await load_agent("me", CLERK, checkpoints)


async def test_an_agent_of_another_kind_is_refused(checkpoints: CheckpointStore) -> None:
    """And stays where it is."""
    await save_agent(clerk("a"), checkpoints)
    with pytest.raises(RestoreFailed, match="'clerk'"):
        await load_agent("me", Definition.new("cook"), checkpoints)
    assert messages_of((await load_agent("me", CLERK, checkpoints))[0]) == ["a"]


@pytest.mark.parametrize(
    ("entries", "problem"),
    [([], "missing_thread"), (["a"], "thread_history_truncated"), (["a", "x"], "thread_mismatch")],
)
async def test_a_journal_that_is_not_the_one_put_aside_fails_the_whole(
    entries: list[str], problem: str
) -> None:
    """No agent comes back with a part of its past missing or changed."""
    checkpoints, agent = DictCheckpointStore(), clerk("a", "b")
    await save_agent(agent, checkpoints)
    [(place, journal)] = checkpoints.journals.items()
    other = Thread(id=place[1]).append([entry(text) for text in entries])
    checkpoints.journals[place] = msgspec.structs.replace(journal, entries=tuple(other.entries))
    with pytest.raises(RestoreFailed) as raised:
        await load_agent("me", CLERK, checkpoints)
    assert raised.value.reason.startswith(problem)


async def test_a_journal_that_was_lost_is_written_again_while_the_agent_lives() -> None:
    """What is still known is not refused because of it; what says something else is."""
    checkpoints, agent = DictCheckpointStore(), clerk("a", "b")
    await save_agent(agent, checkpoints)
    agent = thread.append(agent, entry("c"))
    [(place, journal)] = checkpoints.journals.items()
    other = Thread(id=place[1]).append([entry("x"), entry("b")])
    checkpoints.journals[place] = msgspec.structs.replace(journal, entries=tuple(other.entries), rev=9)
    with pytest.raises(CheckpointFailed, match="thread_mismatch"):
        await save_agent(agent, checkpoints)
    del checkpoints.journals[place]
    await save_agent(agent, checkpoints)
    assert await load_agent("me", CLERK, checkpoints) == (agent, 2)


async def test_a_checkpoint_saved_without_a_journal_takes_what_the_pointer_says() -> None:
    """As the first version of checkpoints did, whose threads were written by others."""
    checkpoints, agent = DictCheckpointStore(), clerk("a", "b")
    log = thread.of(agent)
    saved = checkpoint(agent).replace(version=1)
    await checkpoints.append_thread("me", log.id, [*log.entries], expected_rev=0)
    await checkpoints.save("me", saved, expected_rev=0)
    again, rev = await load_agent("me", CLERK, checkpoints)
    assert (messages_of(again), rev) == (["a", "b"], 0)
    await save_agent(thread.append(again, entry("c")), checkpoints, expected_rev=0)
    assert messages_of((await load_agent("me", CLERK, checkpoints))[0]) == ["a", "b", "c"]
    await checkpoints.save(
        "you", Checkpoint(id="you", name="clerk", thread={"id": "t", "rev": 0}), expected_rev=0
    )
    assert thread.of((await load_agent("you", CLERK, checkpoints))[0]).id == "t"


@pytest.mark.parametrize(
    "journal", [{"count": "many"}, {"other": 1}, {"count": 1, "created_at": 0, "updated_at": -1}]
)
async def test_a_note_about_the_journal_that_makes_no_sense_is_a_typed_error(journal: Any) -> None:
    """And no agent comes of it."""
    checkpoints = DictCheckpointStore()
    saved = Checkpoint(id="me", name="clerk", thread={"id": "t", "rev": 1}, journal=journal)
    await checkpoints.save("me", saved, expected_rev=0)
    with pytest.raises(RestoreFailed, match="its journal"):
        await load_agent("me", CLERK, checkpoints)


async def test_a_checkpoint_in_the_place_of_another_is_refused() -> None:
    """Whoever is asked for is who comes, or nobody."""
    checkpoints = DictCheckpointStore()
    await checkpoints.save("me", Checkpoint(id="you", name="clerk"), expected_rev=0)
    with pytest.raises(RestoreFailed, match="'you'"):
        await load_agent("me", CLERK, checkpoints)


async def test_each_argument_is_checked(checkpoints: CheckpointStore) -> None:
    """Before anything is asked of the checkpoint store."""
    for attempt in (
        save_agent(cast("Agent", "me"), checkpoints),
        save_agent(clerk(), cast("CheckpointStore", {})),
        load_agent("me", CLERK, cast("CheckpointStore", None)),
        load_agent("", CLERK, checkpoints),
    ):
        with pytest.raises(Invalid):
            await attempt
    await save_agent(clerk(), checkpoints)
    with pytest.raises(WrongType, match="definition"):
        await load_agent("me", cast("Definition", "clerk"), checkpoints)
    with pytest.raises(Invalid, match="cannot store checkpoints"):
        DocumentCheckpointStore("memory://")


async def test_erasing_an_agent_takes_what_was_put_aside_with_it() -> None:
    """Checkpoint and journal belong to the agent; another's, and another namespace's, stay."""
    async with open_store("memory://", embedder="none") as store:
        here, there = DocumentCheckpointStore(store), DocumentCheckpointStore(store, namespace="there")
        for checkpoints, id in ((here, "me"), (here, "you"), (there, "me")):
            await save_agent(clerk(f"to {id}", id=id), checkpoints)
        receipt = await store.erase(Scope(agent_id="me"))
        assert receipt.documents == 2
        with pytest.raises(NotFound):
            await load_agent("me", CLERK, here)
        assert messages_of((await load_agent("you", CLERK, here))[0]) == ["to you"]
        assert messages_of((await load_agent("me", CLERK, there))[0]) == ["to me"]
        assert (await here.ids(), await there.ids()) == (["you"], ["me"])


async def test_the_agents_of_a_user_are_their_own() -> None:
    """The same id is another agent for each user and for none, is listed for its own, and erased with it."""
    async with open_store("memory://", embedder="none") as store:
        owners = {user: DocumentCheckpointStore(store, user_id=user) for user in (None, "ann", "ben@home")}
        for user, checkpoints in owners.items():
            await save_agent(clerk(f"to {user}"), checkpoints)
        await save_agent(clerk(id="x" * 512), owners["ann"])
        for user, checkpoints in owners.items():
            agent, rev = await load_agent("me", CLERK, checkpoints)
            assert (messages_of(agent), rev) == ([f"to {user}"], 1)
        assert await owners[None].ids() == await owners["ben@home"].ids() == ["me"]
        assert sorted(await owners["ann"].ids()) == ["me", "x" * 512]
        assert await owners["ann"].delete("me") is True
        assert messages_of((await load_agent("me", CLERK, owners[None]))[0]) == ["to None"]
        receipt = await erase_user(store, "ben@home")
        assert receipt.documents == 2
        assert await owners["ben@home"].ids() == []
        assert await owners[None].ids() == ["me"]


async def test_deleting_an_agent_from_a_store_leaves_its_memories_and_sessions() -> None:
    """They are erased by erasing, which is another thing."""
    async with open_store("memory://", embedder="none") as store:
        await remember(store, "Ada likes tea.", Scope(agent_id="me"))
        agent = clerk("a")
        transcript = Document(kind="thread", id=thread.of(agent).id, agent_id="me", session_id="s", body=1)
        await store.save(transcript.replace(log=("Hello",)))
        checkpoints = DocumentCheckpointStore(store)
        await save_agent(agent, checkpoints)
        assert await checkpoints.delete("me") is True
        assert len(await store.list_entries(Scope(agent_id="me"))) == 1
        kept = await store.load("thread", transcript.id, Scope(agent_id="me"))
        assert kept is not None
        assert (kept.body, kept.log, kept.rev) == (1, ("Hello",), 1)
