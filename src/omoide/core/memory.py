"""Memory of an agent: spaces, tasks and the world.

A memory is a container of named spaces. `world` (a map of beliefs) and `tasks` (a list of planned work)
always exist; others are added as needed. Every change returns a new memory, increments the revision of
the container and of the space, and shares the rest with the older one. `omoide.memory` offers the same
operations on an agent.

A space holds a map or a list, and the type of its data decides which operations it has. Other data is
allowed; its owner changes it with `update_space`.

A task is `{"id", "text", "status": "open" | "done"}`, and its position is its priority. Items of the `tasks`
space that were appended as raw data may lack a status, which counts as open, or be no maps, which are
skipped.

Every change takes `expected_rev` and most take `expected_space_rev`, which raise `Conflict` if they differ,
and `now`.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.codec import Frozen, MapField
from omoide.core.frozen import (
    EMPTY_LIST,
    EMPTY_MAP,
    FrozenList,
    FrozenMap,
    allocate,
    check_text,
    freeze,
    freeze_key,
    freeze_list,
    freeze_map,
    list_of,
    map_of,
    value_type,
)
from omoide.core.maps import set_item
from omoide.core.value import (
    CHANGED_MEANWHILE,
    Count,
    Id,
    RevisionedValue,
    Value,
    check_count,
    check_fields,
    check_function,
    check_revision,
    merge_changes,
    merge_maps,
    set_field,
    shallow_copy,
)
from omoide.errors import (
    Conflict,
    Invalid,
    InvalidState,
    NotFound,
    ReservedSpace,
    TooLarge,
    WrongSpaceType,
    WrongType,
)


class SpaceFields(TypedDict, total=False):
    """Optional fields of a space besides its data."""

    rev: int
    metadata: Mapping[str, Any]
    max_items: int | None
    max_item_bytes: int | None
    ttl_ms: int | None


@value_type
class Space(Value, frozen=True, kw_only=True):
    """Data with a revision, metadata, and optional limits."""

    data: Frozen = EMPTY_MAP
    rev: Count = 0
    metadata: MapField = EMPTY_MAP
    max_items: Count | None = None
    max_item_bytes: Count | None = None
    ttl_ms: Count | None = None
    """Milliseconds after which an item expires, from the change that wrote it; None for never."""
    written_at: Frozen = EMPTY_MAP
    """The time of each item of a space with a TTL: by key, or a list beside that of the items."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ttl_ms == 0:
            raise Invalid("ttl_ms", "is 0", "pass milliseconds above 0, or None")
        if self._has_limits or self.ttl_ms is not None:
            if not (Space.is_map(self) or Space.is_list(self)):
                raise WrongType("data", "a map or a list where a limit is set", self.data)
            self._check_limits("(new)", *(self.data.values() if Space.is_map(self) else self.data))
        if self.written_at:
            set_field(self, "written_at", self._matching_times())

    def _matching_times(self) -> Any:
        """Return the times of items that are there; none for a list of another length."""
        times = self.written_at
        if self.ttl_ms is None:
            return EMPTY_MAP
        if type(self.data) is FrozenList:
            if type(times) is not FrozenList or len(times) != len(self.data):
                return EMPTY_MAP
            return list_of([clock.check(at, f"written_at[{number}]") for number, at in enumerate(times)])
        known = freeze_map(times, "written_at") if type(times) is FrozenMap else EMPTY_MAP
        return map_of(
            {key: clock.check(known[key], f"written_at.{key}") for key in known if key in self.data}
        )

    @property
    def _has_limits(self) -> bool:
        return self.max_items is not None or self.max_item_bytes is not None

    @classmethod
    def new(cls, attrs: Mapping[str, Any] = EMPTY_MAP, **fields: Any) -> Self:
        """Build a space from a mapping of its fields, from keywords, or from both."""
        values = {**freeze_map(attrs, "attrs"), **fields}
        check_fields(cls, values)
        return cls(**values)

    @classmethod
    def new_kv(cls, data: Mapping[str, Any] = EMPTY_MAP, **fields: Unpack[SpaceFields]) -> Self:
        """Build a map space."""
        return cls(data=freeze_map(data, "data"), **fields)

    @classmethod
    def new_list(cls, data: Sequence[Any] = EMPTY_LIST, **fields: Unpack[SpaceFields]) -> Self:
        """Build a list space."""
        return cls(data=freeze_list(data, "data"), **fields)

    def is_map(self: object) -> bool:
        """Return True for a space with map operations; `Space.is_map(x)` takes any value."""
        return isinstance(self, Space) and type(self.data) is FrozenMap

    def is_list(self: object) -> bool:
        """Return True for a space with list operations; `Space.is_list(x)` takes any value."""
        return isinstance(self, Space) and type(self.data) is FrozenList

    def live(self, now: int | None = None) -> Self:
        """Return the space without the items that have expired, at the same revision."""
        if self.ttl_ms is None or not self.written_at:
            return self
        limit = clock.resolve(now) - self.ttl_ms
        times = self.written_at.values() if type(self.written_at) is FrozenMap else self.written_at
        if all(at > limit for at in times):
            return self
        new = shallow_copy(self)
        if type(self.data) is FrozenList:
            pairs = [pair for pair in zip(self.data, self.written_at, strict=True) if pair[1] > limit]
            set_field(new, "data", list_of([item for item, _ in pairs]))
            set_field(new, "written_at", list_of([at for _, at in pairs]))
            return new
        expired = [key for key, at in self.written_at.items() if at <= limit]
        for field in ("data", "written_at"):
            left = getattr(self, field)
            for key in expired:
                left = left.delete(key)
            set_field(new, field, left)
        return new

    def _with_times(self, now: int | None, older: Space | None = None) -> Self:
        """Return a space with a TTL in which every item has a time: its own, that of the same, or `now`."""
        if self.ttl_ms is None:
            return self
        at, new = clock.resolve(now), shallow_copy(self)
        if type(self.data) is FrozenList:
            set_field(new, "written_at", list_of(_list_times(self, older, at)))
        else:
            set_field(new, "written_at", map_of(_map_times(self, older, at)))
        return new

    def _map_data(self, name: str) -> FrozenMap[str, Any]:
        """Return the data of a map space."""
        if type(self.data) is not FrozenMap:
            raise WrongSpaceType(name, "map", self.data)
        return self.data

    def _list_data(self, name: str) -> FrozenList[Any]:
        """Return the data of a list space."""
        if type(self.data) is not FrozenList:
            raise WrongSpaceType(name, "list", self.data)
        return self.data

    def _check_limits(self, name: str, *items: object) -> None:
        """Raise `TooLarge` for too many items, or if one of the given items is too large."""
        # Only items that changed are measured: encoding all of them would make every change cost O(n).
        if self.max_items is not None and len(self.data) > self.max_items:
            raise TooLarge(name, "max_items", self.max_items, len(self.data))
        if self.max_item_bytes is not None:
            for item in items:
                size = len(msgspec.json.encode(codec.dump(item)))
                if size > self.max_item_bytes:
                    raise TooLarge(name, "max_item_bytes", self.max_item_bytes, size)


def _map_times(space: Space, older: Space | None, now: int) -> dict[str, int]:
    """Return the times of the items of a map; with an older space, only unchanged items keep theirs."""
    source = space if older is None else older
    times = source.written_at if type(source.written_at) is FrozenMap else EMPTY_MAP
    same = source.data if type(source.data) is FrozenMap else EMPTY_MAP
    return {
        key: times[key] if key in times and same.get(key) is item else now for key, item in space.data.items()
    }


def _list_times(space: Space, older: Space | None, now: int) -> list[int]:
    """Return the times of the items of a list; with an older space, only unchanged items keep theirs."""
    source = space if older is None else older
    known: dict[int, deque[int]] = defaultdict(deque)
    if type(source.written_at) is FrozenList:
        for item, at in zip(source.data, source.written_at, strict=True):
            known[id(item)].append(at)
    return [known[id(item)].popleft() if known[id(item)] else now for item in space.data]


class Spaces(FrozenMap[str, Space]):
    """The spaces of a memory by name; `spaces.world` is `spaces["world"]`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Space:
        space = None if name.startswith("_") else self._map.get(name)
        if space is None:
            known = "" if name.startswith("_") else f"; there are {', '.join(sorted(self._map))}"
            raise AttributeError(f"no space {name!r}{known}", name=name, obj=self)
        return space


def _spaces_of(spaces: Any) -> Spaces:
    """Return the spaces over a map of them."""
    new: Spaces = allocate(Spaces)
    new._map = spaces
    return new


Task = FrozenMap[str, Any]
Tasks = FrozenList[Any]

OPEN, DONE = "open", "done"


def new_task(tasks: Tasks, text: str, id: str | None, fields: Mapping[str, Any] | None) -> Task:
    """Build an open task with an id that is not in use."""
    check_text(text, "text", "describe the task")
    extra = EMPTY_MAP if fields is None else freeze_map(fields, "fields")
    for key in ("id", "text"):
        if key in extra:
            raise Invalid(f"fields.{key}", "has an argument of its own", f"pass {key}=… instead")
    task_id = ids.new("task_") if id is None else ids.check(id)
    if tasks.find_by_id(task_id):
        raise Invalid("id", f"{task_id!r} is the id of another task", "leave it out, or choose another")
    # `fields` may set the status and further keys, never the id and the text.
    task = FrozenMap({"status": OPEN, **extra, "id": task_id, "text": text})
    if task["status"] not in (OPEN, DONE):
        raise Invalid("fields.status", f"must be 'open' or 'done', not {task['status']!r}", "leave it out")
    return task


def complete_task(task: Task) -> Task:
    """Return the task with the status done."""
    return task.set("status", DONE)


def is_open(task: object) -> bool:
    """Return True if a task is open."""
    return isinstance(task, FrozenMap) and task.get("status", OPEN) == OPEN


def reorder_tasks(tasks: Tasks, order: Iterable[str]) -> Tasks:
    """Return the tasks named in `order` first, then the others in their order."""
    if isinstance(order, (str, bytes)) or not isinstance(order, Iterable):
        raise WrongType("ids", "a list of strings", order)
    counts = Counter(ids.check(task_id, "ids") for task_id in order)
    duplicate = next((task_id for task_id, count in counts.items() if count > 1), None)
    if duplicate is not None:
        raise Invalid("ids", f"names {duplicate!r} twice", "name each task once")
    first = []
    for task_id in counts:
        items = tasks.find_by_id(task_id)
        if not items:
            raise NotFound("task", task_id, "name ids that tasks() lists")
        first += items  # raw data may hold one id several times; all of them move
    rest = [task for task in tasks if FrozenList.id_of(task) not in counts]
    return list_of([*first, *rest])


_DEFAULT_SPACES: FrozenMap[str, Space] = map_of(
    {"tasks": Space(data=EMPTY_LIST), "world": Space(data=EMPTY_MAP)}
)
_INITIAL_SPACES = _spaces_of(_DEFAULT_SPACES._map)

if TYPE_CHECKING:
    SpacesField = Any  # the constructor accepts any mapping of spaces, which no annotation can express
else:
    SpacesField = FrozenMap[str, Space]  # the codec decodes this, and `__post_init__` wraps it


class ChangeOptions(TypedDict, total=False):
    """Options of every change."""

    expected_rev: int | None
    expected_space_rev: int | None
    now: int | None


def reserved_spaces() -> tuple[str, ...]:
    """Return the names of the spaces that every memory has."""
    return ("tasks", "world")


@value_type
class Memory(RevisionedValue, frozen=True, kw_only=True):
    """The container of an agent's spaces."""

    id: Id = msgspec.field(default_factory=lambda: ids.new("mem_"))
    spaces: SpacesField = _INITIAL_SPACES
    metadata: FrozenMap[str, Any] = EMPTY_MAP
    deleted: MapField = EMPTY_MAP
    """The last revision of each deleted space; one that is created again continues from there."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, space in self.spaces.items():
            _check_space_kind(check_text(name, "space name"), space, f"spaces.{name}")
        for name, rev in self.deleted.items():
            check_count(rev, f"deleted.{name}")
        if self.spaces is not _INITIAL_SPACES:  # the reserved ones always exist
            set_field(self, "spaces", _spaces_of(_DEFAULT_SPACES.update(self.spaces)._map))

    @classmethod
    def _coerce(cls, fields: dict[str, Any]) -> dict[str, Any]:
        spaces = fields.get("spaces")
        if isinstance(spaces, Mapping):
            # A mapping without data is more likely the data itself, and is refused with the remedy.
            fields["spaces"] = {
                name: Space.new(space) if isinstance(space, Mapping) and "data" in space else space
                for name, space in spaces.items()
            }
        return fields

    # Spaces

    def space(self, name: str, *, now: int | None = None) -> Space | None:
        """Return a space without expired items, or None."""
        # `_map` saves the calls of FrozenMap, in reads and changes alike.
        space: Space | None = self.spaces._map.get(_check_space_name(name))
        return space if space is None or space.ttl_ms is None else space.live(now)

    def has_space(self, name: str) -> bool:
        """Return True if there is a space with this name."""
        return self.space(name) is not None

    def ensure_space(
        self,
        name: str,
        default: Any = EMPTY_MAP,
        *,
        max_items: int | None = None,
        max_item_bytes: int | None = None,
        ttl_ms: int | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """Return the memory with a space, created from `default` if there is none.

        Args:
            name: the name of the space.
            default: the data of a new space; a map or a list decides its kind.
            max_items: the limit of items in a new space.
            max_item_bytes: the limit of an item's size, encoded as JSON.
            ttl_ms: the milliseconds after which an item of a new space expires.
        """
        name = _check_space_name(name)
        if name in self.spaces:
            self._space_to_change(name, options)
            return self
        self._check_absent_rev(name, options)
        space = Space(data=default, max_items=max_items, max_item_bytes=max_item_bytes, ttl_ms=ttl_ms)
        return self._with_space(name, space._with_times(options.get("now")), options)

    def put_space(self, name: str, space: Space, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with a whole space set; its revision continues from the higher one."""
        name = _check_space_name(name)
        _check_space_kind(name, space)
        if name in self.spaces:
            space = _with_next_rev(self._space_to_change(name, options), space)
        else:
            self._check_absent_rev(name, options)
        return self._with_space(name, space._with_times(options.get("now")), options)

    def update_space(
        self, name: str, change: Callable[[Space], Space], **options: Unpack[ChangeOptions]
    ) -> Self:
        """Return the memory with `change` applied to a whole space."""
        name = _check_space_name(name)
        old = self._space_to_change(name, options)
        space = _check_space_kind(name, check_function(change)(old), "the result of the update")
        space = _with_next_rev(old, space)._with_times(options.get("now"), old)
        return self._with_space(name, space, options)

    def delete_space(self, name: str, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory without a space; deleting one that does not exist is a change too."""
        name = _check_space_name(name)
        if name in reserved_spaces():
            raise ReservedSpace(name, "delete reserved space", "empty it with update_space instead")
        deleted = self.deleted
        if name in self.spaces:
            deleted = deleted.set(name, self._space_to_change(name, options).rev)
        else:
            self._check_absent_rev(name, options)
        new = self._next_revision(options.get("now"))
        set_field(new, "spaces", _spaces_of(self.spaces.delete(name)._map))
        set_field(new, "deleted", deleted)
        return new

    space_put = put_space
    space_update = update_space
    space_delete = delete_space

    # Map spaces

    def get_in_space(self, space: str, key: str, default: Any = None, *, now: int | None = None) -> Any:
        """Return the value for a key of a map space, or the default."""
        existing = self.space(space, now=now)
        return default if existing is None else existing._map_data(space).get(freeze_key(key), default)

    def put_in_space(self, space: str, key: str, value: Any, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with a value set for a key of a map space."""
        old = self._space_to_change(space, options)
        key = freeze_key(key)
        data = old._map_data(space).set(key, value)
        times = None if old.ttl_ms is None else old.written_at.set(key, clock.resolve(options.get("now")))
        return self._with_data(space, old, data, options, data[key] if old._has_limits else None, times=times)

    def delete_from_space(self, space: str, key: str, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory without a key of a map space; a missing key is a change too."""
        old = self._space_to_change(space, options)
        return self._with_data(space, old, old._map_data(space).delete(freeze_key(key)), options)

    def update_space_data(
        self,
        space: str,
        change: Callable[[FrozenMap[str, Any]], Mapping[str, Any]],
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """Return the memory with `change` applied to the data of a map space."""
        old = self._space_to_change(space, options)
        before = old._map_data(space)
        data = freeze_map(check_function(change)(before), "the result of the update")
        # Items that are the same object were checked when they were put.
        fresh = [item for key, item in data.items() if before.get(key) is not item] if old._has_limits else ()
        return self._with_data(space, old, data, options, *fresh)

    # List spaces

    def append_to_space(self, space: str, item: Any, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with an item at the end of a list space."""
        old = self._space_to_change(space, options)
        item = freeze(item, "item")
        data = old._list_data(space).append(item)
        times = None if old.ttl_ms is None else old.written_at.append(clock.resolve(options.get("now")))
        return self._with_data(space, old, data, options, item, times=times)

    def prepend_to_space(self, space: str, item: Any, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with an item at the front of a list space."""
        return self.insert_in_space(space, 0, item, **options)

    def insert_in_space(self, space: str, index: int, item: Any, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with an item inserted before `index`; −1, or past the end, appends."""
        old = self._space_to_change(space, options)
        item = freeze(item, "item")
        data = old._list_data(space).insert(index, item)
        now = options.get("now")
        times = None if old.ttl_ms is None else old.written_at.insert(index, clock.resolve(now))
        return self._with_data(space, old, data, options, item, times=times)

    def remove_from_space(
        self, space: str, item_id: str, *, strict: bool = False, **options: Unpack[ChangeOptions]
    ) -> Self:
        """Return the memory without the items with this id.

        Raises:
            NotFound: if there is none and `strict` is set; otherwise the memory is returned unchanged.
        """
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
        """Return the memory with `change` applied to the items with this id.

        Raises:
            NotFound: if there is none and `strict` is set; otherwise the memory is returned unchanged.
        """
        old = self._space_to_change(space, options)
        data = old._list_data(space)
        new = data.change(item_id, check_function(change))
        if new is data:
            return self._item_not_found(space, item_id, strict)
        return self._with_data(space, old, new, options, *(new if old._has_limits else ()))

    # World

    def world(self) -> FrozenMap[str, Any]:
        """Return the data of the world space."""
        world: Space = self.spaces["world"]
        return world.live()._map_data("world")

    def world_get(self, key: str, default: Any = None) -> Any:
        """Return the value for a key of the world, or the default."""
        return self.get_in_space("world", key, default)

    def world_put(self, key: str, value: Any, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with a value set in the world."""
        return self.put_in_space("world", key, value, **options)

    def world_delete(self, key: str, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory without a key of the world."""
        return self.delete_from_space("world", key, **options)

    def world_update(
        self, change: Callable[[FrozenMap[str, Any]], Mapping[str, Any]], **options: Unpack[ChangeOptions]
    ) -> Self:
        """Return the memory with `change` applied to the data of the world."""
        return self.update_space_data("world", change, **options)

    # Tasks, in order of priority

    def tasks(self) -> Tasks:
        """Return all tasks in order of priority."""
        tasks: Space = self.spaces["tasks"]
        return tasks.live()._list_data("tasks")

    def tasks_open(self) -> list[Task]:
        """Return the open tasks in order."""
        return [task for task in self.tasks() if is_open(task)]

    def tasks_next(self) -> Task | None:
        """Return the first open task, or None."""
        return next(filter(is_open, self.tasks()), None)

    def tasks_add(
        self,
        text: str,
        *,
        id: str | None = None,
        fields: Mapping[str, Any] | None = None,
        **options: Unpack[ChangeOptions],
    ) -> Self:
        """Return the memory with a new open task at the end; `fields` are stored with it."""
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
        """Return the memory with a new open task before `index`, counted as in `insert_in_space`."""
        return self.insert_in_space("tasks", index, new_task(self.tasks(), text, id, fields), **options)

    def tasks_complete(self, task_id: str, *, strict: bool = False, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with a task marked as done; it stays in the list."""
        return self.update_in_space("tasks", task_id, complete_task, strict=strict, **options)

    def tasks_remove(self, task_id: str, *, strict: bool = False, **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory without a task."""
        return self.remove_from_space("tasks", task_id, strict=strict, **options)

    def tasks_reorder(self, order: Iterable[str], **options: Unpack[ChangeOptions]) -> Self:
        """Return the memory with the named tasks first, in this order, and the others after them."""
        old = self._space_to_change("tasks", options)
        return self._with_data("tasks", old, reorder_tasks(self.tasks(), order), options)

    # Changes

    def merge(self, base: Memory | None, other: Memory) -> Self:
        """Return the memory with the changes that were made to an older version of it at the same time.

        Spaces are independent of each other: each is taken from the side that changed it.

        Args:
            base: the memory that both began with; None if there was none.
            other: what became of it there.

        Raises:
            Conflict: if both changed the same space, or the metadata; it names which.
        """
        spaces, metadata, rev = _DEFAULT_SPACES, EMPTY_MAP, 0
        if base is not None:
            if other.id != base.id:
                raise Conflict(f"memory {self.id!r}", base.rev, self.rev, CHANGED_MEANWHILE)
            spaces, metadata, rev = base.spaces, base.metadata, base.rev
        merged_metadata = merge_changes(
            metadata,
            self.metadata,
            other.metadata,
            lambda: Conflict("metadata", rev, self.rev, CHANGED_MEANWHILE),
        )
        new = self._next_revision(max(self.updated_at, other.updated_at), max(other.rev - rev, 0))
        merged = merge_maps(spaces, self.spaces, other.spaces, lambda name: f"space {name!r}")
        set_field(new, "spaces", _spaces_of(merged._map))
        set_field(new, "deleted", self._merge_deleted(other, merged))
        set_field(new, "metadata", merged_metadata)
        return new

    def _merge_deleted(self, other: Memory, spaces: FrozenMap[str, Space]) -> FrozenMap[str, int]:
        """Return the last revisions of the spaces that were deleted on one side, or on both."""
        revs = {**self.deleted}
        for name, rev in other.deleted.items():
            revs[name] = max(rev, revs.get(name, rev))
        return map_of({name: rev for name, rev in revs.items() if name not in spaces})

    def check_continues(self, older: Memory) -> None:
        """Raise `InvalidState` unless this memory is an older one with changes."""
        problem = None
        if self.id != older.id:
            problem = f"is memory {self.id!r}, not {older.id!r}"
        elif self.rev < older.rev:
            problem = f"is at revision {self.rev}, older than {older.rev}"
        for name, space in older.spaces.items():
            own = self.spaces.get(name)
            if own is space or problem is not None:
                continue
            if own is not None and own.rev < space.rev:
                problem = f"has space {name!r} at revision {own.rev}, older than {space.rev}"
            elif own is None and name not in self.deleted:
                problem = f"lacks space {name!r}, which was never deleted from it"
        if problem is not None:
            raise InvalidState("state.__memory__", problem, "change ctx.memory and return that")

    def _check_rev(self, expected_rev: int | None) -> None:
        check_revision(f"memory {self.id!r}", expected_rev, self.rev)

    def _check_absent_rev(self, name: str, options: ChangeOptions) -> None:
        """Check the expected revisions for a space that does not exist, whose revision is 0."""
        _check_options(options)
        self._check_rev(options.get("expected_rev"))
        check_revision(f"space {name!r}", options.get("expected_space_rev"), 0)

    def _space_to_change(self, name: str, options: ChangeOptions) -> Space:
        """Return the space, after checking the expected revisions."""
        if type(name) is not str:
            name = _check_space_name(name)
        space: Space | None = self.spaces._map.get(name)
        if space is None:
            _check_space_name(name)
            raise NotFound("space", name, f"create it first with ensure_space({name!r}, {{}} or [])")
        if options:  # most changes have none
            _check_options(options)
            self._check_rev(options.get("expected_rev"))
            check_revision(f"space {name!r}", options.get("expected_space_rev"), space.rev)
        if space.ttl_ms is not None:  # a change drops what has expired
            space = space.live(options.get("now"))._with_times(options.get("now"))
        return space

    def _with_data(
        self, name: str, old: Space, data: Any, options: ChangeOptions, *items: Any, times: Any = None
    ) -> Self:
        """Return the memory with other data in a space.

        Args:
            name: the name of the space.
            old: the space before.
            data: its new data.
            options: the options of the change.
            items: those whose size is checked.
            times: the times of the items of a space with a TTL, if they are known.
        """
        if type(name) is not str:
            name = _check_space_name(name)
        space = shallow_copy(old)
        set_field(space, "data", data)
        set_field(space, "rev", old.rev + 1)
        if old.ttl_ms is not None:
            space = space._with_times(options.get("now"), old)
            if times is not None:
                set_field(space, "written_at", times)
        if old.max_items is not None or old.max_item_bytes is not None:
            space._check_limits(name, *items)
        new = shallow_copy(self)
        set_field(new, "rev", self.rev + 1)
        set_field(new, "updated_at", clock.resolve(options.get("now")) if options else clock.now())
        set_field(new, "spaces", _spaces_of(set_item(self.spaces._map, name, space)))
        return new

    def _with_space(self, name: str, space: Space, options: ChangeOptions) -> Self:
        new = self._next_revision(options.get("now"))
        if name in self.deleted:  # so that no revision of the space occurs twice
            space = msgspec.structs.replace(space, rev=max(space.rev, self.deleted[name] + 1))
            set_field(new, "deleted", self.deleted.delete(name))
        set_field(new, "spaces", _spaces_of(set_item(self.spaces._map, name, space)))
        return new

    def _item_not_found(self, name: str, item_id: str, strict: bool) -> Self:
        """Return the memory unchanged, or raise `NotFound` if `strict` is set."""
        if strict:
            raise NotFound("item", item_id, f"use an id of an item in space {name!r}")
        return self


def _check_space_name(name: object) -> str:
    return check_text(name, "space name", "name the space")


def _check_options(options: ChangeOptions) -> None:
    for name in options:
        if name not in ChangeOptions.__annotations__:
            raise Invalid(name, "is no option of a change", f"use {', '.join(ChangeOptions.__annotations__)}")


def _with_next_rev(old: Space, space: Space) -> Space:
    # A revision never goes back, so an `expected_space_rev` read before cannot match by chance.
    return msgspec.structs.replace(space, rev=max(old.rev, space.rev) + 1)


def _check_space_kind(name: str, space: object, field: str = "space") -> Space:
    """Return a space that may have this name: the reserved ones keep their kind."""
    if not isinstance(space, Space):
        raise WrongType(field, "a Space", space, "pass Space.new_kv(…) or Space.new_list(…)")
    if name == "world" and not Space.is_map(space):
        raise ReservedSpace(name, "change the kind of", "give it a map: Space.new_kv(…)")
    if name == "tasks" and not Space.is_list(space):
        raise ReservedSpace(name, "change the kind of", "give it a list: Space.new_list(…)")
    return space
