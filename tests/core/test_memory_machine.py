"""A memory behaves like dicts and lists under any sequence of operations."""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.support.strategies import data, keys, maps, scramble

from omoide import Agent, Memory, Space, clock, ids, memory
from omoide.errors import Conflict, NotFound, OmoideError, ReservedSpace, TooLarge, WrongSpaceType

NAMES = ("world", "tasks", "board", "rag:cache", "odd")
LIMIT = 3  # of the space "rag:cache", where it is made with one

names = st.sampled_from(NAMES)
item_ids = st.sampled_from(["a", "b", "c", "d"])
items = st.builds(lambda id, more: {**more, "id": id}, item_ids, maps) | data
contents = maps | st.lists(items, max_size=3) | st.just("text")
expectations = st.sampled_from(["nothing", "nothing", "right", "old container", "old space"])


Refusals = tuple[type[OmoideError], ...]


class Shape:
    """What a space should be: data, revision, and how many items it may hold."""

    def __init__(self, data: Any, rev: int = 0, limit: int | None = None) -> None:
        self.data, self.rev, self.limit = data, rev, limit


class MemoryMachine(RuleBasedStateMachine):
    """Every operation on a model, on a memory, and on an agent with the same memory."""

    @initialize(lazy=st.booleans())
    def begin(self, lazy: bool) -> None:
        self.clock = 1
        self.rev, self.updated_at = 0, 1
        self.model = {"world": Shape({}), "tasks": Shape([])}
        self.deleted: dict[str, int] = {}
        with clock.override(lambda: 1), ids.override(lambda prefix: f"{prefix}1"):
            self.memory = Memory.new()
            bare = Agent.new("tester", state={"own": 1})
            self.agent = bare if lazy else memory.ensure(bare)
        self.versions: list[tuple[Memory, Agent, bytes, bytes]] = []

    def attempt(
        self,
        operation: str,
        name: str,
        *args: Any,
        expect: str,
        refusals: Refusals = (),
        **options: Any,
    ) -> bool:
        """Do something to memory and agent; whether it was done, as it has to be unless refused."""
        given = copy.deepcopy(args)
        space = self.model.get(name)
        if expect != "nothing":
            options["expected_rev"] = self.rev - (expect == "old container")
            options["expected_space_rev"] = (space.rev if space else 0) - (expect == "old space")
        if expect.startswith("old"):
            refusals = (*refusals, Conflict)
        self.clock += 1
        # Half the changes are told the time and half ask the clock. A lazy agent gets its memory only when
        # told, so that it is as old as the other one.
        asks = self.clock % 2 == 0 and memory.has_memory(self.agent)
        moment, told = (self.clock, {}) if asks else (1, {"now": self.clock})
        done: list[Any] = []
        before = (self.memory.to_json(), self.agent.to_json())
        with clock.override(lambda: moment), ids.override(lambda prefix: f"{prefix}1"):
            for module, holder in ((Memory, self.memory), (memory, self.agent)):
                try:
                    done.append(getattr(module, operation)(holder, *args, **told, **options))
                except refusals as refusal:
                    done.append(type(refusal))
        assert args == given or any(callable(arg) for arg in args)
        for arg in args:
            scramble(arg)
        assert (self.memory.to_json(), self.agent.to_json()) == before
        if refusals:
            assert done[0] is done[1]
            return False
        self.versions.append((self.memory, self.agent, *before))
        self.memory, self.agent = done
        return True

    def changed(self, name: str, data: Any) -> None:
        """Note a change of a space in the model."""
        self.rev += 1
        self.updated_at = self.clock
        self.model[name].rev += 1
        self.model[name].data = copy.deepcopy(data)

    def refusals(self, name: str, kind: type, grown: Any = ()) -> Refusals:
        """Why an operation for this kind of space has to be refused, if the data would become `grown`."""
        space = self.model.get(name)
        if space is None:
            return (NotFound,)
        if type(space.data) is not kind:
            return (WrongSpaceType,)
        return (TooLarge,) if space.limit is not None and len(grown) > space.limit else ()

    def held(self, name: str, kind: type) -> Any:
        """The model's data of a space of this kind; empty where there is none."""
        space = self.model.get(name)
        return copy.deepcopy(space.data) if space and type(space.data) is kind else kind()

    # Spaces

    @rule(name=names, data=contents, expect=st.sampled_from(["nothing", "right", "old container"]))
    def ensure_space(self, name: str, data: Any, expect: str) -> None:
        options = {} if expect == "nothing" else {"expected_rev": self.rev - (expect != "right")}
        if name == "rag:cache":
            data, options = data[:LIMIT] if isinstance(data, list) else {}, {**options, "max_items": LIMIT}
        kept = copy.deepcopy(data)
        known = name in self.model
        wrong = (Conflict,) if expect == "old container" else ()
        if self.attempt("ensure_space", name, name, data, expect="nothing", refusals=wrong, **options):
            if known:
                return
            self.rev, self.updated_at = self.rev + 1, self.clock
            self.model[name] = Shape(kept, self.first_rev(name, 0), LIMIT if name == "rag:cache" else None)

    @rule(name=names, data=contents, rev=st.integers(0, 5), expect=expectations, alias=st.booleans())
    def put_space(self, name: str, data: Any, rev: int, expect: str, alias: bool) -> None:
        kind = {"world": dict, "tasks": list}.get(name, type(data))
        wrong = (ReservedSpace,) if type(data) is not kind else ()
        operation = "space_put" if alias else "put_space"
        new, kept = Space(data=data, rev=rev), copy.deepcopy(data)
        scramble(data)
        if self.attempt(operation, name, name, new, expect=expect, refusals=wrong):
            old = self.model.get(name)
            self.model[name] = Shape(
                kept, self.first_rev(name, rev) if old is None else max(rev, old.rev) + 1
            )
            self.rev, self.updated_at = self.rev + 1, self.clock

    @rule(name=names, data=contents, rev=st.integers(0, 5), expect=expectations)
    def update_space(self, name: str, data: Any, rev: int, expect: str) -> None:
        kind = {"world": dict, "tasks": list}.get(name, type(data))
        wrong: Refusals = (ReservedSpace,) if type(data) is not kind else ()
        if name not in self.model:
            wrong = (NotFound,)

        def change(old: Space) -> Space:
            assert old.data == self.model[name].data
            return Space(data=copy.deepcopy(data), rev=rev)

        if self.attempt("update_space", name, name, change, expect=expect, refusals=wrong):
            old = self.model[name]
            self.model[name] = Shape(data, max(rev, old.rev) + 1)
            self.rev, self.updated_at = self.rev + 1, self.clock

    @rule(name=names, expect=expectations, alias=st.booleans())
    def delete_space(self, name: str, expect: str, alias: bool) -> None:
        wrong = (ReservedSpace,) if name in ("world", "tasks") else ()
        operation = "space_delete" if alias else "delete_space"
        if self.attempt(operation, name, name, expect=expect, refusals=wrong):
            if name in self.model:
                self.deleted[name] = self.model.pop(name).rev
            self.rev, self.updated_at = self.rev + 1, self.clock

    def first_rev(self, name: str, given: int) -> int:
        """The revision of a space that is created: one that was deleted goes on from where it was."""
        return max(given, self.deleted.pop(name) + 1) if name in self.deleted else given

    # Maps

    @rule(name=names, key=keys, value=data, expect=expectations, short=st.booleans())
    def put_in_space(self, name: str, key: str, value: Any, expect: str, short: bool) -> None:
        after = {**self.held(name, dict), key: copy.deepcopy(value)}
        wrong = self.refusals(name, dict, after)
        operation, args = ("world_put", ()) if name == "world" and short else ("put_in_space", (name,))
        if self.attempt(operation, name, *args, key, value, expect=expect, refusals=wrong):
            self.changed(name, after)

    @rule(name=names, key=keys, known=st.booleans(), expect=expectations)
    def delete_from_space(self, name: str, key: str, known: bool, expect: str) -> None:
        after = self.held(name, dict)
        key = min(after) if known and after else key
        after.pop(key, None)
        wrong = self.refusals(name, dict)
        if self.attempt("delete_from_space", name, name, key, expect=expect, refusals=wrong):
            self.changed(name, after)

    @rule(name=names, more=maps, expect=expectations)
    def update_space_data(self, name: str, more: dict[str, Any], expect: str) -> None:
        after = {**self.held(name, dict), **copy.deepcopy(more)}
        wrong = self.refusals(name, dict, after)
        operation, args = ("world_update", ()) if name == "world" else ("update_space_data", (name,))
        if self.attempt(operation, name, *args, lambda old: {**old, **more}, expect=expect, refusals=wrong):
            scramble(more)
            self.changed(name, after)

    # Lists

    @rule(name=names, index=st.integers(-5, 5), item=items, expect=expectations, how=st.sampled_from("api"))
    def put_item(self, name: str, index: int, item: Any, expect: str, how: str) -> None:
        after = self.held(name, list)
        place = {"a": len(after), "p": 0}.get(how, index if index >= 0 else max(index + len(after) + 1, 0))
        after.insert(place, copy.deepcopy(item))
        wrong = self.refusals(name, list, after)
        operation, args = {
            "a": ("append_to_space", (name, item)),
            "p": ("prepend_to_space", (name, item)),
            "i": ("insert_in_space", (name, index, item)),
        }[how]
        if self.attempt(operation, name, *args, expect=expect, refusals=wrong):
            self.changed(name, after)

    def by_id(self, name: str, id: str, change: Callable[[Any], list[Any]]) -> tuple[bool, list[Any]]:
        """Whether the model holds an item of this id, and the list with each of them changed."""
        before = self.held(name, list)
        mine = [type(item) is dict and item.get("id") == id for item in before]
        after = [
            new for item, hit in zip(before, mine, strict=True) for new in (change(item) if hit else [item])
        ]
        return any(mine), after

    @rule(name=names, id=item_ids, expect=expectations, task=st.booleans(), strict=st.booleans())
    def remove_item(self, name: str, id: str, expect: str, task: bool, strict: bool) -> None:
        found, after = self.by_id(name, id, lambda _: [])
        wrong = self.refusals(name, list) or ((NotFound,) if strict and not found else ())
        task = task and name == "tasks"
        operation, args = ("tasks_remove", (id,)) if task else ("remove_from_space", (name, id))
        if self.attempt(operation, name, *args, expect=expect, refusals=wrong, strict=strict) and found:
            self.changed(name, after)

    @rule(name=names, id=item_ids, into=items.filter(lambda item: item is not None), expect=expectations)
    def update_item(self, name: str, id: str, into: Any, expect: str) -> None:
        found, after = self.by_id(name, id, lambda _: [copy.deepcopy(into)])
        wrong = self.refusals(name, list)
        done = self.attempt("update_in_space", name, name, id, lambda _: into, expect=expect, refusals=wrong)
        if done and found:
            scramble(into)
            self.changed(name, after)

    # Tasks

    @rule(id=item_ids, index=st.none() | st.integers(0, 3), fields=maps, expect=expectations)
    def add_task(self, id: str, index: int | None, fields: dict[str, Any], expect: str) -> None:
        fields = {key: value for key, value in fields.items() if key not in ("id", "text", "status")}
        taken, after = self.by_id("tasks", id, lambda item: [item])
        task = {**copy.deepcopy(fields), "id": id, "text": "do it", "status": "open"}
        after.insert(len(after) if index is None else index, task)
        wrong = (OmoideError,) if taken else ()
        operation, args = ("tasks_add", ()) if index is None else ("tasks_insert", (index,))
        options = {"id": id, "fields": fields}
        if self.attempt(operation, "tasks", *args, "do it", expect=expect, refusals=wrong, **options):
            scramble(fields)
            self.changed("tasks", after)

    @rule(id=item_ids, expect=expectations)
    def complete_task(self, id: str, expect: str) -> None:
        found, after = self.by_id("tasks", id, lambda item: [{**item, "status": "done"}])
        if self.attempt("tasks_complete", "tasks", id, expect=expect) and found:
            self.changed("tasks", after)

    @rule(order=st.lists(item_ids, unique=True), expect=expectations)
    def reorder_tasks(self, order: list[str], expect: str) -> None:
        picked = [self.by_id("tasks", id, lambda _: []) for id in order]
        wrong = () if all(found for found, _ in picked) else (NotFound,)
        held = self.held("tasks", list)
        named = [i for id in order for i in held if type(i) is dict and i.get("id") == id]
        after = [*named, *(i for i in held if not any(i is n for n in named))]
        if self.attempt("tasks_reorder", "tasks", list(order), expect=expect, refusals=wrong):
            self.changed("tasks", after)

    @precondition(lambda self: self.rev)
    @rule()
    def write_and_read(self) -> None:
        self.memory = Memory.from_json(self.memory.to_json())
        self.agent = memory.put(self.agent, Memory.from_json(memory.of(self.agent).to_json()))

    # What always holds

    @invariant()
    def as_the_model(self) -> None:
        """Contents, revisions and times are the model's; `world` is a map and `tasks` a list."""
        spaces = self.memory.spaces
        assert {name: space.data for name, space in spaces.items()} == {
            name: space.data for name, space in self.model.items()
        }
        assert {name: space.rev for name, space in spaces.items()} == {
            name: space.rev for name, space in self.model.items()
        }
        assert (self.memory.rev, self.memory.updated_at, self.memory.created_at) == (
            self.rev,
            self.updated_at,
            1,
        )
        assert Space.is_map(spaces["world"])
        assert Space.is_list(spaces["tasks"])

    @invariant()
    def agent_and_memory_agree(self) -> None:
        """The agent holds the same memory, or none as long as nothing was done, and the rest of its state."""
        held = memory.get(self.agent)
        assert held == self.memory if held is not None else self.rev == 0
        assert self.agent.state["own"] == 1

    @invariant()
    def reading_gives_ones_own_copy(self) -> None:
        """What is handed out as plain data can be changed without harm."""
        scramble(self.memory.world().to_python())
        scramble(self.memory.tasks().to_python())

    def teardown(self) -> None:
        """Every version is still what it was, and the last one can be written and read."""
        for old, agent, old_json, agent_json in self.versions:
            assert old.to_json() == old_json
            assert agent.to_json() == agent_json
        if self.versions:
            assert Memory.from_json(self.memory.to_json()) == self.memory
            assert Agent.from_json(self.agent.to_json()) == self.agent


TestMemoryMachine = MemoryMachine.TestCase
