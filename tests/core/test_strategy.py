"""Strategies: direct execution, deferred effects, hooks and custom strategies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from omoide import Agent, Context, Signal, action, directives, receive, strategy, thread
from omoide.core import Instruction
from omoide.core.definition import Outcome
from omoide.directives import Directive, RunInstruction
from omoide.errors import Invalid, OmoideError
from omoide.strategy import Direct, StrategyState

RAN: list[Any] = []


@dataclass
class Options:
    """A default that is no plain data."""

    deep: bool = False


@action
def count(ctx: Context, by: int = 1, secret: str = "") -> dict[str, Any]:
    """Count on from the state."""
    return {"count": ctx.state.get("count", 0) + by}


@action
def fail(ctx: Context, secret: str = "") -> None:
    """Raise."""
    raise ValueError("it broke")


@action(effectful=True)
async def fetch(ctx: Context, url: str, retries: int = 3, tags: list[str] = ["web"]) -> None:  # noqa: B006
    """Would do I/O."""
    RAN.append(url)


@action(effectful=True)
def log(ctx: Context, text: str) -> None:
    """Would do I/O without awaiting."""
    RAN.append(text)


def the_error(effects: list[Directive]) -> directives.Error:
    """The only directive, which has to be an Error."""
    (error,) = effects
    assert isinstance(error, directives.Error)
    return error


@pytest.mark.parametrize(("act", "params"), [(fetch, {"url": "u"}), (log, {"text": "t"})])
def test_an_effectful_action_is_asked_for_and_not_run(act: Any, params: dict[str, Any]) -> None:
    """`cmd` answers with a RunInstruction and leaves the agent alone, async or not."""
    RAN.clear()
    agent = Agent.new("a")
    after, (asked,) = agent.cmd((act, params))
    assert isinstance(asked, RunInstruction)
    assert asked.instruction.action == act.name
    assert asked.instruction.target is act
    assert (after, RAN) == (agent, [])


def test_the_instruction_asked_for_is_complete_and_survives_json() -> None:
    """Defaults are filled in, so that whoever runs it later runs the same."""
    _, (asked,) = Agent.new("a").cmd((fetch, {"url": "u", "retries": 1}))
    assert isinstance(asked, RunInstruction)
    assert asked.instruction.params == {"url": "u", "retries": 1, "tags": ["web"]}
    assert RunInstruction.from_json(asked.to_json()) == asked


def test_a_default_that_is_no_plain_data_is_left_to_the_action() -> None:
    """The instruction stays data, and the action is asked for all the same."""

    @action(effectful=True)
    def search(ctx: Context, text: str, options: Options = Options(), limit: int = 5) -> None:  # noqa: B008
        return None

    _, (asked,) = Agent.new("a").cmd((search, {"text": "tea"}))
    assert isinstance(asked, RunInstruction)
    assert asked.instruction.params == {"text": "tea", "limit": 5}


def test_an_effectful_action_is_checked_before_it_is_asked_for() -> None:
    """Wrong parameters never leave the agent."""
    error = the_error(Agent.new("a").cmd((fetch, {"uri": "u"}))[1])
    assert (error.context, error.action, error.field) == ("params", "fetch", "uri")


def test_pure_and_effectful_actions_go_together_in_a_list() -> None:
    """The pure ones run, the others are asked for, in order."""
    agent, effects = Agent.new("a").cmd([count, (log, {"text": "x"}), count])
    assert agent.state["count"] == 2
    assert [type(effect) for effect in effects] == [RunInstruction]


def test_a_run_is_noted_in_the_thread_by_the_names_of_its_parameters() -> None:
    """Start and end, action, keys and status; never a value."""
    agent = Agent.new("a", strategy=Direct(thread=True))
    agent, _ = agent.cmd([(count, {"secret": "hunter2", "by": 2}), (fail, {"secret": "hunter2"})], now=7)
    noted = [(entry.kind, entry.payload.to_python(), entry.at) for entry in thread.entries(agent)]
    assert noted == [
        ("instruction_start", {"action": "count", "param_keys": ["by", "secret"]}, 7),
        ("instruction_end", {"action": "count", "status": "ok"}, 7),
        ("instruction_start", {"action": "fail", "param_keys": ["secret"]}, 7),
        ("instruction_end", {"action": "fail", "status": "error"}, 7),
    ]
    assert "hunter2" not in str(thread.entries(agent))


def test_runs_are_noted_only_where_asked_for_or_where_a_thread_exists() -> None:
    """An agent without a thread gets none by acting."""
    bare = Agent.new("a")
    assert not thread.has_thread(bare.cmd(count)[0])
    kinds = [entry.kind for entry in thread.entries(thread.ensure(bare).cmd(count)[0])]
    assert kinds == ["instruction_start", "instruction_end"]


def test_an_entry_of_the_action_lies_between_start_and_end() -> None:
    """The action appends to the thread it finds."""

    @action
    def note(ctx: Context) -> Any:
        return ctx.thread.append({"kind": "message"})

    agent, effects = Agent.new("a", strategy=Direct(thread=True)).cmd(note)
    assert effects == []
    assert [entry.kind for entry in thread.entries(agent)] == [
        "instruction_start",
        "message",
        "instruction_end",
    ]


def test_direct_keeps_no_state_of_its_own() -> None:
    """It is idle, it has nothing to go on with, and two alike are equal."""
    agent = Agent.new("a")
    assert agent.state == {}
    assert Direct().snapshot(agent) == StrategyState(status="idle")
    assert Direct().tick(agent, Context(agent)) == (agent, [])
    assert Direct() == Direct() != Direct(thread=True)
    assert hash(Direct()) == hash(Direct())


def test_a_before_hook_may_change_agent_and_action() -> None:
    """It sees the instructions, and answers with an agent, alone or with what to run instead."""
    seen: list[Any] = []

    def mark(agent: Agent, instructions: Sequence[Instruction]) -> Agent:
        seen.extend(one.action for one in instructions)
        return Agent.new(agent.definition, id=agent.id, state={"count": 10})

    agent, _ = Agent.new("a", on_before_cmd=mark).cmd(count)
    assert (agent.state["count"], seen) == (11, ["count"])

    def instead(agent: Agent, instructions: Sequence[Instruction]) -> Any:
        return agent, [(count, {"by": 5}), *instructions]

    assert Agent.new("a", on_before_cmd=instead).cmd(count)[0].state["count"] == 6


def test_an_after_hook_may_change_agent_and_directives() -> None:
    """It sees the outcome and answers with another."""

    def more(agent: Agent, instructions: Any, effects: list[Directive]) -> Any:
        return agent.cmd(count)[0] if "count" not in agent.state else agent, [*effects, directives.Stop()]

    agent, effects = Agent.new("a", on_after_cmd=more).cmd((log, {"text": "x"}))
    assert agent.state["count"] == 1
    assert [type(effect) for effect in effects] == [RunInstruction, directives.Stop]


def broken(*args: Any) -> Any:
    """A hook that raises."""
    raise RuntimeError("hook broke")


HOOKS: dict[str, dict[str, Any]] = {
    "before raises": {"on_before_cmd": broken},
    "before returns nothing": {"on_before_cmd": lambda agent, instructions: None},
    "before returns no agent": {"on_before_cmd": lambda agent, instructions: ("x", instructions)},
    "before returns no action": {"on_before_cmd": lambda agent, instructions: (agent, 5)},
    "after raises": {"on_after_cmd": broken},
    "after returns nothing": {"on_after_cmd": lambda agent, instructions, effects: None},
    "after returns the agent only": {"on_after_cmd": lambda agent, instructions, effects: agent},
    "after returns no agent": {"on_after_cmd": lambda agent, instructions, effects: ("x", [])},
    "after returns no list": {"on_after_cmd": lambda agent, instructions, effects: (agent, None)},
    "after returns no directives": {"on_after_cmd": lambda agent, instructions, effects: (agent, ["x"])},
}


@pytest.mark.parametrize("hooks", HOOKS.values(), ids=HOOKS)
def test_a_hook_that_goes_wrong_leaves_the_agent_as_it_was(hooks: dict[str, Any]) -> None:
    """The command is undone, and the error blames the hook."""
    agent = Agent.new("a", **hooks)
    after, effects = agent.cmd(count)
    assert after is agent
    assert the_error(effects).context == "hook"


class Counting(Direct):
    """Remembers how often it was prepared, told and ticked."""

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        return self._noted(agent, "init"), [directives.Stop(reason="from init")]

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        agent, effects = super().cmd(agent, instructions, ctx)
        return self._noted(agent, "cmd"), effects

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        return thread.append(self._noted(agent, "tick"), {"kind": "tick"}), [directives.Stop(reason="tick")]

    def signal_routes(self) -> list[Any]:
        return [
            ("step", ("strategy_tick",)),
            ("go", ("strategy_cmd", count)),
            ("go.named", ("strategy_cmd", "count")),
        ]

    def _noted(self, agent: Agent, what: str) -> Agent:
        state = strategy.of(agent)
        seen = {**state.data, what: state.data.get(what, 0) + 1}
        return strategy.put(agent, StrategyState(status="running", data=seen))


def count_of(agent: Agent) -> Any:
    """What a counting strategy remembers."""
    return Counting().snapshot(agent).data


def test_the_state_of_a_strategy_has_a_slot_like_the_others() -> None:
    """Get, put, update, ensure, has and of work as they do for memory, identity and thread."""
    bare = Agent.new("a")
    assert strategy.key() == "__strategy__"
    assert strategy.get(bare) is None
    assert strategy.of(bare) == StrategyState()
    assert not strategy.has_strategy(bare)
    agent = strategy.update(strategy.ensure(bare), lambda old: StrategyState(status="waiting"))
    assert strategy.ensure(agent) is agent
    assert strategy.of(agent).status == "waiting"


def test_a_strategy_prepares_a_new_agent_and_its_directives_wait_for_a_server() -> None:
    """`init` runs once, after the mounts; what it asks for is dropped here."""
    agent = Agent.new("a", strategy=Counting())
    assert count_of(agent) == {"init": 1}
    assert Counting().snapshot(agent).status == "running"
    assert not Counting().snapshot(agent).done


def test_preparing_twice_does_no_harm() -> None:
    """`Direct` leaves an agent alone however often it is prepared."""
    agent = Agent.new("a")
    again, _ = Direct().init(agent, Context(agent))
    assert Direct().init(again, Context(again)) == (agent, [])


def test_a_strategy_acts_on_commands() -> None:
    """`cmd` goes through it."""
    agent, _ = Agent.new("a", strategy=Counting()).cmd([count, count])
    assert (agent.state["count"], count_of(agent)["cmd"]) == (2, 1)


def test_a_signal_can_tick_a_strategy() -> None:
    """A route to `strategy_tick` reaches it, at the time of the signal's reception."""
    agent, effects = receive(Agent.new("a", strategy=Counting()), Signal(type="step"), now=77)
    assert count_of(agent)["tick"] == 1
    assert effects == [directives.Stop(reason="tick")]
    assert [entry.at for entry in thread.entries(agent)] == [77]


@pytest.mark.parametrize("kind", ["go", "go.named"])
def test_a_signal_can_command_a_strategy(kind: str) -> None:
    """A route to `strategy_cmd` runs its action with the data of the signal."""
    agent, effects = receive(
        Agent.new("a", strategy=Counting(), actions=[count]), Signal(type=kind, data={"by": 4})
    )
    assert (agent.state["count"], count_of(agent)["cmd"], effects) == (4, 1, [])


STATUSES = {"idle": False, "running": False, "waiting": False, "success": True, "failure": True}


@pytest.mark.parametrize(("status", "done"), STATUSES.items())
def test_a_strategy_is_done_after_success_or_failure(status: str, done: bool) -> None:
    """The other three states mean that there is more to come."""
    assert StrategyState(status=status).done is done


OUTCOMES: dict[str, Any] = {
    "nothing": None,
    "no agent": ("x", []),
    "no list": (0, None),
    "no directives": (0, ["x"]),
}


@pytest.mark.parametrize("method", ["cmd", "tick"])
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_a_strategy_that_answers_nonsense_changes_nothing(method: str, outcome: Any) -> None:
    """The agent is the same, and the error blames the strategy."""

    def nonsense(self: Any, agent: Agent, *rest: Any) -> Any:
        return (agent, outcome[1]) if outcome and outcome[0] == 0 else outcome

    odd = cast("Direct", type("Odd", (Direct,), {method: nonsense})())
    agent = Agent.new("a", strategy=odd, routes=[("step", ("strategy_tick",)), ("go", count)])
    after, effects = receive(agent, Signal(type="step" if method == "tick" else "go"))
    assert after is agent
    assert the_error(effects).context == "strategy"


def test_a_strategy_that_prepares_nonsense_makes_no_agent() -> None:
    """Making the agent fails with a typed error."""
    odd = cast("Direct", type("Odd", (Direct,), {"init": lambda self, agent, ctx: None})())
    with pytest.raises(OmoideError):
        Agent.new("a", strategy=odd)


def test_what_is_no_strategy_is_refused() -> None:
    """The definition says so at once."""
    with pytest.raises(Invalid, match="strategy") as raised:
        Agent.new("a", strategy=cast("Any", 5))
    assert raised.value.remedy
