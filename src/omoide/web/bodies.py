"""What may be sent to the service?"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from omoide.core.codec import MapField
from omoide.core.entry import SOURCES, Evidence
from omoide.core.memory_types import MEMORY_TYPES

PRINTABLE = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
"""What an id is made of."""

Text = Annotated[str, Meta(min_length=1)]
Named = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": PRINTABLE})]
Number = Annotated[int, Meta(ge=1, le=10_000)]
Unit = Annotated[float, Meta(ge=0.0, le=1.0)]
Moment = Annotated[int, Meta(ge=0, description="milliseconds since 1970 UTC")]
Source = Annotated[str, Meta(extra_json_schema={"enum": [*SOURCES]})]
Type = Annotated[str, Meta(extra_json_schema={"enum": [*MEMORY_TYPES]})]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes with a request; unknown fields are refused."""

    def given(self) -> dict[str, Any]:
        """The fields that were said."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in found.items() if value is not None}


class Remember(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory to keep."""

    content: Text
    id: Named | None = None
    type: Type | None = None
    confidence: Unit | None = None
    importance: Unit | None = None
    source: Source | None = None
    tags: tuple[Text, ...] | None = None
    rationale: str | None = None
    evidence: tuple[Evidence, ...] | None = None
    metadata: MapField | None = None
    occurred_at: Moment | None = None
    expires_at: Moment | None = None
    supersedes: Named | None = None
    dedupe: bool | None = None


class Narrowing(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories are meant at all."""

    types: tuple[Type, ...] | None = None
    tags: tuple[Text, ...] | None = None
    tags_any: tuple[Text, ...] | None = None
    min_confidence: Unit | None = None
    since: Moment | None = None
    until: Moment | None = None
    include_superseded: bool | None = None
    include_stale: bool | None = None
    include_expired: bool | None = None


class Recall(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question."""

    query: Text
    limit: Annotated[int, Meta(ge=1, le=100)] = 5
    filter: Narrowing | None = None
    max_tokens: Number | None = None


class Forget(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory that no longer counts."""

    id: Named
    reason: str | None = None
    replacement: Named | None = None


class Restore(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory that counts again."""

    id: Named


class Erase(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be removed for good: a memory, or with `everything` all that the scope holds."""

    id: Named | None = None
    everything: bool = False
    reason: str | None = None


class Relate(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How two memories are related."""

    source: Named
    relation: Text
    target: Named


class Prune(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories can go; nothing goes unless `dry_run` is false."""

    older_than_ms: Annotated[int, Meta(ge=0)] | None = None
    max_confidence: Unit | None = None
    max_access: Annotated[int, Meta(ge=0)] | None = None
    types: tuple[Type, ...] = ()
    limit: Number = 1_000
    dry_run: bool = True


class Sparql(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query in SPARQL, with values for its variables."""

    query: Text
    bindings: dict[str, str | int | float | bool] | None = None
    limit: Number = 1_000
    timeout: Annotated[float, Meta(gt=0, le=60)] = 10.0


class Promote(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a session is to become lasting memory; nothing does unless `dry_run` is false."""

    session: Named
    dry_run: bool = True
    threshold: Unit | None = None


class UndoPromotion(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A promotion to take back: the last one of a session, or the run that is named."""

    session: Named
    run: Named | None = None


class Preflight(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What would be said in a session."""

    session: Named
    message: Text


class WhoCan(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody is needed for."""

    action: Text | None = None
    tags: tuple[Text, ...] = ()
    limits: dict[str, int | float] | None = None
