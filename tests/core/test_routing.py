"""Selection of agents by capability."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Agent, Context, Plugin, action, identity
from omoide.errors import Invalid, WrongType

ages = st.none() | st.integers(0, 5)


def agent(name: str, age: int | None = None, **capabilities: Any) -> Agent:
    """An agent of some age that can do something."""
    return identity.ensure(Agent.new(name, id=name), profile={"age": age}, capabilities=capabilities)


def chosen(pool: list[Agent], **wanted: Any) -> list[str]:
    """The names of those who fit, in order."""
    return [candidate.agent.name for candidate in identity.route(pool, **wanted)]


def test_candidates_support_the_action_and_carry_every_tag() -> None:
    """Both filters have to be passed."""
    pool = [
        agent("both", actions=["fetch"], tags=["web", "fast"]),
        agent("half", actions=["fetch"], tags=["fast"]),
        agent("none", actions=["parse"], tags=["web"]),
        Agent.new("bare"),
    ]
    assert chosen(pool, action="fetch", tags=["web"]) == ["both"]
    assert chosen(pool, action="fetch") == ["both", "half"]
    assert chosen(pool, tags=["web", "fast"]) == ["both"]
    assert chosen(pool) == ["both", "half", "none"]


def test_the_most_experienced_agent_comes_first() -> None:
    """Candidates are ranked by age, oldest first."""
    pool = [agent("young", 1), agent("old", 9), agent("middle", 4)]
    assert chosen(pool) == ["old", "middle", "young"]


def test_agents_without_an_age_are_ranked_last() -> None:
    """No age ranks below age 0, wherever the agent stands in the pool."""
    pool = [agent("ageless"), agent("newborn", 0), agent("old", 9)]
    assert chosen(pool) == ["old", "newborn", "ageless"]
    assert chosen(pool[::-1]) == ["old", "newborn", "ageless"]


@given(st.lists(ages, max_size=8))
def test_agents_of_one_age_keep_their_order(given_ages: list[int | None]) -> None:
    """The ranking is stable, and total with ages missing."""
    pool = [agent(str(at), age) for at, age in enumerate(given_ages)]
    expected = sorted(
        range(len(pool)), key=lambda at: -1 if (age := given_ages[at]) is None else age, reverse=True
    )
    assert chosen(pool) == [str(at) for at in expected]


def test_nobody_fits_gives_none() -> None:
    """`best` answers None and `route` an empty list."""
    pool = [agent("a", actions=["fetch"])]
    assert identity.best(pool, action="paint") is None
    assert identity.best([]) is None
    assert identity.route(pool, tags=["web"]) == []


def test_best_is_the_first_of_route() -> None:
    """Both ask the same question."""
    pool = [agent("young", 1), agent("old", 9)]
    assert identity.best(pool) == identity.route(pool)[0]


def test_every_candidate_comes_with_its_reason() -> None:
    """The reason names action, tags, limits and age."""
    pool = [agent("a", 3, actions=["fetch"], tags=["web"], limits={"max_concurrency": 4}), agent("b")]
    best = identity.best(pool, action="fetch", tags=["web"], limits={"max_concurrency": 2})
    assert best is not None
    assert best.age == 3
    for part in ("a: ", "declares fetch", "tag web", "max_concurrency 4 allows for 2", "3 years old"):
        assert part in best.reason
    assert "no age yet" in identity.route(pool)[1].reason


def test_a_limit_has_to_reach_what_is_needed() -> None:
    """Numbers are compared, other limits have to be equal, and an undeclared limit is no obstacle."""
    pool = [
        agent("small", limits={"max_runtime_ms": 100, "region": "eu"}),
        agent("large", limits={"max_runtime_ms": 500, "region": "us"}),
        agent("free"),
    ]
    assert chosen(pool, limits={"max_runtime_ms": 100}) == ["small", "large", "free"]
    assert chosen(pool, limits={"max_runtime_ms": 200}) == ["large", "free"]
    assert chosen(pool, limits={"region": "eu"}) == ["small", "free"]


def test_a_limit_of_another_kind_is_an_obstacle_and_no_crash() -> None:
    """A number is never compared with text."""
    pool = [agent("odd", limits={"max": "many"}), agent("flag", limits={"max": True})]
    assert chosen(pool, limits={"max": 3}) == []


def test_what_a_plugin_offers_counts_too() -> None:
    """An agent is found by the actions it really has, and the reason tells declaration from offer."""

    @action
    def fetch(ctx: Context) -> None:
        return None

    class Web(Plugin):
        name = "web"
        actions = (fetch,)

    pool = [identity.ensure(Agent.new("plugged", plugins=[Web])), agent("declared", actions=["fetch"])]
    reasons = {found.agent.name: found.reason for found in identity.route(pool, action="fetch")}
    assert "offers fetch" in reasons["plugged"]
    assert "declares fetch" in reasons["declared"]


def test_routing_changes_no_agent() -> None:
    """Asking leaves states and revisions alone."""
    pool = [agent("a", 1, actions=["fetch"]), Agent.new("bare")]
    before = [one.to_json() for one in pool]
    (found,) = identity.route(pool, action="fetch")
    assert found.agent is pool[0]
    assert [one.to_json() for one in pool] == before


def test_any_iterable_of_agents_is_a_pool() -> None:
    """A generator serves as well as a list."""
    assert [found.agent.name for found in identity.route(agent(name) for name in "ab")] == ["a", "b"]


QUESTIONS: dict[str, Callable[[list[Agent]], object]] = {
    "action": lambda pool: identity.route(pool, action=cast("str", 5)),
    "empty action": lambda pool: identity.route(pool, action=" "),
    "tags as text": lambda pool: identity.route(pool, tags="web"),
    "tags as number": lambda pool: identity.route(pool, tags=cast("Any", 5)),
    "tag": lambda pool: identity.route(pool, tags=[cast("str", 5)]),
    "limits": lambda pool: identity.route(pool, limits=cast("Any", [1])),
    "no agent": lambda pool: identity.route([*pool, cast("Agent", "bob")]),
    "no pool": lambda pool: identity.route(cast("Any", 5)),
    "one agent": lambda pool: identity.best(cast("Any", pool[0])),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_asked_wrongly_is_refused(ask: Callable[[list[Agent]], object]) -> None:
    """Each argument is checked, and the error says what to pass."""
    with pytest.raises(Invalid) as raised:
        ask([agent("a")])
    assert raised.value.remedy


def test_tags_given_as_text_are_refused_with_the_list_to_pass() -> None:
    """A string is not read letter by letter."""
    with pytest.raises(WrongType, match=r"pass \['web'\]"):
        identity.route([], tags="web")
