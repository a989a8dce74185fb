"""Preview a turn: the same recall and the same prompt, without calling a model or writing anything."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

from omoide import clock, thread
from omoide.core.agent import Agent
from omoide.core.codec import MapField, TextsField
from omoide.core.entry import RecallResult
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import Value, check_instance, check_tuple, set_field
from omoide.turns import tools
from omoide.turns.controls import TurnRequest
from omoide.turns.journal import Event, conversation
from omoide.turns.memory import memory_policy, recall_pinned, recall_unseen
from omoide.turns.options import TurnKwargs, TurnOptions
from omoide.turns.prompt import (
    Exchange,
    Prompt,
    SessionView,
    TokenCounts,
    as_exchanges,
    assemble,
    check_fits,
    render_prompt,
    shown_ids,
    visible_requests,
)
from omoide.turns.spec import AUTOMATIC_CAPTURES, AgentSpec


class Preflight(Value, frozen=True, kw_only=True):
    """A turn up to the point where the model would be called; `str` renders it as a page."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"agent"})

    spec: AgentSpec
    agent: Agent | None = None
    plan: TextsField = ()
    """The steps that the turn would take."""
    request: TurnRequest
    prompt: Prompt
    recalled: RecallResult | None = None
    events: tuple[Event, ...] = ()
    timeline: MapField = EMPTY_MAP
    """Milliseconds that each step took."""
    diagnostics: TextsField = ()
    """Hints at likely mistakes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "events", check_tuple(self.events, "events", Event))

    def __str__(self) -> str:
        return render_prompt(self.spec, self.prompt, self.plan, self.diagnostics)


async def preflight(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> Preflight:
    """Return the prompt of a turn with the reason for each memory in it, and what was left out.

    Nothing is written and no model is called. Controls are not asked either, so a turn may still refuse or
    change the input.

    Args:
        spec: the agent.
        input: the user's message.
        options: see `TurnKwargs`.

    Raises:
        OverBudget: instructions, tools and input do not fit into the window.
    """
    turn_options = TurnOptions.from_kwargs(options)
    history = as_exchanges(turn_options.history)
    if not history and turn_options.agent is not None:
        history = tuple(conversation(thread.of(turn_options.agent).entries))
    return await build_preflight(spec, input, turn_options, history)


async def build_preflight(
    spec: AgentSpec,
    input: str,
    options: TurnOptions,
    history: tuple[Exchange, ...],
    agent: Agent | None = None,
    session: SessionView | None = None,
) -> Preflight:
    """Return the preview of a turn that continues a conversation."""
    spec = options.with_named_model(check_instance(spec, "spec", kind=AgentSpec))
    request = options.build_request(spec, input)
    check_fits(spec, request.input, tools.operations(spec), options.count_tokens)
    started = clock.now()
    reads: dict[str, Any] = {
        "store": options.store,
        "session_id": options.session_id,
        "project_id": options.project_id,
        "user_id": options.user_id,
        "context": options.context,
    }
    seen = visible_requests(spec, history, TokenCounts(options.count_tokens))
    recalled = await recall_unseen(spec, request.input, seen, **reads)
    pinned = await recall_pinned(spec, **reads)
    recall_done = clock.now()
    prompt = assemble(
        spec,
        request.input,
        recalled=recalled,
        pinned=pinned,
        session=session,
        history=history,
        operations=tools.operations(spec),
        context=request.context,
        count=options.count_tokens,
    )
    return Preflight(
        spec=spec,
        agent=agent or options.agent or Agent.new(spec.definition(), id=spec.id),
        plan=_plan(spec, options),
        request=request,
        prompt=prompt,
        recalled=recalled,
        events=_events(prompt),
        timeline={"recall_ms": recall_done - started, "assemble_ms": clock.now() - recall_done},
        diagnostics=_diagnostics(spec, options, recalled, prompt),
    )


def _events(prompt: Prompt) -> tuple[Event, ...]:
    shown = shown_ids(prompt)
    recalled = [Event(kind="memory_recalled", data={"count": len(shown), "ids": shown})] if shown else []
    return (*recalled, Event(kind="prompt_assembled", data={"tokens": prompt.tokens["total"], "round": 0}))


def _plan(spec: AgentSpec, options: TurnOptions) -> list[str]:
    policy = memory_policy(spec)
    steps = []
    if options.controls:
        steps.append(f"ask {len(options.controls)} control(s) about the input")
    if policy is not None and options.store is not None:
        steps.append(f"recall up to {policy.max_entries} memories of this {policy.scope}")
    steps.append(f"call {_model_label(spec, options)}")
    if spec.tools:
        rounds = spec.limits.max_rounds - 1
        steps.append(f"run its tools ({', '.join(spec.tools)}), in at most {rounds} rounds")
    if spec.approve:
        steps.append(f"wait for approval of {', '.join(spec.approve)}")
    if policy is not None and policy.capture in AUTOMATIC_CAPTURES and options.store is not None:
        what = "the user's message" if policy.capture == "user" else "the conversation"
        steps.append(f"capture {what} after the answer")
    return steps


def _model_label(spec: AgentSpec, options: TurnOptions) -> str:
    if options.model is None or isinstance(options.model, str):
        return spec.model or "a model, once one is named"
    return str(
        getattr(options.model, "name", None)
        or getattr(options.model, "__name__", type(options.model).__name__)
    )


def _diagnostics(
    spec: AgentSpec, options: TurnOptions, recalled: RecallResult | None, prompt: Prompt
) -> list[str]:
    hints = []
    policy = memory_policy(spec)
    if options.controls:
        hints.append("Controls were not asked: a turn may refuse this input, or change it.")
    if spec.memory is None:
        hints.append("The spec declares no memory: nothing is recalled.")
    elif policy is None:
        hints.append("Memory is declared and switched off: nothing is recalled.")
    elif options.store is None:
        hints.append("No store was given: nothing is recalled.")
    if recalled is not None:
        if not recalled.entries and recalled.withheld:
            least = recalled.request.min_relevance
            hints.append(f"Nothing recalled is relevant: all is below min_relevance {least}.")
        elif not recalled.entries:
            hints.append("Nothing was recalled: check scope, user_id, session_id and namespace.")
        elif recalled.weak:
            hints.append("Nothing recalled matches well: these are the best of what does not.")
        hints += recalled.notices
        if policy is not None and policy.inject == "context" and recalled.entries:
            hints.append("Memory is in prompt.memory only: the model sees none of it in its messages.")
    dropped = sum(cut.count for cut in prompt.cut if cut.part == "history")
    if dropped:
        hints.append(f"{dropped} of the oldest turns do not fit into the window.")
    if spec.model is None and options.model is None:
        hints.append("The spec names no model: a turn needs one, or model=.")
    return hints
