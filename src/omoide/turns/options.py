"""Options of a turn, validated, and the environment that they make for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypedDict

import msgspec

from omoide import clock, ids
from omoide.core.agent import Agent
from omoide.core.entry import RecallResult, Scope
from omoide.core.frozen import EMPTY_MAP
from omoide.core.thread import ThreadEntry
from omoide.core.value import check_function, check_instance
from omoide.errors import Invalid, MissingNamespace, WrongType
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.stores.protocols import AnyStore, Store
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
from omoide.turns.memory import memory_policy, namespace_of, recall_scope, resolve_aliases, scope_of
from omoide.turns.model import FunctionModel, Model, ModelFunction
from omoide.turns.prompt import Exchange, Message, SessionView, TokenCounts, check_non_empty
from omoide.turns.spec import AgentSpec
from omoide.verbs import async_store


class Paused(Exception):
    """Raised inside a turn to stop it for now; `execute` turns it into a result."""

    def __init__(self, status: str, reviews: Sequence[Review] = ()) -> None:
        super().__init__(status)
        self.status = status
        self.reviews = tuple(reviews)


class TurnRecorder(Protocol):
    """Persists the steps of a turn; the turn goes on when a call returns. A session has one."""

    async def record_start(self, request: TurnRequest) -> None:
        """Persist the request, before anything is done about it."""

    async def record_recall(self, recalled: RecallResult | None) -> None:
        """Persist the recalled memories, so that a resumed turn has the same."""

    async def record_entries(self, entries: Sequence[ThreadEntry]) -> None:
        """Append entries to the persisted thread."""


class TurnEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """The model, store, controls and other resources that a turn uses."""

    spec: AgentSpec
    model: Model | None = None
    """None in a replay: then everything has to be in the journal."""
    store: Store | None = None
    scope: Scope | None = None
    """The scope in which the turn writes memories."""
    reach: Scope | None = None
    """The scope in which it recalls them."""
    data: Mapping[str, Any] = EMPTY_MAP
    secrets: Mapping[str, Any] = EMPTY_MAP
    hidden: tuple[str, ...] = ()
    """Texts that must reach neither the model nor the thread."""
    controls: tuple[Control, ...] = ()
    decisions: Mapping[str, Decision] = EMPTY_MAP
    reviews: tuple[Review, ...] = ()
    """The reviews that the decisions answer."""
    count: TokenCounter
    checkpoint: str | None = None
    events: EventEmitter
    recorder: TurnRecorder | None = None
    streaming: bool = False
    token_counts: TokenCounts | None = None
    """Token counts of the conversation that are known already."""
    session: SessionView | None = None
    """What the prompts show of the session."""
    scratchpad: Any = None
    """The working context of the session, for tools."""

    @property
    def model_name(self) -> str | None:
        """The name of the model in use, or else the one that the spec names."""
        name: str | None = getattr(self.model, "name", None)
        return name or self.spec.model

    @property
    def has_output_control(self) -> bool:
        """True if an answer has to pass a control before it is shown."""
        return any(type(control).at_output is not Control.at_output for control in self.controls)


CHECKPOINTS = ("after_prompt", "before_tool")


class CommonKwargs(TypedDict, total=False):
    """Keyword arguments that a turn and a session have in common."""

    model: Model | ModelFunction | str | None
    """A model, a function, or `provider:model`; default: the spec's model."""
    llm: Model | ModelFunction | str | None
    """Another name of `model`."""
    memory_store: AnyStore | None
    """The store for memory: for a turn another name of `store`, for a session one beside it."""
    context: Mapping[str, Any]
    """Data about the turn, for the namespace of memory, tools and controls."""
    secrets: Mapping[str, Any]
    """Data for tools and controls only; it is never persisted."""
    controls: Sequence[Control]
    count_tokens: TokenCounter
    checkpoint: str | None
    """The step at which the turn stops and returns a snapshot: `after_prompt` or `before_tool`."""
    on_event: EventListener | None


class TurnKwargs(CommonKwargs, total=False):
    """Keyword arguments of `turn`, `chat`, `stream`, `preflight` and the methods of `Session`."""

    store: AnyStore | None
    """The store for memory; None for a turn without memory."""
    session_id: str | None
    project_id: str | None
    user_id: str | None
    """The user whose memory the turn reads and writes; without one it is not narrowed to a user."""
    request_id: str | None
    agent: Agent | None
    """The agent that runs the turn; default: a new one."""
    history: Sequence[Message | Exchange]
    """The conversation so far."""
    decisions: Mapping[str, Decision]
    """Decisions on the reviews of a waiting turn, by review id."""


class TurnOptions(msgspec.Struct, kw_only=True):
    """The options of a turn, validated and with defaults."""

    model: Any = None
    store: Any = None
    session_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
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
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> TurnOptions:
        """Validate keyword arguments.

        Raises:
            Invalid: an option is unknown or has a wrong value.
        """
        for name in kwargs:
            if name not in TurnKwargs.__annotations__:
                known = ", ".join(TurnKwargs.__annotations__)
                raise Invalid(name, "is not an option of a turn", f"use {known}")
        options = cls(**resolve_aliases(kwargs))
        options._check()
        return options

    def _check(self) -> None:
        self.controls = check_controls(self.controls)
        check_context(self.context)
        check_context(self.secrets, "secrets")
        if self.checkpoint not in (None, *CHECKPOINTS):
            raise Invalid("checkpoint", f"is {self.checkpoint!r}", f"use one of {', '.join(CHECKPOINTS)}")
        if self.store is not None:
            self.store = async_store(self.store)
        if self.agent is not None:
            check_instance(self.agent, "agent", kind=Agent)
        for field in ("request_id", "session_id", "project_id", "user_id"):
            value = getattr(self, field)
            # An empty session or project means none; an empty request id is a mistake, and so is an empty
            # user: it would open the memory of all users.
            if value or (field in ("request_id", "user_id") and value is not None):
                ids.check(value, field)
        _check_counter(self.count_tokens)
        if self.on_event is not None:
            check_function(self.on_event, "on_event")
        if not isinstance(self.decisions, Mapping):
            raise WrongType("decisions", "a mapping of reviews' ids to Decisions", self.decisions)
        for key, decision in self.decisions.items():
            check_instance(decision, f"decisions.{key}", kind=Decision)

    def build_request(self, spec: AgentSpec, input: object) -> TurnRequest:
        """Return the request of the turn: the part of the options that may be persisted."""
        spec.output_schema()  # a result schema that cannot be checked fails now, not after the answer
        return TurnRequest(
            id=self.request_id or ids.new("req_"),
            input=check_non_empty(input),
            session_id=self.session_id or None,
            project_id=self.project_id or None,
            user_id=self.user_id,
            context=persistable_context(self.context),
            controls=tuple(type(control).__name__ for control in self.controls),
            off_record=self.off_record,
            namespace=self._namespace(spec),
            at=clock.now(),
        )

    def _namespace(self, spec: AgentSpec) -> str | None:
        """Return the namespace of the turn's memory, also where no store is given."""
        scope = self.memory_scope(spec)
        if scope is not None:
            return scope.namespace
        policy = memory_policy(spec)
        try:
            return None if policy is None else namespace_of(policy, self.context)
        except MissingNamespace:
            return None  # without a store nothing reads it

    def memory_scope(self, spec: AgentSpec) -> Scope | None:
        """Return the scope of the turn's memory; None without a policy or a store."""
        policy = memory_policy(spec)
        if policy is None or self.store is None:
            return None
        return scope_of(
            spec,
            policy,
            session_id=self.session_id,
            project_id=self.project_id,
            user_id=self.user_id,
            context=self.context,
        )

    def build_environment(
        self,
        spec: AgentSpec,
        *,
        events: EventEmitter,
        model: Model | None,
        recorder: TurnRecorder | None = None,
        streaming: bool = False,
        token_counts: TokenCounts | None = None,
        session: SessionView | None = None,
        scratchpad: Any = None,
    ) -> TurnEnvironment:
        """Return the environment of a turn with these options."""
        policy, scope = memory_policy(spec), self.memory_scope(spec)
        approval = (Approval(spec.approve),) if spec.approve else ()
        return TurnEnvironment(
            spec=self.with_named_model(spec),
            model=model,
            store=self.store,
            scope=scope,
            reach=None if scope is None or policy is None else recall_scope(scope, policy),
            data=self.context,
            secrets=self.secrets,
            hidden=secret_texts(self.context, self.secrets),
            # Approval comes last: a person decides on the call as the other controls left it.
            controls=(*self.controls, *approval),
            decisions=self.decisions,
            reviews=self.reviews,
            count=self.count_tokens,
            checkpoint=self.checkpoint,
            events=events,
            recorder=recorder,
            streaming=streaming,
            token_counts=token_counts,
            session=session,
            scratchpad=scratchpad,
        )

    def with_named_model(self, spec: AgentSpec) -> AgentSpec:
        """Return the spec with the model that the options name, if they name one."""
        return spec.replace(model=self.model) if isinstance(self.model, str) else spec

    def resolve_model(self, spec: AgentSpec) -> Model:
        """Return the model of the options, or else of the spec."""
        return as_model(self.model if self.model is not None else spec.model, spec)


def _check_counter(count: TokenCounter) -> None:
    # Called once, so that a wrong counter fails here and not in the middle of a turn.
    counted: object = check_function(count, "count_tokens")("one word")
    if type(counted) is not int or counted < 0:
        raise WrongType("count_tokens", "a function from text to an int", counted, "round up what it gives")


def as_model(source: object, spec: AgentSpec) -> Model:
    """Return a model from a model, a function, or a name like `provider:model`."""
    if source is None:
        raise Invalid(
            "model",
            f"of agent {spec.id!r} is missing",
            "name one in the spec, or pass model= with a function",
        )
    if isinstance(source, str):
        from omoide.turns.provider import ProviderModel  # needs the extra `models`

        return ProviderModel(source, base_url=spec.base_url)
    if isinstance(source, Model):
        return source
    if callable(source):
        return FunctionModel(source)
    raise WrongType("model", "a Model, a function, or provider:model", source)
