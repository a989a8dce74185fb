"""Agents: construction, identity and state."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from tests.support.strategies import data, maps, names

from omoide import Agent, Context, Definition, Memory, Plugin, action, identity, memory, strategy, thread
from omoide.core import FrozenMap
from omoide.core.state import PARENT, SLOTS, Parent
from omoide.errors import Invalid, InvalidState
from omoide.strategy import Direct, StrategyState
from omoide.testing import reproducible


class Own(msgspec.Struct):
    """The agent's own state."""

    count: int = 0


class Notes(Plugin):
    """A plugin with a slice."""

    name = "notes"

    def mount(self, agent: Agent, config: Any) -> dict[str, Any]:
        return {"kept": [1]}


@action
def count(ctx: Context) -> dict[str, Any]:
    """Count on from the state."""
    return {"count": ctx.state["count"] + 1}


KIND = Definition.new("counter", description="Counts.", schema=Own, plugins=[Notes], actions=[count])


def test_an_agent_has_id_name_description_and_state() -> None:
    """The definition it was made from is shared with others of its kind."""
    agent = Agent.new(KIND, id="me", state={"count": 3})
    assert (agent.id, agent.name, agent.description) == ("me", "counter", "Counts.")
    assert agent.state == {"count": 3, "notes": {"kept": [1]}}
    assert agent.definition is Agent.new(KIND).definition


def test_an_agent_can_be_defined_as_it_is_made() -> None:
    """The parts of a definition may be given with the name."""
    agent = Agent.new("counter", description="Counts.", schema=Own, plugins=[Notes], actions=[count])
    assert agent.definition.action_names() == KIND.action_names() == ("count",)
    assert agent.state == Agent.new(KIND).state


@pytest.mark.parametrize("missing", [None, ""])
def test_a_missing_id_is_generated(missing: str | None) -> None:
    """It has its prefix, and no two are alike."""
    with reproducible():
        assert Agent.new("a", id=missing).id == "agent_1"
    assert Agent.new("a", id=missing).id != Agent.new("a", id=missing).id


@pytest.mark.parametrize(("given_id", "kept"), [(7, "7"), (0, "0"), (1.5, "1.5")])
def test_an_id_that_is_no_text_becomes_text(given_id: Any, kept: str) -> None:
    """A number from a database serves as an id."""
    assert Agent.new("a", id=given_id).id == kept


def test_the_state_is_frozen_on_the_way_in() -> None:
    """Changing what was given does not change the agent."""
    state = {"own": [1]}
    agent = Agent.new("a", state=state)
    state["own"].append(2)
    assert agent.state == {"own": [1]}
    assert isinstance(agent.state, FrozenMap)


def test_an_agent_cannot_be_changed_in_place() -> None:
    """Neither its fields nor its state."""
    agent = Agent.new("a")
    with pytest.raises(AttributeError):
        agent.id = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        agent.state["own"] = 1  # type: ignore[index]


@pytest.mark.parametrize("key", SLOTS)
def test_reserved_keys_hold_their_own_kind_of_value(key: str) -> None:
    """A map under a reserved key is refused, however the agent is made."""
    with pytest.raises(InvalidState, match=key):
        Agent(id="me", name="a", state=FrozenMap({key: {"a": 1}}))
    with pytest.raises(InvalidState, match=key):
        Agent.new("a", state={key: {"a": 1}})


def test_a_slot_may_be_given_from_the_start() -> None:
    """An agent can begin with a memory."""
    mine = Memory.new().world_put("door", "open")
    assert memory.world_get(Agent.new("a", state={"__memory__": mine}), "door") == "open"


def test_the_parent_has_a_slot_like_the_others() -> None:
    """Absent until an agent is spawned by another."""
    bare = Agent.new("a")
    assert not PARENT.has(bare)
    agent = PARENT.put(bare, Parent(id="mother", tag="first"))
    assert agent.state["__parent__"] == PARENT.get(agent) == Parent(id="mother", tag="first")


def full() -> Agent:
    """An agent with a value in every slot."""
    agent = identity.evolve(memory.world_put(Agent.new(KIND, id="me"), "door", {"open", "wide"}), days=400)
    agent = thread.append(agent, [{"kind": "message", "payload": {"raw": b"\x00"}}, {}])
    return strategy.put(
        PARENT.put(agent, Parent(id="mother")), StrategyState(status="waiting", data={"n": 1})
    )


def test_an_agent_with_a_definition_survives_json() -> None:
    """State and slots come back as they were; the definition is code and given again."""
    agent = full()
    again = Agent.from_json(agent.to_json(), KIND)
    assert again == agent
    assert again.cmd("count")[0].state["count"] == 1


@given(name=names, state=maps, own=data)
def test_an_agent_without_a_definition_survives_json(name: str, state: dict[str, Any], own: Any) -> None:
    """A name is all the definition it has, so nothing has to be given."""
    agent = Agent.new(name, state={"own": own, "state": state})
    again = Agent.from_json(agent.to_json())
    assert again == agent
    assert again.state == agent.state


def test_an_agent_read_without_its_definition_has_a_bare_one() -> None:
    """Its data is there, its actions are not."""
    agent = full()
    again = Agent.from_json(agent.to_json())
    assert again.state == agent.state
    assert again.definition.action_names() == ()


def test_a_definition_of_another_kind_is_refused() -> None:
    """An agent is taken up by its own definition only."""
    with pytest.raises(Invalid, match=r"'other'.*'counter'"):
        Agent.from_json(full().to_json(), Definition.new("other"))


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"{",
        b"[]",
        b'{"name": "a"}',
        b'{"id": "", "name": "a"}',
        b'{"id": "me", "name": "a", "extra": 1}',
        b'{"id": "me", "name": "a", "state": [1]}',
        b'{"id": "me", "name": "a", "state": {"__memory__": {}}}',
        b'{"id": "me", "name": "a", "state": {"x": {"$unknown": 1}}}',
        b'{"id": "me", "name": "a", "state": {"x": {"$bytes": "!"}}}',
    ],
)
def test_what_is_no_agent_is_not_read(written: bytes) -> None:
    """Broken, incomplete, unknown or misplaced: each is a typed error."""
    with pytest.raises(Invalid) as raised:
        Agent.from_json(written)
    assert raised.value.remedy


def test_agents_are_values() -> None:
    """Equal where everything is equal, and usable in sets."""
    one, same = Agent.new(KIND, id="me"), Agent.new(KIND, id="me")
    assert one == same
    assert len({one, same, Agent.new(KIND, id="you")}) == 2
    assert one != Agent.new(KIND, id="me", state={"count": 1})


def test_a_definition_is_shown_by_its_name() -> None:
    """Code is not spilt into messages."""
    assert repr(KIND) == "Definition('counter')"
    assert "counter" in repr(Agent.new(KIND))


def test_definitions_default_to_acting_directly() -> None:
    """No schema, no routes, no hooks."""
    bare = Definition.new("a")
    assert bare.strategy == Direct()
    assert (bare.schema, bare.routes, bare.actions, bare.on_before_cmd, bare.on_after_cmd) == (
        None,
        (),
        (),
        None,
        None,
    )


def test_now_and_ids_make_a_new_agent_reproducible() -> None:
    """Two agents made alike are alike."""

    def made() -> Agent:
        with reproducible(at=5):
            return thread.append(memory.tasks_add(Agent.new(KIND), "tea"), {})

    assert made() == made()


def test_an_agent_shows_itself_in_a_line() -> None:
    """Its name, its id and the keys of its state; what lies under them can be long."""
    agent = memory.world_put(Agent.new("weather", id="w1", state={"tank": 1}), "t", 20)
    assert repr(agent) == "Agent('weather', id='w1', state of __memory__, tank)"
