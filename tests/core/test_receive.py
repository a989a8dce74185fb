"""`receive`: plugins, routes and actions for a signal."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from omoide import Agent, Context, Plugin, Signal, action, directives, memory, receive, thread
from omoide.core import FrozenMap
from omoide.directives import Directive
from omoide.errors import InvalidDefinition, WrongType
from omoide.strategy import Direct


@action
def note(ctx: Context, text: str = "", data: Any = None) -> dict[str, Any]:
    """Keep what it was told."""
    return {"noted": [*ctx.state.get("noted", ()), text or data]}


@action
def note_type(ctx: Context) -> dict[str, Any]:
    """Keep the type of the signal that led here."""
    assert ctx.signal is not None
    return {"noted": [*ctx.state.get("noted", ()), ctx.signal.type]}


def note_target(text: str) -> tuple[Any, dict[str, Any]]:
    """A target that leaves its mark."""
    return note, {"text": text}


def notes_of(outcome: tuple[Agent, list[Directive]]) -> list[Any]:
    """The marks that were left, where nothing went wrong."""
    agent, effects = outcome
    assert effects == []
    return [*agent.state.get("noted", ())]


def the_error(effects: list[Directive]) -> directives.Error:
    """The only directive, which has to be an Error."""
    (error,) = effects
    assert isinstance(error, directives.Error)
    return error


def watcher_plugin(handle: Callable[[Signal, Context], Any], **attributes: Any) -> type[Plugin]:
    """A plugin that looks at signals."""
    members = {"name": "watching", "handle_signal": lambda self, *given: handle(*given), **attributes}
    return type("Watching", (Plugin,), members)


def test_a_signal_runs_the_action_its_type_is_routed_to() -> None:
    """Its data become the parameters."""
    agent = Agent.new("a", routes=[("sensor.reading", note)])
    assert notes_of(receive(agent, Signal(type="sensor.reading", data={"text": "22"}))) == ["22"]


def test_data_that_are_no_map_are_one_parameter() -> None:
    """A list, text or number is passed as `data`; no data are no parameters."""
    agent = Agent.new("a", routes=[("a", note)])
    assert notes_of(receive(agent, Signal(type="a", data=[1]))) == [[1]]
    assert notes_of(receive(agent, Signal(type="a", data="x"))) == ["x"]
    assert notes_of(receive(agent, Signal(type="a"))) == [None]


def test_data_that_the_action_does_not_know_do_not_break_it() -> None:
    """A sender may add fields; the action takes those it knows, which are checked as ever."""
    agent = Agent.new("a", actions=[note], routes=[("a", note), ("b", "note"), ("c", note_type)])
    for kind in ("a", "b"):
        assert notes_of(receive(agent, Signal(type=kind, data={"text": "22", "unit": "C"}))) == ["22"]
        after, effects = receive(agent, Signal(type=kind, data={"text": 22, "unit": "C"}))
        assert after is agent
        assert the_error(effects).field == "text"
    assert notes_of(receive(agent, Signal(type="c", data=[1]))) == ["c"]


def test_a_route_to_an_action_that_nobody_offers_is_an_error() -> None:
    """It is found out when the agent is defined, not when the signal comes."""
    with pytest.raises(InvalidDefinition, match="leads to the unknown action 'no_such_action'"):
        Agent.new("a", routes=[("a", "no_such_action")])


def test_a_target_with_parameters_of_its_own_ignores_the_data() -> None:
    """And a name is as good as the action."""
    agent = Agent.new("a", actions=[note], routes=[("a", ("note", {"text": "own"}))])
    assert notes_of(receive(agent, Signal(type="a", data={"text": "signal"}))) == ["own"]


def test_the_action_finds_the_signal_in_its_context() -> None:
    """The whole signal, not only its data."""
    assert notes_of(receive(Agent.new("a", routes=[("**", note_type)]), Signal(type="x.y"))) == ["x.y"]


def test_all_matching_routes_run_and_the_state_goes_through_them() -> None:
    """The more specific first, then the higher priority, then the earlier."""
    routes: list[Any] = [
        ("**", note_target("any"), 100),
        ("a.*", note_target("one")),
        ("a.b", note_target("late")),
        ("a.b", note_target("early"), 1),
        ("a.b", note_target("later")),
        ("a.c", note_target("other")),
    ]
    agent = Agent.new("a", routes=routes)
    assert notes_of(receive(agent, Signal(type="a.b"))) == ["early", "late", "later", "one", "any"]


class Routing(Direct):
    """A strategy with a route of its own."""

    def signal_routes(self) -> list[Any]:
        return [("a", ("strategy_cmd", note_target("strategy")))]


class Routed(Plugin):
    """A plugin with a route of its own."""

    name = "routed"

    def router(self, config: FrozenMap[str, Any]) -> list[Any]:
        return [("a", note_target("plugin")), ("routed.b", note_target("full type"))]


def test_routes_of_strategy_agent_and_plugin_run_in_this_order() -> None:
    """Their priorities are 50, 0 and −10, wherever they were declared."""
    agent = Agent.new("a", plugins=[Routed], routes=[("a", note_target("agent"))], strategy=Routing())
    assert notes_of(receive(agent, Signal(type="a"))) == ["strategy", "agent", "plugin"]
    assert [route.priority for route in agent.definition.routes] == [50, 0, -10, -10]


def test_routes_of_a_plugin_name_full_types() -> None:
    """Nothing is prefixed."""
    agent = Agent.new("a", plugins=[Routed])
    assert notes_of(receive(agent, Signal(type="routed.b"))) == ["full type"]
    assert the_error(receive(agent, Signal(type="routed.routed.b"))[1]).context == "routing"


def test_a_signal_without_a_route_is_an_error() -> None:
    """The agent is the same, and the error says which types it knows."""
    agent = Agent.new("a", routes=[("a.b", note), ("c.**", note)])
    after, effects = receive(agent, Signal(type="x"))
    error = the_error(effects)
    assert after is agent
    assert (error.context, error.field) == ("routing", "type")
    assert "a.b, c.**" in error.message


def test_the_stop_signal_needs_no_route() -> None:
    """It stops the agent, unless the agent has a route for it."""
    stop = Signal(type="jido.agent.stop")
    _, effects = receive(Agent.new("a"), stop)
    assert [type(effect) for effect in effects] == [directives.Stop]
    assert notes_of(receive(Agent.new("a", routes=[("jido.agent.stop", note_target("mine"))]), stop)) == [
        "mine"
    ]


def test_a_plugin_may_let_a_signal_pass() -> None:
    """None means: go on."""
    agent = Agent.new(
        "a", plugins=[watcher_plugin(lambda signal, ctx: None)], routes=[("a", note_target("routed"))]
    )
    assert notes_of(receive(agent, Signal(type="a"))) == ["routed"]


def test_a_plugin_may_rewrite_a_signal() -> None:
    """Routes, context and the plugins after it see the new one."""
    seen: list[str] = []
    first = watcher_plugin(lambda signal, ctx: Signal(type="new", data=signal.data), name="first")
    second = watcher_plugin(lambda signal, ctx: seen.append(signal.type), name="second")
    agent = Agent.new("a", plugins=[first, second], routes=[("old", note), ("new", note_type)])
    outcome = receive(agent, Signal(type="old"))
    assert notes_of(outcome) == ["new"]
    assert seen == ["new"]


def test_a_plugin_may_run_another_action_instead_of_the_routes() -> None:
    """In any form that `cmd` takes; later plugins are not asked."""
    seen: list[str] = []
    first = watcher_plugin(lambda signal, ctx: [note_target("instead"), note_type], name="first")
    second = watcher_plugin(lambda signal, ctx: seen.append(signal.type), name="second")
    agent = Agent.new("a", plugins=[first, second], routes=[("a", note_target("routed"))])
    assert notes_of(receive(agent, Signal(type="a"))) == ["instead", "a"]
    assert seen == []


def test_a_plugin_that_raises_stops_the_signal() -> None:
    """Nothing is routed, the agent is the same, the error has the reason."""

    def refuse(signal: Signal, ctx: Context) -> None:
        raise PermissionError("not from outside")

    agent = Agent.new("a", plugins=[watcher_plugin(refuse)], routes=[("a", note)])
    after, effects = receive(agent, Signal(type="a"))
    error = the_error(effects)
    assert after is agent
    assert (error.context, error.kind) == ("signal", "PermissionError")
    assert "not from outside" in error.message


def test_a_plugin_that_answers_nonsense_changes_nothing() -> None:
    """What is no action is an error of normalizing."""
    agent = Agent.new("a", plugins=[watcher_plugin(lambda signal, ctx: 5)], routes=[("a", note)])
    after, effects = receive(agent, Signal(type="a"))
    assert after is agent
    assert the_error(effects).context == "normalize"


def test_patterns_gate_the_hook_and_not_the_routes() -> None:
    """A plugin is asked about the types it names, and `*` stands for one segment there as everywhere."""
    seen: list[str] = []
    plugin = watcher_plugin(lambda signal, ctx: seen.append(signal.type), signal_patterns=("a.*", "b.**"))
    agent = Agent.new("a", plugins=[plugin], routes=[("**", note_type)])
    for kind in ("a", "a.x", "a.x.y", "b", "b.x.y", "c"):
        assert notes_of(receive(agent, Signal(type=kind))) == [kind]
    assert seen == ["a.x", "b", "b.x.y"]


def test_a_plugin_sees_the_agent_and_the_signal() -> None:
    """Its context is that of the agent before anything ran."""
    seen: list[Any] = []
    plugin = watcher_plugin(lambda signal, ctx: seen.append((ctx.state["own"], ctx.signal)))
    signal = Signal(type="a")
    receive(Agent.new("a", state={"own": 1}, plugins=[plugin], routes=[("a", note)]), signal)
    assert seen == [(1, signal)]


def test_a_failing_route_does_not_stop_the_next() -> None:
    """What failed changed nothing; what came before and after is done."""

    @action
    def fail(ctx: Context) -> None:
        raise ValueError("it broke")

    routes = [("a", note_target("first")), ("a", (fail, {})), ("a", note_target("last"))]
    agent, effects = receive(Agent.new("a", routes=routes), Signal(type="a"))
    assert agent.state["noted"] == ["first", "last"]
    assert the_error(effects).action == "fail"


def test_directives_of_all_routes_come_in_order() -> None:
    """As the actions asked for them."""

    @action
    def ask(ctx: Context, reason: str) -> Any:
        return None, [directives.Stop(reason=reason)]

    agent = Agent.new("a", routes=[("a", (ask, {"reason": "1"})), ("a", (ask, {"reason": "2"}))])
    assert receive(agent, Signal(type="a"))[1] == [directives.Stop(reason="1"), directives.Stop(reason="2")]


def test_now_is_the_time_of_everything_a_signal_sets_off() -> None:
    """In hooks and in actions alike."""
    times: list[int] = []
    plugin = watcher_plugin(lambda signal, ctx: times.append(ctx.memory.created_at))

    @action
    def remember(ctx: Context) -> Any:
        return ctx.memory.world_put("a", 1)

    agent, _ = receive(Agent.new("a", plugins=[plugin], routes=[("a", remember)]), Signal(type="a"), now=77)
    kept = memory.of(agent)
    assert (times, kept.updated_at) == ([77], 77)


def test_the_answer_of_a_memory_provider_comes_back_as_a_signal() -> None:
    """A query goes out as a directive, and its result is routed to an action by the plugin."""

    @action
    def recall(ctx: Context, text: str) -> Any:
        query = directives.MemoryQuery(query={"text": text, "top_k": 5}, provider="semantic", request_id="r1")
        return {}, [query]

    @action
    def handle(ctx: Context, request_id: str, status: str, result: list[Any], meta: dict[str, Any]) -> Any:
        return ctx.memory.world_put(request_id, result)

    class Rag(Plugin):
        name = "rag"
        actions = (recall, handle)
        signal_patterns = ("jido.memory.result",)

        def router(self, config: FrozenMap[str, Any]) -> list[Any]:
            return [("jido.memory.result", handle)]

    agent, (query,) = Agent.new("a", plugins=[Rag]).cmd(("recall", {"text": "tea"}))
    assert isinstance(query, directives.MemoryQuery)
    found = [{"key": "fact_1", "score": 0.92, "value": "green"}]
    data = {"request_id": query.request_id, "status": "ok", "result": found, "meta": {"provider": "table"}}
    agent, effects = receive(agent, Signal(type=query.reply_signal_type, data=data))
    assert effects == []
    assert memory.world_get(agent, "r1") == found


def test_a_signal_is_tracked_like_any_command() -> None:
    """With a thread, each routed action leaves its start and end."""
    agent = thread.ensure(Agent.new("a", routes=[("a", note), ("a", note)]))
    agent, _ = receive(agent, Signal(type="a"))
    assert [entry.kind for entry in thread.entries(agent)] == ["instruction_start", "instruction_end"] * 2


@pytest.mark.parametrize("signal", [5, None, "a.b", {"type": "a.b"}])
def test_what_is_no_signal_is_refused(signal: Any) -> None:
    """The error says what to pass."""
    with pytest.raises(WrongType, match="a Signal"):
        receive(Agent.new("a"), signal)


def test_what_is_no_agent_receives_nothing() -> None:
    """The error says what to pass."""
    with pytest.raises(WrongType, match="an Agent"):
        receive(cast("Agent", "a"), Signal(type="a"))
