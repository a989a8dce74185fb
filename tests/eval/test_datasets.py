"""Tests of the data sets for evaluation."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from omoide.errors import Invalid, NotFound
from omoide.eval import datasets
from omoide.eval.datasets import session_positions

DAY = 24 * 3_600_000
MAY_8 = 1_683_504_000_000


def locomo_sample(**changes: Any) -> dict[str, Any]:
    return {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_10_date_time": "12:05 am on 9 May, 2023",
            "session_10": [{"speaker": "Ann", "dia_id": "D10:1", "text": "Late again."}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Ann", "dia_id": "D2:1", "text": "Look!", "blip_caption": "a photo of a dog"},
                {"speaker": "Ben", "dia_id": "D2:2", "text": "How sweet."},
            ],
            "session_11_date_time": "1:00 pm on 9 May, 2023",
        },
        "qa": [{"question": "Which pet?", "answer": "a dog", "evidence": ["D2:1"], "category": 4}],
    } | changes


@pytest.fixture
def write_dataset(tmp_path: Path) -> Callable[[Any], Path]:
    def write(content: Any) -> Path:
        path = tmp_path / "data.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
        return path

    return write


def turn(**changes: Any) -> dict[str, Any]:
    return {"kind": "turn", "conversation": "a", "id": "t1", "text": "x"} | changes


def lines(*given: dict[str, Any]) -> str:
    return "\n".join(map(json.dumps, given))


def test_locomo_sessions_come_in_the_order_of_their_numbers(write_dataset: Callable[[Any], Path]) -> None:
    """Turns are ordered by session number, dated by their session, and captions belong to the text."""
    [talk] = datasets.load_locomo(write_dataset([locomo_sample()])).conversations
    assert [(turn.id, turn.session, turn.text, turn.at) for turn in talk.turns] == [
        ("D2:1", "session_2", "Look! [image: a photo of a dog]", MAY_8 + (13 * 60 + 56) * 60_000),
        ("D2:2", "session_2", "How sweet.", MAY_8 + (13 * 60 + 56) * 60_000 + 1000),
        ("D10:1", "session_10", "Late again.", MAY_8 + DAY + 5 * 60_000),
    ]
    assert talk.questions[0].category == "4"


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["D8:6; D9:17"], ("D8:6", "D9:17")),
        (["D:11:26"], ("D11:26",)),
        (["D30:05"], ("D30:5",)),
        (["D9:17 D8:6 D11:26"], ("D9:17", "D8:6", "D11:26")),
        (["D8:6", "D", "D8:6"], ("D8:6",)),
        (["D10:19"], ()),
        ([], ()),
    ],
    ids=str,
)
def test_locomo_evidence_is_repaired(given: list[str], meant: tuple[str, ...]) -> None:
    """Malformed evidence is read as the turns it means, and what names no turn is dropped."""
    assert datasets.parse_evidence(given, {"D8:6", "D9:17", "D11:26", "D30:5"}) == meant


def test_questions_without_evidence_are_left_out_and_counted(write_dataset: Callable[[Any], Path]) -> None:
    """A question that no turn answers is not asked."""
    questions = [
        {"question": "Which pet?", "evidence": ["D2:1"], "category": 4},
        {"question": "Any plans?", "evidence": [], "category": 3},
        {"question": "Whose?", "evidence": ["D"], "category": 3},
    ]
    data = datasets.load_locomo(write_dataset([locomo_sample(qa=questions)]))
    assert [question.text for question in data.conversations[0].questions] == ["Which pet?"]
    assert data.skipped == 2


@pytest.mark.parametrize(
    ("date", "minutes"), [("12:00 am", 0), ("12:30 pm", 750), ("1:56 pm", 836), ("11:59 am", 719)]
)
def test_locomo_dates_are_read(date: str, minutes: int) -> None:
    """Twelve o'clock is midnight in the morning and noon in the afternoon."""
    assert datasets.parse_locomo_time(f"{date} on 8 May, 2023") == MAY_8 + minutes * 60_000


@pytest.mark.parametrize("date", ["8 May 2023", "1:56 pm on 8 Mai, 2023", "", "13:00 on 8 May, 2023"])
def test_other_dates_are_refused(date: str) -> None:
    """A date in another form is an error that shows the right form."""
    with pytest.raises(Invalid, match="1:56 pm on 8 May, 2023"):
        datasets.parse_locomo_time(date)


@pytest.mark.parametrize("content", ["", "[", "{}", "[1]", '[{"sample_id": "x"}]', '{"a": 1}'], ids=repr)
def test_a_file_that_is_not_locomo_is_refused(content: str, write_dataset: Callable[[Any], Path]) -> None:
    """Another file gives an error that names it."""
    with pytest.raises(Invalid, match=r"data\.json"):
        datasets.load_locomo(write_dataset(content))


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    """A path that leads nowhere is an error that names it."""
    with pytest.raises(NotFound, match="absent"):
        datasets.load_jsonl(tmp_path / "absent.jsonl")


def test_any_data_set_can_be_brought_as_lines(write_dataset: Callable[[Any], Path]) -> None:
    """Turns keep their order, dates may be ISO or milliseconds, and blank lines do not matter."""
    path = write_dataset(
        lines(
            {"kind": "question", "conversation": "b", "text": "Who?", "evidence": ["t1", "t1"]},
            {"kind": "turn", "conversation": "a", "id": "t1", "text": "One.", "at": "2023-05-08"},
            {"kind": "turn", "conversation": "b", "id": "t1", "text": "Two.", "session": "s", "role": "user"},
        )
        + "\n\n"
        + lines({"kind": "turn", "conversation": "a", "id": "t2", "text": "Three.", "at": MAY_8 + 5})
    )
    data = datasets.load_jsonl(path)
    assert [(talk.id, [turn.id for turn in talk.turns]) for talk in data.conversations] == [
        ("a", ["t1", "t2"]),
        ("b", ["t1"]),
    ]
    assert [turn.at for turn in data.conversations[0].turns] == [MAY_8, MAY_8 + 5]
    assert data.conversations[1].questions[0].evidence == ("t1",)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (turn(text=""), "line 2: text is empty"),
        ({"kind": "turn", "conversation": "a", "text": "x"}, "line 2 is no turn or question"),
        ({"kind": "answer"}, "line 2 is no turn or question"),
        (turn(id="t0"), "two turns with one id"),
        (turn(at="soon"), "line 2: at is 'soon'"),
        (turn(at=-5), "line 2: at is -5"),
        (turn(mood="good"), "line 2 is no turn or question"),
        (turn(kind="question", evidence=["t9"]), "line 2 is no turn or question"),
        ({"kind": "question", "conversation": "a", "text": "x", "evidence": ["t9"]}, "unknown turn"),
    ],
    ids=[f"line-{at}" for at in range(9)],
)
def test_wrong_lines_are_named(
    line: dict[str, Any], problem: str, write_dataset: Callable[[Any], Path]
) -> None:
    """A line that is wrong gives an error that says which and why."""
    with pytest.raises(Invalid, match=problem):
        datasets.load_jsonl(write_dataset(lines(turn(id="t0"), line)))


def test_places_are_counted_in_each_session(write_dataset: Callable[[Any], Path]) -> None:
    """A turn's place is its place among the turns of its session, even where sessions interleave."""
    turns = [
        {"kind": "turn", "conversation": "a", "id": f"t{at}", "text": "x", "session": session}
        for at, session in enumerate(["s1", "s1", "s2", "s1", "s2"])
    ]
    assert session_positions(datasets.load_jsonl(write_dataset(lines(*turns))).conversations[0].turns) == [
        0,
        1,
        0,
        2,
        1,
    ]


def test_a_data_set_can_be_shortened(write_dataset: Callable[[Any], Path]) -> None:
    """The first conversations with the first questions of each are what is left."""
    sample = locomo_sample()
    twice = [sample | {"qa": sample["qa"] * 3}, sample | {"sample_id": "conv-2"}]
    data = datasets.truncate_dataset(datasets.load_locomo(write_dataset(twice)), conversations=1, questions=2)
    assert [(talk.id, len(talk.questions)) for talk in data.conversations] == [("conv-1", 2)]
