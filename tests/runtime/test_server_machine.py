"""Every accepted signal comes to exactly one end, whatever happens around it.

Several senders talk to a few agents at the same time, while agents fail, crash, stop, tell each other, are
stopped, killed and started again. What must have become of each signal is worked out beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import anyio
from anyio.lowlevel import checkpoint
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.runtime_agents import an_agent, crash, fail, sig

from omoide import Agent, Context, Signal
from omoide.directives import Directive, Emit, Stop
from omoide.errors import Dropped, IdTaken, MailboxFull, NotRunning, Unrouted
from omoide.runtime import Runtime

AGENTS = ("ann", "bob", "cid")
HOWS = ("cast", "try", "call")


class Step(NamedTuple):
    """What a sender does next."""

    do: str
    agent: str
    what: str = "note"


def steps() -> st.SearchStrategy[Step]:
    """Mostly signals, of which most do no harm."""
    what = st.sampled_from(("note",) * 6 + ("fail", "crash", "stop", "quit", "tell", "unknown"))
    who = st.sampled_from(AGENTS)
    return st.one_of(
        st.builds(Step, st.sampled_from(HOWS), who, what),
        st.builds(Step, st.sampled_from(HOWS), who, what),
        st.builds(Step, st.sampled_from(("start", "stop", "kill", "pause")), who),
    )


TERMS = st.fixed_dictionaries(
    {
        "restart": st.sampled_from(("transient", "permanent", "temporary")),
        "max_restarts": st.sampled_from((0, 1, 100)),
        "mailbox": st.sampled_from((1, 2, 50)),
        "on_error": st.sampled_from(("log", "stop", "emit")),
    }
)


class World:
    """A runtime, and what its senders and agents saw."""

    def __init__(self, runtime: Runtime, terms: dict[str, Any]) -> None:
        self.runtime = runtime
        self.terms = terms
        self.handled: dict[str, list[str]] = {id: [] for id in AGENTS}
        self.accepted: list[str] = []
        self.refused: list[str] = []
        self.answered: list[str] = []
        self._numbers = count()

    def agent(self, id: str) -> Agent:
        """An agent that notes what it handled, outside of itself."""
        following = AGENTS[(AGENTS.index(id) + 1) % len(AGENTS)]

        def told(ctx: Context) -> list[Directive]:
            onward = sig("note", id=f"{ctx.signal and ctx.signal.id}/onward")
            return [Emit(signal=onward, dispatch={"to": following})]

        return an_agent(
            id,
            {
                "note": self._doing(id, lambda ctx: []),
                "fail": self._doing(id, fail),
                "crash": crash,
                "stop": self._doing(id, lambda ctx: [Stop()]),
                "quit": self._doing(id, lambda ctx: [Stop(reason="in a rage")]),
                "tell": self._doing(id, told),
                "jido.agent.error": lambda ctx: None,
            },
        )

    def _doing(self, id: str, then: Callable[[Context], Any]) -> Callable[[Context], Any]:
        def doing(ctx: Context) -> Any:
            assert ctx.signal is not None
            self.handled[id].append(ctx.signal.id)
            return None, then(ctx)

        return doing

    async def start(self, id: str) -> None:
        """Let an agent live, if it does not."""
        try:
            await self.runtime.start(self.agent(id), **self.terms)
        except IdTaken:
            assert self.runtime.whereis(id) is not None

    async def send(self, who: int, todo: Sequence[Step]) -> None:
        """Do as a sender does."""
        for do, id, what in todo:
            server = self.runtime.whereis(id)
            if do == "pause":
                await checkpoint()
            elif do == "start":
                await self.start(id)
            elif do == "kill" and server is not None:
                server.kill()
            elif do == "stop" and server is not None:
                await self._unless_gone(self.runtime.stop, id)
            elif do in HOWS:
                await self._tell(do, id, Signal(type=what, id=f"{who}:{next(self._numbers)}"))

    async def _unless_gone(self, verb: Callable[[str], Any], id: str) -> None:
        try:
            await verb(id)
        except NotRunning:
            assert self.runtime.whereis(id) is None

    async def _tell(self, how: str, id: str, signal: Signal) -> None:
        try:
            if how == "call":
                await self.runtime.call(id, signal)
                self.answered.append(signal.id)
            else:
                await self.runtime.cast(id, signal, wait=how == "cast")
            self.accepted.append(signal.id)
        except (NotRunning, MailboxFull):
            self.refused.append(signal.id)
        except Dropped:
            (drop,) = [one for one in self.runtime.dropped_signals if one.signal.id == signal.id]
            (self.accepted if drop.accepted else self.refused).append(signal.id)
        except Unrouted:
            self.accepted.append(signal.id)


async def run_steps(senders: Sequence[Sequence[Step]], terms: dict[str, Any]) -> World:
    """What there is to see once everybody is done."""
    async with Runtime(shutdown_timeout=5) as runtime:
        world = World(runtime, terms)
        for id in AGENTS:
            await world.start(id)
        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                for who, todo in enumerate(senders):
                    group.start_soon(world.send, who, todo)
    return world


def check(world: World, senders: Sequence[Sequence[Step]]) -> None:
    """Each signal came to one end."""
    handled = Counter(id for ids in world.handled.values() for id in ids)
    dropped = Counter(drop.signal.id for drop in world.runtime.dropped_signals if drop.accepted)
    turned_away = Counter(drop.signal.id for drop in world.runtime.dropped_signals if not drop.accepted)
    unknown = set(world.accepted) - set(handled) - set(dropped)
    assert max((handled + dropped).values(), default=1) == 1, "a signal came to two ends"
    assert not set(world.refused) & (set(handled) | set(dropped)), "one that was refused was handled"
    assert set(world.answered) <= set(handled), "a call was answered that nobody handled"
    assert set(turned_away) <= {*world.refused, *(id for id in turned_away if id.endswith("/onward"))}
    assert len(unknown) <= sum(step.what == "unknown" for todo in senders for step in todo)
    assert all(drop.reason for drop in world.runtime.dropped_signals)
    stats = world.runtime.stats()
    assert stats["accepted"] == stats["handled"] + sum(dropped.values()), "one is neither handled nor dropped"
    assert (stats["agents"], stats["waiting"]) == (0, 0)
    for ids in world.handled.values():
        for who in range(len(senders)):
            mine = [int(id.partition(":")[2]) for id in ids if id.startswith(f"{who}:") and "/" not in id]
            assert mine == sorted(mine), "signals of one sender changed their order"


@given(st.lists(st.lists(steps(), max_size=25), min_size=1, max_size=4), TERMS)
@example([[Step("cast", "ann", "crash"), Step("call", "ann")]], {"restart": "temporary"})
@example([[Step("cast", "ann", "quit"), Step("call", "ann")]], {"restart": "transient", "max_restarts": 0})
def test_every_accepted_signal_is_handled_once_in_order_or_reported(
    senders: list[list[Step]], terms: dict[str, Any]
) -> None:
    """While the process lives; and what was refused was never handled."""
    check(anyio.run(run_steps, senders, terms), senders)
