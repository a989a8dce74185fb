"""The turn loop.

What was asked, the agent as it is now, and what the thread tells of the turn. Everything a turn does is noted
here, and kept, before the next thing happens.

Each call is answered: by the tool, by a control that refuses, or by a person who decided. What the thread
already tells is not done again; what began and is not known to have ended is repeated only where that can do
no harm.

Input, memory, prompt, then model and tools in turns until there is an answer. Each step first looks whether
the thread already tells how it ended, so a turn that is run again after a crash, a pause or from its journal
repeats nothing that is known to have happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self

from anyio import Lock

from omoide import observe, thread
from omoide.concurrency import gather
from omoide.core import codec
from omoide.core.action import Action, Directive
from omoide.core.agent import Agent
from omoide.core.entry import RecallResult
from omoide.core.thread import ThreadEntry
from omoide.errors import Blocked, Diverged, Invalid, ModelMisbehaved, StoreFailed, TooManyRounds, TurnFailed
from omoide.turns import journal as transcript
from omoide.turns import memory, tools
from omoide.turns.controls import (
    Decision,
    Interrupt,
    Refuse,
    Review,
    TurnContext,
    TurnRequest,
    apply_controls,
    redact,
)
from omoide.turns.journal import Journal
from omoide.turns.messages import Exchange, Message, TokenCounts, ToolCall, Usage, truncate
from omoide.turns.model import Model, Reply, Request, SupportsConnection, call_model
from omoide.turns.options import Paused, TurnEnvironment
from omoide.turns.prompt import Prompt, assemble, check_fits
from omoide.turns.prompt import visible_requests as visible
from omoide.turns.result import parse_output
from omoide.turns.tools import result_text

# progress: How far has a turn come?


class TurnState:
    """A turn in progress."""

    def __init__(
        self,
        environment: TurnEnvironment,
        request: TurnRequest,
        agent: Agent,
        *,
        entries: Sequence[ThreadEntry] = (),
        recalled: RecallResult | None = None,
        resumed: bool = False,
    ) -> None:
        self.environment = environment
        self.request = request
        self.initial_agent = agent
        self.agent = agent
        self.entries = [*entries]
        self.progress = transcript.progress_of(entries, request.id)
        self.recalled = recalled
        self.resumed = resumed
        self.directives: list[Directive] = []
        self.emit = environment.events.emit
        self._recorded_count = len(thread.of(agent).entries)
        self._lock = Lock()
        self._record_error: BaseException | None = None

    @property
    def journal(self) -> Journal:
        """What it did so far."""
        return Journal(request_id=self.request.id, entries=tuple(self.entries), recalled=self.recalled)

    @property
    def input(self) -> str:
        """What the user said, as the controls left it."""
        said: str = (
            self.request.input if self.progress.user is None else self.progress.user.payload["content"]
        )
        return said

    @property
    def is_live(self) -> bool:
        """Whether anything may be called; a replay only reads."""
        return self.environment.model is not None

    async def append_entry(self, entry: transcript.EntryFields) -> None:
        """Write into the thread; the turn goes on when it is kept, with all that was written before it."""
        self.agent = thread.append(self.agent, entry)
        async with self._lock:
            if self._record_error is not None:  # what did not get into the thread must not happen
                raise self._record_error
            written = [*thread.of(self.agent).entries[self._recorded_count :]]
            if written and self.environment.record is not None:
                try:
                    await self.environment.record(written)
                except BaseException as error:
                    self._record_error = error
                    raise
            self._recorded_count += len(written)
            for one in written:
                self.entries.append(one)
                self.progress.add(one)

    async def emit_control(self, boundary: str, stop: Any, rewritten: bool, **data: Any) -> None:
        """Tell what the controls said, if they said anything."""
        if stop is not None or rewritten:
            said = "rewrite" if stop is None else type(stop).__name__.lower()
            await self.emit("control_applied", boundary=boundary, answer=said, **data)

    async def pause_for_reviews(self, reviews: Sequence[Review]) -> NoReturn:
        """Stop until somebody has decided."""
        for review in reviews:
            await self.emit("review_requested", review=review.id, boundary=review.boundary)
        raise Paused("waiting", reviews)

    async def hibernate(self, where: str) -> NoReturn:
        """Stop because it was told to stop here."""
        await self.emit("hibernated", where=where)
        raise Paused("hibernated")

    def build_review(self, boundary: str, question: str, **fields: Any) -> Review:
        """A question about this turn."""
        return Review(
            id=self._review_id(boundary, fields.get("call")),
            boundary="tool" if boundary == "unknown" else boundary,
            unknown=boundary == "unknown",
            question=redact(question, self.environment.hidden),
            request_id=self.request.id,
            **fields,
        )

    def decision_on(self, boundary: str, call: ToolCall | None = None) -> Decision | None:
        """What was decided about this."""
        return self.environment.decisions.get(self._review_id(boundary, call))

    def pending_review(self, boundary: str, call: ToolCall | None = None) -> Review | None:
        """What was asked about this before the turn was put aside."""
        id = self._review_id(boundary, call)
        return next((one for one in self.environment.reviews if one.id == id), None)

    def is_resolved(self, review: Review) -> bool:
        """Whether what a review is about has happened, or been answered otherwise."""
        if review.call is not None:
            return review.call.id in self.progress.results
        return (
            self.progress.user is not None
            if review.boundary == "input"
            else self.progress.final_reply is not None
        )

    def _review_id(self, boundary: str, call: ToolCall | None = None) -> str:
        parts = [self.request.id, boundary, *([] if call is None else [call.id])]
        if boundary == "unknown" and call is not None:  # each time it began is a question of its own
            parts.append(str(self.progress.attempts[call.id]))
        return ":".join(parts)

    def turn_context(self, call: ToolCall | None = None) -> TurnContext:
        """What tools and controls get to know."""
        world = self.environment
        return TurnContext(
            self.agent,
            self.request,
            data=world.data,
            secrets=world.secrets,
            store=world.store,
            scope=world.scope,
            reach=world.reach,
            call=call,
        )


# asking: How is the model asked, in the course of a turn?


class ModelConnection:
    """A model for the length of a turn: one connection serves all its rounds."""

    def __init__(self, turn: TurnState) -> None:
        self._turn = turn
        self._stack = AsyncExitStack()
        self._model: Model | None = None

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def request_reply(self, model: Model, prompt: Prompt, round: int) -> Reply:
        """What the model says to a prompt."""
        turn, world = self._turn, self._turn.environment
        name = world.model_name
        await turn.emit("model_called", model=name, round=round)
        with observe.span("chat", name=name, **_span_attributes(name, turn.request.session_id)) as span:
            reply = await call_model(
                await self._connect(model),
                self._build_request(prompt, round),
                retries=world.spec.limits.retries,
                timeout_ms=world.spec.limits.model_timeout_ms,
                on_text=partial(self._on_text, round)
                if world.streaming and not world.has_output_control
                else None,
                on_retry=self._on_retry,
            )
            span.set(
                response_model=reply.model,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
                input_messages=lambda: [_span_message(one) for one in prompt.messages],
                output_messages=lambda: [_span_message(_reply_message(reply))],
            )
        if not reply.content.strip() and not reply.calls:
            raise ModelMisbehaved(name or "model", "answered with nothing", "try again")
        await turn.emit("model_replied", round=round, calls=len(reply.calls), model=reply.model)
        return self._with_unique_call_ids(reply if reply.usage.requests else _with_request_count(reply))

    async def _connect(self, model: Model) -> Model:
        if self._model is None:
            self._model = model
            if isinstance(model, SupportsConnection):
                self._model = await self._stack.enter_async_context(model.connect())
        return self._model

    def _build_request(self, prompt: Prompt, round: int) -> Request:
        turn = self._turn
        return Request(
            prompt=prompt,
            request_id=turn.request.id,
            agent_id=turn.environment.spec.id,
            session_id=turn.request.session_id,
            round=round,
            journal=turn.journal,
            context=TurnContext(
                turn.agent, turn.request, data=turn.environment.data
            ),  # secrets are for tools
        )

    async def _on_text(self, round: int, piece: str) -> None:
        await self._turn.emit("text", text=piece, round=round)

    async def _on_retry(self, error: Exception, attempt: int, wait: float) -> None:
        await self._turn.emit("model_retried", error=type(error).__name__, attempt=attempt, wait_s=wait)

    def _with_unique_call_ids(self, reply: Reply) -> Reply:
        """The reply with an id of its own for each call, whatever the provider gave."""
        done, world = self._turn.progress, self._turn.environment
        taken = {*done.started_calls, *done.results}
        calls: list[ToolCall] = []
        for call in reply.calls:
            if call.invalid is not None:
                room = world.spec.limits.max_observation_tokens
                call = call.replace(invalid=truncate(call.invalid, room, world.count))
            if call.id in taken:
                call = ToolCall.new(call.name, call.params).replace(invalid=call.invalid)
            taken.add(call.id)
            calls.append(call)
        same = all(new is old for new, old in zip(calls, reply.calls, strict=True))
        return reply if same else reply.replace(calls=tuple(calls), native=None)


def _with_request_count(reply: Reply) -> Reply:
    return reply.replace(usage=reply.usage.replace(requests=1))


def _span_attributes(model: str | None, session_id: str | None) -> Any:
    """What a span says of a model: the provider and the name that the provider knows."""
    provider, _, name = (model or "").rpartition(":")
    return {
        "request_model": name or None,
        "provider_name": provider or None,
        "conversation_id": session_id,
    }


def _reply_message(reply: Reply) -> Message:
    return Message(role="assistant", content=reply.content, calls=reply.calls)


def _span_message(message: Message) -> dict[str, Any]:
    """A message in the form of the conventions for spans."""
    parts: list[dict[str, Any]] = []
    if message.role == "tool":
        parts.append({"type": "tool_call_response", "id": message.call_id, "response": message.content})
    elif message.content:
        parts.append({"type": "text", "content": message.content})
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.name, "arguments": call.params.to_python()}
        for call in message.calls
    ]
    return {"role": message.role, "parts": parts}


# tool round: What becomes of the tools that a model asks for?


class ToolRound:
    """The tools of one reply."""

    def __init__(self, turn: TurnState) -> None:
        self._turn = turn
        self._environment = turn.environment
        self._runnable: list[tuple[ToolCall, Action]] = []
        self._reviews: list[Review] = []

    async def run(self, reply: Reply) -> None:
        """Answer every call."""
        for call in reply.calls:
            answered = self._turn.progress.results.get(call.id)
            if answered is not None:
                self._recompute(answered.call, answered.ok)
            elif not self._turn.is_live:
                raise Diverged(self._turn.request.id, f"tool {call.name!r}")
            else:
                await self._dispatch(call)
        if self._reviews:
            await self._turn.pause_for_reviews(self._reviews)
        if self._runnable and self._environment.checkpoint == "before_tool" and not self._turn.resumed:
            await self._turn.hibernate("before_tool")
        effects = [partial(self._run_effectful, *one) for one in self._runnable if one[1].effectful]
        await gather(effects, self._environment.spec.limits.parallel)
        for call, action in self._runnable:
            if not action.effectful:
                await self._run_pure(call, action)
        missing = [call.name for call in reply.calls if call.id not in self._turn.progress.results]
        if missing:  # a model must never be asked with a hole in what was said
            raise TurnFailed(self._turn.request.id, f"has no answer of {', '.join(missing)}", "resume it")

    async def _dispatch(self, call: ToolCall) -> None:
        """Find out what is to become of a call: run it, answer it at once, or ask somebody."""
        action = tools.find_action(self._environment.spec, call)
        if isinstance(action, tools.ToolOutcome):
            await self._record_result(call, action)
            return
        began = self._turn.progress.started_calls.get(call.id)
        if began is not None:
            await self._handle_unknown_outcome(began, action)
            return
        checked, stop, rewritten = await apply_controls(
            self._environment.controls, "tool", call, self._turn.turn_context(call)
        )
        await self._turn.emit_control("tool", stop, rewritten, tool=call.name)
        waiting, decision = self._turn.pending_review("tool", call), self._turn.decision_on("tool", call)
        if isinstance(stop, Refuse):
            await self._record_result(
                call, tools.ToolOutcome(ok=False, content=f"This was refused: {stop.reason}")
            )
        elif waiting is not None and decision is not None:
            if (
                decision.verdict == "approve"
            ):  # what was shown is what runs, whatever a control makes of it now
                self._runnable.append((waiting.call or checked, action))
            else:
                await self._apply_decision(call, decision)
        elif waiting is not None:
            self._reviews.append(waiting)
        elif isinstance(stop, Interrupt):
            self._reviews.append(self._turn.build_review("tool", stop.question, call=checked))
        elif rewritten and isinstance(tools.find_action(self._environment.spec, checked), tools.ToolOutcome):
            wrong = "A control rewrote its parameters wrongly."
            await self._record_result(call, tools.ToolOutcome(ok=False, content=wrong))
        else:
            self._runnable.append((checked, action))

    async def _handle_unknown_outcome(self, call: ToolCall, action: Action) -> None:
        """A tool that began and is not known to have ended: only what may happen twice is repeated."""
        if action.idempotent or not action.effectful:
            self._runnable.append((call, action))
            return
        decision = self._turn.decision_on("unknown", call)
        if decision is None:
            question = f"{call.name} began, and nobody knows whether it took effect. Run it again?"
            self._reviews.append(self._turn.build_review("unknown", question, call=call))
        elif decision.verdict == "approve":
            self._runnable.append((call, action))
        else:
            await self._apply_decision(call, decision)

    async def _apply_decision(self, call: ToolCall, decision: Decision) -> None:
        if decision.verdict == "settle":
            outcome = tools.ToolOutcome(ok=True, content=result_text(decision.result))
        else:
            outcome = tools.ToolOutcome(ok=False, content=f"This was refused: {decision.reason or 'denied'}")
        await self._record_result(call, outcome)

    async def _run_effectful(self, call: ToolCall, action: Action) -> None:
        await self._record_start(call)
        limit = self._environment.spec.limits.tool_timeout_ms
        await self._record_result(
            call, await tools.run_effectful(action, call, self._turn.turn_context(call), limit)
        )

    async def _run_pure(self, call: ToolCall, action: Action) -> None:
        await self._record_start(call)
        outcome = tools.run_pure(action, call, self._turn.turn_context(call))
        if outcome.agent is not None and self._leaks_secret(outcome):
            outcome = tools.ToolOutcome(ok=False, content="It would put a secret into the agent's state.")
        self._apply_outcome(outcome)
        await self._record_result(call, outcome)

    async def _record_start(self, call: ToolCall) -> None:
        await self._turn.append_entry(transcript.tool_call_entry(self._turn.request.id, call))
        await self._turn.emit("tool_started", tool=call.name, call_id=call.id)

    def _recompute(self, call: ToolCall, ok: bool) -> None:
        """What a pure action made of the agent is computed again; nothing else of a known call is."""
        action = tools.find_action(self._environment.spec, call)
        ran = ok and call.id in self._turn.progress.started_calls  # and was not settled by somebody
        if ran and self._turn.resumed and isinstance(action, Action) and not action.effectful:
            written = thread.of(self._turn.agent)
            self._apply_outcome(tools.run_pure(action, call, self._turn.turn_context(call)))
            self._turn.agent = thread.put(self._turn.agent, written)

    def _apply_outcome(self, outcome: tools.ToolOutcome) -> None:
        if outcome.agent is not None:
            self._turn.agent = outcome.agent
            self._turn.directives += outcome.directives

    def _leaks_secret(self, outcome: tools.ToolOutcome) -> bool:
        """Whether something that must not be written down would be, with the agent's state."""
        if not self._environment.hidden or outcome.agent is None:
            return False
        state = codec.encode(outcome.agent.state).decode()
        return any(secret in state for secret in self._environment.hidden)

    async def _record_result(self, call: ToolCall, outcome: tools.ToolOutcome) -> None:
        room = self._environment.spec.limits.max_observation_tokens
        content = truncate(redact(outcome.content, self._environment.hidden), room, self._environment.count)
        await self._turn.append_entry(
            transcript.tool_result_entry(self._turn.request.id, call, outcome.ok, content)
        )
        kind = "tool_finished" if outcome.ok else "tool_failed"
        await self._turn.emit(kind, tool=call.name, call_id=call.id)


# loop: How does a turn run?


class Turn(TurnState):
    """A turn, from the input to the answer."""

    def __init__(
        self,
        environment: TurnEnvironment,
        request: TurnRequest,
        agent: Agent,
        *,
        history: Sequence[Exchange] = (),
        entries: Sequence[ThreadEntry] = (),
        recalled: RecallResult | None = None,
        has_recalled: bool = False,
        resumed: bool = False,
    ) -> None:
        super().__init__(environment, request, agent, entries=entries, recalled=recalled, resumed=resumed)
        self.history = history
        self.has_recalled = has_recalled
        self.prompt: Prompt | None = None

    async def run(self) -> Reply:
        """The answer, when there is one."""
        await self.emit("resumed" if self.resumed else "turn_started", request_id=self.request.id)
        if self.progress.user is None:
            self._check_size()
            await self._accept_input()
            if self.environment.begin is not None and not self.resumed:
                await self.environment.begin(self.request)
            await self.append_entry(transcript.user_entry(self.request.id, self.request.input))
        if self.progress.final_reply is None and not self.has_recalled:
            await self._recall()
        elif self.resumed and self.recalled is not None and self.environment.store is not None:
            self.recalled = await memory.drop_forgotten(self.environment.store, self.recalled)
        async with ModelConnection(self) as asking:
            return await self._run_rounds(asking)

    async def _run_rounds(self, asking: ModelConnection) -> Reply:
        """Model and tools in turns, until there is an answer."""
        most = self.environment.spec.limits.max_rounds
        for round in range(most):
            if self.progress.final_reply is not None and round not in self.progress.replies:
                return self.progress.final_reply
            reply = self.progress.replies.get(round) or await self._next_reply(asking, round)
            if not reply.calls:
                return reply
            if round + 1 < most:
                await ToolRound(self).run(reply)
        raise TooManyRounds(self.request.id, most)

    async def _accept_input(self) -> None:
        """Take what the user said as the controls leave it; what they took out of it is kept nowhere."""
        text, stop, rewritten = await apply_controls(
            self.environment.controls, "input", self.request.input, self.turn_context()
        )
        await self.emit_control("input", stop, rewritten)
        if isinstance(stop, Refuse):
            raise Blocked(self.request.id, "input", stop.reason)
        waiting, decision = self.pending_review("input"), self.decision_on("input")
        if waiting is not None:  # what was shown is what is said, whatever a control makes of it now
            self.request = self.request.replace(input=waiting.draft or text)
            if decision is None:
                await self.pause_for_reviews([waiting])
            elif decision.verdict == "deny":
                raise Blocked(self.request.id, "input", decision.reason or "it was denied")
            elif decision.verdict == "settle":
                raise Invalid("decision", "settles an input", "approve or deny it")
            return
        if self.resumed:
            return  # it was heard before: what is kept is what the controls left of it
        self.request = self.request.replace(input=text)
        if isinstance(stop, Interrupt):
            await self.pause_for_reviews([self.build_review("input", stop.question, draft=text)])

    def _check_size(self) -> None:
        """What can never be sent is refused before anything is kept or asked."""
        check_fits(
            self.environment.spec,
            self.request.input,
            tools.operations(self.environment.spec),
            self.environment.count,
        )

    async def _recall(self) -> None:
        self.recalled = await memory.recall_unseen(
            self.environment.spec,
            self.input,
            visible(
                self.environment.spec,
                self.history,
                self.environment.sizes or TokenCounts(self.environment.count),
            ),
            memory_store=self.environment.store,
            session_id=self.request.session_id,
            project_id=self.request.project_id,
            context=self.environment.data,
        )
        if self.environment.remember is not None:
            await self.environment.remember(self.recalled)

    async def _next_reply(self, asking: ModelConnection, round: int) -> Reply:
        """The model's next reply, written down."""
        waiting, decision = self.pending_review("output"), self.decision_on("output")
        if waiting is not None and self.is_live:
            if decision is None:
                await self.pause_for_reviews([waiting])
            return await self._record_final(round, self._reply_from_draft(decision, waiting))
        prompt = await self._assemble_prompt(round)
        if round == 0 and self.environment.checkpoint == "after_prompt" and not self.resumed:
            await self.hibernate("after_prompt")
        if self.environment.model is None:
            raise Diverged(self.request.id, f"reply {round} of the model")
        reply = await asking.request_reply(self.environment.model, prompt, round)
        if not reply.calls:
            return await self._finish(round, reply)
        await self.append_entry(transcript.assistant_entry(self.request.id, round, reply, final=False))
        self.progress.replies[round] = reply  # with the provider's own form of it
        return reply

    async def _assemble_prompt(self, round: int) -> Prompt:
        prompt = assemble(
            self.environment.spec,
            self.input,
            recalled=self.recalled,
            history=self.history,
            current=self.progress.messages(),
            operations=tools.operations(self.environment.spec),
            context=self.request.context,
            loop_index=round,
            count=self.environment.count,
            sizes=self.environment.sizes,
        )
        if round == 0 and not self.has_recalled:
            await self._report_memory(prompt)
        left = sum(cut.count for cut in prompt.cut if cut.part == "history")
        if left:
            await self.emit("context_compacted", turns=left)
        self.prompt = prompt
        await self.emit("prompt_assembled", round=round, tokens=prompt.tokens["total"])
        return prompt

    async def _report_memory(self, prompt: Prompt) -> None:
        """Tell what memory brought, and count it where the store counts."""
        if prompt.memory is None or not prompt.memory["entries"] or self.recalled is None:
            return
        shown = [entry["id"] for entry in prompt.memory["entries"]]
        await self.emit("memory_recalled", count=len(shown), ids=shown, weak=self.recalled.weak or None)
        if self.environment.store is not None and self.is_live:
            with suppress(StoreFailed):  # it is book-keeping: the turn goes on without
                await memory.record_use(self.environment.store, self.recalled, shown)

    async def _finish(self, round: int, reply: Reply) -> Reply:
        """The answer as the controls leave it, written down: with that the turn is part of the thread."""
        content, stop, rewritten = await apply_controls(
            self.environment.controls, "output", reply.content, self.turn_context()
        )
        await self.emit_control("output", stop, rewritten)
        if isinstance(stop, Refuse):
            raise Blocked(self.request.id, "output", stop.reason)
        if isinstance(stop, Interrupt):
            drafted = {"draft": content, "usage": reply.usage, "model": reply.model}
            await self.pause_for_reviews([self.build_review("output", stop.question, **drafted)])
        return await self._record_final(round, reply.replace(content=content))

    async def _record_final(self, round: int, final: Reply) -> Reply:
        if self.environment.streaming and self.environment.has_output_control:
            await self.emit("text", text=final.content, round=round)
        parse_output(
            self.environment.spec, final.content, self.environment.model_name
        )  # an answer of the wrong shape is none
        await self.append_entry(transcript.assistant_entry(self.request.id, round, final, final=True))
        return final

    def _reply_from_draft(self, decision: Decision, waited: Review) -> Reply:
        """The answer that a person let pass, or wrote."""
        if decision.verdict == "deny":
            raise Blocked(self.request.id, "output", decision.reason or "it was denied")
        content = waited.draft or ""
        if decision.verdict == "settle":
            content = "" if decision.result is None else result_text(decision.result)
            if not content.strip():
                raise Invalid("result", "is empty", "say what the agent is to answer")
        return Reply(content=content, usage=waited.usage or Usage(), model=waited.model)
