"""What would a model see, and why?

The same recall and the same prompt as in a turn. No model is called, no tool runs, nothing is written.

"""

from __future__ import annotations

from typing import ClassVar, Unpack

from omoide import clock, thread
from omoide.core.agent import Agent
from omoide.core.codec import MapField, TextsField
from omoide.core.entry import RecallResult
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import Value, check_instance, check_tuple, set_field
from omoide.turns import tools
from omoide.turns.controls import TurnRequest
from omoide.turns.journal import Event, conversation
from omoide.turns.memory import memory_policy, recall_unseen
from omoide.turns.messages import Exchange, TokenCounts, as_exchanges
from omoide.turns.options import TurnKwargs, TurnOptions
from omoide.turns.prompt import Prompt, assemble, check_fits, render_prompt
from omoide.turns.prompt import visible_requests as visible
from omoide.turns.spec import AgentSpec


class Preflight(Value, frozen=True, kw_only=True):
    """A turn up to the point where the model would be called. Printed, it can be read."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"agent"})

    spec: AgentSpec
    agent: Agent | None = None
    plan: TextsField = ()
    """What the turn would do, step by step."""
    request: TurnRequest
    prompt: Prompt
    recalled: RecallResult | None = None
    events: tuple[Event, ...] = ()
    timeline: MapField = EMPTY_MAP
    """How many milliseconds each step took."""
    diagnostics: TextsField = ()
    """What may not be as it was meant."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "events", check_tuple(self.events, "events", Event))

    def __str__(self) -> str:
        return render_prompt(self.spec, self.prompt, self.plan, self.diagnostics)


async def preflight(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> Preflight:
    """What the model would be sent for this, with the reason for each memory and what was left out."""
    given = TurnOptions.from_kwargs(options)
    said = as_exchanges(given.history)
    if not said and given.agent is not None:
        said = tuple(conversation(thread.of(given.agent).entries))
    return await build_preflight(spec, input, given, said)


async def build_preflight(
    spec: AgentSpec,
    input: str,
    options: TurnOptions,
    history: tuple[Exchange, ...],
    agent: Agent | None = None,
) -> Preflight:
    """The same, of a turn that continues a conversation."""
    spec = options.with_named_model(check_instance(spec, "spec", kind=AgentSpec))
    asked = options.build_request(spec, input)
    check_fits(spec, asked.input, tools.operations(spec), options.count_tokens)
    begun = clock.now()
    recalled = await recall_unseen(
        spec,
        asked.input,
        visible(spec, history, TokenCounts(options.count_tokens)),
        memory_store=options.memory_store,
        session_id=options.session_id,
        project_id=options.project_id,
        context=options.context,
    )
    found = clock.now()
    prompt = assemble(
        spec,
        asked.input,
        recalled=recalled,
        history=history,
        operations=tools.operations(spec),
        context=asked.context,
        count=options.count_tokens,
    )
    return Preflight(
        spec=spec,
        agent=agent or options.agent or Agent.new(spec.definition(), id=spec.id),
        plan=_plan(spec, options),
        request=asked,
        prompt=prompt,
        recalled=recalled,
        events=_events(prompt),
        timeline={"recall_ms": found - begun, "assemble_ms": clock.now() - found},
        diagnostics=_diagnostics(spec, options, recalled, prompt),
    )


def _events(prompt: Prompt) -> tuple[Event, ...]:
    shown = [] if prompt.memory is None else [entry["id"] for entry in prompt.memory["entries"]]
    recalled = [Event(kind="memory_recalled", data={"count": len(shown), "ids": shown})] if shown else []
    return (*recalled, Event(kind="prompt_assembled", data={"tokens": prompt.tokens["total"], "round": 0}))


def _plan(spec: AgentSpec, given: TurnOptions) -> list[str]:
    policy = memory_policy(spec)
    steps = []
    if given.controls:
        steps.append(f"ask {len(given.controls)} control(s) about the input")
    if policy is not None and given.memory_store is not None:
        steps.append(f"recall up to {policy.max_entries} memories of this {policy.scope}")
    steps.append(f"call {_model_label(spec, given)}")
    if spec.tools:
        rounds = spec.limits.max_rounds - 1
        steps.append(f"run its tools ({', '.join(spec.tools)}), in at most {rounds} rounds")
    if spec.approve:
        steps.append(f"wait for approval of {', '.join(spec.approve)}")
    if policy is not None and policy.capture == "conversation" and given.memory_store is not None:
        steps.append("capture the conversation after the answer")
    return steps


def _model_label(spec: AgentSpec, given: TurnOptions) -> str:
    if given.llm is None or isinstance(given.llm, str):
        return spec.model or "a model, once one is named"
    return str(getattr(given.llm, "name", None) or getattr(given.llm, "__name__", type(given.llm).__name__))


def _diagnostics(
    spec: AgentSpec, given: TurnOptions, recalled: RecallResult | None, prompt: Prompt
) -> list[str]:
    told = []
    policy = memory_policy(spec)
    if given.controls:
        told.append("Controls were not asked: a turn may refuse this input, or change it.")
    if spec.memory is None:
        told.append("The spec declares no memory: nothing is recalled.")
    elif policy is None:
        told.append("Memory is declared and switched off: nothing is recalled.")
    elif given.memory_store is None:
        told.append("No memory_store was given: nothing is recalled.")
    if recalled is not None:
        if not recalled.entries:
            told.append("Nothing was recalled: check scope, session_id and namespace.")
        elif recalled.weak:
            told.append("Nothing recalled matches well: these are the best of what does not.")
        told += recalled.notices
        if policy is not None and policy.inject == "context" and recalled.entries:
            told.append("Memory is in prompt.memory only: the model sees none of it in its messages.")
    left = sum(cut.count for cut in prompt.cut if cut.part == "history")
    if left:
        told.append(f"{left} of the oldest turns do not fit into the window.")
    if spec.model is None and given.llm is None:
        told.append("The spec names no model: a turn needs one, or llm=.")
    return told
