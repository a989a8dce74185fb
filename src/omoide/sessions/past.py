"""What did the turns that are over make of an agent?"""

from __future__ import annotations

from omoide import thread
from omoide.core.action import Action
from omoide.core.agent import Agent
from omoide.core.thread import Thread
from omoide.turns import tooling, transcript
from omoide.turns.context import Asked, TurnContext
from omoide.turns.spec import AgentSpec


def recomputed(spec: AgentSpec, agent: Agent, past: Thread, session_id: str) -> Agent:
    """A new agent after the pure actions of past turns; what touched the world is not repeated.

    The context that a program gave those turns is not kept, so an action that reads `ctx.data` finds none.
    """
    for request_id, done in transcript.courses(past.entries).items():
        if done.user is None:
            continue
        said = done.user.payload["content"]
        asked = Asked(id=request_id, input=said, at=done.user.at, session_id=session_id)
        for answered in done.ended.values():
            action = tooling.find(spec, answered.call)
            ran = answered.ok and answered.call.id in done.began  # and was not settled by somebody
            if ran and isinstance(action, Action) and not action.effectful:
                outcome = tooling.compute(action, answered.call, TurnContext(agent, asked))
                agent = outcome.agent or agent
    return thread.put(agent, past)
