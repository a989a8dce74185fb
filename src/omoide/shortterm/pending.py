"""What waits to become a memory?

Items that were noticed wait until they matter enough; what the agent decided to remember does not have to. An
item is the entry that it would become.

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, ClassVar, Self

from omoide.core.entry import Entry, Evidence, check_positive
from omoide.core.value import (
    Count,
    Record,
    build_value,
    check_choice,
    check_number,
    check_texts,
    check_tuple,
    set_field,
    shallow_copy,
)
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.shortterm.importance import reaches

SUGGESTED_BY = ("implicit", "agent")
DEFAULT_IMPORTANCE = 0.5
"""The importance of what nobody has scored."""

_ALIASES = MappingProxyType(
    {
        "memory_type": "type",
        "suggested_type": "type",
        "source_type": "source",
        "importance_score": "importance",
        "evidence_refs": "evidence",
    }
)
_REQUIRED = ("content", "type", "confidence", "source")


class PendingItem(Record, frozen=True, kw_only=True):
    """An entry that is not written yet, and who suggested it."""

    LABEL: ClassVar[str] = "pending memory"

    entry: Entry
    suggested_by: str = "implicit"
    access_count: Count = 0

    def _check(self) -> None:
        check_choice(self.suggested_by, "suggested_by", SUGGESTED_BY)

    @classmethod
    def new(cls, given: Self | Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """An item from the fields of an entry, under their own names or the ones below.

        `memory_type` and `suggested_type` are the type, `source_type` the source, `importance_score` the
        importance, and a text among the evidence names a document. What it says, its type, its confidence
        and its source have to be known.
        """
        if isinstance(given, cls):
            return given.replace(**fields)
        try:
            return cls._parse(given, fields)
        except InvalidRecord as error:
            raise _relabel_error(error) from error
        except Invalid as error:
            raise InvalidRecord(cls.LABEL, error) from error

    @classmethod
    def _parse(cls, given: object, fields: dict[str, Any]) -> Self:
        if given is not None and not isinstance(given, Mapping):
            raise WrongType(cls.LABEL, "a mapping or a PendingItem", given)
        known = _resolve_aliases({**(given or {}), **fields})
        about = {name: known.pop(name) for name in ("suggested_by", "access_count") if name in known}
        for name in _REQUIRED:
            if known.get(name) is None:
                raise Invalid(name, "is missing", "it is required")
        if "evidence" in known:
            known["evidence"] = _parse_evidence(known["evidence"])
        if known.get("importance") is None:
            known["importance"] = DEFAULT_IMPORTANCE
        return cls(entry=Entry.new(known), **about)

    @property
    def id(self) -> str:
        """The id that the memory will have."""
        return self.entry.id

    @property
    def content(self) -> str:
        """What is remembered."""
        return self.entry.content

    @property
    def memory_type(self) -> str | None:
        """The type of memory that it will be."""
        return self.entry.type

    @property
    def suggested_type(self) -> str | None:
        """The same, under its other name."""
        return self.entry.type

    @property
    def confidence(self) -> float:
        """How sure it is."""
        return self.entry.confidence

    @property
    def source_type(self) -> str | None:
        """Where it comes from."""
        return self.entry.source

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """What it rests on."""
        return self.entry.evidence

    @property
    def rationale(self) -> str | None:
        """Why it is so."""
        return self.entry.rationale

    @property
    def importance_score(self) -> float:
        """How much it matters."""
        return DEFAULT_IMPORTANCE if self.entry.importance is None else self.entry.importance

    @property
    def created_at(self) -> int:
        """When it was noticed."""
        return self.entry.created_at

    def with_score(self, score: float) -> Self:
        """The same item with another importance, brought into 0 to 1."""
        number = check_number(score, "score")
        if number != number:
            raise Invalid("score", "is no number", "pass one from 0 to 1")
        new = shallow_copy(self)
        set_field(new, "entry", self.entry.replace(importance=min(max(number, 0.0), 1.0)))
        return new


class PendingMemories(Record, frozen=True, kw_only=True):
    """What was noticed, oldest first, and what the agent decided, newest first; an id is there once."""

    LABEL: ClassVar[str] = "pending memories"

    items: tuple[PendingItem, ...] = ()
    agent_decisions: tuple[PendingItem, ...] = ()
    max_items: int = 500
    max_agent_decisions: int = 100

    def _check(self) -> None:
        check_positive(self.max_items, "max_items")
        check_positive(self.max_agent_decisions, "max_agent_decisions")
        seen: set[str] = set()
        for field in ("items", "agent_decisions"):
            held = check_tuple(getattr(self, field), field, PendingItem)
            set_field(self, field, held)
            for at, item in enumerate(held):
                if item.id in seen:
                    raise Invalid(f"{field}[{at}].id", f"is {item.id!r} once more", "add it once")
                seen.add(item.id)

    @property
    def size(self) -> int:
        """How many items wait."""
        return len(self.items) + len(self.agent_decisions)

    def add_implicit(self, item: PendingItem) -> tuple[Self, tuple[PendingItem, ...]]:
        """With an item that was noticed, in place of an older one of its id, and what had to leave.

        Where there are too many, the one that matters least leaves, be it the new one. What the agent
        decided already stays as it decided it.
        """
        _check_item(item)
        if any(decided.id == item.id for decided in self.agent_decisions):
            return self, ()
        items = (*_without(self.items, {item.id}), _with_suggested_by(item, "implicit"))
        if len(items) <= self.max_items:
            return self._with(items, self.agent_decisions), ()
        least = min(items, key=lambda one: one.importance_score)  # of several, the first is the oldest
        return self._with(_without(items, {least.id}), self.agent_decisions), (least,)

    def add_agent_decision(self, item: PendingItem) -> tuple[Self, tuple[PendingItem, ...]]:
        """With something that the agent decided to remember, and what had to leave; the oldest leaves."""
        _check_item(item)
        decided = _with_suggested_by(item.with_score(1.0), "agent")
        others = _without(self.agent_decisions, {item.id})
        room = self.max_agent_decisions - 1
        return self._with(_without(self.items, {item.id}), (decided, *others[:room])), others[room:]

    def ready_for_promotion(self, threshold: float = 0.6) -> list[PendingItem]:
        """What matters enough, and all that the agent decided; what matters most first, then the oldest."""
        check_number(threshold, "threshold")
        noticed = [item for item in self.items if reaches(item.importance_score, threshold)]
        return sorted(
            [*self.agent_decisions, *noticed],
            key=lambda one: (-one.importance_score, one.suggested_by, one.created_at, one.id),
        )

    def clear_promoted(self, ids: Iterable[str]) -> Self:
        """Without the items of these ids, wherever they wait; all others stay."""
        gone = {*check_texts(ids, "ids")}
        return self._with(_without(self.items, gone), _without(self.agent_decisions, gone))

    def get(self, id: str) -> PendingItem | None:
        """The item of this id, wherever it waits, or None."""
        return next((one for one in (*self.items, *self.agent_decisions) if one.id == id), None)

    def update_score(self, id: str, score: float) -> Self:
        """With another importance, brought into 0 to 1, for an item that was noticed; others keep theirs."""
        items = tuple(one.with_score(score) if one.id == id else one for one in self.items)
        return self._with(items, self.agent_decisions)

    def list_implicit(self) -> list[PendingItem]:
        """What was noticed, oldest first."""
        return [*self.items]

    def list_agent_decisions(self) -> list[PendingItem]:
        """What the agent decided, newest first."""
        return [*self.agent_decisions]

    def clear(self) -> Self:
        """With nothing left that waits."""
        return self._with((), ())

    def _with(self, items: tuple[PendingItem, ...], decisions: tuple[PendingItem, ...]) -> Self:
        new = shallow_copy(self)
        set_field(new, "items", items)
        set_field(new, "agent_decisions", decisions)
        return new


def _without(items: tuple[PendingItem, ...], gone: AbstractSet[str]) -> tuple[PendingItem, ...]:
    return tuple([one for one in items if one.entry.id not in gone])


def _check_item(item: object) -> None:
    if not isinstance(item, PendingItem):
        raise WrongType("item", "a PendingItem", item, "make one with PendingItem.new(…)")


def _with_suggested_by(item: PendingItem, who: str) -> PendingItem:
    return item if item.suggested_by == who else item.replace(suggested_by=who)


def _resolve_aliases(given: Mapping[str, Any]) -> dict[str, Any]:
    known: dict[str, Any] = {}
    for name, value in given.items():
        own_name = _ALIASES.get(name, name)
        if own_name in known and known[own_name] != value:
            raise Invalid(name, f"is not what {own_name} is", "say it once")
        known[own_name] = value
    return known


def _parse_evidence(given: object) -> tuple[Any, ...]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise WrongType("evidence", "a list of Evidence or of names", given)
    return tuple(_parse_evidence_item(one, f"evidence[{at}]") for at, one in enumerate(given))


def _parse_evidence_item(given: object, field: str) -> object:
    if isinstance(given, str):
        return Evidence(kind="document", ref=given)
    return build_value(Evidence, given, field) if isinstance(given, Mapping) else given


def _relabel_error(error: InvalidRecord) -> InvalidRecord:
    return InvalidRecord(PendingItem.LABEL, Invalid(error.field, error.problem, error.remedy))
