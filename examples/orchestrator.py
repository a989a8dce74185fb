"""An orchestrator that delegates work to child agents and handles their failures.

It starts three workers as its children. For each job the runtime finds who can do it best, and says why. One
worker crashes over a page and is started again; the job it lost is given to another when it is overdue. Then
that worker is sent home, and what comes next goes elsewhere. The orchestrator itself stays pure: `Assign` is
a directive of its own, with an executor that looks for the worker. Time is moved by hand. Run it with
`python examples/orchestrator.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import anyio

from omoide import Agent, Context, Definition, Memory, Plugin, Signal, action, identity, memory
from omoide.core import FrozenMap
from omoide.directives import Directive, Emit, Schedule, SpawnAgent, StopChild
from omoide.runtime import AgentServer, Runtime
from omoide.testing import ManualTiming

PATIENCE_MS = 5_000
PAGES = {"/start": 12, "/map": 900, "/news": 40, "/prices": 30, "/1999": 8}
"""How many kilobytes each page has."""


class Assign(Directive, frozen=True, kw_only=True):
    """Give a job to whoever can do it best, apart from one who had it before."""

    job: str
    page: str
    tag: str
    apart_from: str | None = None


class Office(NamedTuple):
    """The orchestrator at the end, its jobs, how often a worker was started again, who left, who is there."""

    orchestrator: Agent
    jobs: dict[str, Any]
    restarts: int
    left: list[str]
    shown: list[str]


# The workers


@action
def fetch_page(ctx: Context, job: str, page: str) -> tuple[None, list[Directive]]:
    """Fetch a page and tell the parent, or fail over one that is too large."""
    size, most = PAGES[page], ctx.state["fetch"]["max_kb"]
    if size > most:
        raise MemoryError(f"{page} has {size} kB, I take {most}")
    done = Signal(type="job.done", data={"job": job, "by": ctx.agent.id, "kb": size})
    return None, [Emit(signal=done, dispatch={"parent": True})]


class FetchPlugin(Plugin):
    """Lets an agent fetch pages, and says so in its identity."""

    name = "fetch"
    actions = (fetch_page,)
    requires = ("config:age", "config:tags", "config:max_kb")

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
        """Give the agent an identity that others can find it by."""
        capabilities = {"tags": config["tags"], "limits": {"max_kb": config["max_kb"]}}
        agent = identity.ensure(agent, profile={"age": config["age"]}, capabilities=capabilities)
        return {"max_kb": config["max_kb"]}, agent

    def router(self, config: FrozenMap[str, Any]) -> list[tuple[str, Any]]:
        """Jobs go to `fetch_page`."""
        return [("job.given", fetch_page)]


def worker(name: str, age: int, tags: list[str], max_kb: int) -> Definition:
    """A kind of worker."""
    return Definition.new(name, plugins=[(FetchPlugin, {"age": age, "tags": tags, "max_kb": max_kb})])


WORKERS = [
    worker("veteran", 7, ["web"], 100),
    worker("scout", 1, ["web"], 1_000),
    worker("archivist", 9, ["archive"], 100),
]


# The orchestrator


@action
def gather(ctx: Context) -> tuple[None, list[Directive]]:
    """Start a worker of each kind."""
    return None, [SpawnAgent(kind=kind.name, tag=kind.name, id=f"{kind.name}-1") for kind in WORKERS]


@action
def note_start(ctx: Context, tag: str, id: str) -> Memory:
    """Keep who is there."""
    return ctx.memory.put_in_space("team", tag, id)


@action
def note_exit(ctx: Context, tag: str, reason: str) -> Memory:
    """Keep who is gone."""
    left = [*ctx.memory.world_get("left", []), f"{tag}: {reason}"]
    return ctx.memory.delete_from_space("team", tag).world_put("left", left)


@action
def take_job(ctx: Context, job: str, page: str, tag: str) -> tuple[Memory, list[Directive]]:
    """Have a job given to somebody, and look at it again later."""
    kept = ctx.memory.put_in_space("jobs", job, {"page": page, "tag": tag, "status": "open"})
    return kept, [Assign(job=job, page=page, tag=tag), due(job)]


@action
def note_assigned(ctx: Context, job: str, to: str | None, reason: str) -> Memory:
    """Keep who has a job, or that nobody can do it."""
    status = "refused" if to is None else "given"
    return changed(ctx.memory, job, {"status": status, "to": to, "reason": reason})


@action
def note_done(ctx: Context, job: str, by: str, kb: int) -> Memory:
    """Keep what came of a job."""
    return changed(ctx.memory, job, {"status": "done", "by": by, "kb": kb})


@action
def check_job(ctx: Context, job: str) -> tuple[None, list[Directive]]:
    """Give a job to somebody else, if it was not done in time."""
    known = ctx.memory.get_in_space("jobs", job)
    if known["status"] != "given":
        return None, []
    again = Assign(job=job, page=known["page"], tag=known["tag"], apart_from=known["to"])
    return None, [again, due(job)]


@action
def send_home(ctx: Context, tag: str) -> tuple[None, list[Directive]]:
    """Let a worker finish, and go."""
    return None, [StopChild(tag=tag)]


@action
def note_capabilities(ctx: Context, agent_id: str) -> Memory:
    """Keep what another agent shows of itself."""
    told: Any = ctx.signal.data if ctx.signal else {}
    return ctx.memory.put_in_space("known", agent_id, told["capabilities"])


def due(job: str) -> Schedule:
    """That a job is to be looked at again."""
    return Schedule(delay_ms=PATIENCE_MS, message=Signal(type="job.due", data={"job": job}))


def changed(before: Memory, job: str, news: Mapping[str, Any]) -> Memory:
    """The memory with more about a job."""
    return before.put_in_space("jobs", job, before.get_in_space("jobs", job).update(news))


def orchestrator() -> Agent:
    """An agent with an empty office."""
    agent = Agent.new(
        "orchestrator",
        id="office",
        routes=[
            ("team.gather", gather),
            ("team.home", send_home),
            ("job.wanted", take_job),
            ("job.assigned", note_assigned),
            ("job.done", note_done),
            ("job.due", check_job),
            ("jido.agent.child.started", note_start),
            ("jido.agent.child.exit", note_exit),
            ("jido.identity.capabilities.response", note_capabilities),
        ],
    )
    for space in ("team", "jobs", "known"):
        agent = memory.ensure_space(agent, space, {})
    return agent


async def assign(wanted: Assign, server: AgentServer) -> None:
    """Carry out an `Assign`: find the worker, tell the orchestrator who it is, and send the job."""
    found = await server.runtime.find(action="fetch_page", tags=[wanted.tag])
    best = next((one for one in found if one.agent.id != wanted.apart_from), None)
    to, reason = (None, "nobody can do it") if best is None else (best.agent.id, best.reason)
    print(f"{wanted.job}: {reason}")
    server.enqueue(Signal(type="job.assigned", data={"job": wanted.job, "to": to, "reason": reason}))
    if to is not None:
        job = Signal(type="job.given", data={"job": wanted.job, "page": wanted.page})
        await server.runtime.cast(to, job)


async def work(timing: ManualTiming) -> Office:
    """A day at the office."""

    async def jobs(tag: str, **pages: str) -> None:
        for job, page in pages.items():
            await runtime.cast(office, Signal(type="job.wanted", data={"job": job, "page": page, "tag": tag}))
        await timing.advance(PATIENCE_MS)

    # A worker that fails is stopped by its policy and started again; the orchestrator goes on.
    terms = {"on_error": "stop", "restart": "transient"}
    async with Runtime(
        kinds=WORKERS, executors={Assign: assign}, timing=timing, agent_options=terms
    ) as runtime:
        office = await runtime.start(orchestrator(), on_error="log")
        await runtime.call(office, Signal(type="team.gather"))
        await timing.advance(0)
        print("the team:", runtime.ids()[1:])

        await jobs("web", home="/start", map="/map", news="/news")
        veteran = runtime.whereis("veteran-1")
        restarts = 0 if veteran is None else len(veteran.restart_times)
        print("the veteran was started again:", restarts)

        await runtime.call(office, Signal(type="team.home", data={"tag": "veteran"}))
        await timing.advance(0)
        await jobs("web", prices="/prices")
        await jobs("archive", old="/1999")
        await jobs("sea", fish="/start")

        ask = Signal(type="jido.identity.capabilities.request", data={"reply_to": office})
        await runtime.publish(ask)
        await timing.advance(0)
        agent = await runtime.state(office)
        done = memory.of(agent).spaces["jobs"].data.to_python()
        shown = sorted(memory.of(agent).spaces["known"].data)
        return Office(agent, done, restarts, [*memory.world_get(agent, "left", [])], shown)


def main() -> Office:
    """Let the office work, and tell what became of each job."""
    # The runtime writes down what goes wrong; here it goes wrong on purpose.
    logging.getLogger("omoide.runtime").addHandler(logging.NullHandler())
    office = anyio.run(work, ManualTiming())
    for job, known in office.jobs.items():
        by = f", by {known['by']}" if known["status"] == "done" else ""
        print(f"{job:<8} {known['status']}{by}")
    print("left:", office.left)
    print("answered who they are:", office.shown)
    return office


if __name__ == "__main__":
    main()
