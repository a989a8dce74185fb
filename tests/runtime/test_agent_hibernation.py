"""A running agent is hibernated whole, and thawed as exactly the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    GatedCheckpointStore,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    note_data,
    server_of,
    sig,
    to_plain,
    wait_until_gone,
)

from omoide import Agent, Checkpoint, Context, Plugin, Signal, action, identity, memory, thread
from omoide.directives import Emit, Stop
from omoide.errors import Conflict, Dropped, IdTaken, Invalid, MissingStore, NotFound, OmoideError, TimedOut
from omoide.runtime import FileCheckpointStore, Runtime
from omoide.strategy import Direct
from omoide.testing import eventually


def says(ctx: Context) -> Any:
    """Keep a message in the thread."""
    assert ctx.signal is not None
    return ctx.thread.append({"kind": "message", "payload": {"content": ctx.signal.data}})


def messages_of(agent: Any) -> list[Any]:
    """What the messages in its thread say."""
    entries = thread.of(agent).entries
    return [entry.payload["content"] for entry in entries if entry.kind == "message"]


def a_talker(**more: Any) -> Any:
    """An agent with a thread, a memory and an identity."""
    agent = an_agent("a", {"say": says, "up": count_signals, "crash": crash, **more}, kind="talker")
    return identity.ensure(memory.world_put(agent, "mood", "calm"), profile={"age": 3})


async def test_an_agent_that_slept_is_the_one_it_was(checkpoints: GatedCheckpointStore) -> None:
    """State, memory, identity and every entry of its thread, in another runtime, by kind or by its name."""
    agent = a_talker()
    kind = agent.definition
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(agent)
        for number in range(3):
            await runtime.cast("a", sig("say", f"word {number}"))
        before = await runtime.call("a", sig("up"))
        await runtime.hibernate("a")
        assert runtime.ids() == []
    for wanted in (kind, "talker"):
        async with Runtime(checkpoint_store=checkpoints, kinds=[kind]) as runtime:
            assert await runtime.thaw("a", wanted) == "a"
            after = await runtime.state("a")
            assert after == before
            assert messages_of(after) == ["word 0", "word 1", "word 2"]
            assert (await runtime.call("a", sig("up"))).state["count"] == 2


async def test_what_was_accepted_is_handled_before_the_agent_sleeps(
    checkpoints: GatedCheckpointStore,
) -> None:
    """With all its effects."""
    done = SignalRecorder()
    agent = a_talker(go=action_returning(Emit(signal=sig("done"))), done=done)
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(agent)
        for _ in range(40):
            await runtime.cast("a", sig("go"))
        await runtime.hibernate("a")
        assert len(done) == 40
        assert len(runtime.dropped_signals) == 0


async def test_sleeping_again_and_again_doubles_nothing(checkpoints: GatedCheckpointStore) -> None:
    """Only what is missing in the journal is written; the checkpoint holds a pointer and no thread."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker())
        for number in range(4):
            await runtime.call("a", sig("say", number))
            await runtime.hibernate("a")
            await runtime.thaw("a", a_talker().definition)
        await runtime.checkpoint("a")
        await runtime.checkpoint("a")
        awake = await runtime.state("a")
        assert messages_of(awake) == [*range(4)]
    kept = await checkpoints.checkpoints.load("a")
    assert isinstance(kept.checkpoint, Checkpoint)
    assert "__thread__" not in kept.checkpoint.state
    assert kept.checkpoint.thread is not None
    journal = await checkpoints.checkpoints.read_thread("a", kept.checkpoint.thread["id"])
    assert [*journal.entries] == [*thread.of(awake).entries]


async def test_a_checkpoint_holds_all_that_was_accepted_before_it(checkpoints: GatedCheckpointStore) -> None:
    """And the agent goes on living."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker())
        for _ in range(30):
            await runtime.cast("a", sig("up"))
        saved = await runtime.checkpoint("a")
        assert saved.state["count"] == 30
        assert (await runtime.call("a", sig("up"))).state["count"] == 31


async def test_who_waits_for_the_checkpoint_of_an_agent_that_ends_is_told(
    checkpoints: GatedCheckpointStore,
) -> None:
    """It ended before it came to that."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker(end=action_returning(Stop())))
        await runtime.cast("a", sig("end"))
        with anyio.fail_after(5), pytest.raises(Dropped, match=r"checkpoint.*ended"):
            await runtime.checkpoint("a")


@pytest.mark.parametrize("failure", ["load", "read_thread"])
async def test_what_cannot_be_taken_up_never_becomes_a_fresh_agent(
    failure: str, checkpoints: GatedCheckpointStore
) -> None:
    """Nobody lives under the id then; and one that was never put to rest is simply not found."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        with pytest.raises(NotFound):
            await runtime.thaw("a", a_talker().definition)
        await runtime.start(a_talker())
        await runtime.call("a", sig("say", "hello"))
        await runtime.hibernate("a")
        checkpoints.fails[failure] = OSError("no disk")
        with pytest.raises((OmoideError, OSError)) as caught:
            await runtime.thaw("a", a_talker().definition)
        assert not isinstance(caught.value, NotFound)
        assert runtime.ids() == []
        checkpoints.fails.clear()
        await runtime.thaw("a", a_talker().definition)
        assert messages_of(await runtime.state("a")) == ["hello"]


async def test_who_is_awake_cannot_be_woken(checkpoints: GatedCheckpointStore) -> None:
    """Nor can something be woken that is no kind of agent, or one without a place to sleep."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker())
        await runtime.checkpoint("a")
        with pytest.raises(IdTaken):
            await runtime.thaw("a", a_talker().definition)
        for wrong in ("unknown", 7):
            with pytest.raises((NotFound, Invalid)):
                await runtime.thaw("b", wrong)  # type: ignore[arg-type]
    async with Runtime() as runtime:
        await runtime.start(a_talker())
        for rest in (runtime.hibernate, runtime.checkpoint):
            with pytest.raises(MissingStore):
                await rest("a")
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


# When it cannot be saved


async def test_an_agent_that_cannot_be_saved_lives_on(
    checkpoints: GatedCheckpointStore, errors: ErrorRecorder
) -> None:
    """Whoever wanted it to sleep is told why; it takes signals again, and can sleep later."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker(), on_error=errors)
        await runtime.call("a", sig("up"))
        checkpoints.fails["save"] = OSError("no disk")
        with pytest.raises(OSError, match="no disk"):
            await runtime.hibernate("a")
        assert [one.context for one in errors] == ["checkpoint"]
        assert (await runtime.call("a", sig("up"))).state["count"] == 2
        with pytest.raises(OSError, match="no disk"):
            await runtime.checkpoint("a")
        checkpoints.fails.clear()
        await runtime.hibernate("a")
        await runtime.thaw("a", a_talker().definition)
        assert (await runtime.state("a")).state["count"] == 2


async def test_sleep_that_takes_too_long_is_given_up(checkpoints: GatedCheckpointStore) -> None:
    """The agent lives on, also if the checkpoint store fails later on, and can be put to sleep again."""
    checkpoints.gate = anyio.Event()
    checkpoints.fails["save"] = OSError("no disk")
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker())
        await runtime.call("a", sig("up"))
        with pytest.raises(TimedOut, match="hibernating"):
            await runtime.hibernate("a", timeout=0.01)
        checkpoints.gate.set()
        assert (await runtime.call("a", sig("up"))).state["count"] == 2
        checkpoints.fails.clear()
        await runtime.hibernate("a")
        await runtime.thaw("a", a_talker().definition)
        assert (await runtime.state("a")).state["count"] == 2


async def test_a_checkpoint_that_comes_after_all_ends_nobody(checkpoints: GatedCheckpointStore) -> None:
    """Sleep was given up by then: the agent handles what it has accepted since."""
    checkpoints.gate = anyio.Event()
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker())
        with pytest.raises(TimedOut):
            await runtime.hibernate("a", timeout=0.01)
        await runtime.cast("a", sig("up"))
        checkpoints.gate.set()
        assert (await runtime.call("a", sig("up"))).state["count"] == 2
        await anyio.wait_all_tasks_blocked()
        assert runtime.ids() == ["a"]


async def test_an_agent_that_lives_on_does_what_it_asks_for(checkpoints: GatedCheckpointStore) -> None:
    """What held it up is given up; what waited behind it, and what comes later, is carried out."""
    sent: list[str] = []

    async def send(signal: Signal, config: Any) -> None:
        if signal.type == "stuck":
            await anyio.sleep_forever()
        sent.append(signal.type)

    def asking(*types: str) -> Any:
        return action_returning(*(Emit(signal=sig(type), dispatch={"out": True}) for type in types))

    async with Runtime(checkpoint_store=checkpoints, dispatchers={"out": send}) as runtime:
        await runtime.start(a_talker(first=asking("stuck", "behind"), second=asking("later")))
        await runtime.call("a", sig("first"))
        with pytest.raises(TimedOut):
            await runtime.hibernate("a", timeout=0.01)
        await runtime.call("a", sig("second"))
        await eventually(lambda: sent == ["behind", "later"])


async def test_a_policy_may_end_an_agent_that_cannot_be_saved(checkpoints: GatedCheckpointStore) -> None:
    """It ends at once, and does not wait for another signal to notice."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker(), on_error="stop", restart="temporary")
        checkpoints.fails["save"] = OSError("no disk")
        with pytest.raises(OSError, match="no disk"):
            await runtime.hibernate("a")
        await wait_until_gone(runtime, "a")
        assert runtime.ids() == []


async def test_an_agent_that_cannot_live_on_is_started_again(checkpoints: GatedCheckpointStore) -> None:
    """Where its strategy fails just then, that is a crash of its own, and nothing for who gave up waiting."""
    checkpoints.gate = anyio.Event()
    strategy = Failing()
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(an_agent("a", {"up": count_signals}, strategy=strategy))
        await runtime.call("a", sig("up"))
        strategy.next_fails = True
        with pytest.raises(TimedOut):
            await runtime.hibernate("a", timeout=0.01)
        checkpoints.gate.set()
        assert "count" in (await runtime.call("a", sig("up"))).state
        assert len(server_of(runtime).restart_times) == 1


class Failing(Direct):
    """A strategy that cannot begin where a test says so."""

    next_fails = False

    def init(self, agent: Agent, ctx: Context) -> Any:
        """Fail once."""
        if self.next_fails:
            self.next_fails = False
            raise ValueError("not now")
        return agent, []


async def test_several_may_want_it_to_sleep(checkpoints: GatedCheckpointStore) -> None:
    """Each of them is answered."""
    checkpoints.gate = anyio.Event()
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker())
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(runtime.hibernate, "a")
                await checkpoints.entered.wait()
                await anyio.wait_all_tasks_blocked()
                checkpoints.gate.set()
        assert runtime.ids() == []


@pytest.mark.parametrize("restart", ["temporary", "transient"])
async def test_an_agent_that_crashes_on_its_way_to_sleep_leaves_nobody_waiting(
    restart: str, checkpoints: GatedCheckpointStore
) -> None:
    """Whoever waits is told that it ended; one that is started again is put to sleep then."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker(), restart=restart)
        await runtime.cast("a", sig("crash"))
        await runtime.cast("a", sig("up"))
        with anyio.fail_after(5):
            if restart == "temporary":
                with pytest.raises(Dropped):
                    await runtime.hibernate("a")
                with pytest.raises(NotFound):
                    await runtime.thaw("a", a_talker().definition)
            else:
                await runtime.hibernate("a")
                await runtime.thaw("a", a_talker().definition)
                assert (await runtime.state("a")).state["count"] == 1


# Saved by itself


@pytest.mark.parametrize("every", [1, 3])
async def test_an_agent_is_saved_after_so_many_signals(every: int, checkpoints: GatedCheckpointStore) -> None:
    """With 1, a call answers once that is done."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker(), save_every=every)
        for done in range(1, 7):
            await runtime.call("a", sig("up"))
            if every == 1:
                assert checkpoints.calls.count("save") == done
            await anyio.wait_all_tasks_blocked()
            assert checkpoints.calls.count("save") == done // every
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.thaw("a", a_talker().definition)
        assert (await runtime.state("a")).state["count"] == 6


async def test_a_call_that_could_not_be_saved_says_so(
    checkpoints: GatedCheckpointStore, errors: ErrorRecorder
) -> None:
    """With saving after each signal; the agent goes on, and the next one saves both."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(a_talker(), save_every=1, on_error=errors)
        checkpoints.fails["save"] = OSError("no disk")
        with pytest.raises(OSError, match="no disk"):
            await runtime.call("a", sig("up"))
        checkpoints.fails.clear()
        assert (await runtime.call("a", sig("up"))).state["count"] == 2
        assert [one.context for one in errors] == ["checkpoint"]


async def test_at_the_end_those_who_are_saved_by_themselves_are_saved(
    checkpoints: GatedCheckpointStore,
) -> None:
    """Also one that crashed on its way there, and also what its effects brought in the last moment."""

    @action(effectful=True)
    async def touch(ctx: Context) -> dict[str, Any]:
        return {"touched": True}

    agent = a_talker(touch=touch)
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(agent, save_every=100)
        await runtime.cast("a", sig("crash"))
        await runtime.cast("a", sig("up"))
        await runtime.cast("a", sig("touch"))
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.thaw("a", agent.definition)
        after = await runtime.state("a")
        assert (after.state["count"], after.state["touched"]) == (1, True)


async def test_a_folder_keeps_agents_as_well(tmp_path: Path) -> None:
    """Any checkpoint store does."""
    for expected in (1, 2):
        async with Runtime(checkpoint_store=FileCheckpointStore(tmp_path)) as runtime:
            if expected == 1:
                await runtime.start(a_talker())
            else:
                await runtime.thaw("a", a_talker().definition)
            assert (await runtime.call("a", sig("up"))).state["count"] == expected
            await runtime.call("a", sig("say", "hello"))
            await runtime.hibernate("a")
            await eventually(lambda: runtime.ids() == [])


async def test_a_plugin_that_fails_while_saving_is_told_and_ends_nothing(
    checkpoints: GatedCheckpointStore,
) -> None:
    """What a callback raises is an error of ours, and the agent lives on."""

    class Broken(Plugin):
        name = "broken"
        state_key = "broken"

        def mount(self, agent: Any, config: Any) -> Any:
            return {"on": True}

        def on_checkpoint(self, slice: Any, ctx: Any) -> Any:
            raise ValueError("not now")

    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(an_agent("a", {"up": count_signals}, plugins=[Broken]))
        with pytest.raises(OmoideError, match="broken"):
            await runtime.hibernate("a")
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        assert to_plain((await runtime.state("a")).state["broken"]) == {"on": True}


async def test_a_fresh_agent_does_not_overwrite_one_that_rests(
    checkpoints: GatedCheckpointStore, errors: ErrorRecorder
) -> None:
    """Who starts one of the same id is told so when it is saved, and the old one is still there."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(an_agent("a", {"note": note_data}))
        await runtime.call("a", sig("note", "precious"))
        await runtime.hibernate("a")
        await runtime.start(an_agent("a", {"note": note_data}), save_every=1, on_error=errors)
        with pytest.raises(Conflict):
            await runtime.call("a", sig("note", "other"))
        await runtime.stop("a")
        await runtime.thaw("a", an_agent("a", {"note": note_data}).definition)
        assert to_plain((await runtime.state("a")).state["noted"]) == ["precious"]
    assert {*errors.kinds} == {"Conflict"}
