"""What does an agent mean to do next?

Pure functions over the list of a `tasks` space. A task is `{"id", "text", "status": "open" | "done"}` and its
position is its priority. Items that someone appended raw may lack a status, which counts as open, or be no
maps at all, which are passed over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from omoide import ids
from omoide.core.frozen import EMPTY_MAP, FrozenList, FrozenMap, freeze_map, list_of
from omoide.core.texts import check_text
from omoide.errors import Invalid, NotFound, WrongType

Task = FrozenMap[str, Any]
Tasks = FrozenList[Any]

OPEN, DONE = "open", "done"


def make(tasks: Tasks, text: str, id: str | None, fields: Mapping[str, Any] | None) -> Task:
    """A new open task whose id is not taken."""
    check_text(text, "text", "say what is to be done")
    extra = EMPTY_MAP if fields is None else freeze_map(fields, "fields")
    for key in ("id", "text"):
        if key in extra:
            raise Invalid(f"fields.{key}", "has an argument of its own", f"pass {key}=… instead")
    task_id = ids.new("task_") if id is None else ids.check(id)
    if tasks.found(task_id):
        raise Invalid("id", f"{task_id!r} is the id of another task", "leave it out, or choose another")
    task = FrozenMap({"status": OPEN, **extra, "id": task_id, "text": text})
    if task["status"] not in (OPEN, DONE):
        raise Invalid("fields.status", f"must be 'open' or 'done', not {task['status']!r}", "leave it out")
    return task


def completed(task: Task) -> Task:
    """The same task, done."""
    return task.set("status", DONE)


def is_open(task: object) -> bool:
    """Whether a task waits to be done."""
    return isinstance(task, FrozenMap) and task.get("status", OPEN) == OPEN


def reordered(tasks: Tasks, order: Iterable[str]) -> Tasks:
    """The tasks named in `order` first, then the others as they were."""
    if isinstance(order, (str, bytes)) or not isinstance(order, Iterable):
        raise WrongType("ids", "a list of strings", order)
    wanted = [ids.check(task_id, "ids") for task_id in order]
    twice = next((task_id for task_id, times in Counter(wanted).items() if times > 1), None)
    if twice is not None:
        raise Invalid("ids", f"names {twice!r} twice", "name each task once")
    named, chosen = set(wanted), []
    for task_id in wanted:
        found = tasks.found(task_id)
        if not found:
            raise NotFound("task", task_id, "name ids that tasks() lists")
        chosen += found
    rest = [task for task in tasks if FrozenList.id_of(task) not in named]
    return list_of([*chosen, *rest])
