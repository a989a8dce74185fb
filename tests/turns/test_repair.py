"""Answers that are not quite JSON are repaired, and said to be."""

import sys
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omoide
from omoide.errors import ModelMisbehaved
from omoide.turns import AgentSpec
from omoide.turns.repair import MAX_REPAIRED_LENGTH, repair_object


class Mail(msgspec.Struct):
    label: str
    score: float = 0.5
    tags: list[str] = []


SPEC = AgentSpec(id="judge", result=Mail)
READ = AgentSpec.from_json(SPEC.to_json())


@pytest.mark.parametrize(
    "answer",
    [
        '{"label": "spam", "score": 1,}',
        "{'label': 'spam', 'score': 1}",
        "{label: 'spam', score: 1}",
        '{"label": "spam" "score": 1}',
        '{"label": "spam", // sure\n "score": 1}',
        '```json\n{"label": "spam", "score": 1,}\n```',
        'Sure, here it is: {"label": "spam", "score": 1,} Anything else?',
    ],
)
@pytest.mark.parametrize("spec", [SPEC, READ], ids=["class", "read"])
def test_an_answer_that_is_almost_json_is_repaired(spec: AgentSpec, answer: str) -> None:
    """The value is what the model meant, and checked as any other is."""
    output = spec.read_output(answer)
    assert output.repaired
    assert msgspec.convert(msgspec.to_builtins(output.value), Mail) == Mail(label="spam", score=1)


@pytest.mark.parametrize(
    "answer", ['{"label": "{spam,}"}', 'Yes: {"label": "spam"} it is.', '```\n{"label": "spam"}\n```']
)
def test_what_is_json_is_not_repaired(answer: str) -> None:
    """Strict reading comes first, and what it finds stays as it is."""
    assert not SPEC.read_output(answer).repaired


@pytest.mark.parametrize(
    "answer",
    [
        "no object at all",
        "I like {cats} and {dogs}.",
        "{score: 1,}",
        "{label: 7,}",
        "{'label': 'spam', 'score': NaN}",
        "{'label': 'the beginning of",
        '{"label": "spam", "tags": ["a", "b"',
        "{'label': '" + "a" * MAX_REPAIRED_LENGTH + "'}",
        "{" * 5_000 + "}" * 5_000,
    ],
)
@pytest.mark.parametrize("spec", [SPEC, READ], ids=["class", "read"])
def test_an_answer_that_is_no_object_is_refused(spec: AgentSpec, answer: str) -> None:
    """Prose with braces is none, what is cut off is not completed, and what is repaired has to fit."""
    with pytest.raises(ModelMisbehaved):
        spec.read_output(answer)


def test_without_the_extra_answers_are_read_strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused as before."""
    monkeypatch.setitem(sys.modules, "json_repair", None)
    with pytest.raises(ModelMisbehaved, match="no JSON object"):
        SPEC.read_output("{'label': 'spam'}")
    assert SPEC.parse_output('{"label": "spam"}') == Mail(label="spam")


@pytest.mark.parametrize(
    "piece", ["[", "{", '{"a":[', '"', '",', "{{", "/* ", "{\n", "{'a': 'it's', ", "(", "{# "]
)
def test_no_answer_takes_long_to_repair(piece: str) -> None:
    """The longest texts that are repaired take about a second at most."""
    text = (piece * MAX_REPAIRED_LENGTH)[: MAX_REPAIRED_LENGTH // 2 - 1]
    closed = "{" + text + "]" * text.count("[") + "}" * (text.count("{") + 1)
    start = time.process_time()
    repair_object(closed[:MAX_REPAIRED_LENGTH])
    assert time.process_time() - start < 5


@given(st.text(alphabet="{}[]\"':,ab1 \n\\`/", max_size=60))
def test_whatever_is_repaired_is_json(text: str) -> None:
    """It is an object of JSON types, or nothing."""
    plain: Any = repair_object(text)
    assert plain is None or msgspec.json.decode(msgspec.json.encode(plain)) == plain


async def test_the_events_say_that_an_answer_was_repaired() -> None:
    """The value is there, what the model said is kept, and only a repaired answer has the event."""
    for answer, kinds in (("{'label': 'spam',}", ["answer_repaired"]), ('{"label": "spam"}', [])):
        result = await omoide.turn(SPEC, "Win a lamp!", model=lambda request, journal, said=answer: said)
        assert result.value == Mail(label="spam")
        assert result.content == answer
        assert [event.kind for event in result.events if event.kind == "answer_repaired"] == kinds
