"""TurnResult, Snapshot, structured output."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar, Self

import msgspec

from omoide.core import codec
from omoide.core.action import Directive
from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint
from omoide.core.codec import MapField, TextsField
from omoide.core.entry import RecallResult, WriteResult
from omoide.core.frozen import EMPTY_MAP, thaw
from omoide.core.schema import Schema
from omoide.core.thread import ThreadEntry
from omoide.core.value import Count, Id, Value, check_tuple, set_field
from omoide.errors import Invalid, ModelMisbehaved
from omoide.turns.controls import Decision, Review, TurnRequest
from omoide.turns.journal import Event, Journal
from omoide.turns.json_schema import type_from_schema
from omoide.turns.messages import Exchange, Usage
from omoide.turns.prompt import Prompt
from omoide.turns.spec import AgentSpec

# result: What came of a turn?


SNAPSHOT_VERSION = 1


class Snapshot(Value, frozen=True, kw_only=True):
    """A turn at rest: all that is needed to go on with it, and no secrets."""

    schema_version: int = SNAPSHOT_VERSION
    asked: TurnRequest
    base: Checkpoint
    """The agent before the turn."""
    past: tuple[ThreadEntry, ...] = ()
    """What the agent's thread held before the turn."""
    entries: tuple[ThreadEntry, ...] = ()
    """What the turn wrote into the thread so far."""
    recalled: RecallResult | None = None
    reviews: tuple[Review, ...] = ()
    history: tuple[Exchange, ...] = ()
    decisions: MapField = EMPTY_MAP
    """What was decided about the reviews so far."""
    digest: str = ""
    """Shows whether it was changed since."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "past", check_tuple(self.past, "past", ThreadEntry))
        set_field(self, "entries", check_tuple(self.entries, "entries", ThreadEntry))
        set_field(self, "reviews", check_tuple(self.reviews, "reviews", Review))
        set_field(self, "history", check_tuple(self.history, "history", Exchange))

    def decode_decisions(self) -> dict[str, Decision]:
        """What was decided about the reviews so far."""
        return {key: codec.from_builtins(thaw(one), Decision) for key, one in self.decisions.items()}

    def with_digest(self) -> Self:
        """The same with its digest."""
        return self.replace(digest=self._compute_digest())

    def check(self) -> Self:
        """The snapshot itself, if it is whole and this version can read it."""
        if self.schema_version != SNAPSHOT_VERSION:
            raise Invalid(
                "snapshot.schema_version",
                f"is {self.schema_version}, this reads {SNAPSHOT_VERSION}",
                "resume it with the version of Omoide that made it",
            )
        if self.digest != self._compute_digest():
            raise Invalid("snapshot", "was changed since it was made", "pass it as it was given")
        return self

    def _compute_digest(self) -> str:
        return sha256(codec.encode(self.replace(digest=""))).hexdigest()


class TurnResult(Value, frozen=True, kw_only=True):
    """What a turn led to. `content` is the answer; a turn that waits has none yet."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"agent", "directives"})

    content: str = ""
    status: str = "finished"
    """`finished`; `waiting` for a decision on its `reviews`; or `hibernated` where it was told to."""
    request_id: Id
    session_id: Id | None = None
    agent: Agent | None = None
    """The agent after the turn."""
    prompt: Prompt | None = None
    """The last prompt that was sent, or would have been."""
    events: tuple[Event, ...] = ()
    usage: Usage = Usage()
    journal: Journal
    memory: WriteResult | None = None
    """The receipt for what was captured."""
    notices: TextsField = ()
    """What went wrong without stopping the turn."""
    reviews: tuple[Review, ...] = ()
    snapshot: Snapshot | None = None
    directives: tuple[Directive, ...] = ()
    """What pure actions asked for; a turn does not carry them out. They are not part of the JSON form."""
    rounds: Count = 0
    value: Any = None
    """The answer as data, where the spec asked for a result of some shape."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, kind in (("events", Event), ("reviews", Review), ("directives", Directive)):
            set_field(self, field, check_tuple(getattr(self, field), field, kind))

    @property
    def recalled(self) -> RecallResult | None:
        """What memory said to it."""
        return self.journal.recalled

    def __str__(self) -> str:
        return self.content


# shaping: Does an answer have the shape that was asked for?


_FENCED = re.compile(r"```(?:json)?\s*(\{.*?\})\s*```", re.DOTALL)
_BRACES = re.compile(r"\{.*\}", re.DOTALL)


def output_schema(spec: AgentSpec) -> Schema | None:
    """The shape of the answer, if it was asked for one; a shape that cannot be checked is refused."""
    if spec.result is None:
        return None
    made = spec.answer or _result_class(msgspec.json.encode(spec.result.to_python()))
    return Schema(made, "result")


@lru_cache(maxsize=64)
def _result_class(schema: bytes) -> type:
    return type_from_schema(msgspec.json.decode(schema), "result")


def parse_output(spec: AgentSpec, content: str, model: str | None = None) -> Any:
    """The answer as data of the spec's result, or None where text was all that was asked for."""
    schema = output_schema(spec)
    if schema is None:
        return None
    name = model or spec.model or spec.id
    plain = _find_json_object(content)
    if plain is None:
        raise ModelMisbehaved(name, "answered with no JSON object", "ask again")
    known = {key: value for key, value in plain.items() if key in schema.fields}
    try:
        found = schema.check(known)
    except Invalid as error:
        raise ModelMisbehaved(name, f"answered in another shape ({error})", "ask again") from error
    return known if spec.answer is None else found


def _find_json_object(content: str) -> dict[str, Any] | None:
    """The object in an answer: all of it, the last fenced block, or what stands in braces."""
    fenced = _FENCED.findall(content)
    braces = _BRACES.search(content)
    for text in (content, *fenced[-1:], *([] if braces is None else [braces.group()])):
        try:
            plain = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        if isinstance(plain, dict):
            return plain
    return None
