"""Evolution of an identity over simulated time."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Agent, Context, Identity, Plugin, action, directives, identity, strategy
from omoide.core import Instruction
from omoide.core.definition import Outcome
from omoide.errors import Invalid, WrongType
from omoide.identity import identity_evolve
from omoide.strategy import Direct, StrategyState

some_days = st.integers(0, 10_000)


def test_years_and_whole_years_of_days_are_added_to_the_age() -> None:
    """400 days are a year, and years add up with them."""
    assert Identity.new(profile={"age": 3}).evolve(years=2, days=400).age == 6


def test_an_absent_age_counts_as_zero() -> None:
    """Evolving by nothing still turns None into 0 and is a revision."""
    evolved = Identity.new(now=1).evolve(now=5)
    assert (evolved.age, evolved.rev, evolved.updated_at) == (0, 1, 5)


def test_days_short_of_a_year_are_carried_on() -> None:
    """Four times a hundred days make a year and 35 days."""
    life = Identity.new()
    for _ in range(4):
        life = life.evolve(days=100)
    assert (life.age, life.days, life.rev) == (1, 35, 4)


@given(st.lists(some_days, min_size=1, max_size=8))
def test_many_short_times_age_as_much_as_one_long_time(parts: list[int]) -> None:
    """However time is cut into pieces, nothing of it is lost."""
    life = Identity.new(now=1)
    for days in parts:
        life = life.evolve(days=days, now=1)
    at_once = Identity.new(now=1).evolve(days=sum(parts), now=1)
    assert (life.age, life.days) == (at_once.age, at_once.days) == divmod(sum(parts), 365)


def test_setting_the_age_starts_its_year_anew() -> None:
    """Days carried on belong to the age they were counted from; other facts leave them alone."""
    life = Identity.new().evolve(days=200)
    assert life.put_profile("generation", 1).days == 200
    assert life.put_profile("age", 5).days == 0


def test_evolution_touches_nothing_but_age_and_revision() -> None:
    """Capabilities, generation, origin and extensions are static."""
    life = Identity.new(
        profile={"age": 1, "generation": 2, "origin": "cloned"},
        capabilities={"actions": ["fetch"], "limits": {"max": 1}},
        extensions={"voice": {"tone": "dry"}},
        now=1,
    )
    older = life.evolve(years=1, now=9)
    assert older.profile == life.profile.set("age", 2)
    assert (older.capabilities, older.extensions) == (life.capabilities, life.extensions)
    assert (older.created_at, older.updated_at, older.rev) == (1, 9, 1)
    assert life.age == 1


@given(years=st.integers(0, 99), days=some_days, now=st.integers(0, 10**13))
def test_evolution_is_the_same_every_time_for_one_now(years: int, days: int, now: int) -> None:
    """Given `now`, the same call gives the same value."""
    life = Identity.new(profile={"age": 1}, now=0)
    assert life.evolve(years=years, days=days, now=now) == life.evolve(years=years, days=days, now=now)


@pytest.mark.parametrize("unit", ["years", "days"])
@pytest.mark.parametrize(
    ("amount", "error"), [(-1, Invalid), (1.5, WrongType), ("1", WrongType), (True, WrongType)]
)
def test_time_runs_forward_in_whole_numbers(unit: str, amount: Any, error: type[Invalid]) -> None:
    """Negative amounts, fractions, text and booleans are refused by name."""
    with pytest.raises(error) as raised:
        Identity.new().evolve(**{unit: amount})
    assert raised.value.field == unit


def test_evolving_an_agent_without_identity_creates_one() -> None:
    """Both the function and the action start from a new identity."""
    bare = Agent.new("a")
    assert identity.age(identity.evolve(bare, years=2)) == 2
    agent, effects = bare.cmd((identity_evolve, {"years": 2}))
    assert (identity.age(agent), effects) == (2, [])


def test_the_action_has_its_name_and_two_parameters() -> None:
    """`identity_evolve` takes days and years, both 0 where left out."""
    assert identity_evolve.name == "identity_evolve"
    assert identity_evolve.check({}) == {"days": 0, "years": 0}


def test_the_action_replaces_the_identity_in_its_slot() -> None:
    """What the action does is what the pure function does."""
    agent = identity.ensure(Agent.new("a"), profile={"age": 1}, now=1)
    after, _ = agent.cmd((identity_evolve, {"days": 800}), now=9)
    assert identity.of(after) == identity.of(agent).evolve(days=800, now=9)
    assert identity.of(agent).age == 1


@pytest.mark.parametrize(
    "params", [{"months": 1}, {"days": -1}, {"years": "two"}, {"days": 1.5}, {"years": True}]
)
def test_the_action_refuses_unknown_and_wrong_parameters(params: dict[str, Any]) -> None:
    """Only whole days and years from 0 upwards are taken; the agent stays as it was."""
    agent = identity.ensure(Agent.new("a"))
    after, effects = agent.cmd((identity_evolve, params))
    (error,) = effects
    assert isinstance(error, directives.Error)
    assert (error.action, error.field, error.context) == ("identity_evolve", *params, "params")
    assert after is agent


class Tired(Direct):
    """Grows a year older after every third command."""

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        agent, effects = super().cmd(agent, instructions, ctx)
        count = (strategy.of(agent).data.get("commands") or 0) + 1
        agent = strategy.put(agent, StrategyState(data={"commands": count}))
        return (identity.evolve(agent, years=1) if count % 3 == 0 else agent), effects


@action
def wink(ctx: Context) -> None:
    return None


def test_a_strategy_may_evolve_after_some_interactions() -> None:
    """The count lives in the strategy's own state."""
    agent = identity.ensure(Agent.new("a", strategy=Tired()))
    ages = []
    for _ in range(6):
        agent, _ = agent.cmd(wink)
        ages.append(identity.age(agent))
    assert ages == [None, None, 1, 1, 1, 2]


def test_evolution_can_be_scheduled_by_a_directive() -> None:
    """An action may ask for a yearly evolution, which is data until a runtime carries it out."""

    @action
    def plan(ctx: Context) -> tuple[None, list[directives.Directive]]:
        yearly = Instruction(action="identity_evolve", params={"years": 1})
        return None, [directives.Cron(expression="@yearly", message=yearly)]

    agent, (cron,) = Agent.new("a", actions=[identity_evolve]).cmd(plan)
    assert isinstance(cron, directives.Cron)
    assert identity.age(agent) is None
    assert identity.age(agent.cmd(cron.message)[0]) == 1


@action
def character_evolve(ctx: Context, days: int = 0, years: int = 0) -> Identity:
    """Core evolution first, then the plugin's own slice."""
    older = ctx.identity.evolve(years=years, days=days)
    return older.update_extension("character", lambda old: {**(old or {}), "mellow": older.age})


class Character(Plugin):
    """A plugin that evolves its own slice along with the age."""

    name = "character"
    actions = (character_evolve,)


def test_a_plugin_evolves_its_own_slice_with_its_own_action() -> None:
    """The plugin's action calls the core evolution and edits its extension, with or without an identity."""
    agent = Agent.new("a", plugins=[Character])
    agent, effects = agent.cmd(("character_evolve", {"years": 4}))
    assert effects == []
    assert identity.age(agent) == 4
    assert identity.get_extension(agent, "character") == {"mellow": 4}
