"""Directives: validation and round trips through JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import data, lists, maps, names

from omoide import Agent, Context, Signal, Space, action, directives
from omoide.core import Externalize, Instruction, Value
from omoide.core.state import Parent
from omoide.directives import Directive
from omoide.errors import Invalid
from omoide.strategy import StrategyState
from omoide.testing import reproducible

ids = names.filter(str.isprintable)
signals = st.builds(Signal, type=st.sampled_from(["a", "a.b"]), data=data, subject=st.none() | ids)
instructions = st.builds(Instruction, action=st.just("act"), params=maps)

MADE: dict[type[Value], st.SearchStrategy[Any]] = {
    directives.Emit: st.builds(directives.Emit, signal=signals, dispatch=st.none() | maps),
    directives.Error: st.builds(
        directives.Error, message=names, context=names, action=st.none() | names, field=st.none() | names
    ),
    directives.RunInstruction: st.builds(
        directives.RunInstruction, instruction=instructions, result_action=st.none() | names
    ),
    directives.Spawn: st.builds(directives.Spawn, target=names, config=maps, tag=st.none() | ids),
    directives.SpawnAgent: st.builds(
        directives.SpawnAgent, kind=names, tag=ids, id=st.none() | ids, state=maps, metadata=maps
    ),
    directives.AdoptChild: st.builds(directives.AdoptChild, child=ids, tag=ids, metadata=maps),
    directives.StopChild: st.builds(directives.StopChild, tag=ids, reason=names),
    directives.StartSensor: st.builds(directives.StartSensor, sensor=names, tag=ids, config=maps),
    directives.StopSensor: st.builds(directives.StopSensor, tag=ids),
    directives.Schedule: st.builds(
        directives.Schedule, delay_ms=st.integers(0, 2**40), message=data | signals | instructions
    ),
    directives.Cron: st.builds(
        directives.Cron, expression=st.sampled_from(["* * * * *", "0 0 1 1 * *", "@hourly"]), message=data
    ),
    directives.CronCancel: st.builds(directives.CronCancel, job_id=ids),
    directives.Stop: st.builds(directives.Stop, reason=names),
    directives.MemoryQuery: st.builds(directives.MemoryQuery, query=maps, provider=names, opts=maps),
    directives.MemoryUpsert: st.builds(
        directives.MemoryUpsert,
        items=st.lists(st.fixed_dictionaries({"key": names, "value": data}), max_size=3),
        provider=names,
        opts=maps,
    ),
    directives.MemoryDelete: st.builds(
        directives.MemoryDelete, keys=st.lists(names, max_size=3), provider=names, opts=maps
    ),
    directives.SetState: st.builds(directives.SetState, attrs=maps),
    directives.ReplaceState: st.builds(directives.ReplaceState, state=maps),
    directives.DeleteKeys: st.builds(directives.DeleteKeys, keys=st.lists(names, max_size=3).map(tuple)),
    directives.SetPath: st.builds(
        directives.SetPath, path=st.lists(names, min_size=1, max_size=3).map(tuple), value=data
    ),
    directives.DeletePath: st.builds(
        directives.DeletePath, path=st.lists(names, min_size=1, max_size=3).map(tuple)
    ),
    Externalize: st.builds(Externalize, key=names, pointer=data),
    Parent: st.builds(Parent, id=ids, tag=st.none() | ids, metadata=maps),
    StrategyState: st.builds(StrategyState, status=st.sampled_from(["idle", "failure"]), data=maps),
}


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
@given(st.data())
def test_every_value_survives_json(kind: type[Value], draw: st.DataObject) -> None:
    """Whatever it holds, it is read back equal, and to the same type."""
    value = draw.draw(MADE[kind])
    again = kind.from_json(value.to_json())
    assert again == value
    assert type(again) is kind


@given(signals, lists)
def test_our_own_values_inside_a_directive_survive_json(signal: Signal, items: list[Any]) -> None:
    """A signal, a space or a directive inside free data comes back as what it was."""
    inner = {"space": Space(data=items), "signal": signal, "stop": directives.Stop()}
    for value in (
        directives.Schedule(delay_ms=1, message=inner),
        directives.Emit(signal=signal, dispatch=inner),
    ):
        assert type(value).from_json(value.to_json()) == value


def test_every_built_in_directive_is_tested_here() -> None:
    """The thirteen of the agent server and the three of memory."""
    assert {*directives.BUILT_IN} <= {*MADE}
    assert len(directives.BUILT_IN) == 16


def test_a_memory_query_has_its_defaults() -> None:
    """A generated request id, no options, and the standard type of the answer."""
    with reproducible():
        query = directives.MemoryQuery(query={"text": "tea", "top_k": 5}, provider="semantic")
    assert (query.request_id, query.reply_signal_type) == ("req_1", "jido.memory.result")
    assert query.query == {"text": "tea", "top_k": 5}
    assert query.opts == {}


def test_all_three_memory_directives_ask_for_the_same_answer() -> None:
    """Upsert and delete are answered too, each under an id of its own."""
    upsert = directives.MemoryUpsert(items=[{"key": "k", "value": 1, "embedding": [0.5]}], provider="p")
    delete = directives.MemoryDelete(keys=["k"], provider="p")
    assert upsert.reply_signal_type == delete.reply_signal_type == directives.MEMORY_RESULT
    assert upsert.request_id.startswith("req_")
    assert upsert.request_id != delete.request_id
    assert upsert.items[0]["embedding"] == [0.5]


def test_a_request_id_of_ones_own_is_kept() -> None:
    """So that the answer can be recognised."""
    assert directives.MemoryDelete(keys=[], provider="p", request_id="mine").request_id == "mine"


def test_directives_are_data_that_cmd_hands_over_in_order() -> None:
    """None of them touches the state."""
    asked: list[Directive] = [
        directives.MemoryQuery(query={"text": "tea"}, provider="semantic"),
        directives.Stop(),
        directives.Emit(signal=Signal(type="a")),
    ]

    @action
    def look_up(ctx: Context) -> tuple[dict[str, Any], list[Directive]]:
        return {}, asked

    agent = Agent.new("a")
    after, effects = agent.cmd(look_up)
    assert effects == asked
    assert after.state == agent.state


class Ring(Directive, frozen=True, kw_only=True):
    """A directive of someone else's."""

    times: int = 1


def test_anyone_may_add_a_directive() -> None:
    """A subclass is checked, handed over and written like the built-in ones."""

    @action
    def ring(ctx: Context) -> tuple[None, list[Directive]]:
        return None, [Ring(times=3)]

    assert Agent.new("a").cmd(ring)[1] == [Ring(times=3)]
    assert Ring.from_json(Ring(times=3).to_json()) == Ring(times=3)
    assert Ring not in directives.BUILT_IN


SIGNAL = Signal(type="a")
WRONG: list[tuple[type[Value], dict[str, Any], str]] = [
    (directives.Emit, {"signal": 5}, "signal"),
    (directives.Emit, {"signal": SIGNAL, "dispatch": 5}, "dispatch"),
    (directives.Error, {"message": 5}, "message"),
    (directives.Error, {"message": "m", "context": ""}, "context"),
    (directives.Error, {"message": "m", "action": 5}, "action"),
    (directives.Error, {"message": "m", "kind": None}, "kind"),
    (directives.RunInstruction, {"instruction": "act"}, "instruction"),
    (
        directives.RunInstruction,
        {"instruction": Instruction(action="a"), "result_action": ""},
        "result_action",
    ),
    (directives.Spawn, {"target": ""}, "target"),
    (directives.Spawn, {"target": "t", "config": [1]}, "config"),
    (directives.Spawn, {"target": "t", "tag": ""}, "tag"),
    (directives.SpawnAgent, {"kind": 5, "tag": "t"}, "kind"),
    (directives.SpawnAgent, {"kind": "k", "tag": ""}, "tag"),
    (directives.SpawnAgent, {"kind": "k", "tag": "t", "id": "a\n"}, "id"),
    (directives.SpawnAgent, {"kind": "k", "tag": "t", "state": 5}, "state"),
    (directives.SpawnAgent, {"kind": "k", "tag": "t", "metadata": 5}, "metadata"),
    (directives.AdoptChild, {"child": "", "tag": "t"}, "child"),
    (directives.StopChild, {"tag": 5}, "tag"),
    (directives.StopChild, {"tag": "t", "reason": 5}, "reason"),
    (directives.StartSensor, {"sensor": "", "tag": "t"}, "sensor"),
    (directives.StartSensor, {"sensor": "s", "tag": "t", "config": "x"}, "config"),
    (directives.StopSensor, {"tag": ""}, "tag"),
    (directives.Schedule, {"delay_ms": -1, "message": 1}, "delay_ms"),
    (directives.Schedule, {"delay_ms": 1.5, "message": 1}, "delay_ms"),
    (directives.Schedule, {"delay_ms": 1, "message": object()}, "message"),
    (directives.Cron, {"expression": "sometimes", "message": 1}, "expression"),
    (directives.Cron, {"expression": "@hourly", "message": 1, "job_id": ""}, "job_id"),
    (directives.Cron, {"expression": "@hourly", "message": 1, "timezone": ""}, "timezone"),
    (directives.CronCancel, {"job_id": 5}, "job_id"),
    (directives.Stop, {"reason": None}, "reason"),
    (directives.MemoryQuery, {"query": "tea", "provider": "p"}, "query"),
    (directives.MemoryQuery, {"query": {}, "provider": ""}, "provider"),
    (directives.MemoryQuery, {"query": {}, "provider": "p", "request_id": ""}, "request_id"),
    (directives.MemoryQuery, {"query": {}, "provider": "p", "opts": 5}, "opts"),
    (directives.MemoryQuery, {"query": {}, "provider": "p", "reply_signal_type": ""}, "reply_signal_type"),
    (directives.MemoryUpsert, {"items": "k", "provider": "p"}, "items"),
    (directives.MemoryUpsert, {"items": [5], "provider": "p"}, "items[0]"),
    (directives.MemoryUpsert, {"items": [{"key": "k"}], "provider": "p"}, "items[0]"),
    (directives.MemoryDelete, {"keys": "k", "provider": "p"}, "keys"),
    (directives.MemoryDelete, {"keys": ["k", 5], "provider": "p"}, "keys[1]"),
    (directives.SetState, {"attrs": 5}, "attrs"),
    (directives.ReplaceState, {"state": [1]}, "state"),
    (directives.DeleteKeys, {"keys": "abc"}, "keys"),
    (directives.DeleteKeys, {"keys": [5]}, "keys[0]"),
    (directives.SetPath, {"path": (), "value": 1}, "path"),
    (directives.SetPath, {"path": ("a",), "value": object()}, "value"),
    (directives.DeletePath, {"path": "abc"}, "path"),
    (Externalize, {"key": "", "pointer": 1}, "key"),
    (Externalize, {"key": "k", "pointer": object()}, "pointer"),
    (Parent, {"id": ""}, "id"),
    (Parent, {"id": "p", "metadata": 5}, "metadata"),
    (StrategyState, {"status": "tired"}, "status"),
    (StrategyState, {"data": 5}, "data"),
]


@pytest.mark.parametrize(("kind", "fields", "field"), WRONG)
def test_a_wrong_field_is_refused_by_name(kind: type[Value], fields: dict[str, Any], field: str) -> None:
    """Each field of each directive and operation is checked when it is made."""
    with pytest.raises(Invalid) as raised:
        kind(**fields)
    assert raised.value.field == field
    assert raised.value.remedy


@pytest.mark.parametrize(
    "written", [b"", b"{", b"[]", b"5", b'{"tag": 5}', b'{"tag": "t", "other": 1}', b"{}"]
)
def test_what_is_no_directive_is_not_read(written: bytes) -> None:
    """Broken JSON, another shape, wrong, unknown and missing fields are typed errors."""
    with pytest.raises(Invalid) as raised:
        directives.StopSensor.from_json(written)
    assert raised.value.remedy
