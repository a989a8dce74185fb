"""Turn options and environment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from omoide import clock, ids
from omoide.core.agent import Agent
from omoide.core.entry import RecallResult, Scope
from omoide.core.frozen import EMPTY_MAP
from omoide.core.thread import ThreadEntry
from omoide.core.value import check_function, check_instance
from omoide.errors import Invalid, MissingNamespace, WrongType
from omoide.retrieval.text import estimate_tokens
from omoide.stores.protocols import Store
from omoide.turns.controls import (
    Approval,
    Control,
    Decision,
    Review,
    TurnRequest,
    check_context,
    check_controls,
    persistable_context,
    secret_texts,
)
from omoide.turns.journal import EventEmitter, EventListener
from omoide.turns.memory import memory_policy, namespace_of, recall_scope, scope_of
from omoide.turns.messages import Exchange, Message, TokenCounts, check_non_empty
from omoide.turns.model import FunctionModel, Model, ModelFunction
from omoide.turns.prompt import TokenCounter
from omoide.turns.result import output_schema
from omoide.turns.spec import AgentSpec

# world: What may a turn use, and who keeps what it does?


RecordEntries = Callable[[Sequence[ThreadEntry]], Awaitable[None]]


class Paused(Exception):
    """The turn stops here for now."""

    def __init__(self, status: str, reviews: Sequence[Review] = ()) -> None:
        super().__init__(status)
        self.status = status
        self.reviews = tuple(reviews)


class TurnEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn may use."""

    spec: AgentSpec
    model: Model | None = None
    """None where nothing may be called: then everything has to be in the journal."""
    store: Store | None = None
    scope: Scope | None = None
    """Where the turn's memory lies."""
    reach: Scope | None = None
    """What recall sees."""
    data: Mapping[str, Any] = EMPTY_MAP
    secrets: Mapping[str, Any] = EMPTY_MAP
    hidden: tuple[str, ...] = ()
    """Texts that neither the model nor the thread gets to see, whoever says them."""
    controls: tuple[Control, ...] = ()
    decisions: Mapping[str, Decision] = EMPTY_MAP
    reviews: tuple[Review, ...] = ()
    """What the decisions are about."""
    count: TokenCounter
    checkpoint: str | None = None
    events: EventEmitter
    begin: Callable[[TurnRequest], Awaitable[None]] | None = None
    """Keeps what was asked, before anything is done about it."""
    record: RecordEntries | None = None
    """Keeps what the turn writes into the thread, before the turn goes on."""
    remember: Callable[[RecallResult | None], Awaitable[None]] | None = None
    """Keeps what was recalled."""
    streaming: bool = False
    sizes: TokenCounts | None = None
    """What the turns of the conversation take, where that was counted before."""

    @property
    def model_name(self) -> str | None:
        """What the model is called: the one that is used, whatever the spec says."""
        name: str | None = getattr(self.model, "name", None)
        return name or self.spec.model

    @property
    def has_output_control(self) -> bool:
        """Whether an answer has to pass a control before anybody reads it."""
        return any(type(control).at_output is not Control.at_output for control in self.controls)


# options: What can be said about a turn, beside what the agent is asked?


CHECKPOINTS = ("after_prompt", "before_tool")


class TurnKwargs(TypedDict, total=False):
    """What every way of running a turn takes."""

    llm: Model | ModelFunction | str | None
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
    count_tokens: TokenCounter
    checkpoint: str | None
    """Where to stop for now: `after_prompt` or `before_tool`."""
    on_event: EventListener | None
    decisions: Mapping[str, Decision]
    """What was decided about the reviews of a turn that waits."""


class TurnOptions(msgspec.Struct, kw_only=True):
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
    count_tokens: TokenCounter = estimate_tokens
    checkpoint: str | None = None
    on_event: EventListener | None = None
    decisions: Mapping[str, Decision] = EMPTY_MAP
    reviews: tuple[Review, ...] = ()
    off_record: bool = False

    @classmethod
    def from_kwargs(cls, options: Mapping[str, Any]) -> TurnOptions:
        """The options, if all of them are known and sound."""
        for name in options:
            if name not in TurnKwargs.__annotations__:
                raise Invalid(name, "is no option of a turn", f"use {', '.join(TurnKwargs.__annotations__)}")
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

    def build_request(self, spec: AgentSpec, input: object) -> TurnRequest:
        """What the agent is asked: the part of it that may be kept."""
        output_schema(spec)  # a shape that no answer can be checked against is found out now
        return TurnRequest(
            id=self.request_id or ids.new("req_"),
            input=check_non_empty(input),
            session_id=self.session_id or None,
            project_id=self.project_id or None,
            context=persistable_context(self.context),
            controls=tuple(type(control).__name__ for control in self.controls),
            off_record=self.off_record,
            namespace=self._namespace(spec),
            at=clock.now(),
        )

    def _namespace(self, spec: AgentSpec) -> str | None:
        """Where the turn's memory lies, or would lie with a store."""
        scope = self.memory_scope(spec)
        if scope is not None:
            return scope.namespace
        policy = memory_policy(spec)
        try:
            return None if policy is None else namespace_of(policy, self.context)
        except MissingNamespace:
            return None  # without a store nobody asks for it

    def memory_scope(self, spec: AgentSpec) -> Scope | None:
        """Where the turn's memory lies; None where it has none, or nobody to ask."""
        policy = memory_policy(spec)
        if policy is None or self.memory_store is None:
            return None
        return scope_of(
            spec, policy, session_id=self.session_id, project_id=self.project_id, context=self.context
        )

    def build_environment(
        self, spec: AgentSpec, *, events: EventEmitter, model: Model | None, **more: Any
    ) -> TurnEnvironment:
        """What the turn may use."""
        policy, scope = memory_policy(spec), self.memory_scope(spec)
        approval = (Approval(spec.approve),) if spec.approve else ()
        return TurnEnvironment(
            spec=self.with_named_model(spec),
            model=model,
            store=self.memory_store,
            scope=scope,
            reach=None if scope is None or policy is None else recall_scope(scope, policy),
            data=self.context,
            secrets=self.secrets,
            hidden=secret_texts(self.context, self.secrets),
            controls=(*self.controls, *approval),
            decisions=self.decisions,
            reviews=self.reviews,
            count=self.count_tokens,
            checkpoint=self.checkpoint,
            events=events,
            **more,
        )

    def with_named_model(self, spec: AgentSpec) -> AgentSpec:
        """The spec with the model that is named in its place, if one is."""
        return spec.replace(model=self.llm) if isinstance(self.llm, str) else spec

    def resolve_model(self, spec: AgentSpec) -> Model:
        """The model that answers."""
        return as_model(self.llm if self.llm is not None else spec.model, spec)


def _check_counter(count: TokenCounter) -> None:
    """Raise unless it counts; a budget that is counted in anything but whole tokens is none."""
    counted: object = check_function(count, "count_tokens")("one word")
    if type(counted) is not int or counted < 0:
        raise WrongType("count_tokens", "a function from text to an int", counted, "round up what it gives")


def as_model(source: object, spec: AgentSpec) -> Model:
    """A model from a model, a function, or a name."""
    if source is None:
        raise Invalid(
            "model", f"of agent {spec.id!r} is missing", "name one in the spec, or pass llm= with a function"
        )
    if isinstance(source, str):
        from omoide.turns.provider import ProviderModel  # needs packages that not everybody has

        return ProviderModel(source, base_url=spec.base_url)
    if isinstance(source, Model):
        return source
    if callable(source):
        return FunctionModel(source)
    raise WrongType("llm", "a Model, a function, or provider:model", source)
