"""Data sets, LoCoMo.

Conversations: turns, and questions with the ids of the turns that answer them. Any data set can be brought as
JSON lines, each a turn or a question:

```
{"kind": "turn", "conversation": "c1", "id": "t1", "text": "I moved to Rome.", "speaker": "Ann"}
{"kind": "question", "conversation": "c1", "text": "Where does Ann live?", "evidence": ["t1"]}
```

Its file has flaws that are repaired here: evidence such as "D8:6; D9:17", "D:11:26" or "D30:05" is read as
the turns it means, evidence that names no turn is dropped, and questions without any are left out. A picture
that a turn shows is told by its caption.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from omoide.core.value import Count, Id, Millis, Name, Value
from omoide.errors import Invalid, NotFound

# dataset: What is an evaluation made of?


class DatasetTurn(Value, frozen=True, kw_only=True):
    """One thing that was said or noted; a turn with a session is a message of it."""

    id: Id
    text: Name
    session: Id | None = None
    speaker: Name | None = None
    role: Name | None = None
    at: Millis | None = None
    """When, in milliseconds UTC."""


class DatasetQuestion(Value, frozen=True, kw_only=True):
    """Something asked once everything was said, and the turns that have to be found for it."""

    text: Name
    evidence: tuple[str, ...]
    category: str = "none"
    at: Millis | None = None
    """When it is asked; if that is not known, an hour after the last turn."""


class DatasetConversation(Value, frozen=True, kw_only=True):
    """What is searched as one."""

    id: Id
    turns: tuple[DatasetTurn, ...]
    questions: tuple[DatasetQuestion, ...]
    skipped: Count = 0
    """How many questions were left out because nothing answers them."""


class Dataset(Value, frozen=True, kw_only=True):
    """Conversations that are evaluated together."""

    name: Name
    conversations: tuple[DatasetConversation, ...]

    @property
    def skipped(self) -> int:
        """How many questions were left out."""
        return sum(conversation.skipped for conversation in self.conversations)


class _TurnLine(msgspec.Struct, tag_field="kind", tag="turn", forbid_unknown_fields=True):
    conversation: str
    id: str
    text: str
    session: str | None = None
    speaker: str | None = None
    role: str | None = None
    at: int | str | None = None


class _QuestionLine(msgspec.Struct, tag_field="kind", tag="question", forbid_unknown_fields=True):
    conversation: str
    text: str
    evidence: list[str] = []
    category: str = "none"
    at: int | str | None = None


_LINE_DECODER = msgspec.json.Decoder(_TurnLine | _QuestionLine)


def read_data_file(path: Path) -> bytes:
    """The bytes of a data file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound("data file", str(path), f"check the path ({error.strerror})") from error


def load_jsonl(path: Path) -> Dataset:
    """A data set in JSON lines; lines of one conversation may stand anywhere, its turns in their order."""
    turns: dict[str, list[DatasetTurn]] = {}
    questions: dict[str, list[DatasetQuestion]] = {}
    for number, line in enumerate(read_data_file(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = _LINE_DECODER.decode(line)
            kept = {name: value for name, value in _line_fields(given).items() if name != "conversation"}
            if isinstance(given, _TurnLine):
                turns.setdefault(given.conversation, []).append(DatasetTurn(**kept))
            else:
                questions.setdefault(given.conversation, []).append(DatasetQuestion(**kept))
        except msgspec.MsgspecError as error:
            raise Invalid(
                f"{path.name}, line {number}", f"is no turn or question ({error})", _LINE_REMEDY
            ) from error
        except Invalid as error:
            raise Invalid(
                f"{path.name}, line {number}: {error.field}", error.problem, error.remedy
            ) from error
    if not turns:
        raise Invalid(path.name, "holds no turns", _LINE_REMEDY)
    return build_dataset(
        path.stem, ((name, turns.get(name, []), questions.get(name, [])) for name in turns | questions)
    )


_LINE_REMEDY = 'write one object a line, {"kind": "turn", …} or {"kind": "question", …}'


def build_dataset(
    name: str, parts: Iterable[tuple[str, list[DatasetTurn], list[DatasetQuestion]]]
) -> Dataset:
    """A data set whose questions all name turns of their conversation; those that name none are left out."""
    conversations = []
    for id, turns, questions in parts:
        known = {turn.id for turn in turns}
        if len(known) < len(turns):
            raise Invalid(f"conversation {id!r}", "has two turns with one id", "give each turn its own id")
        for question in questions:
            if unknown := [ref for ref in question.evidence if ref not in known]:
                raise Invalid(
                    f"question {question.text!r}",
                    f"names {unknown[0]!r}, which is no turn",
                    "name turns by id",
                )
        answered = tuple(question for question in questions if question.evidence)
        left = len(questions) - len(answered)
        conversations.append(DatasetConversation(id=id, turns=tuple(turns), questions=answered, skipped=left))
    return Dataset(name=name, conversations=tuple(conversations))


def truncate_dataset(data: Dataset, conversations: int | None, questions: int | None) -> Dataset:
    """The first conversations of a data set, with the first questions of each."""
    return data.replace(
        conversations=tuple(
            conversation.replace(questions=conversation.questions[:questions])
            for conversation in data.conversations[:conversations]
        )
    )


def session_positions(turns: Iterable[DatasetTurn]) -> list[int]:
    """The place of each turn among those of its session."""
    places: dict[str | None, count[int]] = defaultdict(count)
    return [next(places[turn.session]) for turn in turns]


def _line_fields(line: msgspec.Struct) -> dict[str, Any]:
    fields = msgspec.structs.asdict(line)
    fields["at"] = parse_time(fields["at"])
    if "evidence" in fields:
        fields["evidence"] = tuple(dict.fromkeys(fields["evidence"]))
    return fields


def parse_time(value: int | str | None) -> int | None:
    """Milliseconds UTC from a number of them or an ISO date; a date without a zone is UTC."""
    if not isinstance(value, str):
        return value
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise Invalid("at", f"is {value!r}", "write milliseconds, or a date like 2023-05-08T13:56") from None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)


# locomo: How is LoCoMo read?


_SESSION = re.compile(r"session_(\d+)")
_REF = re.compile(r"D:?(\d+):(\d+)")
_DATE = re.compile(r"(\d{1,2}):(\d{2}) ([ap])m on (\d{1,2}) ([A-Z][a-z]+), (\d{4})")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def load_locomo(path: Path) -> Dataset:
    """The conversations of a LoCoMo file."""
    try:
        samples = msgspec.json.decode(read_data_file(path), type=list[dict[str, Any]])
        return build_dataset("locomo", [_parse_conversation(sample) for sample in samples])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(
            path.name, f"is not the file of LoCoMo ({error!r})", "pass locomo10.json, or use the jsonl form"
        ) from error


def _parse_conversation(sample: dict[str, Any]) -> tuple[str, list[DatasetTurn], list[DatasetQuestion]]:
    turns = list(_parse_turns(sample["conversation"]))
    known = {turn.id for turn in turns}
    questions = [
        DatasetQuestion(
            text=given["question"],
            evidence=parse_evidence(given["evidence"], known),
            category=str(given["category"]),
        )
        for given in sample["qa"]
    ]
    return sample["sample_id"], turns, questions


def _parse_turns(conversation: dict[str, Any]) -> Iterator[DatasetTurn]:
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    for number in numbers:
        began = parse_locomo_time(conversation[f"session_{number}_date_time"])
        for place, turn in enumerate(conversation[f"session_{number}"]):
            caption = turn.get("blip_caption")
            yield DatasetTurn(
                id=turn["dia_id"],
                text=turn["text"] + (f" [image: {caption}]" if caption else ""),
                session=f"session_{number}",
                speaker=turn["speaker"],
                at=began + place * 1000,  # only sessions are dated; a second apart keeps the turns in order
            )


def parse_evidence(references: list[str], known: set[str]) -> tuple[str, ...]:
    """The turns that evidence means, each once."""
    named = (f"D{int(session)}:{int(turn)}" for part in references for session, turn in _REF.findall(part))
    return tuple(dict.fromkeys(ref for ref in named if ref in known))


def parse_locomo_time(date: str) -> int:
    """Milliseconds UTC of a date like "1:56 pm on 8 May, 2023"; read by hand, for `%B` obeys the locale."""
    match = _DATE.fullmatch(date)
    if match is None or match[5] not in _MONTHS:
        raise Invalid("date", f"is {date!r}", 'write it like "1:56 pm on 8 May, 2023"')
    hour = int(match[1]) % 12 + (12 if match[3] == "p" else 0)
    month = _MONTHS.index(match[5]) + 1
    return (
        int(datetime(int(match[6]), month, int(match[4]), hour, int(match[2]), tzinfo=UTC).timestamp()) * 1000
    )
