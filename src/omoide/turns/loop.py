"""How does a turn run?

Input, memory, prompt, then model and tools in turns until there is an answer. Each step first looks whether
the thread already tells how it ended, so a turn that is run again after a crash, a pause or from its journal
repeats nothing that is known to have happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from omoide.core.agent import Agent
from omoide.core.recalling import RecallResult
from omoide.core.thread import ThreadEntry
from omoide.errors import Blocked, Diverged, Invalid, StoreFailed, TooManyRounds
from omoide.turns import remembering, tooling, transcript
from omoide.turns.asking import Asking
from omoide.turns.context import Asked
from omoide.turns.controls import Decision, Interrupt, Refuse, Review, asked
from omoide.turns.messages import Usage
from omoide.turns.model import Reply
from omoide.turns.progress import Progress
from omoide.turns.prompt import Prompt, assemble, check_fits, visible
from omoide.turns.shaping import shaped
from omoide.turns.telling import told
from omoide.turns.tool_round import ToolRound
from omoide.turns.window import Exchange, Sizes
from omoide.turns.world import World


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
            self.recalled = await remembering.still(self.world.store, self.recalled)
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
        check_fits(self.world.spec, self.asked.input, tooling.operations(self.world.spec), self.world.count)

    async def _recall(self) -> None:
        self.recalled = await remembering.recall_beyond(
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
            operations=tooling.operations(self.world.spec),
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
                await remembering.used(self.world.store, self.recalled, shown)

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
