"""Run a turn: input, memory, prompt, then model and tools until there is an answer.

`TurnState` is the data of a turn, `Turn` the loop over it. Everything a turn does is an entry of the agent's
thread, and persisted before the next step begins. Each step first checks whether the thread already says how
it ended, so a turn that runs again after a crash, a pause or from its journal repeats nothing that is known
to have happened. A tool whose outcome is unknown runs again only if it is idempotent or a person approves it.
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
from omoide.core.entry import Entry, RecallResult
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
from omoide.turns.model import Model, Reply, Request, SupportsConnection, call_model
from omoide.turns.options import Paused, TurnEnvironment
from omoide.turns.prompt import (
    Exchange,
    Message,
    Prompt,
    TokenCounts,
    ToolCall,
    Usage,
    assemble,
    check_fits,
    shown_ids,
    truncate,
    visible_requests,
)
from omoide.turns.tools import ToolOutcome, result_text


class TurnState:
    """The data of one turn: its request, the agent, the entries it wrote and what follows from them."""

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
        self.environment = environment
        self.request = request
        self.initial_agent = agent
        self.agent = agent
        self.history = history
        self.entries = [*entries]
        self.progress = transcript.progress_of(entries, request.id)
        self.recalled = recalled
        self.has_recalled = has_recalled
        self.pinned: tuple[Entry, ...] = ()
        self.resumed = resumed
        self.prompt: Prompt | None = None
        self.directives: list[Directive] = []
        self.emit = environment.events.emit
        self._recorded_count = len(thread.of(agent).entries)
        self._lock = Lock()
        self._record_error: BaseException | None = None

    @property
    def journal(self) -> Journal:
        """The journal of the turn so far."""
        return Journal(request_id=self.request.id, entries=tuple(self.entries), recalled=self.recalled)

    @property
    def input(self) -> str:
        """The user's input, as the controls left it."""
        user = self.progress.user
        text: str = self.request.input if user is None else user.payload["content"]
        return text

    @property
    def is_live(self) -> bool:
        """True if the model and tools may be called; a replay only reads."""
        return self.environment.model is not None

    async def append_entry(self, entry: transcript.EntryFields) -> None:
        """Append to the thread and return when the entry, and all before it, are persisted."""
        # Appended before the lock is held: the next task that holds it records all entries so far, in order.
        self.agent = thread.put(self.agent, thread.of(self.agent).append(entry))
        async with self._lock:
            if self._record_error is not None:  # what is not in the thread must not happen
                raise self._record_error
            # Tools run in parallel, and pure actions may have appended entries of their own.
            new = [*thread.of(self.agent).entries[self._recorded_count :]]
            if new and self.environment.recorder is not None:
                try:
                    await self.environment.recorder.record_entries(new)
                except BaseException as error:
                    # Also a cancellation: it is unknown whether the entries are stored, so no step may follow
                    # them.
                    self._record_error = error
                    raise
            self._recorded_count += len(new)
            for item in new:
                self.entries.append(item)
                self.progress.add(item)

    async def emit_control(self, boundary: str, stop: Any, rewritten: bool, **data: Any) -> None:
        """Emit the answer of the controls, unless they let everything pass."""
        if stop is not None or rewritten:
            answer = "rewrite" if stop is None else type(stop).__name__.lower()
            await self.emit("control_applied", boundary=boundary, answer=answer, **data)

    async def pause_for_reviews(self, reviews: Sequence[Review]) -> NoReturn:
        """Stop the turn until a person has decided."""
        for review in reviews:
            await self.emit("review_requested", review=review.id, boundary=review.boundary)
        raise Paused("waiting", reviews)

    async def hibernate(self, where: str) -> NoReturn:
        """Stop the turn at a checkpoint that its options name."""
        await self.emit("hibernated", where=where)
        raise Paused("hibernated")

    def build_review(self, boundary: str, question: str, **fields: Any) -> Review:
        """Return a review that asks a question about this turn."""
        return Review(
            id=self._review_id(boundary, fields.get("call")),
            boundary="tool" if boundary == "unknown" else boundary,
            unknown=boundary == "unknown",
            question=redact(question, self.environment.hidden),
            request_id=self.request.id,
            **fields,
        )

    def decision_on(self, boundary: str, call: ToolCall | None = None) -> Decision | None:
        """Return the decision on a review of this turn."""
        return self.environment.decisions.get(self._review_id(boundary, call))

    def pending_review(self, boundary: str, call: ToolCall | None = None) -> Review | None:
        """Return the review that was open when the turn was suspended."""
        id = self._review_id(boundary, call)
        return next((review for review in self.environment.reviews if review.id == id), None)

    def is_resolved(self, review: Review) -> bool:
        """Return whether the turn has gone past the subject of a review."""
        if review.call is not None:
            return review.call.id in self.progress.results
        if review.boundary == "input":
            return self.progress.user is not None
        return self.progress.final_reply is not None

    def _review_id(self, boundary: str, call: ToolCall | None = None) -> str:
        parts = [self.request.id, boundary, *([] if call is None else [call.id])]
        if boundary == "unknown" and call is not None:  # each attempt is a question of its own
            parts.append(str(self.progress.attempts[call.id]))
        return ":".join(parts)

    def turn_context(self, call: ToolCall | None = None) -> TurnContext:
        """Return the context that tools and controls receive."""
        environment = self.environment
        policy = memory.memory_policy(environment.spec)
        return TurnContext(
            self.agent,
            self.request,
            data=environment.data,
            secrets=environment.secrets,
            store=environment.store,
            scope=environment.scope,
            reach=environment.reach,
            min_relevance=None if policy is None else policy.min_relevance,
            call=call,
            scratchpad=environment.scratchpad,
        )


class ModelConnection:
    """A model for the length of a turn: one connection serves all its rounds."""

    def __init__(self, state: TurnState) -> None:
        self._state = state
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
        """Send a prompt and return the reply, with events and a span around it."""
        state, environment = self._state, self._state.environment
        name, limits = environment.model_name, environment.spec.limits
        # Text that a control may still refuse must not be streamed.
        streams = environment.streaming and not environment.has_output_control
        await state.emit("model_called", model=name, round=round)
        with observe.span("chat", name=name, **_span_attributes(name, state.request.session_id)) as span:
            reply = await call_model(
                await self._connect(model),
                self._build_request(prompt, round),
                retries=limits.retries,
                timeout_ms=limits.model_timeout_ms,
                on_text=partial(self._on_text, round) if streams else None,
                on_retry=self._on_retry,
            )
            span.set(
                response_model=reply.model,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
                input_messages=lambda: [_span_message(message) for message in prompt.messages],
                output_messages=lambda: [_span_message(_reply_message(reply))],
            )
        if not reply.content.strip() and not reply.calls:
            raise ModelMisbehaved(name or "model", "answered with nothing", "try again")
        await state.emit("model_replied", round=round, calls=len(reply.calls), model=reply.model)
        if not reply.usage.requests:
            reply = reply.replace(usage=reply.usage.replace(requests=1))
        return self._with_unique_call_ids(reply)

    async def _connect(self, model: Model) -> Model:
        if self._model is None:
            self._model = model
            if isinstance(model, SupportsConnection):
                self._model = await self._stack.enter_async_context(model.connect())
        return self._model

    def _build_request(self, prompt: Prompt, round: int) -> Request:
        state = self._state
        return Request(
            prompt=prompt,
            request_id=state.request.id,
            agent_id=state.environment.spec.id,
            session_id=state.request.session_id,
            round=round,
            journal=state.journal,
            # Without store and secrets: those are for tools.
            context=TurnContext(state.agent, state.request, data=state.environment.data),
        )

    async def _on_text(self, round: int, piece: str) -> None:
        await self._state.emit("text", text=piece, round=round)

    async def _on_retry(self, error: Exception, attempt: int, wait: float) -> None:
        await self._state.emit("model_retried", error=type(error).__name__, attempt=attempt, wait_s=wait)

    def _with_unique_call_ids(self, reply: Reply) -> Reply:
        """Return the reply with call ids that are unique in the turn: some providers repeat theirs."""
        progress, environment = self._state.progress, self._state.environment
        used = {*progress.started_calls, *progress.results}
        calls: list[ToolCall] = []
        for call in reply.calls:
            if call.invalid is not None:
                budget = environment.spec.limits.max_observation_tokens
                call = call.replace(invalid=truncate(call.invalid, budget, environment.count))
            if call.id in used:
                call = ToolCall.new(call.name, call.params).replace(invalid=call.invalid)
            used.add(call.id)
            calls.append(call)
        # The native form of the reply has the repeated ids, so it is dropped with them.
        same = all(new is old for new, old in zip(calls, reply.calls, strict=True))
        return reply if same else reply.replace(calls=tuple(calls), native=None)


def _span_attributes(model: str | None, session_id: str | None) -> Any:
    """Return a span's attributes for a model, with the provider apart from the model's own name."""
    provider, _, name = (model or "").rpartition(":")
    return {"request_model": name or None, "provider_name": provider or None, "conversation_id": session_id}


def _reply_message(reply: Reply) -> Message:
    return Message(role="assistant", content=reply.content, calls=reply.calls)


def _span_message(message: Message) -> dict[str, Any]:
    """Convert a message to the form of OpenTelemetry's GenAI conventions."""
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


class ToolRound:
    """The tool calls of one reply: each is answered by the tool, a control or a person's decision."""

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._environment = state.environment
        self._runnable: list[tuple[ToolCall, Action]] = []
        self._reviews: list[Review] = []

    async def run(self, reply: Reply) -> None:
        """Answer every call: effectful tools in parallel, then pure actions one after the other."""
        state = self._state
        for call in reply.calls:
            result = state.progress.results.get(call.id)
            if result is not None:
                self._recompute(result.call, result.ok)
            elif not state.is_live:
                raise Diverged(state.request.id, f"tool {call.name!r}")
            else:
                await self._dispatch(call)
        if self._reviews:
            await state.pause_for_reviews(self._reviews)
        if self._runnable and self._environment.checkpoint == "before_tool" and not state.resumed:
            await state.hibernate("before_tool")
        effects = [
            partial(self._run_effectful, call, action) for call, action in self._runnable if action.effectful
        ]
        await gather(effects, self._environment.spec.limits.parallel)
        # Pure actions change the agent, so each runs on the result of the one before.
        for call, action in self._runnable:
            if not action.effectful:
                await self._run_pure(call, action)
        missing = [call.name for call in reply.calls if call.id not in state.progress.results]
        if missing:  # providers refuse a conversation in which a call has no result
            raise TurnFailed(state.request.id, f"has no result of {', '.join(missing)}", "resume it")

    async def _dispatch(self, call: ToolCall) -> None:
        """Decide what happens to a call: run it, answer it at once, or ask a person."""
        state, spec = self._state, self._environment.spec
        action = tools.find_action(spec, call)
        if isinstance(action, ToolOutcome):
            await self._record_result(call, action)
            return
        # A call that started has passed the controls before; they are not asked again.
        started = state.progress.started_calls.get(call.id)
        if started is not None:
            await self._handle_unknown_outcome(started, action)
            return
        checked, stop, rewritten = await apply_controls(
            self._environment.controls, "tool", call, state.turn_context(call)
        )
        await state.emit_control("tool", stop, rewritten, tool=call.name)
        review, decision = state.pending_review("tool", call), state.decision_on("tool", call)
        if isinstance(stop, Refuse):
            await self._record_result(call, _refusal(stop.reason))
        elif review is not None and decision is not None:
            if decision.verdict == "approve":  # the person approved the call as it was shown
                self._runnable.append((review.call or checked, action))
            else:
                await self._apply_decision(call, decision)
        elif review is not None:
            self._reviews.append(review)
        elif isinstance(stop, Interrupt):
            self._reviews.append(state.build_review("tool", stop.question, call=checked))
        elif rewritten and isinstance(tools.find_action(spec, checked), ToolOutcome):
            problem = "A control rewrote its parameters wrongly."
            await self._record_result(call, ToolOutcome(ok=False, content=problem))
        else:
            self._runnable.append((checked, action))

    async def _handle_unknown_outcome(self, call: ToolCall, action: Action) -> None:
        """Repeat a call that started and has no result, if that is safe; ask a person otherwise."""
        if action.idempotent or not action.effectful:
            self._runnable.append((call, action))
            return
        decision = self._state.decision_on("unknown", call)
        if decision is None:
            question = f"{call.name} started, and its outcome is unknown. Run it again?"
            self._reviews.append(self._state.build_review("unknown", question, call=call))
        elif decision.verdict == "approve":
            self._runnable.append((call, action))
        else:
            await self._apply_decision(call, decision)

    async def _apply_decision(self, call: ToolCall, decision: Decision) -> None:
        if decision.verdict == "settle":
            outcome = ToolOutcome(ok=True, content=result_text(decision.result))
        else:
            outcome = _refusal(decision.reason or "denied")
        await self._record_result(call, outcome)

    async def _run_effectful(self, call: ToolCall, action: Action) -> None:
        # Recorded before it runs: after a crash, a start without a result is an unknown outcome.
        await self._record_start(call)
        timeout_ms = self._environment.spec.limits.tool_timeout_ms
        context = self._state.turn_context(call)
        await self._record_result(call, await tools.run_effectful(action, call, context, timeout_ms))

    async def _run_pure(self, call: ToolCall, action: Action) -> None:
        await self._record_start(call)
        outcome = tools.run_pure(action, call, self._state.turn_context(call))
        if self._leaks_secret(outcome):
            outcome = ToolOutcome(ok=False, content="It would put a secret into the agent's state.")
        self._apply_outcome(outcome)
        await self._record_result(call, outcome)

    async def _record_start(self, call: ToolCall) -> None:
        await self._state.append_entry(transcript.tool_call_entry(self._state.request.id, call))
        await self._state.emit("tool_started", tool=call.name, call_id=call.id)

    def _recompute(self, call: ToolCall, ok: bool) -> None:
        """Compute a pure action of a resumed turn again: its change of the agent is not in the thread."""
        state = self._state
        action = tools.find_action(self._environment.spec, call)
        ran = ok and call.id in state.progress.started_calls  # a person may have supplied the result
        if ran and state.resumed and isinstance(action, Action) and not action.effectful:
            written = thread.of(state.agent)
            self._apply_outcome(tools.run_pure(action, call, state.turn_context(call)))
            # The entries that the action appends are in the persisted thread already.
            state.agent = thread.put(state.agent, written)

    def _apply_outcome(self, outcome: ToolOutcome) -> None:
        if outcome.agent is not None:
            self._state.agent = outcome.agent
            self._state.directives += outcome.directives

    def _leaks_secret(self, outcome: ToolOutcome) -> bool:
        """Return whether the agent's new state, which is persisted, contains a secret of the turn."""
        hidden = self._environment.hidden
        if not hidden or outcome.agent is None:
            return False
        state = codec.encode(outcome.agent.state).decode()
        return any(secret in state for secret in hidden)

    async def _record_result(self, call: ToolCall, outcome: ToolOutcome) -> None:
        environment, state = self._environment, self._state
        budget = environment.spec.limits.max_observation_tokens
        content = truncate(redact(outcome.content, environment.hidden), budget, environment.count)
        await state.append_entry(transcript.tool_result_entry(state.request.id, call, outcome.ok, content))
        kind = "tool_finished" if outcome.ok else "tool_failed"
        await state.emit(kind, tool=call.name, call_id=call.id)


def _refusal(reason: str) -> ToolOutcome:
    return ToolOutcome(ok=False, content=f"This was refused: {reason}")


class Turn:
    """The loop that takes a turn from its input to its answer."""

    def __init__(self, state: TurnState) -> None:
        self._state = state
        self._environment = state.environment

    async def run(self) -> Reply:
        """Run until there is an answer.

        Raises:
            Paused: the turn stops at a checkpoint or waits for a decision.
            Blocked: a control refused the input or the answer.
            TooManyRounds: the model still asks for tools after `limits.max_rounds` rounds.
        """
        state, environment = self._state, self._environment
        await state.emit("resumed" if state.resumed else "turn_started", request_id=state.request.id)
        if state.progress.final_reply is None and state.is_live:
            state.pinned = await memory.recall_pinned(environment.spec, **self._memory_options())
        if state.progress.user is None:
            # Checked before anything is persisted: an input that cannot fit leaves no turn behind.
            operations = tools.operations(environment.spec)
            check_fits(environment.spec, state.request.input, operations, environment.count, state.pinned)
            await self._accept_input()
            # The request is persisted before its first entry, so that a crash in between leaves a turn to
            # resume.
            if environment.recorder is not None and not state.resumed:
                await environment.recorder.record_start(state.request)
            await state.append_entry(transcript.user_entry(state.request.id, state.request.input))
        if state.progress.final_reply is None and not state.has_recalled:
            await self._recall()
        elif state.resumed and state.recalled is not None and environment.store is not None:
            state.recalled = await memory.drop_forgotten(environment.store, state.recalled)
        async with ModelConnection(state) as connection:
            return await self._run_rounds(connection)

    async def _run_rounds(self, connection: ModelConnection) -> Reply:
        """Alternate between model and tools until a reply has no tool calls."""
        state, max_rounds = self._state, self._environment.spec.limits.max_rounds
        for round in range(max_rounds):
            progress = state.progress
            # A resumed turn may have its answer already.
            if progress.final_reply is not None and round not in progress.replies:
                return progress.final_reply
            reply = progress.replies.get(round) or await self._next_reply(connection, round)
            if not reply.calls:
                return reply
            # In the last round tools would run in vain: no model call is left that could read their results.
            if round + 1 < max_rounds:
                await ToolRound(state).run(reply)
        raise TooManyRounds(state.request.id, max_rounds)

    async def _accept_input(self) -> None:
        """Pass the input through the controls; only what they leave of it is ever persisted."""
        state = self._state
        text, stop, rewritten = await apply_controls(
            self._environment.controls, "input", state.request.input, state.turn_context()
        )
        await state.emit_control("input", stop, rewritten)
        if isinstance(stop, Refuse):
            raise Blocked(state.request.id, "input", stop.reason)
        review, decision = state.pending_review("input"), state.decision_on("input")
        if review is not None:  # the person decided on the text as it was shown
            state.request = state.request.replace(input=review.draft or text)
            if decision is None:
                await state.pause_for_reviews([review])
            elif decision.verdict == "deny":
                raise Blocked(state.request.id, "input", decision.reason or "it was denied")
            elif decision.verdict == "settle":
                raise Invalid("decision", "settles an input", "approve or deny it")
            return
        if state.resumed:
            return  # the request was persisted as the controls left it
        state.request = state.request.replace(input=text)
        if isinstance(stop, Interrupt):
            await state.pause_for_reviews([state.build_review("input", stop.question, draft=text)])

    async def _recall(self) -> None:
        state, environment = self._state, self._environment
        counts = environment.token_counts or TokenCounts(environment.count)
        state.recalled = await memory.recall_unseen(
            environment.spec,
            state.input,
            visible_requests(environment.spec, state.history, counts),
            **self._memory_options(),
        )
        if environment.recorder is not None:
            await environment.recorder.record_recall(state.recalled)

    def _memory_options(self) -> dict[str, Any]:
        environment, request = self._environment, self._state.request
        return {
            "store": environment.store,
            "session_id": request.session_id,
            "project_id": request.project_id,
            "user_id": request.user_id,
            "context": environment.data,
        }

    async def _next_reply(self, connection: ModelConnection, round: int) -> Reply:
        """Return the model's next reply, persisted."""
        state, environment = self._state, self._environment
        review, decision = state.pending_review("output"), state.decision_on("output")
        if review is not None and state.is_live:
            if decision is None:
                await state.pause_for_reviews([review])
            return await self._record_final(round, self._reply_from_draft(decision, review))
        prompt = await self._assemble_prompt(round)
        if round == 0 and environment.checkpoint == "after_prompt" and not state.resumed:
            await state.hibernate("after_prompt")
        if environment.model is None:
            raise Diverged(state.request.id, f"reply {round} of the model")
        reply = await connection.request_reply(environment.model, prompt, round)
        if not reply.calls:
            return await self._finish(round, reply)
        await state.append_entry(transcript.assistant_entry(state.request.id, round, reply, final=False))
        state.progress.replies[round] = reply  # unlike the entry, it has the provider's own form
        return reply

    async def _assemble_prompt(self, round: int) -> Prompt:
        state, environment = self._state, self._environment
        prompt = assemble(
            environment.spec,
            state.input,
            recalled=state.recalled,
            pinned=state.pinned,
            session=environment.session,
            history=state.history,
            current=state.progress.messages(),
            operations=tools.operations(environment.spec),
            context=state.request.context,
            loop_index=round,
            count=environment.count,
            counts=environment.token_counts,
        )
        # A resumed turn reported its memories before it was suspended.
        if round == 0 and not state.has_recalled:
            await self._report_memory(prompt)
        dropped = sum(cut.count for cut in prompt.cut if cut.part == "history")
        if dropped:
            await state.emit("context_compacted", turns=dropped)
        state.prompt = prompt
        await state.emit("prompt_assembled", round=round, tokens=prompt.tokens["total"])
        return prompt

    async def _report_memory(self, prompt: Prompt) -> None:
        """Emit which memories the prompt contains, and record the access in the store."""
        state, environment = self._state, self._environment
        ids = shown_ids(prompt)
        if not ids or state.recalled is None:
            return
        await state.emit("memory_recalled", count=len(ids), ids=ids, weak=state.recalled.weak or None)
        if environment.store is not None and state.is_live:
            with suppress(StoreFailed):  # access statistics are not worth a failed turn
                await memory.record_use(environment.store, state.recalled, ids)

    async def _finish(self, round: int, reply: Reply) -> Reply:
        """Pass the answer through the controls and persist it."""
        state = self._state
        content, stop, rewritten = await apply_controls(
            self._environment.controls, "output", reply.content, state.turn_context()
        )
        await state.emit_control("output", stop, rewritten)
        if isinstance(stop, Refuse):
            raise Blocked(state.request.id, "output", stop.reason)
        if isinstance(stop, Interrupt):
            draft = {"draft": content, "usage": reply.usage, "model": reply.model}
            await state.pause_for_reviews([state.build_review("output", stop.question, **draft)])
        return await self._record_final(round, reply.replace(content=content))

    async def _record_final(self, round: int, reply: Reply) -> Reply:
        """Persist the final reply, which makes the turn part of the conversation."""
        state, environment = self._state, self._environment
        # Text was held back until it passed the control, so it is streamed in one piece now.
        if environment.streaming and environment.has_output_control:
            await state.emit("text", text=reply.content, round=round)
        # An answer that does not fit `spec.result` fails here, before it is persisted.
        if environment.spec.read_output(reply.content, environment.model_name).repaired:
            await state.emit("answer_repaired", round=round)
        await state.append_entry(transcript.assistant_entry(state.request.id, round, reply, final=True))
        return reply

    def _reply_from_draft(self, decision: Decision, review: Review) -> Reply:
        """Return the draft that a person approved, or the answer they gave instead."""
        if decision.verdict == "deny":
            raise Blocked(self._state.request.id, "output", decision.reason or "it was denied")
        content = review.draft or ""
        if decision.verdict == "settle":
            content = "" if decision.result is None else result_text(decision.result)
            if not content.strip():
                raise Invalid("result", "is empty", "say what the agent is to answer")
        return Reply(content=content, usage=review.usage or Usage(), model=review.model)
