"""Signals are captured by rules, each once."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from tests.support.strategies import json_data

from omoide import Agent, Context, Signal
from omoide.core.action import MEMORY_RESULT, MemoryUpsert
from omoide.core.frozen import EMPTY_MAP
from omoide.errors import InvalidRecord, OmoideError, WrongType
from omoide.projection import CaptureRule, SignalCapture, SupportsCapture
from omoide.projection.plugins import MAX_CONTENT_LENGTH

AGENT = Agent.new("clerk", id="clerk-1")


def capture(signal: Signal, *rules: CaptureRule | dict[str, Any], **options: Any) -> list[MemoryUpsert]:
    found = SignalCapture(rules=rules, **options).capture(signal, Context(AGENT, signal))
    assert all(isinstance(one, MemoryUpsert) for one in found)
    return [one for one in found if isinstance(one, MemoryUpsert)]


def text(signal: Signal, rule: CaptureRule) -> str | None:
    found = capture(signal, rule)
    return found[0].items[0]["value"] if found else None


def make_signal(data: Any = None, type: str = "sensor.reading", **fields: Any) -> Signal:
    return Signal(type=type, data={"text": "It is warm."} if data is None else data, **fields)


def test_a_signal_that_a_rule_names_becomes_a_memory() -> None:
    """It goes to the rule's provider with its type, tags and metadata."""
    rule = CaptureRule(
        pattern="sensor.*", type="fact", tags=["weather"], metadata={"room": 4}, provider="semantic"
    )
    (directive,) = capture(make_signal(), rule)
    assert directive.provider == "semantic"
    assert directive.items[0]["value"] == "It is warm."
    assert directive.opts == {"type": "fact", "tags": ["weather"], "metadata": {"room": 4}}


def test_a_rule_that_says_little_is_enough() -> None:
    """Without more, a signal goes to the provider `memory`, as what its data says."""
    (directive,) = capture(make_signal(), CaptureRule(pattern="sensor.*"))
    assert directive.provider == "memory"
    assert directive.opts == {}


def test_other_signals_are_left_alone() -> None:
    """What no rule names is not kept."""
    assert capture(make_signal(), CaptureRule(pattern="user.**")) == []
    assert capture(make_signal()) == []


def test_the_most_specific_rule_decides() -> None:
    """As with routes: more literal segments first, then the rule that was given earlier."""
    rules = [
        CaptureRule(pattern="**", provider="everything"),
        CaptureRule(pattern="sensor.*", provider="wide"),
        CaptureRule(pattern="sensor.reading", provider="exact"),
        CaptureRule(pattern="sensor.reading", provider="late"),
    ]
    assert capture(make_signal(), *rules)[0].provider == "exact"
    assert capture(make_signal(type="sensor.error"), *rules)[0].provider == "wide"
    assert capture(make_signal(type="user.said"), *rules)[0].provider == "everything"


def test_a_rule_can_except_signals() -> None:
    """With `skip`, what a wider rule would keep is not kept."""
    rules = [CaptureRule(pattern="sensor.**"), CaptureRule(pattern="sensor.noise", skip=True)]
    assert capture(make_signal(type="sensor.noise"), *rules) == []
    assert len(capture(make_signal(), *rules)) == 1


def test_a_rule_can_add_to_a_wider_one() -> None:
    """With `merge`, tags and metadata come together, and what it does not say comes from the next rule."""
    rules = [
        CaptureRule(pattern="**", tags=["all"], provider="p", content="all: {data.text}"),
        CaptureRule(pattern="sensor.*", tags=["sensor"], metadata={"a": 1, "b": 1}, type="fact", merge=True),
        CaptureRule(pattern="sensor.reading", tags=["all", "one"], metadata={"b": 2}, merge=True),
    ]
    (directive,) = capture(make_signal(), *rules)
    assert directive.provider == "p"
    assert directive.items[0]["value"] == "all: It is warm."
    assert directive.opts == {
        "type": "fact",
        "tags": ["all", "sensor", "one"],
        "metadata": {"a": 1, "b": 2},
    }
    (alone,) = capture(make_signal(), rules[0], rules[2].replace(merge=False))
    assert alone.provider == "memory"


def test_an_exception_is_not_merged() -> None:
    """A wider rule that keeps nothing adds nothing to a narrower one that keeps something."""
    rules = [CaptureRule(pattern="**", skip=True, tags=["x"]), CaptureRule(pattern="sensor.*", merge=True)]
    (directive,) = capture(make_signal(), *rules)
    assert directive.opts == {}


def test_a_signal_that_comes_twice_is_kept_once() -> None:
    """The key depends on where the signal comes from and on its id, and on nothing else."""
    rule = CaptureRule(pattern="**")

    def key(plugin: SignalCapture, signal: Signal) -> str:
        directive = plugin.capture(signal, Context(AGENT, signal))[0]
        assert isinstance(directive, MemoryUpsert)
        return str(directive.items[0]["key"])

    one, two = SignalCapture(rules=[rule]), SignalCapture(rules=[rule], alias="b")
    signal = make_signal(id="s1", source="/a")
    assert key(one, signal) == key(one, signal.replace(time=5, data="other")) == key(one, signal)
    others = {
        key(one, make_signal(id="s2", source="/a")),
        key(one, make_signal(id="s1", source="/b")),
        key(two, signal),
        key(one, signal),
    }
    assert len(others) == 4
    assert len(key(one, make_signal(id="s" * 500))) < 60


@pytest.mark.parametrize("type", [MEMORY_RESULT, "jido.agent.error"])
@pytest.mark.parametrize("pattern", ["**", "jido.**", "same"])
def test_what_became_of_a_capture_is_never_captured(type: str, pattern: str) -> None:
    """Otherwise each capture would lead to another, for ever."""
    rule = CaptureRule(pattern=type if pattern == "same" else pattern)
    assert capture(make_signal(type=type), rule) == []


def test_what_the_runtime_says_is_kept_only_by_name() -> None:
    """A pattern for everything means everything that others say."""
    signal = make_signal(type="jido.agent.child.exit")
    assert capture(signal, CaptureRule(pattern="**")) == []
    assert len(capture(signal, CaptureRule(pattern="jido.agent.child.*"))) == 1


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        ("words", "words"),
        ({"text": "words", "other": 1}, "words"),
        ({"content": "words"}, "words"),
        ({"b": 1, "a": [True, None]}, '{"a":[true,null],"b":1}'),
        ([1, "two"], '[1,"two"]'),
        (7, "7"),
        (False, "false"),
        (b"bytes", None),
        ("  ", None),
        ({"text": ""}, None),
    ],
)
def test_without_a_template_the_data_speaks(data: Any, wanted: str | None) -> None:
    """Text is kept as it is, other data as JSON, and what has no words is not kept."""
    assert text(Signal(type="a.b", data=data), CaptureRule(pattern="**")) == wanted
    assert text(Signal(type="a.b"), CaptureRule(pattern="**")) is None


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{data.city}: {data.now.degrees} °C", "Oslo: 21 °C"),
        ("{subject} of {source}, {type}", "room-4 of /sensors, sensor.reading"),
        ("now {data.now}", 'now {"degrees":21}'),
        ("no fields", "no fields"),
        ("{} {1} {data city}", "{} {1} {data city}"),
        ("{data.country}", None),
        ("{data.city.name}", None),
        ("{dataschema}", None),
        ("{__class__}", None),
        ("{data.__class__}", None),
        ("{data.quoted}", "{data.city}"),
    ],
)
def test_a_template_takes_fields_of_the_signal(template: str, wanted: str | None) -> None:
    """Fields are data and nothing else; where one is missing the signal is not kept."""
    data = {"city": "Oslo", "now": {"degrees": 21}, "quoted": "{data.city}"}
    signal = make_signal(data, subject="room-4", source="/sensors")
    assert text(signal, CaptureRule(pattern="**", content=template)) == wanted


def test_a_function_can_find_the_words() -> None:
    """What it returns is kept, and None is not."""
    rule = CaptureRule(pattern="**", content=lambda signal: signal.data.get("said"))
    assert text(make_signal({"said": "hello"}), rule) == "hello"
    assert text(make_signal({"x": 1}), rule) is None


@pytest.mark.parametrize(
    "content", [lambda signal: 5, lambda signal: signal.nothing], ids=["number", "raises"]
)
def test_a_function_that_fails_says_so_to_whoever_asked(content: Any) -> None:
    """The caller gets the error, and decides that it hinders nothing."""
    with pytest.raises((OmoideError, AttributeError)):
        capture(make_signal(), CaptureRule(pattern="**", content=content))


def test_only_so_much_of_a_signal_is_kept() -> None:
    """Raw blobs do not become memories."""
    assert (
        len(text(make_signal("x" * (MAX_CONTENT_LENGTH + 5)), CaptureRule(pattern="**")) or "")
        == MAX_CONTENT_LENGTH
    )


@given(json_data)
def test_any_data_can_be_captured(data: Any) -> None:
    """Whatever a signal holds, there is a memory of it or there is none; nothing breaks."""
    signal = Signal(type="a.b", data=data)
    for one in capture(signal, CaptureRule(pattern="**"), CaptureRule(pattern="a.*", merge=True)):
        assert one == MemoryUpsert.from_json(one.to_json())
        assert one.items[0]["value"].strip()


def test_data_that_json_has_no_word_for_is_written_as_everywhere() -> None:
    """A time is written as the codec writes it."""
    signal = make_signal({"when": datetime(2030, 1, 1, tzinfo=UTC)})
    written = text(signal, CaptureRule(pattern="**"))
    assert written is not None
    assert "2030-01-01" in written


def test_it_is_a_plugin_like_others() -> None:
    """It is mounted by class, with rules as configuration, or with rules that hold code; and it captures."""
    rules = [{"pattern": "sensor.*", "tags": ["x"]}]
    for plugin in (SignalCapture({"rules": rules}), SignalCapture(rules=rules)):
        made = Agent.new("clerk", plugins=[plugin])
        mounted = made.definition.plugins[-1]
        assert isinstance(mounted, SupportsCapture)
        assert mounted.capture(make_signal(), Context(made))[0].opts == {"tags": ["x"]}  # type: ignore[attr-defined]
    made = Agent.new("clerk", plugins=[(SignalCapture, {"rules": rules})])
    assert isinstance(made.definition.plugins[-1], SupportsCapture)
    assert not isinstance(made.definition.plugins[0], SupportsCapture)
    assert SignalCapture(rules=rules) == SignalCapture(rules=rules)
    assert SignalCapture(rules=rules) != SignalCapture(rules=[])
    assert hash(SignalCapture(rules=rules)) == hash(SignalCapture(rules=rules))


@pytest.mark.parametrize(
    "rule",
    [
        {"pattern": "a..b"},
        {"pattern": "a", "type": "nonsense"},
        {"pattern": "a", "content": 5},
        {"pattern": "a", "skip": "yes"},
        {"pattern": "a", "colour": "red"},
        {},
        5,
    ],
)
def test_a_wrong_rule_is_refused_at_once(rule: Any) -> None:
    """A rule has a pattern, a known type, and fields that exist."""
    with pytest.raises(InvalidRecord):
        SignalCapture(rules=[rule])


@pytest.mark.parametrize("rules", ["ab", 5, {"pattern": "a"}])
def test_rules_are_a_list(rules: Any) -> None:
    """In the configuration as well."""
    with pytest.raises(WrongType):
        SignalCapture(rules=rules)
    with pytest.raises(WrongType):
        SignalCapture({"rules": rules})


def test_a_plugin_without_rules_keeps_nothing() -> None:
    """There are no rules but those that were given."""
    assert SignalCapture(EMPTY_MAP).rules == ()
