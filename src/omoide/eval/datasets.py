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


class Turn(Value, frozen=True, kw_only=True):
    """One thing that was said or noted; a turn with a session is a message of it."""

    id: Id
    text: Name
    session: Id | None = None
    speaker: Name | None = None
    role: Name | None = None
    at: Millis | None = None
    """When, in milliseconds UTC."""


class Question(Value, frozen=True, kw_only=True):
    """Something asked once everything was said, and the turns that have to be found for it."""

    text: Name
    evidence: tuple[str, ...]
    category: str = "none"
    at: Millis | None = None
    """When it is asked; if that is not known, an hour after the last turn."""


class Conversation(Value, frozen=True, kw_only=True):
    """What is searched as one."""

    id: Id
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]
    skipped: Count = 0
    """How many questions were left out because nothing answers them."""


class DataSet(Value, frozen=True, kw_only=True):
    """Conversations that are evaluated together."""

    name: Name
    conversations: tuple[Conversation, ...]

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


_LINES = msgspec.json.Decoder(_TurnLine | _QuestionLine)


def read(path: Path) -> bytes:
    """The bytes of a data file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound("data file", str(path), f"check the path ({error.strerror})") from error


def load(path: Path) -> DataSet:
    """A data set in JSON lines; lines of one conversation may stand anywhere, its turns in their order."""
    turns: dict[str, list[Turn]] = {}
    questions: dict[str, list[Question]] = {}
    for number, line in enumerate(read(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = _LINES.decode(line)
            kept = {name: value for name, value in _fields(given).items() if name != "conversation"}
            if isinstance(given, _TurnLine):
                turns.setdefault(given.conversation, []).append(Turn(**kept))
            else:
                questions.setdefault(given.conversation, []).append(Question(**kept))
        except msgspec.MsgspecError as error:
            raise Invalid(
                f"{path.name}, line {number}", f"is no turn or question ({error})", _SHAPE
            ) from error
        except Invalid as error:
            raise Invalid(
                f"{path.name}, line {number}: {error.field}", error.problem, error.remedy
            ) from error
    if not turns:
        raise Invalid(path.name, "holds no turns", _SHAPE)
    return checked(
        path.stem, ((name, turns.get(name, []), questions.get(name, [])) for name in turns | questions)
    )


_SHAPE = 'write one object a line, {"kind": "turn", …} or {"kind": "question", …}'


def checked(name: str, parts: Iterable[tuple[str, list[Turn], list[Question]]]) -> DataSet:
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
        conversations.append(Conversation(id=id, turns=tuple(turns), questions=answered, skipped=left))
    return DataSet(name=name, conversations=tuple(conversations))


def shortened(data: DataSet, conversations: int | None, questions: int | None) -> DataSet:
    """The first conversations of a data set, with the first questions of each."""
    return data.replace(
        conversations=tuple(
            conversation.replace(questions=conversation.questions[:questions])
            for conversation in data.conversations[:conversations]
        )
    )


def positions(turns: Iterable[Turn]) -> list[int]:
    """The place of each turn among those of its session."""
    places: dict[str | None, count[int]] = defaultdict(count)
    return [next(places[turn.session]) for turn in turns]


def _fields(line: msgspec.Struct) -> dict[str, Any]:
    fields = msgspec.structs.asdict(line)
    fields["at"] = moment(fields["at"])
    if "evidence" in fields:
        fields["evidence"] = tuple(dict.fromkeys(fields["evidence"]))
    return fields


def moment(given: int | str | None) -> int | None:
    """Milliseconds UTC from a number of them or an ISO date; a date without a zone is UTC."""
    if not isinstance(given, str):
        return given
    try:
        read = datetime.fromisoformat(given)
    except ValueError:
        raise Invalid("at", f"is {given!r}", "write milliseconds, or a date like 2023-05-08T13:56") from None
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)


# locomo: How is LoCoMo read?


_SESSION = re.compile(r"session_(\d+)")
_REF = re.compile(r"D:?(\d+):(\d+)")
_DATE = re.compile(r"(\d{1,2}):(\d{2}) ([ap])m on (\d{1,2}) ([A-Z][a-z]+), (\d{4})")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def locomo_load(path: Path) -> DataSet:
    """The conversations of a LoCoMo file."""
    try:
        samples = msgspec.json.decode(read(path), type=list[dict[str, Any]])
        return checked("locomo", [_conversation(sample) for sample in samples])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(
            path.name, f"is not the file of LoCoMo ({error!r})", "pass locomo10.json, or use the jsonl form"
        ) from error


def _conversation(sample: dict[str, Any]) -> tuple[str, list[Turn], list[Question]]:
    turns = list(_turns(sample["conversation"]))
    known = {turn.id for turn in turns}
    questions = [
        Question(
            text=given["question"],
            evidence=evidence(given["evidence"], known),
            category=str(given["category"]),
        )
        for given in sample["qa"]
    ]
    return sample["sample_id"], turns, questions


def _turns(conversation: dict[str, Any]) -> Iterator[Turn]:
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    for number in numbers:
        began = locomo_moment(conversation[f"session_{number}_date_time"])
        for place, turn in enumerate(conversation[f"session_{number}"]):
            caption = turn.get("blip_caption")
            yield Turn(
                id=turn["dia_id"],
                text=turn["text"] + (f" [image: {caption}]" if caption else ""),
                session=f"session_{number}",
                speaker=turn["speaker"],
                at=began + place * 1000,  # only sessions are dated; a second apart keeps the turns in order
            )


def evidence(given: list[str], known: set[str]) -> tuple[str, ...]:
    """The turns that evidence means, each once."""
    named = (f"D{int(session)}:{int(turn)}" for part in given for session, turn in _REF.findall(part))
    return tuple(dict.fromkeys(ref for ref in named if ref in known))


def locomo_moment(date: str) -> int:
    """Milliseconds UTC of a date like "1:56 pm on 8 May, 2023"; read by hand, for `%B` obeys the locale."""
    match = _DATE.fullmatch(date)
    if match is None or match[5] not in _MONTHS:
        raise Invalid("date", f"is {date!r}", 'write it like "1:56 pm on 8 May, 2023"')
    hour = int(match[1]) % 12 + (12 if match[3] == "p" else 0)
    month = _MONTHS.index(match[5]) + 1
    return (
        int(datetime(int(match[6]), month, int(match[4]), hour, int(match[2]), tzinfo=UTC).timestamp()) * 1000
    )
