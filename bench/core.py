"""What do the operations on an agent's mind cost, and does that depend on its size?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random
from typing import Any

import msgspec
from immutables import Map
from pyrsistent import pmap, pvector

from bench.measure import Report, Work, shown, side_by_side
from omoide import Agent, Context, Memory, Space, Thread, action, memory
from omoide.core import FrozenMap
from omoide.core.maps import MAX_DICT, delete_item, pack, set_item

SEED = 20110311

PUT_BOUND = 2.25  # five copies and an object made in Python, beside a few nodes made in C
GET_BOUND = 4  # beyond `MAX_DICT` keys: a call in Python takes longer than the whole lookup does in C


def run(report: Report, *, full: bool) -> None:
    """All tables of the functional core; with `full`, beside what others would do."""
    put_in_space(report, peers=full)
    for size in (10, 1_000, 100_000, 1_000_000):
        maps(report, size)
    for size in (1_000, 100_000, 1_000_000):
        lists(report, size, peers=full)
    threads(report)
    commands(report)


def put_in_space(report: Report, *, peers: bool) -> None:
    """One key put into a map space of three sizes, against a dict copy and against its bare parts."""
    report.title("put_in_space: one key of a map space")
    times = {}
    for size in (1_000, 100_000, 1_000_000):
        data = {f"key-{at}": at for at in range(size)}
        agent = memory.put_space(Agent.new("bench"), "facts", Space(data=data))
        keys = cycle([f"key-{at}" for at in Random(SEED).sample(range(size), 1_000)])
        times[size] = got = side_by_side(_putting(agent, data, keys, peers))
        beside = ", ".join(f"{name} {shown(ns)}" for name, ns in got.items() if name != "put")
        report.row(f"{size:>9,} keys", got["put"], beside)
    at = times[100_000]
    report.goal("growth from 1 k to 1 M keys", times[1_000_000]["put"] / times[1_000]["put"], 3, at_most=True)
    report.goal("faster than copying a dict, 100 k", at["dict copy"] / at["put"], 150, at_most=False)
    report.goal("of the bare parts, 100 k", at["put"] / at["bare parts"], 4, at_most=True)


def _putting(agent: Agent, data: dict[str, int], keys: Iterator[str], peers: bool) -> dict[str, Work]:
    put, key = memory.put_in_space, keys.__next__  # looked up once, so that only the work itself is measured
    contenders: dict[str, Work] = {
        "put": lambda: put(agent, "facts", key(), 7),
        "bare parts": _bare_parts(agent, key),
        "dict copy": lambda: {**data, key(): 7},
    }
    if peers:
        persistent = pmap(data)
        contenders["pyrsistent, bare"] = lambda: persistent.set(key(), 7)
    return contenders


class _Space(msgspec.Struct, frozen=True, kw_only=True):
    data: object
    rev: int
    metadata: object
    max_items: object
    max_item_bytes: object


class _Memory(msgspec.Struct, frozen=True, kw_only=True):
    rev: int
    created_at: int
    updated_at: int
    id: str
    spaces: object
    metadata: object


class _Agent(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str
    state: object
    definition: object


def _bare_parts(agent: Agent, key: Callable[[], str]) -> Work:
    """One Map.set and the three structs, unchecked: nothing could do with less."""
    found = memory.of(agent)
    data: Map[str, Any] = Map(dict(found.spaces["facts"].data))
    held = found.spaces

    def work() -> object:
        changed = data.set(key(), 7)
        space = _Space(data=changed, rev=1, metadata=held, max_items=None, max_item_bytes=None)
        mind = _Memory(rev=1, created_at=0, updated_at=0, id="m", spaces=space, metadata=held)
        return _Agent(id="a", name="bench", description="", state=mind, definition=None)

    return work


def maps(report: Report, size: int) -> None:
    """Keys put into, read from and deleted from a map, beside the same in a HAMT written in C."""
    report.title(f"map of {size:,} keys, beside immutables.Map")
    data = {f"key-{at}": at for at in range(size)}
    keys = cycle([f"key-{at}" for at in Random(SEED).sample(range(size), min(size, 1_000))])
    key = keys.__next__
    ours, theirs = pack(data), Map(data)
    frozen = FrozenMap(data)
    got = side_by_side(
        {
            "key": key,
            "put": lambda: set_item(ours, key(), 7),
            "put, immutables": lambda: theirs.set(key(), 7),
            "get": lambda: ours.get(key()),
            "get from a FrozenMap": lambda: frozen.get(key()),
            "get, immutables": lambda: theirs.get(key()),
            "delete": lambda: delete_item(ours, key()),
            "delete, immutables": lambda: theirs.delete(key()),
            "new key": lambda: set_item(ours, "another", 7),
            "new key, immutables": lambda: theirs.set("another", 7),
        }
    )
    bare = {name: ns - got["key"] * ("new" not in name) for name, ns in got.items() if name != "key"}
    for name, ns in bare.items():
        report.row(name, ns)
    report.goal("put, of that of immutables", bare["put"] / bare["put, immutables"], PUT_BOUND, at_most=True)
    bound = GET_BOUND if size > MAX_DICT else 2
    report.goal("get, of that of immutables", bare["get"] / bare["get, immutables"], bound, at_most=True)


def lists(report: Report, size: int, *, peers: bool) -> None:
    """Append, update, remove by id and insert in a list space, against copying the list."""
    report.title(f"list space of {size:,} items")
    items = [{"id": f"item-{at}", "n": at} for at in range(size)]
    agent = memory.put_space(Agent.new("bench"), "log", Space(data=items))
    memory.remove_from_space(agent, "log", "item-0")  # the index by id is built at the first search
    plain = [*memory.of(agent).spaces["log"].data]
    names = cycle([f"item-{at}" for at in Random(SEED).sample(range(size), 1_000)])
    item = FrozenMap({"id": "new", "n": 0})
    middle = size // 2
    contenders: dict[str, Work] = {
        "append": lambda: memory.append_to_space(agent, "log", item),
        "update by id": lambda: memory.update_in_space(agent, "log", next(names), _touched),
        "remove by id": lambda: memory.remove_from_space(agent, "log", next(names)),
        "insert in the middle": lambda: memory.insert_in_space(agent, "log", middle, item),
        "list copy": plain.copy,
    }
    if peers:
        vector = pvector(plain)
        contenders["pyrsistent, bare: append"] = lambda: vector.append(item)
        contenders["pyrsistent, bare: set by position"] = lambda: vector.set(middle, item)
        contenders["pyrsistent, bare: delete in the middle"] = lambda: vector.delete(middle)
    got = side_by_side(contenders)
    for name, ns in got.items():
        report.row(name, ns, f"{got['list copy'] / ns:.3g}× as fast as a list copy")
    if size == 100_000:
        for name, bound in (("append", 20), ("update by id", 15)):
            ratio = got["list copy"] / got[name]
            report.goal(f"{name}: faster than a list copy", ratio, bound, at_most=False)


def _touched(item: Any) -> Any:
    return item.set("n", 1)


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
