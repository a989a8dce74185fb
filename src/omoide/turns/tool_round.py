"""What becomes of the tools that a model asks for?

Each call is answered: by the tool, by a control that refuses, or by a person who decided. What the thread
already tells is not done again; what began and is not known to have ended is repeated only where that can do
no harm.
"""

from __future__ import annotations

from functools import partial

from omoide import thread
from omoide.core import codec
from omoide.core.action import Action
from omoide.errors import Diverged, TurnFailed
from omoide.turns import tooling, transcript
from omoide.turns.context import without
from omoide.turns.controls import Decision, Interrupt, Refuse, Review, asked
from omoide.turns.messages import ToolCall
from omoide.turns.model import Reply
from omoide.turns.progress import Progress
from omoide.turns.telling import told
from omoide.turns.together import together
from omoide.turns.window import clipped


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
        action = tooling.find(self._world.spec, call)
        if isinstance(action, tooling.Outcome):
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
            await self._end(call, tooling.Outcome(ok=False, content=f"This was refused: {stop.reason}"))
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
        elif rewritten and isinstance(tooling.find(self._world.spec, checked), tooling.Outcome):
            wrong = "A control rewrote its parameters wrongly."
            await self._end(call, tooling.Outcome(ok=False, content=wrong))
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
            outcome = tooling.Outcome(ok=True, content=told(decision.result))
        else:
            outcome = tooling.Outcome(ok=False, content=f"This was refused: {decision.reason or 'denied'}")
        await self._end(call, outcome)

    async def _effect(self, call: ToolCall, action: Action) -> None:
        await self._begin(call)
        limit = self._world.spec.limits.tool_timeout_ms
        await self._end(call, await tooling.carry_out(action, call, self._turn.ctx(call), limit))

    async def _compute(self, call: ToolCall, action: Action) -> None:
        await self._begin(call)
        outcome = tooling.compute(action, call, self._turn.ctx(call))
        if outcome.agent is not None and self._gives_away(outcome):
            outcome = tooling.Outcome(ok=False, content="It would put a secret into the agent's state.")
        self._take(outcome)
        await self._end(call, outcome)

    async def _begin(self, call: ToolCall) -> None:
        await self._turn.note(transcript.began(self._turn.asked.id, call))
        await self._turn.tell("tool_started", tool=call.name, call_id=call.id)

    def _again(self, call: ToolCall, ok: bool) -> None:
        """What a pure action made of the agent is computed again; nothing else of a known call is."""
        action = tooling.find(self._world.spec, call)
        ran = ok and call.id in self._turn.done.began  # and was not settled by somebody
        if ran and self._turn.resumed and isinstance(action, Action) and not action.effectful:
            written = thread.of(self._turn.agent)
            self._take(tooling.compute(action, call, self._turn.ctx(call)))
            self._turn.agent = thread.put(self._turn.agent, written)

    def _take(self, outcome: tooling.Outcome) -> None:
        if outcome.agent is not None:
            self._turn.agent = outcome.agent
            self._turn.directives += outcome.directives

    def _gives_away(self, outcome: tooling.Outcome) -> bool:
        """Whether something that must not be written down would be, with the agent's state."""
        if not self._world.hidden or outcome.agent is None:
            return False
        state = codec.encode(outcome.agent.state).decode()
        return any(secret in state for secret in self._world.hidden)

    async def _end(self, call: ToolCall, outcome: tooling.Outcome) -> None:
        room = self._world.spec.limits.max_observation_tokens
        content = clipped(without(outcome.content, self._world.hidden), room, self._world.count)
        await self._turn.note(transcript.ended(self._turn.asked.id, call, outcome.ok, content))
        kind = "tool_finished" if outcome.ok else "tool_failed"
        await self._turn.tell(kind, tool=call.name, call_id=call.id)
