"""What do the operations on an agent's mind cost, and does that depend on its size?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random
from typing import Any

import msgspec
from immutables import Map
from pyrsistent import pvector

from bench.measure import Report, side_by_side
from omoide import Agent, Context, Memory, Space, Thread, action, memory
from omoide.core.frozen import FrozenMap

SEED = 20110311


def run(report: Report, *, full: bool) -> None:
    """All tables of the functional core."""
    put_in_space(report)
    lists(report, sizes=(1_000, 100_000, 1_000_000) if full else (1_000, 100_000))
    threads(report)
    commands(report)


def put_in_space(report: Report) -> None:
    """One key put into a map space of three sizes, against a dict copy and against its bare parts."""
    report.title("put_in_space: one key of a map space")
    times = {}
    for size in (1_000, 100_000, 1_000_000):
        data = {f"key-{at}": at for at in range(size)}
        agent = memory.put_space(Agent.new("bench"), "facts", Space(data=data))
        keys = _cycle([f"key-{at}" for at in Random(SEED).sample(range(size), 1_000)])
        contenders: dict[str, Callable[[], object]] = {
            "put": lambda agent=agent, keys=keys: memory.put_in_space(agent, "facts", next(keys), 7),  # type: ignore[misc]
            "bare": _bare_parts(agent, keys),
        }
        if size <= 100_000:
            contenders["copy"] = lambda data=data, keys=keys: {**data, next(keys): 7}  # type: ignore[misc]
        times[size] = side_by_side(contenders)
        note = f"bare parts {times[size]['bare']:.0f} ns"
        if "copy" in times[size]:
            note += f", dict copy {times[size]['copy'] / 1e3:.1f} µs"
        report.row(f"{size:>9,} keys", times[size]["put"], note)
    at = times[100_000]
    report.goal("growth from 1 k to 1 M keys", times[1_000_000]["put"] / times[1_000]["put"], 3, at_most=True)
    report.goal("faster than copying a dict, 100 k", at["copy"] / at["put"], 200, at_most=False)
    report.goal("of the bare parts, 100 k", at["put"] / at["bare"], 3, at_most=True)


class _Space(msgspec.Struct, frozen=True):
    data: object
    rev: int
    metadata: object
    max_items: object
    max_item_bytes: object


class _Memory(msgspec.Struct, frozen=True):
    rev: int
    created_at: int
    updated_at: int
    id: str
    spaces: object
    metadata: object


class _Agent(msgspec.Struct, frozen=True):
    id: str
    name: str
    description: str
    state: object
    definition: object


def _bare_parts(agent: Agent, keys: Iterator[str]) -> Callable[[], object]:
    """One Map.set and the three structs, unchecked: nothing could do with less."""
    found = memory.get(agent)
    assert found is not None
    space = found.spaces["facts"]
    data: Map[str, Any] = Map(dict(space.data))
    spaces, state = found.spaces, agent.state

    def work() -> object:
        changed = data.set(next(keys), 7)
        _Space(changed, 1, spaces, None, None)
        _Memory(1, 0, 0, "m", spaces, state)
        return _Agent("a", "bench", "", state, None)

    return work


def lists(report: Report, sizes: tuple[int, ...]) -> None:
    """Append, update and remove by id in a list space, against copying the list."""
    for size in sizes:
        report.title(f"list space of {size:,} items")
        items = [{"id": f"item-{at}", "n": at} for at in range(size)]
        agent = memory.put_space(Agent.new("bench"), "log", Space(data=items))
        memory.remove_from_space(agent, "log", "item-0")  # the index by id is built at the first search
        plain = [FrozenMap(item) for item in items]
        persistent = pvector(plain)
        names = _cycle([f"item-{at}" for at in Random(SEED).sample(range(size), 1_000)])
        item = FrozenMap({"id": "new", "n": 0})

        def append(agent: Agent = agent, item: Any = item) -> object:
            return memory.append_to_space(agent, "log", item)

        def update(agent: Agent = agent, names: Iterator[str] = names) -> object:
            return memory.update_in_space(agent, "log", next(names), lambda old: old.set("n", 1))

        def remove(agent: Agent = agent, names: Iterator[str] = names) -> object:
            return memory.remove_from_space(agent, "log", next(names))

        def insert(agent: Agent = agent, item: Any = item, at: int = size // 2) -> object:
            return memory.insert_in_space(agent, "log", at, item)

        got = side_by_side(
            {
                "append": append,
                "update by id": update,
                "remove by id": remove,
                "insert in the middle": insert,
                "list copy": lambda plain=plain: plain.copy(),  # type: ignore[misc]
                "pyrsistent: append, bare": lambda p=persistent, item=item: p.append(item),  # type: ignore[misc]
                "pyrsistent: delete in the middle, bare": lambda p=persistent, at=size // 2: p.delete(at),  # type: ignore[misc]
            },
            rounds=5,
        )
        for name, ns in got.items():
            report.row(name, ns, f"{got['list copy'] / ns:.3g}× faster than a list copy")
        if size == 100_000:
            for name in ("append", "update by id"):
                report.goal(
                    f"{name}: faster than a list copy", got["list copy"] / got[name], 20, at_most=False
                )


def threads(report: Report) -> None:
    """Entries appended one by one: the cost of each must not grow with the log."""
    report.title("thread: entries appended one by one")

    def grown(count: int) -> Callable[[], object]:
        def work() -> object:
            thread = Thread(id="bench")
            for seq in range(count):
                thread = thread.append({"kind": "note", "id": "entry", "payload": {"n": seq}}, now=seq)
            return thread

        return work

    got = side_by_side({"10 k": grown(10_000), "100 k": grown(100_000)}, rounds=3)
    report.row("10 k entries in all", got["10 k"], f"{got['10 k'] / 10_000 / 1e3:.2f} µs each")
    report.row("100 k entries in all", got["100 k"], f"{got['100 k'] / 100_000 / 1e3:.2f} µs each")
    report.goal(
        "cost of an entry at 100 k, of that at 10 k", got["100 k"] / got["10 k"] / 10, 1.5, at_most=True
    )


@action
def observe(ctx: Context, temp: float, room: str = "hall") -> Memory:
    """Note a reading."""
    return ctx.memory.world_put(room, temp)


def commands(report: Report) -> None:
    """A whole command: parameters checked, action run, result merged, agent made."""
    report.title("cmd: parameters checked, action run, result merged")
    agent = Agent.new("bench", actions=[observe])
    tracked = Agent.new("bench", actions=[observe], state={"__thread__": Thread(id="bench")})
    params = {"temp": 21.5, "room": "lab"}
    got = side_by_side(
        {
            "cmd((action, params))": lambda: agent.cmd((observe, params)),
            "cmd by name": lambda: agent.cmd(("observe", params)),
            "cmd, bad parameter (an Error directive)": lambda: agent.cmd((observe, {"temp": "warm"})),
            "cmd, recorded in a thread": lambda: tracked.cmd((observe, params)),
            "the action alone, called directly": lambda: observe(Context(agent), **params),
        }
    )
    for name, ns in got.items():
        report.row(name, ns, f"{ns / got['the action alone, called directly']:.2f}× the action alone")


def _cycle(items: list[str]) -> Iterator[str]:
    return cycle(items)
