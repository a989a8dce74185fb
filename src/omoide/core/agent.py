"""Who is this, and what is its state?

An agent is an immutable value. `cmd` turns it and an action into another agent and a list of directives, and
does nothing else; the state holds the agent's own data, a slice for each plugin, and its memory, identity and
thread under reserved keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Unpack, cast

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.action import ActionLike, Instruction
from omoide.core.context import Context
from omoide.core.definition import Definition, Parts
from omoide.core.directives import Directive
from omoide.core.frozen import EMPTY_MAP, freeze_map
from omoide.core.mounting import initial_state, mounted
from omoide.core.running import failure, outcome, same
from omoide.core.signal import Signal
from omoide.core.slot import Stateful
from omoide.core.state import check_state
from omoide.core.strategy import Direct
from omoide.core.texts import check_str, check_text
from omoide.core.value import Id, Name, force
from omoide.errors import Invalid, InvalidDefinition, WrongType


class Agent(Stateful, frozen=True, kw_only=True):
    """An agent: what it is called, its state, and the definition it shares with others of its kind."""

    UNWRITTEN: ClassVar[frozenset[str]] = frozenset({"definition"})

    id: Id
    name: Name
    description: str = ""
    definition: Definition = cast("Definition", msgspec.UNSET)

    def __post_init__(self) -> None:
        if cast("object", self.definition) is msgspec.UNSET:
            check_text(self.name, "name")
            check_str(self.description, "description")
            force(self, "definition", Definition.new(self.name, description=self.description))
        super().__post_init__()
        for key in self.state:
            check_text(key, "state key")
        check_state(self.state)

    @classmethod
    def new(
        cls,
        kind: str | Definition,
        *,
        id: str | None = None,
        state: Mapping[str, Any] = EMPTY_MAP,
        now: int | None = None,
        **definition: Unpack[Parts],
    ) -> Agent:
        """A new agent, named here with the parts of its definition, or of a definition that exists.

        The state is built in this order: defaults of the schema, defaults of the plugins, `state`, the
        plugins' mounts, the strategy's init.
        """
        if isinstance(kind, Definition):
            if definition:
                raise Invalid(min(definition), "belongs to the definition, which is given", "put it there")
            shared = kind
        else:
            _check_parts(definition)
            shared = Definition.new(kind, **definition)
        with at(now):
            bare = cls(
                id=ids.new("agent_") if id is None or id == "" else str(id),
                name=shared.name,
                description=shared.description,
                state=initial_state(shared, freeze_map(state, "state")),
                definition=shared,
            )
            agent = mounted(bare)
            agent, _ = outcome(shared.strategy.init(agent, Context(agent)), "the strategy's init", agent)
            check_state(agent.state)
            shared.check_state(agent.state)
        return agent

    def __repr__(self) -> str:
        keys = ", ".join(sorted(self.state)) or "nothing yet"
        return f"Agent({self.name!r}, id={self.id!r}, state of {keys})"

    def cmd(
        self, action: ActionLike | list[Any], *, signal: Signal | None = None, now: int | None = None
    ) -> tuple[Agent, list[Directive]]:
        """The agent after an action, and its directives; `(action, params)`, a name or a list will do, too.

        Nothing is raised for what an action does wrong: its failure leaves the state as it was and is an
        `Error` among the directives.
        """
        with at(now):
            try:
                instructions = Instruction.several(action)
            except Exception as error:
                return self, [failure(error, "normalize")]
            stage, agent = "hook", self
            try:
                if self.definition.on_before_cmd is not None:
                    result = self.definition.on_before_cmd(agent, instructions)
                    agent, instructions = _before(result, agent, instructions)
                stage = "strategy"
                result = self.definition.strategy.cmd(agent, instructions, Context(agent, signal))
                # Direct checks every step itself; checking the whole again would cost as much as running it.
                direct = type(self.definition.strategy) is Direct
                agent, directives = result if direct else outcome(result, "the strategy", agent)
                stage = "hook"
                if self.definition.on_after_cmd is not None:
                    result = self.definition.on_after_cmd(agent, instructions, directives)
                    agent, directives = outcome(result, "on_after_cmd", agent)
            except Exception as error:
                return self, [failure(error, stage)]
            return agent, directives

    @classmethod
    def from_json(cls, data: bytes | str, definition: Definition | None = None) -> Agent:
        """The agent that `to_json` wrote; its definition is code, to be given where it is not a bare name."""
        agent = codec.decode(data, cls)
        if definition is None:
            return agent
        if not isinstance(definition, Definition):
            raise WrongType("definition", "a Definition", definition)
        if definition.name != agent.name:
            raise Invalid(
                "definition", f"is of {definition.name!r}, the agent is a {agent.name!r}", "pass its own"
            )
        state = initial_state(definition, agent.state)
        definition.check_state(state)
        return msgspec.structs.replace(agent, state=state, definition=definition)


def cmd(
    agent: Agent, action: ActionLike | list[Any], *, signal: Signal | None = None, now: int | None = None
) -> tuple[Agent, list[Directive]]:
    """The agent after an action, and the directives it asks for; see `Agent.cmd`."""
    return check_agent(agent, "agent").cmd(action, signal=signal, now=now)


def _check_parts(given: Iterable[str]) -> None:
    known = Parts.__annotations__
    for name in given:
        if name not in known:
            raise InvalidDefinition(name, "is no part of an agent's definition", f"use {', '.join(known)}")


def check_agent(agent: object, field: str = "agent") -> Agent:
    """The agent itself, if it is one."""
    if not isinstance(agent, Agent):
        raise WrongType(field, "an Agent", agent)
    return agent


def at(now: int | None) -> Any:
    """A block in which the time is the one given, if one is."""
    if now is None:
        return nullcontext()
    moment = clock.resolve(now)
    return clock.using(lambda: moment)


def _before(result: Any, agent: Agent, instructions: Instructions) -> tuple[Agent, Instructions]:
    """What `on_before_cmd` returned: an agent, or one with the action to run in place of the one given."""
    if isinstance(result, tuple) and len(result) == 2:
        result, instructions = result[0], Instruction.several(result[1])
    return same(check_agent(result, "the result of on_before_cmd"), "on_before_cmd", agent), instructions


Instructions = tuple[Instruction, ...]
