"""What becomes of entries whose projection was asked of a provider?

They are covered when every answer says that it was done. Otherwise they are free, and asked for at the next
run. A key that a provider refuses again and again while it keeps others is passed over, and reported: one
message that may not be kept must not hold up all that come after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from omoide import clock
from omoide.core.action import action
from omoide.core.context import Context
from omoide.core.directives import MEMORY_RESULT, Directive, Error
from omoide.core.frozen import FrozenMap
from omoide.core.memory import Memory
from omoide.core.plugin import Plugin
from omoide.core.router import RouteLike
from omoide.projection import marks
from omoide.projection.marks import Mark

TRIES = 3
"""How often a provider may refuse a key before it is passed over."""
LATE = "timed out"
"""What a provider that was too slow for a key is said to have done."""
_NAMED = 5


class Answer(NamedTuple):
    """What a provider answered to one request."""

    kept: bool
    """Whether it kept anything."""
    missed: list[str]
    """The keys that it did not keep."""
    broken: bool
    """Whether it failed for another reason than these keys."""


@action
def projection_result(
    ctx: Context, request_id: Any = None, status: Any = None, details: Any = None
) -> tuple[Memory | None, list[Directive]]:
    """Take in what a memory provider answered to a projector; answers to others are left alone."""
    now = clock.now()
    for name, mark in marks.every(ctx.memory):
        if isinstance(request_id, str) and request_id in mark.pending:
            new, given_up = _answered(mark, request_id, _read(status, details), now)
            told: list[Directive] = [_passed_over(name, given_up)] if given_up else []
            return marks.write(ctx.memory, name, new, now), told
    return None, []


class ProjectionPlugin(Plugin):
    """Routes the answers of memory providers to projectors; `Projecting` does so by itself."""

    name = "projection"
    description = "Takes in what memory providers answer to projectors"
    actions = (projection_result,)

    def router(self, config: FrozenMap[str, Any]) -> Sequence[RouteLike]:
        """The one route."""
        return [(MEMORY_RESULT, projection_result)]


def _answered(mark: Mark, request_id: str, answer: Answer, now: int) -> tuple[Mark, list[str]]:
    """The mark after one answer, and the keys that are passed over from now on."""
    first, last, _ = mark.pending[request_id]
    mark = mark.replace(
        pending=mark.pending.delete(request_id),
        kept=mark.kept or answer.kept,
        broken=mark.broken or answer.broken,
        missed=[*mark.missed, *answer.missed],
        at=now,
    )
    if mark.pending:
        return mark, []
    if not mark.missed and not mark.broken:
        return mark.covering(first, last, now), []
    if mark.kept and not mark.broken:
        mark = mark.replace(refused={key: mark.refused.get(key, 0) + 1 for key in mark.missed})
    if not mark.broken and all(mark.refused.get(key, 0) >= TRIES for key in mark.missed):
        return mark.covering(first, last, now), [*mark.missed]
    return mark.failing(now), []


def _read(status: object, details: object) -> Answer:
    """What an answer says; where a key came too late it says nothing about what the provider would keep."""
    known = () if isinstance(details, (str, bytes)) or not isinstance(details, Sequence) else details
    told = [one for one in known if isinstance(one, Mapping) and isinstance(one.get("key"), str)]
    missed = [one["key"] for one in told if one.get("status") != "ok"]
    late = any(LATE in str(one.get("error", "")) for one in told)
    ok = status == "ok"
    return Answer(
        kept=ok or len(missed) < len(told),
        missed=[] if ok else missed,
        broken=not ok and (late or not missed),
    )


def _passed_over(name: str, keys: list[str]) -> Error:
    named = ", ".join(keys[:_NAMED]) + (", …" if len(keys) > _NAMED else "")
    return Error(
        message=f"projector {name!r}: its provider refused {named} {TRIES} times; passed over",
        context="projection",
        action=name,
        kind="Refused",
    )
