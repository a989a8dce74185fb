"""Memory, Space, Task values.

A space holds a map or a list, and the type of its data decides which operations it has. Other data is
allowed; whoever owns it changes it with `update_space`.

Pure functions over the list of a `tasks` space. A task is `{"id", "text", "status": "open" | "done"}` and its
position is its priority. Items that someone appended raw may lack a status, which counts as open, or be no
maps at all, which are passed over.

A memory is a container of named spaces. `world` (a map: what it knows) and `tasks` (a list: what it means to
do) always exist; others are added as needed. Every change returns a new memory, counts up the revision of the
container and of the space it touched, and shares the rest with the older one. `omoide.memory` offers the same
operations on an agent.

Every change takes `expected_rev`, most take `expected_space_rev` (a mismatch raises `Conflict`), and all take
`now`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypedDict, Unpack

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.codec import Frozen, MapField
from omoide.core.frozen import (
    EMPTY_LIST,
    EMPTY_MAP,
    FrozenList,
    FrozenMap,
    check_text,
    freeze,
    freeze_key,
    freeze_list,
    freeze_map,
    list_of,
    map_of,
    value_type,
    wrap_map_lazy,
)
from omoide.core.value import (
    Count,
    Id,
    RevisionedValue,
    Value,
    check_fields,
    check_function,
    set_field,
    shallow_copy,
)
from omoide.errors import Conflict, Invalid, NotFound, ReservedSpace, TooLarge, WrongSpaceType, WrongType

# space: What does one partition of a memory hold, and how often has it changed?


@value_type
class Space(Value, frozen=True, kw_only=True):
    """Data with a revision, metadata, and limits where someone set them."""

    data: Frozen = EMPTY_MAP
    rev: Count = 0
    metadata: MapField = EMPTY_MAP
    max_items: Count | None = None
    max_item_bytes: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._has_limits:
            if not (Space.is_map(self) or Space.is_list(self)):
                raise WrongType("data", "a map or a list where a limit is set", self.data)
            self._check_limits("(new)", *(self.data.values() if Space.is_map(self) else self.data))

    @property
    def _has_limits(self) -> bool:
        """Whether a limit was set."""
        return self.max_items is not None or self.max_item_bytes is not None

    @classmethod
    def new(cls, attrs: Mapping[str, Any] = EMPTY_MAP, **fields: Any) -> Self:
        """A space from a mapping of its fields, from keywords, or from both."""
        given = {**freeze_map(attrs, "attrs"), **fields}
        check_fields(cls, given)
        return cls(**given)

    @classmethod
    def new_kv(cls, data: Mapping[str, Any] = EMPTY_MAP, **fields: Any) -> Self:
        """A map space."""
        return cls(data=freeze_map(data, "data"), **fields)

    @classmethod
    def new_list(cls, data: Sequence[Any] = EMPTY_LIST, **fields: Any) -> Self:
        """A list space."""
        return cls(data=freeze_list(data, "data"), **fields)

    def is_map(self: object) -> bool:
        """Whether it is a space with map operations; `Space.is_map(x)` is False for what is not a space."""
        return isinstance(self, Space) and type(self.data) is FrozenMap

    def is_list(self: object) -> bool:
        """Whether it is a space with list operations; `Space.is_list(x)` is False for what is not a space."""
        return isinstance(self, Space) and type(self.data) is FrozenList

    def _map_data(self, name: str) -> FrozenMap[str, Any]:
        """The data of a map space."""
        if type(self.data) is not FrozenMap:
            raise WrongSpaceType(name, "map", self.data)
        return self.data

    def _list_data(self, name: str) -> FrozenList[Any]:
        """The data of a list space."""
        if type(self.data) is not FrozenList:
            raise WrongSpaceType(name, "list", self.data)
        return self.data

    def _check_limits(self, name: str, *items: object) -> None:
        """Refuse more items than allowed, and among these items any that is too large."""
        if self.max_items is not None and len(self.data) > self.max_items:
            raise TooLarge(name, "max_items", self.max_items, len(self.data))
        if self.max_item_bytes is not None:
            for item in items:
                size = len(msgspec.json.encode(codec.dump(item)))
                if size > self.max_item_bytes:
                    raise TooLarge(name, "max_item_bytes", self.max_item_bytes, size)


# tasks: What does an agent mean to do next?


Task = FrozenMap[str, Any]
Tasks = FrozenList[Any]

OPEN, DONE = "open", "done"


def new_task(tasks: Tasks, text: str, id: str | None, fields: Mapping[str, Any] | None) -> Task:
    """A new open task whose id is not taken."""
    check_text(text, "text", "say what is to be done")
    extra = EMPTY_MAP if fields is None else freeze_map(fields, "fields")
    for key in ("id", "text"):
        if key in extra:
            raise Invalid(f"fields.{key}", "has an argument of its own", f"pass {key}=… instead")
    task_id = ids.new("task_") if id is None else ids.check(id)
    if tasks.find_by_id(task_id):
        raise Invalid("id", f"{task_id!r} is the id of another task", "leave it out, or choose another")
    task = FrozenMap({"status": OPEN, **extra, "id": task_id, "text": text})
    if task["status"] not in (OPEN, DONE):
        raise Invalid("fields.status", f"must be 'open' or 'done', not {task['status']!r}", "leave it out")
    return task


def complete_task(task: Task) -> Task:
    """The same task, done."""
    return task.set("status", DONE)


def is_open(task: object) -> bool:
    """Whether a task waits to be done."""
    return isinstance(task, FrozenMap) and task.get("status", OPEN) == OPEN


def reorder_tasks(tasks: Tasks, order: Iterable[str]) -> Tasks:
    """The tasks named in `order` first, then the others as they were."""
    if isinstance(order, (str, bytes)) or not isinstance(order, Iterable):
        raise WrongType("ids", "a list of strings", order)
    wanted = [ids.check(task_id, "ids") for task_id in order]
    twice = next((task_id for task_id, times in Counter(wanted).items() if times > 1), None)
    if twice is not None:
        raise Invalid("ids", f"names {twice!r} twice", "name each task once")
    named, chosen = set(wanted), []
    for task_id in wanted:
        found = tasks.find_by_id(task_id)
        if not found:
            raise NotFound("task", task_id, "name ids that tasks() lists")
        chosen += found
    rest = [task for task in tasks if FrozenList.id_of(task) not in named]
    return list_of([*chosen, *rest])


# memory: What does the agent believe and want right now?


_DEFAULT_SPACES: FrozenMap[str, Space] = map_of(
    {"tasks": Space(data=EMPTY_LIST), "world": Space(data=EMPTY_MAP)}
)


class ChangeOptions(TypedDict, total=False):
    """What every change takes besides its own arguments."""

    expected_rev: int | None
    expected_space_rev: int | None
    now: int | None


def reserved_spaces() -> tuple[str, ...]:
    """The names of the spaces that every memory has."""
    return ("tasks", "world")


@value_type
class Memory(RevisionedValue, frozen=True, kw_only=True):
    """The container of an agent's spaces."""

    id: Id = msgspec.field(default_factory=lambda: ids.new("mem_"))
    spaces: FrozenMap[str, Space] = _DEFAULT_SPACES
    metadata: FrozenMap[str, Any] = EMPTY_MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, space in self.spaces.items():
            _check_space_kind(check_text(name, "space name"), space, f"spaces.{name}")
        set_field(self, "spaces", _DEFAULT_SPACES.update(self.spaces))

    # Spaces

    def space(self, name: str) -> Space | None:
        """A space, or None."""
        return self.spaces._map.get(_check_space_name(name))

    def has_space(self, name: str) -> bool:
        """Whether there is a space of this name."""
        return self.space(name) is not None

    def ensure_space(
        self,
        name: str,
        default: Any = EMPTY_MAP,
        *,
        max_items: int | None = None,
        max_item_bytes: int | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """With a space of this name, made from `default` unless there is one already."""
        name = _check_space_name(name)
        if name in self.spaces:
            self._space_to_change(name, options)
            return self
        self._check_absent_rev(name, options)
        space = Space(data=default, max_items=max_items, max_item_bytes=max_item_bytes)
        return self._with_space(name, space, options)

    def put_space(self, name: str, space: Space, **options: Unpack[ChangeOptions]) -> Self:
        """With a space put whole; one that replaces another goes on counting from the higher revision."""
        name = _check_space_name(name)
        _check_space_kind(name, space)
        if name in self.spaces:
            space = _with_next_rev(self._space_to_change(name, options), space)
        else:
            self._check_absent_rev(name, options)
        return self._with_space(name, space, options)

    def update_space(
        self, name: str, change: Callable[[Space], Space], **options: Unpack[ChangeOptions]
    ) -> Self:
        """With `change` applied to a whole space."""
        old = self._space_to_change(name, options)
        space = _check_space_kind(name, check_function(change)(old), "the result of the update")
        return self._with_space(name, _with_next_rev(old, space), options)

    def delete_space(self, name: str, **options: Unpack[ChangeOptions]) -> Self:
        """Without a space; deleting one that is not there counts as a change too."""
        name = _check_space_name(name)
        if name in reserved_spaces():
            raise ReservedSpace(name, "delete reserved space", "empty it with update_space instead")
        if name in self.spaces:
            self._space_to_change(name, options)
        else:
            self._check_absent_rev(name, options)
        new = self._next_revision(options.get("now"))
        set_field(new, "spaces", self.spaces.delete(name))
        return new

    space_put = put_space
    space_update = update_space
    space_delete = delete_space

    # Map spaces

    def get_in_space(self, space: str, key: str, default: Any = None) -> Any:
        """The value under a key of a map space, or the default."""
        found = self.space(space)
        return default if found is None else found._map_data(space).get(freeze_key(key), default)

    def put_in_space(self, space: str, key: str, value: Any, **options: Unpack[ChangeOptions]) -> Self:
        """With a value put under a key of a map space."""
        old = self._space_to_change(space, options)
        data = old._map_data(space).set(key, value)
        return self._with_data(space, old, data, options, data[key] if old._has_limits else None)

    def delete_from_space(self, space: str, key: str, **options: Unpack[ChangeOptions]) -> Self:
        """Without a key of a map space; deleting one that is not there counts as a change too."""
        old = self._space_to_change(space, options)
        return self._with_data(space, old, old._map_data(space).delete(freeze_key(key)), options)

    def update_space_data(
        self,
        space: str,
        change: Callable[[FrozenMap[str, Any]], Mapping[str, Any]],
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """With `change` applied to the whole data of a map space."""
        old = self._space_to_change(space, options)
        before = old._map_data(space)
        data = freeze_map(check_function(change)(before), "the result of the update")
        fresh = [item for key, item in data.items() if before.get(key) is not item] if old._has_limits else ()
        return self._with_data(space, old, data, options, *fresh)

    # List spaces

    def append_to_space(self, space: str, item: Any, **options: Unpack[ChangeOptions]) -> Self:
        """With an item at the end of a list space."""
        old = self._space_to_change(space, options)
        item = freeze(item, "item")
        return self._with_data(space, old, old._list_data(space).append(item), options, item)

    def prepend_to_space(self, space: str, item: Any, **options: Unpack[ChangeOptions]) -> Self:
        """With an item at the front of a list space."""
        return self.insert_in_space(space, 0, item, **options)

    def insert_in_space(self, space: str, index: int, item: Any, **options: Unpack[ChangeOptions]) -> Self:
        """With an item before `index`: past the end appends, −1 appends, −2 is before the last."""
        old = self._space_to_change(space, options)
        item = freeze(item, "item")
        return self._with_data(space, old, old._list_data(space).insert(index, item), options, item)

    def remove_from_space(
        self,
        space: str,
        item_id: str,
        *,
        strict: bool = False,
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """Without the items of this id; when there is none, unchanged, or `NotFound` if `strict`."""
        old = self._space_to_change(space, options)
        data = old._list_data(space)
        left = data.remove(item_id)
        if left is data:
            return self._item_not_found(space, item_id, strict)
        return self._with_data(space, old, left, options)

    def update_in_space(
        self,
        space: str,
        item_id: str,
        change: Callable[[Any], Any],
        *,
        strict: bool = False,
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """With `change` applied to the items of this id; when there is none, as `remove_from_space`."""
        old = self._space_to_change(space, options)
        data = old._list_data(space)
        new = data.change(item_id, check_function(change))
        if new is data:
            return self._item_not_found(space, item_id, strict)
        return self._with_data(space, old, new, options, *(new if old._has_limits else ()))

    # The world: what the agent knows

    def world(self) -> FrozenMap[str, Any]:
        """The data of the world space."""
        return self.spaces["world"]._map_data("world")

    def world_get(self, key: str, default: Any = None) -> Any:
        """What is known under a key, or the default."""
        return self.get_in_space("world", key, default)

    def world_put(self, key: str, value: Any, **options: Unpack[ChangeOptions]) -> Self:
        """With something known under a key."""
        return self.put_in_space("world", key, value, **options)

    def world_delete(self, key: str, **options: Unpack[ChangeOptions]) -> Self:
        """Without what was known under a key."""
        return self.delete_from_space("world", key, **options)

    def world_update(
        self, change: Callable[[FrozenMap[str, Any]], Mapping[str, Any]], **options: Unpack[ChangeOptions]
    ) -> Self:
        """With `change` applied to everything known."""
        return self.update_space_data("world", change, **options)

    # Tasks: what the agent means to do, the most important first

    def tasks(self) -> Tasks:
        """All tasks in order of priority."""
        return self.spaces["tasks"]._list_data("tasks")

    def tasks_open(self) -> list[Task]:
        """The tasks that wait to be done, in order."""
        return [task for task in self.tasks() if is_open(task)]

    def tasks_next(self) -> Task | None:
        """The first task that waits to be done."""
        return next(filter(is_open, self.tasks()), None)

    def tasks_add(
        self,
        text: str,
        *,
        id: str | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """With a new open task at the end; `fields` may carry more about it."""
        return self.append_to_space("tasks", new_task(self.tasks(), text, id, fields), **options)

    def tasks_insert(
        self,
        index: int,
        text: str,
        *,
        id: str | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """With a new open task before `index`, counted as in `insert_in_space`."""
        return self.insert_in_space("tasks", index, new_task(self.tasks(), text, id, fields), **options)

    def tasks_complete(self, task_id: str, *, strict: bool = False, **options: Unpack[ChangeOptions]) -> Self:
        """With a task marked done; it stays in the list."""
        return self.update_in_space("tasks", task_id, complete_task, strict=strict, **options)

    def tasks_remove(self, task_id: str, *, strict: bool = False, **options: Unpack[ChangeOptions]) -> Self:
        """Without a task."""
        return self.remove_from_space("tasks", task_id, strict=strict, **options)

    def tasks_reorder(self, order: Iterable[str], **options: Unpack[ChangeOptions]) -> Self:
        """With the tasks named first in this order, and the others after them as they were."""
        old = self._space_to_change("tasks", options)
        return self._with_data("tasks", old, reorder_tasks(self.tasks(), order), options)

    # How every change is made

    def _check_rev(self, expected_rev: int | None) -> None:
        Conflict.check(f"memory {self.id!r}", expected_rev, self.rev)

    def _check_absent_rev(self, name: str, options: ChangeOptions) -> None:
        """A space that is not there is at revision 0."""
        _check_options(options)
        self._check_rev(options.get("expected_rev"))
        Conflict.check(f"space {name!r}", options.get("expected_space_rev"), 0)

    def _space_to_change(self, name: str, options: ChangeOptions) -> Space:
        """The space to change, if it exists and nobody changed it first."""
        if type(name) is not str:
            name = _check_space_name(name)
        space = self.spaces._map.get(name)
        if space is None:
            _check_space_name(name)
            raise NotFound("space", name, f"create it first with ensure_space({name!r}, {{}} or [])")
        if options:
            _check_options(options)
            self._check_rev(options.get("expected_rev"))
            Conflict.check(f"space {name!r}", options.get("expected_space_rev"), space.rev)
        return space

    def _with_data(self, name: str, old: Space, data: Any, options: ChangeOptions, *items: Any) -> Self:
        """With other data in a space, one revision on; `items` are those whose size has to be checked."""
        if type(name) is not str:
            name = _check_space_name(name)
        space = shallow_copy(old)
        set_field(space, "data", data)
        set_field(space, "rev", old.rev + 1)
        if old.max_items is not None or old.max_item_bytes is not None:
            space._check_limits(name, *items)
        new = shallow_copy(self)
        set_field(new, "rev", self.rev + 1)
        set_field(new, "updated_at", clock.resolve(options.get("now")) if options else clock.now())
        set_field(new, "spaces", wrap_map_lazy(self.spaces._map.set(name, space)))
        return new

    def _with_space(self, name: str, space: Space, options: ChangeOptions) -> Self:
        new = self._next_revision(options.get("now"))
        set_field(new, "spaces", wrap_map_lazy(self.spaces._map.set(name, space)))
        return new

    def _item_not_found(self, name: str, item_id: str, strict: bool) -> Self:
        """Nothing counts as changed where no item had the id."""
        if strict:
            raise NotFound("item", item_id, f"see which ids space {name!r} holds")
        return self


def _check_space_name(name: object) -> str:
    return check_text(name, "space name", "name the space")


def _check_options(options: ChangeOptions) -> None:
    for name in options:
        if name not in ChangeOptions.__annotations__:
            raise Invalid(name, "is no option of a change", f"use {', '.join(ChangeOptions.__annotations__)}")


def _with_next_rev(old: Space, space: Space) -> Space:
    return msgspec.structs.replace(space, rev=max(old.rev, space.rev) + 1)


def _check_space_kind(name: str, space: object, field: str = "space") -> Space:
    """A space that may stand under this name: the reserved ones keep their kind."""
    if not isinstance(space, Space):
        raise WrongType(field, "a Space", space, "pass Space.new_kv(…) or Space.new_list(…)")
    if name == "world" and not Space.is_map(space):
        raise ReservedSpace(name, "change the kind of", "give it a map: Space.new_kv(…)")
    if name == "tasks" and not Space.is_list(space):
        raise ReservedSpace(name, "change the kind of", "give it a list: Space.new_list(…)")
    return space
