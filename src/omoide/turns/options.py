"""What can be said about a turn, beside what the agent is asked?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from omoide import clock, ids
from omoide.core.agent import Agent
from omoide.core.frozen import EMPTY_MAP
from omoide.core.scope import Scope
from omoide.core.value import check_function, check_instance
from omoide.errors import Invalid, MissingNamespace, WrongType
from omoide.stores.budget import estimate
from omoide.stores.protocols import Store
from omoide.turns.context import Asked, check_context, hidden, keepable
from omoide.turns.controls import Approval, Control, Decision, Review, check_controls
from omoide.turns.events import Events, Listener
from omoide.turns.messages import Message, said
from omoide.turns.model import Answering, FromFunction, Model
from omoide.turns.prompt import Counter
from omoide.turns.routing import enabled, namespace_of, reach_of, scope_of
from omoide.turns.shaping import wanted
from omoide.turns.spec import AgentSpec
from omoide.turns.window import Exchange
from omoide.turns.world import World

CHECKPOINTS = ("after_prompt", "before_tool")


class Options(TypedDict, total=False):
    """What every way of running a turn takes."""

    llm: Model | Answering | str | None
    """A model, a function, or `provider:model`; the spec's own where it is left out."""
    memory_store: Store | None
    session_id: str | None
    project_id: str | None
    context: Mapping[str, Any]
    """What is true of this turn: for the namespace of memory, for tools and controls."""
    secrets: Mapping[str, Any]
    """What only tools and controls get; it is never written down."""
    request_id: str | None
    controls: Sequence[Control]
    agent: Agent | None
    """The agent to run the turn with, in place of a new one."""
    history: Sequence[Message | Exchange]
    """What was said before."""
    count_tokens: Counter
    checkpoint: str | None
    """Where to stop for now: `after_prompt` or `before_tool`."""
    on_event: Listener | None
    decisions: Mapping[str, Decision]
    """What was decided about the reviews of a turn that waits."""


class Given(msgspec.Struct, kw_only=True):
    """The options of a turn, checked, with their defaults."""

    llm: Any = None
    memory_store: Any = None
    session_id: str | None = None
    project_id: str | None = None
    context: Mapping[str, Any] = EMPTY_MAP
    secrets: Mapping[str, Any] = EMPTY_MAP
    request_id: str | None = None
    controls: Any = ()
    agent: Agent | None = None
    history: Any = ()
    count_tokens: Counter = estimate
    checkpoint: str | None = None
    on_event: Listener | None = None
    decisions: Mapping[str, Decision] = EMPTY_MAP
    reviews: tuple[Review, ...] = ()
    off_record: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Given:
        """The options, if all of them are known and sound."""
        for name in options:
            if name not in Options.__annotations__:
                raise Invalid(name, "is no option of a turn", f"use {', '.join(Options.__annotations__)}")
        given = cls(**options)
        given.controls = check_controls(given.controls)
        check_context(given.context)
        check_context(given.secrets, "secrets")
        if given.checkpoint not in (None, *CHECKPOINTS):
            raise Invalid("checkpoint", f"is {given.checkpoint!r}", f"use one of {', '.join(CHECKPOINTS)}")
        if given.memory_store is not None and not isinstance(given.memory_store, Store):
            raise WrongType("memory_store", "a store", given.memory_store, "pass what open_store(…) gave")
        if given.agent is not None:
            check_instance(given.agent, "agent", kind=Agent)
        if given.request_id is not None:
            ids.check(given.request_id, "request_id")
        for field in ("session_id", "project_id"):
            if getattr(given, field):
                ids.check(getattr(given, field), field)
        _check_counter(given.count_tokens)
        if given.on_event is not None:
            check_function(given.on_event, "on_event")
        if not isinstance(given.decisions, Mapping):
            raise WrongType("decisions", "a mapping of reviews' ids to Decisions", given.decisions)
        for key, decision in given.decisions.items():
            check_instance(decision, f"decisions.{key}", kind=Decision)
        return given

    def asked(self, spec: AgentSpec, input: object) -> Asked:
        """What the agent is asked: the part of it that may be kept."""
        wanted(spec)  # a shape that no answer can be checked against is found out now
        return Asked(
            id=self.request_id or ids.new("req_"),
            input=said(input),
            session_id=self.session_id or None,
            project_id=self.project_id or None,
            context=keepable(self.context),
            controls=tuple(type(control).__name__ for control in self.controls),
            off_record=self.off_record,
            namespace=self._namespace(spec),
            at=clock.now(),
        )

    def _namespace(self, spec: AgentSpec) -> str | None:
        """Where the turn's memory lies, or would lie with a store."""
        scope = self.scope(spec)
        if scope is not None:
            return scope.namespace
        policy = enabled(spec)
        try:
            return None if policy is None else namespace_of(policy, self.context)
        except MissingNamespace:
            return None  # without a store nobody asks for it

    def scope(self, spec: AgentSpec) -> Scope | None:
        """Where the turn's memory lies; None where it has none, or nobody to ask."""
        policy = enabled(spec)
        if policy is None or self.memory_store is None:
            return None
        return scope_of(
            spec, policy, session_id=self.session_id, project_id=self.project_id, context=self.context
        )

    def world(self, spec: AgentSpec, *, events: Events, model: Model | None, **more: Any) -> World:
        """What the turn may use."""
        policy, scope = enabled(spec), self.scope(spec)
        approval = (Approval(spec.approve),) if spec.approve else ()
        return World(
            spec=self.named(spec),
            model=model,
            store=self.memory_store,
            scope=scope,
            reach=None if scope is None or policy is None else reach_of(scope, policy),
            data=self.context,
            secrets=self.secrets,
            hidden=hidden(self.context, self.secrets),
            controls=(*self.controls, *approval),
            decisions=self.decisions,
            reviews=self.reviews,
            count=self.count_tokens,
            checkpoint=self.checkpoint,
            events=events,
            **more,
        )

    def named(self, spec: AgentSpec) -> AgentSpec:
        """The spec with the model that is named in its place, if one is."""
        return spec.replace(model=self.llm) if isinstance(self.llm, str) else spec

    def model(self, spec: AgentSpec) -> Model:
        """The model that answers."""
        return as_model(self.llm if self.llm is not None else spec.model, spec)


def _check_counter(count: Counter) -> None:
    """Raise unless it counts; a budget that is counted in anything but whole tokens is none."""
    counted: object = check_function(count, "count_tokens")("one word")
    if type(counted) is not int or counted < 0:
        raise WrongType("count_tokens", "a function from text to an int", counted, "round up what it gives")


def as_model(wanted: object, spec: AgentSpec) -> Model:
    """A model from a model, a function, or a name."""
    if wanted is None:
        raise Invalid(
            "model", f"of agent {spec.id!r} is missing", "name one in the spec, or pass llm= with a function"
        )
    if isinstance(wanted, str):
        from omoide.turns.provider import ProviderModel  # needs packages that not everybody has

        return ProviderModel(wanted, base_url=spec.base_url)
    if isinstance(wanted, Model):
        return wanted
    if callable(wanted):
        return FromFunction(wanted)
    raise WrongType("llm", "a Model, a function, or provider:model", wanted)
