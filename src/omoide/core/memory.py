"""What does the agent believe and want right now?

A memory is a container of named spaces. `world` (a map: what it knows) and `tasks` (a list: what it means to
do) always exist; others are added as needed. Every change returns a new memory, counts up the revision of the
container and of the space it touched, and shares the rest with the older one. `omoide.memory` offers the same
operations on an agent.

Every change takes `expected_rev`, most take `expected_space_rev` (a mismatch raises `Conflict`), and all take
`now`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypedDict, Unpack

import msgspec

from omoide import clock, ids
from omoide.core import tasks as task_list
from omoide.core.frozen import (
    EMPTY_LIST,
    EMPTY_MAP,
    FrozenMap,
    bare_map,
    freeze,
    freeze_key,
    freeze_map,
    map_of,
)
from omoide.core.nesting import own
from omoide.core.space import Space
from omoide.core.tasks import Task, Tasks
from omoide.core.texts import check_text
from omoide.core.value import Id, Revised, check_function, copied, force
from omoide.errors import Conflict, Invalid, NotFound, ReservedSpace, WrongType

_FRESH: FrozenMap[str, Space] = map_of({"tasks": Space(data=EMPTY_LIST), "world": Space(data=EMPTY_MAP)})


class Write(TypedDict, total=False):
    """What every change takes besides its own arguments."""

    expected_rev: int | None
    expected_space_rev: int | None
    now: int | None


def reserved_spaces() -> tuple[str, ...]:
    """The names of the spaces that every memory has."""
    return ("tasks", "world")


@own
class Memory(Revised, frozen=True, kw_only=True):
    """The container of an agent's spaces."""

    id: Id = msgspec.field(default_factory=lambda: ids.new("mem_"))
    spaces: FrozenMap[str, Space] = _FRESH
    metadata: FrozenMap[str, Any] = EMPTY_MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, space in self.spaces.items():
            _checked_kind(check_text(name, "space name"), space, f"spaces.{name}")
        force(self, "spaces", _FRESH.update(self.spaces))

    # Spaces

    def space(self, name: str) -> Space | None:
        """A space, or None."""
        return self.spaces._map.get(_named(name))

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
        **options: Unpack[Write],
    ) -> Self:
        """With a space of this name, made from `default` unless there is one already."""
        name = _named(name)
        if name in self.spaces:
            self._open(name, options)
            return self
        self._expect_absent(name, options)
        space = Space(data=default, max_items=max_items, max_item_bytes=max_item_bytes)
        return self._with_space(name, space, options)

    def put_space(self, name: str, space: Space, **options: Unpack[Write]) -> Self:
        """With a space put whole; one that replaces another goes on counting from the higher revision."""
        name = _named(name)
        _checked_kind(name, space)
        if name in self.spaces:
            space = _after(self._open(name, options), space)
        else:
            self._expect_absent(name, options)
        return self._with_space(name, space, options)

    def update_space(self, name: str, change: Callable[[Space], Space], **options: Unpack[Write]) -> Self:
        """With `change` applied to a whole space."""
        old = self._open(name, options)
        space = _checked_kind(name, check_function(change)(old), "the result of the update")
        return self._with_space(name, _after(old, space), options)

    def delete_space(self, name: str, **options: Unpack[Write]) -> Self:
        """Without a space; deleting one that is not there counts as a change too."""
        name = _named(name)
        if name in reserved_spaces():
            raise ReservedSpace(name, "delete reserved space", "empty it with update_space instead")
        if name in self.spaces:
            self._open(name, options)
        else:
            self._expect_absent(name, options)
        new = self._advanced(options.get("now"))
        force(new, "spaces", self.spaces.delete(name))
        return new

    space_put = put_space
    space_update = update_space
    space_delete = delete_space

    # Map spaces

    def get_in_space(self, space: str, key: str, default: Any = None) -> Any:
        """The value under a key of a map space, or the default."""
        found = self.space(space)
        return default if found is None else found._map_data(space).get(freeze_key(key), default)

    def put_in_space(self, space: str, key: str, value: Any, **options: Unpack[Write]) -> Self:
        """With a value put under a key of a map space."""
        old = self._open(space, options)
        data = old._map_data(space).set(key, value)
        return self._with_data(space, old, data, options, data[key] if old._limited else None)

    def delete_from_space(self, space: str, key: str, **options: Unpack[Write]) -> Self:
        """Without a key of a map space; deleting one that is not there counts as a change too."""
        old = self._open(space, options)
        return self._with_data(space, old, old._map_data(space).delete(freeze_key(key)), options)

    def update_space_data(
        self,
        space: str,
        change: Callable[[FrozenMap[str, Any]], Mapping[str, Any]],
        **options: Unpack[Write],
    ) -> Self:
        """With `change` applied to the whole data of a map space."""
        old = self._open(space, options)
        before = old._map_data(space)
        data = freeze_map(check_function(change)(before), "the result of the update")
        fresh = [item for key, item in data.items() if before.get(key) is not item] if old._limited else ()
        return self._with_data(space, old, data, options, *fresh)

    # List spaces

    def append_to_space(self, space: str, item: Any, **options: Unpack[Write]) -> Self:
        """With an item at the end of a list space."""
        old = self._open(space, options)
        item = freeze(item, "item")
        return self._with_data(space, old, old._list_data(space).append(item), options, item)

    def prepend_to_space(self, space: str, item: Any, **options: Unpack[Write]) -> Self:
        """With an item at the front of a list space."""
        return self.insert_in_space(space, 0, item, **options)

    def insert_in_space(self, space: str, index: int, item: Any, **options: Unpack[Write]) -> Self:
        """With an item before `index`: past the end appends, −1 appends, −2 is before the last."""
        old = self._open(space, options)
        item = freeze(item, "item")
        return self._with_data(space, old, old._list_data(space).insert(index, item), options, item)

    def remove_from_space(
        self,
        space: str,
        item_id: str,
        *,
        strict: bool = False,
        **options: Unpack[Write],
    ) -> Self:
        """Without the items of this id; when there is none, unchanged, or `NotFound` if `strict`."""
        old = self._open(space, options)
        data = old._list_data(space)
        left = data.remove(item_id)
        if left is data:
            return self._unfound(space, item_id, strict)
        return self._with_data(space, old, left, options)

    def update_in_space(
        self,
        space: str,
        item_id: str,
        change: Callable[[Any], Any],
        *,
        strict: bool = False,
        **options: Unpack[Write],
    ) -> Self:
        """With `change` applied to the items of this id; when there is none, as `remove_from_space`."""
        old = self._open(space, options)
        data = old._list_data(space)
        new = data.change(item_id, check_function(change))
        if new is data:
            return self._unfound(space, item_id, strict)
        return self._with_data(space, old, new, options, *(new if old._limited else ()))

    # The world: what the agent knows

    def world(self) -> FrozenMap[str, Any]:
        """The data of the world space."""
        return self.spaces["world"]._map_data("world")

    def world_get(self, key: str, default: Any = None) -> Any:
        """What is known under a key, or the default."""
        return self.get_in_space("world", key, default)

    def world_put(self, key: str, value: Any, **options: Unpack[Write]) -> Self:
        """With something known under a key."""
        return self.put_in_space("world", key, value, **options)

    def world_delete(self, key: str, **options: Unpack[Write]) -> Self:
        """Without what was known under a key."""
        return self.delete_from_space("world", key, **options)

    def world_update(
        self, change: Callable[[FrozenMap[str, Any]], Mapping[str, Any]], **options: Unpack[Write]
    ) -> Self:
        """With `change` applied to everything known."""
        return self.update_space_data("world", change, **options)

    # Tasks: what the agent means to do, the most important first

    def tasks(self) -> Tasks:
        """All tasks in order of priority."""
        return self.spaces["tasks"]._list_data("tasks")

    def tasks_open(self) -> list[Task]:
        """The tasks that wait to be done, in order."""
        return [task for task in self.tasks() if task_list.is_open(task)]

    def tasks_next(self) -> Task | None:
        """The first task that waits to be done."""
        return next(filter(task_list.is_open, self.tasks()), None)

    def tasks_add(
        self,
        text: str,
        *,
        id: str | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[Write],
    ) -> Self:
        """With a new open task at the end; `fields` may carry more about it."""
        return self.append_to_space("tasks", task_list.make(self.tasks(), text, id, fields), **options)

    def tasks_insert(
        self,
        index: int,
        text: str,
        *,
        id: str | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[Write],
    ) -> Self:
        """With a new open task before `index`, counted as in `insert_in_space`."""
        return self.insert_in_space("tasks", index, task_list.make(self.tasks(), text, id, fields), **options)

    def tasks_complete(self, task_id: str, *, strict: bool = False, **options: Unpack[Write]) -> Self:
        """With a task marked done; it stays in the list."""
        return self.update_in_space("tasks", task_id, task_list.completed, strict=strict, **options)

    def tasks_remove(self, task_id: str, *, strict: bool = False, **options: Unpack[Write]) -> Self:
        """Without a task."""
        return self.remove_from_space("tasks", task_id, strict=strict, **options)

    def tasks_reorder(self, order: Iterable[str], **options: Unpack[Write]) -> Self:
        """With the tasks named first in this order, and the others after them as they were."""
        old = self._open("tasks", options)
        return self._with_data("tasks", old, task_list.reordered(self.tasks(), order), options)

    # How every change is made

    def _expect(self, expected_rev: int | None) -> None:
        Conflict.check(f"memory {self.id!r}", expected_rev, self.rev)

    def _expect_absent(self, name: str, options: Write) -> None:
        """A space that is not there is at revision 0."""
        _check_options(options)
        self._expect(options.get("expected_rev"))
        Conflict.check(f"space {name!r}", options.get("expected_space_rev"), 0)

    def _open(self, name: str, options: Write) -> Space:
        """The space to change, if it exists and nobody changed it first."""
        if type(name) is not str:
            name = _named(name)
        space = self.spaces._map.get(name)
        if space is None:
            _named(name)
            raise NotFound("space", name, f"create it first with ensure_space({name!r}, {{}} or [])")
        if options:
            _check_options(options)
            self._expect(options.get("expected_rev"))
            Conflict.check(f"space {name!r}", options.get("expected_space_rev"), space.rev)
        return space

    def _with_data(self, name: str, old: Space, data: Any, options: Write, *items: Any) -> Self:
        """With other data in a space, one revision on; `items` are those whose size has to be checked."""
        if type(name) is not str:
            name = _named(name)
        space = copied(old)
        force(space, "data", data)
        force(space, "rev", old.rev + 1)
        if old.max_items is not None or old.max_item_bytes is not None:
            space._check_limits(name, *items)
        new = copied(self)
        force(new, "rev", self.rev + 1)
        force(new, "updated_at", clock.resolve(options.get("now")) if options else clock.now())
        force(new, "spaces", bare_map(self.spaces._map.set(name, space)))
        return new

    def _with_space(self, name: str, space: Space, options: Write) -> Self:
        new = self._advanced(options.get("now"))
        force(new, "spaces", bare_map(self.spaces._map.set(name, space)))
        return new

    def _unfound(self, name: str, item_id: str, strict: bool) -> Self:
        """Nothing counts as changed where no item had the id."""
        if strict:
            raise NotFound("item", item_id, f"see which ids space {name!r} holds")
        return self


def _named(name: object) -> str:
    return check_text(name, "space name", "name the space")


def _check_options(options: Write) -> None:
    for name in options:
        if name not in Write.__annotations__:
            raise Invalid(name, "is no option of a change", f"use {', '.join(Write.__annotations__)}")


def _after(old: Space, space: Space) -> Space:
    return msgspec.structs.replace(space, rev=max(old.rev, space.rev) + 1)


def _checked_kind(name: str, space: object, field: str = "space") -> Space:
    """A space that may stand under this name: the reserved ones keep their kind."""
    if not isinstance(space, Space):
        raise WrongType(field, "a Space", space, "pass Space.new_kv(…) or Space.new_list(…)")
    if name == "world" and not Space.is_map(space):
        raise ReservedSpace(name, "change the kind of", "give it a map: Space.new_kv(…)")
    if name == "tasks" and not Space.is_list(space):
        raise ReservedSpace(name, "change the kind of", "give it a list: Space.new_list(…)")
    return space
