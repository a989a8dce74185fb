"""What does an agent do about a signal?

The pure half of an agent server: the plugins look at the signal, the routes lead it to actions, and `cmd`
runs them.
"""

from __future__ import annotations

from typing import Any

from omoide.core.action import Action
from omoide.core.agent import Agent, at, check_agent
from omoide.core.context import Context
from omoide.core.directives import Directive, Error, Stop
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.router import STRATEGY_CMD, STRATEGY_TICK, Route, matching
from omoide.core.running import failure, outcome
from omoide.core.signal import Signal
from omoide.errors import NotFound, WrongType

STOP = "jido.agent.stop"


def receive(agent: Agent, signal: Signal, *, now: int | None = None) -> tuple[Agent, list[Directive]]:
    """The agent after a signal, and the directives it asks for; what goes wrong is an `Error` among them."""
    check_agent(agent)
    if not isinstance(signal, Signal):
        raise WrongType("signal", "a Signal", signal)
    with at(now):
        return _received(agent, signal)


def _received(agent: Agent, signal: Signal) -> tuple[Agent, list[Directive]]:
    for plugin in agent.definition.plugins:
        if plugin.sees(signal):
            try:
                answer = plugin.handle_signal(signal, Context(agent, signal, plugin.config))
            except Exception as error:
                return agent, [failure(error, "signal")]
            if isinstance(answer, Signal):
                signal = answer
            elif answer is not None:
                return agent.cmd(answer, signal=signal)
    routes = matching(agent.definition.routes, signal.type)
    if not routes:
        return agent, [Stop(reason=STOP)] if signal.type == STOP else [_unrouted(agent, signal)]
    directives: list[Directive] = []
    for route in routes:
        agent, more = _follow(agent, route, signal)
        directives += more
    return agent, directives


def _follow(agent: Agent, route: Route, signal: Signal) -> tuple[Agent, list[Directive]]:
    target = route.target
    strategy = agent.definition.strategy
    if target in (STRATEGY_TICK, (STRATEGY_TICK,)):
        try:
            return outcome(strategy.tick(agent, Context(agent, signal)), "the strategy's tick", agent)
        except Exception as error:
            return agent, [failure(error, "strategy")]
    if isinstance(target, tuple) and target[0] == STRATEGY_CMD:
        target = target[1]
    return agent.cmd(_with_data(agent, target, signal), signal=signal)


def _with_data(agent: Agent, target: Any, signal: Signal) -> Any:
    """A target without parameters of its own takes those fields of the signal's data that it knows.

    What else a sender may have added is left to `ctx.signal`: a field more must not break every receiver.
    """
    if isinstance(target, tuple):
        return target
    data = EMPTY_MAP if signal.data is None else signal.data
    if not isinstance(data, FrozenMap):
        data = FrozenMap({"data": data})
    try:
        known = (target if isinstance(target, Action) else agent.definition.action(target)).schema.fields
    except NotFound:
        return target, data
    return target, {name: value for name, value in data.items() if name in known}


def _unrouted(agent: Agent, signal: Signal) -> Error:
    known = ", ".join(sorted({route.pattern for route in agent.definition.routes})) or "none"
    return Error(
        message=f"no route for signal {signal.type!r}; agent {agent.name!r} has routes for: {known}",
        context="routing",
        field="type",
        kind="RoutingError",
    )
