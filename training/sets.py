"""Load the data sets.

Every set is a list of conversations: turns, and questions with the ids of the turns that answer them. Plain
facts are turns without a session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from omoide.eval.datasets import DatasetTurn, load_locomo, parse_time

HERE = Path(__file__).parent
DATA = HERE / "data"

LONG_SIZES = {"chat": 6, "assistant": 10, "notes": 10}
"""Conversations of a kind that share one long scope: about 250 to 400 turns together."""
FACTS_FROM, FACTS_UNTIL = "2023-01-01", "2026-01-01"
"""Times between which plain facts are spread: the pairs of statements lie between them, too."""
ROLES = ("user", "assistant")
PERSONA = "persona"
PAIR_SETS = {
    "updates": ("new", "old"),
    "used_to_be": ("old", "new"),
    "both_true": ("b", "a"),
}
"""Sets of two statements each: the one that is asked for, and the other one."""
FACT_COUNT = 5_000
SEED = 20110311


class Question(NamedTuple):
    """A question, and the ids of the turns that matter to it."""

    text: str
    gold: tuple[str, ...]
    """Turns that answer it; none where nothing does."""
    kind: str
    rivals: tuple[str, ...] = ()
    """Turns that state another value of the same thing, before or after the one that is asked for."""


class Conversation(NamedTuple):
    """Turns that are searched together, in order of time, and questions about them."""

    id: str
    kind: str
    turns: tuple[DatasetTurn, ...]
    questions: tuple[Question, ...]


def held_out_ids() -> frozenset[str]:
    """Return the ids of the dialogues that the encoder was not trained on."""
    return frozenset(json.loads((HERE / "held_out.json").read_text("utf-8")))


def load_dialogues(*, held_out: bool) -> list[Conversation]:
    """Load the dialogues that were held out of the training of the encoder, or those used in it."""
    ids = held_out_ids()
    paths = sorted(DATA.glob("dialogues*.jsonl"))
    records = [record for path in paths for record in _records(path) if (record["id"] in ids) == held_out]
    return [*map(to_conversation, records)]


def to_conversation(record: dict[str, Any]) -> Conversation:
    """Convert a dialogue of sessions; a turn is named by session and position, both from 1."""
    turns = []
    for number, session in enumerate(record["sessions"], 1):
        started_at = _time(session["date"])
        for position, turn in enumerate(session["turns"]):
            has_role = turn["s"] in ROLES
            turns.append(
                DatasetTurn(
                    id=f"{number}:{position + 1}",
                    text=turn["t"],
                    session=f"s{number}",
                    role=turn["s"] if has_role else None,
                    speaker=None if has_role else turn["s"],
                    at=started_at + position * 1000,  # a second between turns keeps them in order
                )
            )
    questions = [
        Question(one["q"], _unique(one["gold"]), one["type"], _unique(one.get("old", ())))
        for one in record["questions"]
    ]
    return Conversation(record["id"], record["kind"], tuple(turns), tuple(questions))


def join_conversations(conversations: Sequence[Conversation], size: int) -> list[Conversation]:
    """Join each `size` conversations into one, with their turns in order of time."""
    joined = []
    for start in range(0, len(conversations), size):
        group = conversations[start : start + size]
        turns = [
            turn.replace(id=f"{one.id}/{turn.id}", session=f"{one.id}/{turn.session}")
            for one in group
            for turn in one.turns
        ]
        questions = [
            question._replace(
                gold=tuple(f"{one.id}/{id}" for id in question.gold),
                rivals=tuple(f"{one.id}/{id}" for id in question.rivals),
            )
            for one in group
            for question in one.questions
        ]
        turns.sort(key=lambda turn: turn.at or 0)
        joined.append(Conversation(f"joined-{group[0].id}", group[0].kind, tuple(turns), tuple(questions)))
    return joined


def join_by_kind(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Join the conversations of each kind into long scopes."""
    return [
        joined
        for kind, size in LONG_SIZES.items()
        for joined in join_conversations([one for one in conversations if one.kind == kind], size)
    ]


def load_facts(count: int) -> list[Conversation]:
    """Load the questions about plain facts, among this many facts: 500 of their own, then 4,500 others."""
    questions = [
        Question(one["q"], tuple(one["gold"]), one["kind"])
        for one in _records(DATA / "facts_questions.jsonl")
    ]
    return [Conversation(f"facts-{count}", "facts", tuple(fact_turns(count)), tuple(questions))]


def load_personas(*, held_out: bool) -> list[Conversation]:
    """Load the personas that were held out of the training of the encoder, or those used in it."""
    ids = held_out_ids()
    records = [one for one in _records(DATA / "personas.jsonl") if (one["id"] in ids) == held_out]
    return [
        Conversation(
            record["id"],
            PERSONA,
            tuple(_spread([{"id": str(at), "text": text} for at, text in enumerate(record["facts"], 1)])),
            tuple(
                Question(one["q"], _names(one["gold"]), one["type"], _names(one.get("old", ())))
                for one in record["questions"]
            ),
        )
        for record in records
    ]


def _names(numbers: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, numbers))


def fact_turns(count: int) -> list[DatasetTurn]:
    """Return the first facts as turns, spread evenly over some years."""
    facts = [*_records(DATA / "facts.jsonl"), *_records(DATA / "facts_more.jsonl")][:count]
    return _spread(facts)


def load_code() -> list[Conversation]:
    """Load the lines of code and logs, with questions that name parts of them."""
    questions = [
        Question(one["q"], tuple(one["gold"]), "code") for one in _records(DATA / "code_questions.jsonl")
    ]
    return [Conversation("code", "code", tuple(_spread(_records(DATA / "code.jsonl"))), tuple(questions))]


def load_languages() -> list[Conversation]:
    """Load the facts and questions in other languages, one conversation for each language."""
    return [
        Conversation(
            f"facts-{record['lang']}",
            record["lang"],
            tuple(_spread(record["facts"])),
            tuple(Question(one["q"], tuple(one["gold"]), "paraphrase") for one in record["questions"]),
        )
        for record in _records(DATA / "facts_languages.jsonl")
    ]


def load_pairs(name: str, others: int) -> list[Conversation]:
    """Load pairs of statements, each pair in a scope of its own with this many plain facts.

    Args:
        name: `updates` (the newer statement replaces the older one), `used_to_be` (the same, and the question
            asks for the older one) or `both_true` (both hold).
        others: The number of facts.
    """
    facts = fact_turns(others)
    wanted, rival = PAIR_SETS[name]
    conversations = []
    for record in _records(DATA / f"{name}.jsonl"):
        pair = [
            DatasetTurn(id=key, text=record[key], at=_time(record[f"{key}_at"])) for key in (wanted, rival)
        ]
        turns = sorted([*facts, *pair], key=lambda turn: turn.at or 0)
        question = Question(record["q"], (wanted,), name, (rival,))
        conversations.append(Conversation(record["id"], name, tuple(turns), (question,)))
    return conversations


def load_successions(others: int, chance: np.random.Generator, *, has_old: bool = True) -> list[Conversation]:
    """Load the labelled pairs with a question, each in a scope of its own with this many plain facts.

    The kind of a question is `replaces` (the newer statement answers it, in the place of the older one) or
    `both` (both are true). Without the older statements nothing was replaced, and only newer facts differ.
    """
    facts = fact_turns(FACT_COUNT)
    start, end = _time(FACTS_FROM), _time(FACTS_UNTIL)
    conversations = []
    for number, record in enumerate(_records(DATA / "successions.jsonl")):
        if record["label"] == "both" and not has_old:
            continue  # it may be the older one that answers
        times = np.sort(chance.integers(start, end, 2)).tolist()
        pair = [
            DatasetTurn(id=key, text=record[key], at=at)
            for key, at in zip(("old", "new"), times, strict=True)
            if has_old or key == "new"
        ]
        beside = [facts[at] for at in chance.choice(len(facts), others, replace=False)]
        turns = sorted([*beside, *pair], key=lambda turn: turn.at or 0)
        question = Question(record["q"], ("new",), record["label"], ("old",) if has_old else ())
        conversations.append(Conversation(f"succession-{number}", "facts", tuple(turns), (question,)))
    return conversations


def load_relations() -> list[tuple[str, str, str]]:
    """Load pairs of statements, older and newer, that are labelled `replaces`, `both` or `unrelated`."""
    return [(one["a"], one["b"], one["label"]) for one in _records(DATA / "relations.jsonl")]


def load_locomo_conversations(path: Path) -> list[Conversation]:
    """Load the conversations of a LoCoMo file; the kind of a question is its category."""
    return [
        Conversation(
            one.id,
            "locomo",
            one.turns,
            tuple(Question(asked.text, asked.evidence, asked.category) for asked in one.questions),
        )
        for one in load_locomo(path).conversations
    ]


def foreign_questions(conversations: Sequence[Conversation], each: int = 8) -> list[list[Question]]:
    """Return, for each conversation, questions about other ones of its kind, which it cannot answer.

    The names of the people are replaced by those of the conversation: a name must not give them away.
    """
    chance = np.random.default_rng(SEED)
    chosen = []
    for own in conversations:
        pairs = [
            (other, question)
            for other in conversations
            if other.kind == own.kind != PERSONA and other.id != own.id  # "I" may be anybody
            for question in other.questions
            if question.gold
        ]
        picked = chance.choice(len(pairs), min(each, len(pairs)), replace=False) if pairs else ()
        chosen.append(
            [
                Question(_rename(pairs[at][1].text, pairs[at][0], own), (), "foreign")
                for at in sorted(map(int, picked))
            ]
        )
    return chosen


def _rename(text: str, other: Conversation, own: Conversation) -> str:
    names = dict(zip(speakers_of(other), speakers_of(own), strict=False))
    if not names:
        return text
    return re.sub(rf"\b(?:{'|'.join(map(re.escape, names))})\b", lambda match: names[match.group()], text)


def speakers_of(conversation: Conversation) -> list[str]:
    """Return the names of the speakers, each once."""
    return [*dict.fromkeys(turn.speaker for turn in conversation.turns if turn.speaker is not None)]


def _records(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        yield from map(json.loads, lines)


def _unique(ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids))


def _time(date: str) -> int:
    time = parse_time(date)
    assert time is not None
    return time


def _spread(facts: Iterable[dict[str, Any]]) -> list[DatasetTurn]:
    facts = [*facts]
    start, end = _time(FACTS_FROM), _time(FACTS_UNTIL)
    return [
        DatasetTurn(id=fact["id"], text=fact["text"], at=start + (end - start) * at // len(facts))
        for at, fact in enumerate(facts)
    ]
