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
from omoide.concurrency import together
from omoide.core import codec
from omoide.core.action import Action, Directive
from omoide.core.agent import Agent
from omoide.core.requests import RecallResult
from omoide.core.thread import ThreadEntry
from omoide.errors import Blocked, Diverged, Invalid, ModelMisbehaved, StoreFailed, TooManyRounds, TurnFailed
from omoide.turns import journal as transcript
from omoide.turns import memory, tools
from omoide.turns.controls import Asked, Decision, Interrupt, Refuse, Review, TurnContext, asked, without
from omoide.turns.journal import Journal
from omoide.turns.messages import Exchange, Message, Sizes, ToolCall, Usage, clipped
from omoide.turns.model import Connects, Model, Reply, Request, ask
from omoide.turns.options import Paused, World
from omoide.turns.prompt import Prompt, assemble, check_fits
from omoide.turns.prompt import prompt_visible as visible
from omoide.turns.result import shaped
from omoide.turns.tools import told

# progress: How far has a turn come?


class Progress:
    """A turn in progress."""

    def __init__(
        self,
        world: World,
        asked: Asked,
        agent: Agent,
        *,
        entries: Sequence[ThreadEntry] = (),
        recalled: RecallResult | None = None,
        resumed: bool = False,
    ) -> None:
        self.world = world
        self.asked = asked
        self.base = agent
        self.agent = agent
        self.entries = [*entries]
        self.done = transcript.course(entries, asked.id)
        self.recalled = recalled
        self.resumed = resumed
        self.directives: list[Directive] = []
        self.tell = world.events.tell
        self._known = len(thread.of(agent).entries)
        self._lock = Lock()
        self._broken: BaseException | None = None

    @property
    def journal(self) -> Journal:
        """What it did so far."""
        return Journal(request_id=self.asked.id, entries=tuple(self.entries), recalled=self.recalled)

    @property
    def input(self) -> str:
        """What the user said, as the controls left it."""
        said: str = self.asked.input if self.done.user is None else self.done.user.payload["content"]
        return said

    @property
    def live(self) -> bool:
        """Whether anything may be called; a replay only reads."""
        return self.world.model is not None

    async def note(self, entry: transcript.Written) -> None:
        """Write into the thread; the turn goes on when it is kept, with all that was written before it."""
        self.agent = thread.append(self.agent, entry)
        async with self._lock:
            if self._broken is not None:  # what did not get into the thread must not happen
                raise self._broken
            written = [*thread.of(self.agent).entries[self._known :]]
            if written and self.world.record is not None:
                try:
                    await self.world.record(written)
                except BaseException as error:
                    self._broken = error
                    raise
            self._known += len(written)
            for one in written:
                self.entries.append(one)
                self.done.take(one)

    async def controlled(self, boundary: str, stop: Any, rewritten: bool, **data: Any) -> None:
        """Tell what the controls said, if they said anything."""
        if stop is not None or rewritten:
            said = "rewrite" if stop is None else type(stop).__name__.lower()
            await self.tell("control_applied", boundary=boundary, answer=said, **data)

    async def wait(self, reviews: Sequence[Review]) -> NoReturn:
        """Stop until somebody has decided."""
        for review in reviews:
            await self.tell("review_requested", review=review.id, boundary=review.boundary)
        raise Paused("waiting", reviews)

    async def hibernate(self, where: str) -> NoReturn:
        """Stop because it was told to stop here."""
        await self.tell("hibernated", where=where)
        raise Paused("hibernated")

    def review(self, boundary: str, question: str, **fields: Any) -> Review:
        """A question about this turn."""
        return Review(
            id=self._review_id(boundary, fields.get("call")),
            boundary="tool" if boundary == "unknown" else boundary,
            unknown=boundary == "unknown",
            question=without(question, self.world.hidden),
            request_id=self.asked.id,
            **fields,
        )

    def decision(self, boundary: str, call: ToolCall | None = None) -> Decision | None:
        """What was decided about this."""
        return self.world.decisions.get(self._review_id(boundary, call))

    def waiting(self, boundary: str, call: ToolCall | None = None) -> Review | None:
        """What was asked about this before the turn was put aside."""
        id = self._review_id(boundary, call)
        return next((one for one in self.world.reviews if one.id == id), None)

    def settled(self, review: Review) -> bool:
        """Whether what a review is about has happened, or been answered otherwise."""
        if review.call is not None:
            return review.call.id in self.done.ended
        return self.done.user is not None if review.boundary == "input" else self.done.final is not None

    def _review_id(self, boundary: str, call: ToolCall | None = None) -> str:
        parts = [self.asked.id, boundary, *([] if call is None else [call.id])]
        if boundary == "unknown" and call is not None:  # each time it began is a question of its own
            parts.append(str(self.done.tries[call.id]))
        return ":".join(parts)

    def ctx(self, call: ToolCall | None = None) -> TurnContext:
        """What tools and controls get to know."""
        world = self.world
        return TurnContext(
            self.agent,
            self.asked,
            data=world.data,
            secrets=world.secrets,
            store=world.store,
            scope=world.scope,
            reach=world.reach,
            call=call,
        )


# asking: How is the model asked, in the course of a turn?


class Asking:
    """A model for the length of a turn: one connection serves all its rounds."""

    def __init__(self, turn: Progress) -> None:
        self._turn = turn
        self._open = AsyncExitStack()
        self._model: Model | None = None

    async def __aenter__(self) -> Self:
        await self._open.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.__aexit__(kind, error, trace)

    async def reply(self, model: Model, prompt: Prompt, round: int) -> Reply:
        """What the model says to a prompt."""
        turn, world = self._turn, self._turn.world
        name = world.model_name
        await turn.tell("model_called", model=name, round=round)
        with observe.span("chat", name=name, **_about(name, turn.asked.session_id)) as span:
            reply = await ask(
                await self._connected(model),
                self._request(prompt, round),
                retries=world.spec.limits.retries,
                timeout_ms=world.spec.limits.model_timeout_ms,
                on_text=partial(self._streamed, round) if world.streaming and not world.watched else None,
                on_retry=self._retried,
            )
            span.set(
                response_model=reply.model,
                input_tokens=reply.usage.input_tokens,
                output_tokens=reply.usage.output_tokens,
                input_messages=lambda: [_told(one) for one in prompt.messages],
                output_messages=lambda: [_told(_message(reply))],
            )
        if not reply.content.strip() and not reply.calls:
            raise ModelMisbehaved(name or "model", "answered with nothing", "try again")
        await turn.tell("model_replied", round=round, calls=len(reply.calls), model=reply.model)
        return self._named(reply if reply.usage.requests else _counted(reply))

    async def _connected(self, model: Model) -> Model:
        if self._model is None:
            self._model = model
            if isinstance(model, Connects):
                self._model = await self._open.enter_async_context(model.connected())
        return self._model

    def _request(self, prompt: Prompt, round: int) -> Request:
        turn = self._turn
        return Request(
            prompt=prompt,
            request_id=turn.asked.id,
            agent_id=turn.world.spec.id,
            session_id=turn.asked.session_id,
            round=round,
            journal=turn.journal,
            context=TurnContext(turn.agent, turn.asked, data=turn.world.data),  # secrets are for tools
        )

    async def _streamed(self, round: int, piece: str) -> None:
        await self._turn.tell("text", text=piece, round=round)

    async def _retried(self, error: Exception, attempt: int, wait: float) -> None:
        await self._turn.tell("model_retried", error=type(error).__name__, attempt=attempt, wait_s=wait)

    def _named(self, reply: Reply) -> Reply:
        """The reply with an id of its own for each call, whatever the provider gave."""
        done, world = self._turn.done, self._turn.world
        taken = {*done.began, *done.ended}
        calls: list[ToolCall] = []
        for call in reply.calls:
            if call.invalid is not None:
                room = world.spec.limits.max_observation_tokens
                call = call.replace(invalid=clipped(call.invalid, room, world.count))
            if call.id in taken:
                call = ToolCall.new(call.name, call.params).replace(invalid=call.invalid)
            taken.add(call.id)
            calls.append(call)
        same = all(new is old for new, old in zip(calls, reply.calls, strict=True))
        return reply if same else reply.replace(calls=tuple(calls), native=None)


def _counted(reply: Reply) -> Reply:
    return reply.replace(usage=reply.usage.replace(requests=1))


def _about(model: str | None, session_id: str | None) -> Any:
    """What a span says of a model: the provider and the name that the provider knows."""
    provider, _, name = (model or "").rpartition(":")
    return {
        "request_model": name or None,
        "provider_name": provider or None,
        "conversation_id": session_id,
    }


def _message(reply: Reply) -> Message:
    return Message(role="assistant", content=reply.content, calls=reply.calls)


def _told(message: Message) -> dict[str, Any]:
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

    def __init__(self, turn: Progress) -> None:
        self._turn = turn
        self._world = turn.world
        self._open: list[tuple[ToolCall, Action]] = []
        self._reviews: list[Review] = []

    async def run(self, reply: Reply) -> None:
        """Answer every call."""
        for call in reply.calls:
            answered = self._turn.done.ended.get(call.id)
            if answered is not None:
                self._again(answered.call, answered.ok)
            elif not self._turn.live:
                raise Diverged(self._turn.asked.id, f"tool {call.name!r}")
            else:
                await self._consider(call)
        if self._reviews:
            await self._turn.wait(self._reviews)
        if self._open and self._world.checkpoint == "before_tool" and not self._turn.resumed:
            await self._turn.hibernate("before_tool")
        effects = [partial(self._effect, *one) for one in self._open if one[1].effectful]
        await together(effects, self._world.spec.limits.parallel)
        for call, action in self._open:
            if not action.effectful:
                await self._compute(call, action)
        missing = [call.name for call in reply.calls if call.id not in self._turn.done.ended]
        if missing:  # a model must never be asked with a hole in what was said
            raise TurnFailed(self._turn.asked.id, f"has no answer of {', '.join(missing)}", "resume it")

    async def _consider(self, call: ToolCall) -> None:
        """Find out what is to become of a call: run it, answer it at once, or ask somebody."""
        action = tools.find(self._world.spec, call)
        if isinstance(action, tools.Outcome):
            await self._end(call, action)
            return
        began = self._turn.done.began.get(call.id)
        if began is not None:
            await self._unknown(began, action)
            return
        checked, stop, rewritten = await asked(self._world.controls, "tool", call, self._turn.ctx(call))
        await self._turn.controlled("tool", stop, rewritten, tool=call.name)
        waiting, decision = self._turn.waiting("tool", call), self._turn.decision("tool", call)
        if isinstance(stop, Refuse):
            await self._end(call, tools.Outcome(ok=False, content=f"This was refused: {stop.reason}"))
        elif waiting is not None and decision is not None:
            if (
                decision.verdict == "approve"
            ):  # what was shown is what runs, whatever a control makes of it now
                self._open.append((waiting.call or checked, action))
            else:
                await self._settle(call, decision)
        elif waiting is not None:
            self._reviews.append(waiting)
        elif isinstance(stop, Interrupt):
            self._reviews.append(self._turn.review("tool", stop.question, call=checked))
        elif rewritten and isinstance(tools.find(self._world.spec, checked), tools.Outcome):
            wrong = "A control rewrote its parameters wrongly."
            await self._end(call, tools.Outcome(ok=False, content=wrong))
        else:
            self._open.append((checked, action))

    async def _unknown(self, call: ToolCall, action: Action) -> None:
        """A tool that began and is not known to have ended: only what may happen twice is repeated."""
        if action.idempotent or not action.effectful:
            self._open.append((call, action))
            return
        decision = self._turn.decision("unknown", call)
        if decision is None:
            question = f"{call.name} began, and nobody knows whether it took effect. Run it again?"
            self._reviews.append(self._turn.review("unknown", question, call=call))
        elif decision.verdict == "approve":
            self._open.append((call, action))
        else:
            await self._settle(call, decision)

    async def _settle(self, call: ToolCall, decision: Decision) -> None:
        if decision.verdict == "settle":
            outcome = tools.Outcome(ok=True, content=told(decision.result))
        else:
            outcome = tools.Outcome(ok=False, content=f"This was refused: {decision.reason or 'denied'}")
        await self._end(call, outcome)

    async def _effect(self, call: ToolCall, action: Action) -> None:
        await self._begin(call)
        limit = self._world.spec.limits.tool_timeout_ms
        await self._end(call, await tools.carry_out(action, call, self._turn.ctx(call), limit))

    async def _compute(self, call: ToolCall, action: Action) -> None:
        await self._begin(call)
        outcome = tools.compute(action, call, self._turn.ctx(call))
        if outcome.agent is not None and self._gives_away(outcome):
            outcome = tools.Outcome(ok=False, content="It would put a secret into the agent's state.")
        self._take(outcome)
        await self._end(call, outcome)

    async def _begin(self, call: ToolCall) -> None:
        await self._turn.note(transcript.began(self._turn.asked.id, call))
        await self._turn.tell("tool_started", tool=call.name, call_id=call.id)

    def _again(self, call: ToolCall, ok: bool) -> None:
        """What a pure action made of the agent is computed again; nothing else of a known call is."""
        action = tools.find(self._world.spec, call)
        ran = ok and call.id in self._turn.done.began  # and was not settled by somebody
        if ran and self._turn.resumed and isinstance(action, Action) and not action.effectful:
            written = thread.of(self._turn.agent)
            self._take(tools.compute(action, call, self._turn.ctx(call)))
            self._turn.agent = thread.put(self._turn.agent, written)

    def _take(self, outcome: tools.Outcome) -> None:
        if outcome.agent is not None:
            self._turn.agent = outcome.agent
            self._turn.directives += outcome.directives

    def _gives_away(self, outcome: tools.Outcome) -> bool:
        """Whether something that must not be written down would be, with the agent's state."""
        if not self._world.hidden or outcome.agent is None:
            return False
        state = codec.encode(outcome.agent.state).decode()
        return any(secret in state for secret in self._world.hidden)

    async def _end(self, call: ToolCall, outcome: tools.Outcome) -> None:
        room = self._world.spec.limits.max_observation_tokens
        content = clipped(without(outcome.content, self._world.hidden), room, self._world.count)
        await self._turn.note(transcript.ended(self._turn.asked.id, call, outcome.ok, content))
        kind = "tool_finished" if outcome.ok else "tool_failed"
        await self._turn.tell(kind, tool=call.name, call_id=call.id)


# loop: How does a turn run?


class Turn(Progress):
    """A turn, from the input to the answer."""

    def __init__(
        self,
        world: World,
        asked: Asked,
        agent: Agent,
        *,
        history: Sequence[Exchange] = (),
        entries: Sequence[ThreadEntry] = (),
        recalled: RecallResult | None = None,
        remembered: bool = False,
        resumed: bool = False,
    ) -> None:
        super().__init__(world, asked, agent, entries=entries, recalled=recalled, resumed=resumed)
        self.history = history
        self.remembered = remembered
        self.prompt: Prompt | None = None

    async def run(self) -> Reply:
        """The answer, when there is one."""
        await self.tell("resumed" if self.resumed else "turn_started", request_id=self.asked.id)
        if self.done.user is None:
            self._check_size()
            await self._hear()
            if self.world.begin is not None and not self.resumed:
                await self.world.begin(self.asked)
            await self.note(transcript.user(self.asked.id, self.asked.input))
        if self.done.final is None and not self.remembered:
            await self._recall()
        elif self.resumed and self.recalled is not None and self.world.store is not None:
            self.recalled = await memory.still(self.world.store, self.recalled)
        async with Asking(self) as asking:
            return await self._rounds(asking)

    async def _rounds(self, asking: Asking) -> Reply:
        """Model and tools in turns, until there is an answer."""
        most = self.world.spec.limits.max_rounds
        for round in range(most):
            if self.done.final is not None and round not in self.done.replies:
                return self.done.final
            reply = self.done.replies.get(round) or await self._answer(asking, round)
            if not reply.calls:
                return reply
            if round + 1 < most:
                await ToolRound(self).run(reply)
        raise TooManyRounds(self.asked.id, most)

    async def _hear(self) -> None:
        """Take what the user said as the controls leave it; what they took out of it is kept nowhere."""
        text, stop, rewritten = await asked(self.world.controls, "input", self.asked.input, self.ctx())
        await self.controlled("input", stop, rewritten)
        if isinstance(stop, Refuse):
            raise Blocked(self.asked.id, "input", stop.reason)
        waiting, decision = self.waiting("input"), self.decision("input")
        if waiting is not None:  # what was shown is what is said, whatever a control makes of it now
            self.asked = self.asked.replace(input=waiting.draft or text)
            if decision is None:
                await self.wait([waiting])
            elif decision.verdict == "deny":
                raise Blocked(self.asked.id, "input", decision.reason or "it was denied")
            elif decision.verdict == "settle":
                raise Invalid("decision", "settles an input", "approve or deny it")
            return
        if self.resumed:
            return  # it was heard before: what is kept is what the controls left of it
        self.asked = self.asked.replace(input=text)
        if isinstance(stop, Interrupt):
            await self.wait([self.review("input", stop.question, draft=text)])

    def _check_size(self) -> None:
        """What can never be sent is refused before anything is kept or asked."""
        check_fits(self.world.spec, self.asked.input, tools.operations(self.world.spec), self.world.count)

    async def _recall(self) -> None:
        self.recalled = await memory.recall_beyond(
            self.world.spec,
            self.input,
            visible(self.world.spec, self.history, self.world.sizes or Sizes(self.world.count)),
            memory_store=self.world.store,
            session_id=self.asked.session_id,
            project_id=self.asked.project_id,
            context=self.world.data,
        )
        if self.world.remember is not None:
            await self.world.remember(self.recalled)

    async def _answer(self, asking: Asking, round: int) -> Reply:
        """The model's next reply, written down."""
        waiting, decision = self.waiting("output"), self.decision("output")
        if waiting is not None and self.live:
            if decision is None:
                await self.wait([waiting])
            return await self._close(round, self._draft(decision, waiting))
        prompt = await self._assembled(round)
        if round == 0 and self.world.checkpoint == "after_prompt" and not self.resumed:
            await self.hibernate("after_prompt")
        if self.world.model is None:
            raise Diverged(self.asked.id, f"reply {round} of the model")
        reply = await asking.reply(self.world.model, prompt, round)
        if not reply.calls:
            return await self._finish(round, reply)
        await self.note(transcript.assistant(self.asked.id, round, reply, final=False))
        self.done.replies[round] = reply  # with the provider's own form of it
        return reply

    async def _assembled(self, round: int) -> Prompt:
        prompt = assemble(
            self.world.spec,
            self.input,
            recalled=self.recalled,
            history=self.history,
            current=self.done.messages(),
            operations=tools.operations(self.world.spec),
            context=self.asked.context,
            loop_index=round,
            count=self.world.count,
            sizes=self.world.sizes,
        )
        if round == 0 and not self.remembered:
            await self._count(prompt)
        left = sum(cut.count for cut in prompt.cut if cut.part == "history")
        if left:
            await self.tell("context_compacted", turns=left)
        self.prompt = prompt
        await self.tell("prompt_assembled", round=round, tokens=prompt.tokens["total"])
        return prompt

    async def _count(self, prompt: Prompt) -> None:
        """Tell what memory brought, and count it where the store counts."""
        if prompt.memory is None or not prompt.memory["entries"] or self.recalled is None:
            return
        shown = [entry["id"] for entry in prompt.memory["entries"]]
        await self.tell("memory_recalled", count=len(shown), ids=shown, weak=self.recalled.weak or None)
        if self.world.store is not None and self.live:
            with suppress(StoreFailed):  # it is book-keeping: the turn goes on without
                await memory.used(self.world.store, self.recalled, shown)

    async def _finish(self, round: int, reply: Reply) -> Reply:
        """The answer as the controls leave it, written down: with that the turn is part of the thread."""
        content, stop, rewritten = await asked(self.world.controls, "output", reply.content, self.ctx())
        await self.controlled("output", stop, rewritten)
        if isinstance(stop, Refuse):
            raise Blocked(self.asked.id, "output", stop.reason)
        if isinstance(stop, Interrupt):
            drafted = {"draft": content, "usage": reply.usage, "model": reply.model}
            await self.wait([self.review("output", stop.question, **drafted)])
        return await self._close(round, reply.replace(content=content))

    async def _close(self, round: int, final: Reply) -> Reply:
        if self.world.streaming and self.world.watched:
            await self.tell("text", text=final.content, round=round)
        shaped(self.world.spec, final.content, self.world.model_name)  # an answer of the wrong shape is none
        await self.note(transcript.assistant(self.asked.id, round, final, final=True))
        return final

    def _draft(self, decision: Decision, waited: Review) -> Reply:
        """The answer that a person let pass, or wrote."""
        if decision.verdict == "deny":
            raise Blocked(self.asked.id, "output", decision.reason or "it was denied")
        content = waited.draft or ""
        if decision.verdict == "settle":
            content = "" if decision.result is None else told(decision.result)
            if not content.strip():
                raise Invalid("result", "is empty", "say what the agent is to answer")
        return Reply(content=content, usage=waited.usage or Usage(), model=waited.model)
