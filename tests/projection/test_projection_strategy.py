"""The projection strategy projects when it is due and not more often."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.support.projection import (
    NOW,
    CountingProjector,
    QuietStrategy,
    add_entries,
    agent,
    answer,
    coverage_of,
    errors,
    mark,
    message,
)

from omoide import Agent, Context, Signal, action, memory, receive, strategy
from omoide import thread as threads
from omoide.core import Instruction
from omoide.core.action import MEMORY_RESULT, Directive, MemoryUpsert
from omoide.errors import Invalid, WrongType
from omoide.projection import (
    MessageEmbedder,
    ProjectionPlugin,
    ProjectionStrategy,
    Projector,
    projection_action,
    projection_result,
)
from omoide.strategy import Direct, StrategyState

TICK = ("clock.tick", "strategy_tick")


@action
def say(ctx: Context, text: str) -> Any:
    """Write a message into the thread."""
    return ctx.thread.append(message(text))


def make_speaker(*projectors: Projector, inner: Any = None, after: int = 3, **parts: Any) -> Agent:
    how = ProjectionStrategy(projectors, QuietStrategy() if inner is None else inner, after=after)
    return Agent.new("clerk", id="clerk-1", strategy=how, actions=[say], routes=[TICK], **parts)


def say_to(given: Agent, *texts: str, now: int = NOW) -> tuple[Agent, list[Directive]]:
    directives: list[Directive] = []
    for text in texts:
        given, more = given.cmd(("say", {"text": text}), now=now)
        directives += more
    return given, directives


def send_tick(given: Agent, now: int = NOW) -> tuple[Agent, list[Directive]]:
    return receive(given, Signal(type="clock.tick"), now=now)


def test_it_projects_once_enough_is_new() -> None:
    """After a command nothing happens until `after` entries are not covered, and then again after as many."""
    counting = CountingProjector()
    given, _ = say_to(make_speaker(counting), "a", "b")
    assert counting.seen == []
    given, _ = say_to(given, "c", "d", "e")
    assert counting.seen == [[0, 1, 2]]
    given, _ = say_to(given, "f")
    assert counting.seen == [[0, 1, 2], [3, 4, 5]]
    assert memory.world_get(given, "counting") == 6


def test_it_projects_at_every_tick() -> None:
    """A tick projects what there is, however little."""
    counting = CountingProjector()
    given, _ = say_to(make_speaker(counting), "a")
    given, directives = send_tick(given)
    assert counting.seen == [[0]]
    assert directives == []
    assert send_tick(given)[0] is given


def test_what_the_inner_strategy_does_is_done() -> None:
    """Commands, ticks, init, snapshot and routes are those of the inner strategy."""

    class Inner(Direct):
        def init(self, agent: Agent, ctx: Context) -> tuple[Agent, list[Directive]]:
            return strategy.put(agent, StrategyState(status="waiting")), []

        def tick(self, agent: Agent, ctx: Context) -> tuple[Agent, list[Directive]]:
            return strategy.put(agent, StrategyState(status="running")), []

        def signal_routes(self) -> Sequence[Any]:
            return [("inner.say", ("say", {"text": "inner"}))]

    given = make_speaker(CountingProjector(), inner=Inner())
    how = given.definition.strategy
    assert how.snapshot(given).status == "waiting"
    given, _ = receive(given, Signal(type="inner.say"))
    assert threads.filter_by_kind(given, "message")[0].payload["content"] == "inner"
    given, _ = send_tick(given)
    assert how.snapshot(given).status == "running"


def test_the_failure_of_an_inner_strategy_stays_its_own() -> None:
    """A strategy that raises leaves the agent as it was, with an Error of the context strategy."""

    class Broken(Direct):
        def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Any:
            raise RuntimeError("out of ideas")

    given = make_speaker(inner=Broken())
    after, directives = say_to(given, "a")
    assert after is given
    assert [error.context for error in errors(directives)] == ["strategy"]


def test_answers_are_taken_in_by_a_route_of_its_own() -> None:
    """The strategy routes results to its projectors; neither the inner one nor the thread hears of it."""
    heard: list[str] = []

    class Inner(QuietStrategy):
        def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Any:
            heard.append(" ".join(one.action for one in instructions))
            return super().cmd(agent, instructions, ctx)

    embedder = MessageEmbedder()
    given, directives = say_to(make_speaker(embedder, inner=Inner()), "a", "b", "c")
    given, _ = answer(given, directives[0])
    assert coverage_of(given, embedder.name) == [0, 2]
    assert heard == ["say"] * 3
    assert len(threads.entries(given)) == 3


def test_the_plugin_besides_does_no_harm() -> None:
    """An answer that comes twice counts once."""
    embedder = MessageEmbedder()
    given, directives = say_to(make_speaker(embedder, plugins=[ProjectionPlugin]), "a", "b", "c")
    given, told_ = answer(given, directives[0])
    assert coverage_of(given, embedder.name) == [0, 2]
    assert told_ == []


def test_instructions_around_an_answer_run_all_the_same() -> None:
    """An answer among other instructions keeps none of them from running; by name it works as well."""
    embedder = MessageEmbedder()
    given, (asked,) = say_to(make_speaker(embedder), "a", "b", "c")
    assert isinstance(asked, MemoryUpsert)
    result = ("projection_result", {"request_id": asked.request_id, "status": "ok"})
    given, directives = given.cmd([("say", {"text": "d"}), result, ("say", {"text": "e"})], now=NOW)
    assert directives == []
    assert coverage_of(given, embedder.name) == [0, 2]
    assert len(threads.entries(given)) == 5


def test_a_provider_that_fails_is_not_asked_in_circles() -> None:
    """An error does not lead to the same question at once, only after a while or at a tick."""
    embedder = MessageEmbedder(batch_size=1)
    given, directives = say_to(make_speaker(embedder, CountingProjector(), inner=Direct()), *"abc")
    for _ in range(5):
        given, more = answer_all(given, directives, NOW)
        assert more == []
    given, more = say_to(given, "d", "e", now=NOW + 59_999)
    assert more == []
    assert mark(given, embedder.name)["failures"] == 1
    assert len(say_to(given, "f", now=NOW + 60_000)[1]) == 6
    assert len(send_tick(given, NOW + 1)[1]) == 5


def answer_all(given: Agent, directives: Sequence[Directive], now: int) -> tuple[Agent, list[Directive]]:
    more: list[Directive] = []
    for one in directives:
        assert isinstance(one, MemoryUpsert)
        data = {"request_id": one.request_id, "status": "error", "error": "down"}
        given, asked = receive(given, Signal(type=MEMORY_RESULT, data=data), now=now)
        more += asked
    return given, more


def test_a_projector_that_fails_is_reported_once_in_a_while() -> None:
    """A command after a failure does not fail, too: it is reported when it is tried again."""
    given, directives = say_to(make_speaker(CountingProjector(fails=True)), *"abc")
    assert [error.context for error in errors(directives)] == ["projection"]
    given, directives = say_to(given, *"def", now=NOW + 1)
    assert directives == []
    given, directives = say_to(given, "g", now=NOW + 60_000)
    assert len(errors(directives)) == 1
    assert len(threads.entries(given)) == 7


def test_a_backlog_is_worked_off_as_answers_come() -> None:
    """Where more waits than one request takes, the answer to it leads to the next."""
    embedder = MessageEmbedder()
    given = add_entries(make_speaker(embedder, after=3), [message(str(at)) for at in range(1_500)])
    given, directives = say_to(given, "one more")
    given, more = answer_every(given, directives)
    assert sum(len(one.items) for one in more if isinstance(one, MemoryUpsert)) == 501
    given, more = answer_every(given, more)
    assert more == []
    assert coverage_of(given, embedder.name) == [0, 1_500]


def answer_every(given: Agent, directives: Sequence[Directive]) -> tuple[Agent, list[Directive]]:
    more: list[Directive] = []
    for one in directives:
        given, asked = answer(given, one)
        more += asked
    return given, more


def test_an_action_projects_on_demand() -> None:
    """Any agent may project when it is told to, and gets the directives."""
    embedder = MessageEmbedder()
    act = projection_action([CountingProjector(), embedder], name="look_back")
    given = agent("a", "b", actions=[act], strategy=QuietStrategy())
    after, directives = given.cmd("look_back", now=NOW)
    assert coverage_of(after, "counting") == [0, 1]
    assert [type(one) for one in directives] == [MemoryUpsert]
    again, directives = after.cmd("look_back", now=NOW + 1)
    assert (again, directives) == (after, [])
    assert projection_action([]).name == "project"
    assert act.effectful is False


def test_a_failing_projector_does_not_undo_what_the_action_did() -> None:
    """The Error comes besides what the others projected."""
    act = projection_action([CountingProjector("bad", fails=True), CountingProjector("good")])
    after, directives = agent("a", actions=[act], strategy=QuietStrategy()).cmd("project", now=NOW)
    assert coverage_of(after, "good") == [0, 0]
    assert [error.action for error in errors(directives)] == ["bad"]


def test_strategies_of_the_same_parts_are_equal() -> None:
    """Definitions made twice from the same code are the same."""
    one, two = (ProjectionStrategy([MessageEmbedder()], Direct(), after=5) for _ in range(2))
    assert one == two
    assert hash(one) == hash(two)
    assert one != ProjectionStrategy([MessageEmbedder()], Direct(), after=6)
    assert one != ProjectionStrategy([MessageEmbedder(batch_size=3)], Direct(), after=5)
    assert one != Direct()


def test_an_agent_with_it_goes_through_json() -> None:
    """Marks, and what was asked, are written down with the agent."""
    embedder = MessageEmbedder()
    given, directives = say_to(make_speaker(embedder), "a", "b", "c")
    back = Agent.from_json(given.to_json(), given.definition)
    back, _ = answer(back, directives[0])
    assert coverage_of(back, embedder.name) == [0, 2]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"projectors": [object()]}, WrongType),
        ({"inner": Direct}, WrongType),
        ({"inner": object()}, WrongType),
        ({"after": 0}, Invalid),
        ({"config": 5}, WrongType),
    ],
)
def test_what_cannot_work_is_refused_at_once(options: dict[str, Any], problem: type[Exception]) -> None:
    """A wrong projector, inner strategy, threshold or configuration is an error where it is given."""
    with pytest.raises(problem):
        ProjectionStrategy(**{"projectors": [], **options})


@pytest.mark.parametrize(
    ("projectors", "name"), [([CountingProjector("x"), CountingProjector("x")], "project"), ([], "two words")]
)
def test_an_action_that_cannot_work_is_refused_at_once(projectors: list[Projector], name: str) -> None:
    """So is a name that is there twice, or that no action can have."""
    with pytest.raises(Invalid):
        projection_action(projectors, name)


def test_configuration_reaches_the_projectors() -> None:
    """What `Projecting` or the action was given as `config` is in each projector's context."""
    seen: list[Any] = []

    class Watching(CountingProjector):
        def project(self, memory: Any, thread: Any, ctx: Any) -> Any:
            seen.append(ctx.config)
            return memory

    given = Agent.new(
        "x",
        strategy=ProjectionStrategy([Watching()], QuietStrategy(), after=1, config={"a": 1}),
        actions=[say],
    )
    say_to(given, "a")
    agent("a").cmd(projection_action([Watching()], config={"b": 2}))
    assert seen == [{"a": 1}, {"b": 2}]


def test_the_result_action_is_the_same_everywhere() -> None:
    """The strategy, the plugin and a route by hand lead to one action."""
    assert ProjectionPlugin().routes[0].target is projection_result
    routes = ProjectionStrategy([]).signal_routes()
    assert (MEMORY_RESULT, projection_result) in routes
