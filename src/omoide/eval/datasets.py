"""Data sets for evaluation: JSON lines and LoCoMo.

A data set has conversations: turns, and questions with the ids of the turns that answer them. Any data set
can be given as JSON lines, each a turn or a question:

```
{"kind": "turn", "conversation": "c1", "id": "t1", "text": "I moved to Rome.", "speaker": "Ann"}
{"kind": "question", "conversation": "c1", "text": "Where does Ann live?", "evidence": ["t1"]}
```

The LoCoMo file has flaws that are repaired here: evidence such as "D8:6; D9:17", "D:11:26" or "D30:05" is
read as the turns it means, evidence that names no turn is dropped, and questions without any are left out.
The picture of a turn is replaced by its caption.
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


class DatasetTurn(Value, frozen=True, kw_only=True):
    """One statement of a conversation; a turn with a session is a message of it."""

    id: Id
    text: Name
    session: Id | None = None
    speaker: Name | None = None
    role: Name | None = None
    at: Millis | None = None
    """The time in milliseconds UTC."""


class DatasetQuestion(Value, frozen=True, kw_only=True):
    """A question that is asked after all turns, and the ids of the turns that answer it."""

    text: Name
    evidence: tuple[str, ...]
    category: str = "none"
    at: Millis | None = None
    """The time of asking; an hour after the last turn if unknown."""


class DatasetConversation(Value, frozen=True, kw_only=True):
    """The turns that are searched together, with their questions."""

    id: Id
    turns: tuple[DatasetTurn, ...]
    questions: tuple[DatasetQuestion, ...]
    skipped: Count = 0
    """The number of questions left out because no turn answers them."""


class Dataset(Value, frozen=True, kw_only=True):
    """Conversations that are evaluated together."""

    name: Name
    conversations: tuple[DatasetConversation, ...]

    @property
    def skipped(self) -> int:
        """The number of questions left out in all conversations."""
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
    """Return the bytes of a data file.

    Raises:
        NotFound: The file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound("data file", str(path), f"check the path ({error.strerror})") from error


def load_jsonl(path: Path) -> Dataset:
    """Load a data set from JSON lines.

    Lines of different conversations may be mixed; the turns of one must be in their order.

    Raises:
        Invalid: A line is no turn or question; the error names it.
    """
    turns: dict[str, list[DatasetTurn]] = {}
    questions: dict[str, list[DatasetQuestion]] = {}
    for number, line in enumerate(read_data_file(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            record = _LINE_DECODER.decode(line)
            fields = {name: value for name, value in _line_fields(record).items() if name != "conversation"}
            if isinstance(record, _TurnLine):
                turns.setdefault(record.conversation, []).append(DatasetTurn(**fields))
            else:
                questions.setdefault(record.conversation, []).append(DatasetQuestion(**fields))
        except msgspec.MsgspecError as error:
            raise Invalid(
                f"{path.name}, line {number}", f"is no turn or question ({error})", _LINE_REMEDY
            ) from error
        except Invalid as error:
            raise Invalid(
                f"{path.name}, line {number}: {error.field}", error.problem, error.remedy
            ) from error
    if not turns:
        raise Invalid(path.name, "contains no turns", _LINE_REMEDY)
    return build_dataset(
        path.stem, ((name, turns.get(name, []), questions.get(name, [])) for name in turns | questions)
    )


_LINE_REMEDY = 'write one object a line, {"kind": "turn", …} or {"kind": "question", …}'


def build_dataset(
    name: str, parts: Iterable[tuple[str, list[DatasetTurn], list[DatasetQuestion]]]
) -> Dataset:
    """Build a data set, and leave out questions without evidence.

    Raises:
        Invalid: Two turns of a conversation share an id, or evidence names no turn of it.
    """
    conversations = []
    for id, turns, questions in parts:
        turn_ids = {turn.id for turn in turns}
        if len(turn_ids) < len(turns):
            raise Invalid(f"conversation {id!r}", "has two turns with one id", "give each turn its own id")
        for question in questions:
            if unknown := [ref for ref in question.evidence if ref not in turn_ids]:
                raise Invalid(
                    f"question {question.text!r}",
                    f"names the unknown turn {unknown[0]!r}",
                    "name turns by id",
                )
        # Without evidence no metric is defined; such questions are counted, and not scored as misses.
        answered = tuple(question for question in questions if question.evidence)
        skipped = len(questions) - len(answered)
        conversations.append(
            DatasetConversation(id=id, turns=tuple(turns), questions=answered, skipped=skipped)
        )
    return Dataset(name=name, conversations=tuple(conversations))


def truncate_dataset(data: Dataset, conversations: int | None, questions: int | None) -> Dataset:
    """Return the first conversations of a data set, with the first questions of each."""
    return data.replace(
        conversations=tuple(
            conversation.replace(questions=conversation.questions[:questions])
            for conversation in data.conversations[:conversations]
        )
    )


def session_positions(turns: Iterable[DatasetTurn]) -> list[int]:
    """Return the position of each turn within its session."""
    counters: dict[str | None, count[int]] = defaultdict(count)
    return [next(counters[turn.session]) for turn in turns]


def _line_fields(line: msgspec.Struct) -> dict[str, Any]:
    fields = msgspec.structs.asdict(line)
    fields["at"] = parse_time(fields["at"])
    if "evidence" in fields:
        fields["evidence"] = tuple(dict.fromkeys(fields["evidence"]))
    return fields


def parse_time(value: int | str | None) -> int | None:
    """Convert milliseconds or an ISO date to milliseconds UTC; a date without a zone is UTC."""
    if not isinstance(value, str):
        return value
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise Invalid("at", f"is {value!r}", "write milliseconds, or a date like 2023-05-08T13:56") from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


_SESSION = re.compile(r"session_(\d+)")
_REF = re.compile(r"D:?(\d+):(\d+)")
_DATE = re.compile(r"(\d{1,2}):(\d{2}) ([ap])m on (\d{1,2}) ([A-Z][a-z]+), (\d{4})")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def load_locomo(path: Path) -> Dataset:
    """Load the conversations of a LoCoMo file."""
    try:
        samples = msgspec.json.decode(read_data_file(path), type=list[dict[str, Any]])
        return build_dataset("locomo", [_parse_conversation(sample) for sample in samples])
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise Invalid(
            path.name, f"is not a LoCoMo file ({error!r})", "pass locomo10.json, or use the jsonl form"
        ) from error


def _parse_conversation(sample: dict[str, Any]) -> tuple[str, list[DatasetTurn], list[DatasetQuestion]]:
    turns = list(_parse_turns(sample["conversation"]))
    turn_ids = {turn.id for turn in turns}
    questions = [
        DatasetQuestion(
            text=item["question"],
            evidence=parse_evidence(item["evidence"], turn_ids),
            category=str(item["category"]),
        )
        for item in sample["qa"]
    ]
    return sample["sample_id"], turns, questions


def _parse_turns(conversation: dict[str, Any]) -> Iterator[DatasetTurn]:
    # As numbers: session_10 comes after session_9.
    numbers = sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key)))
    for number in numbers:
        started_at = parse_locomo_time(conversation[f"session_{number}_date_time"])
        for position, turn in enumerate(conversation[f"session_{number}"]):
            caption = turn.get("blip_caption")
            yield DatasetTurn(
                id=turn["dia_id"],
                text=turn["text"] + (f" [image: {caption}]" if caption else ""),
                session=f"session_{number}",
                speaker=turn["speaker"],
                # Only sessions are dated; a second between turns keeps them in order.
                at=started_at + position * 1000,
            )


def parse_evidence(references: list[str], turn_ids: set[str]) -> tuple[str, ...]:
    """Return the ids of the turns that LoCoMo's evidence names, each once."""
    # `int` removes leading zeros: D30:05 is the turn D30:5.
    ids = (f"D{int(session)}:{int(turn)}" for part in references for session, turn in _REF.findall(part))
    return tuple(dict.fromkeys(ref for ref in ids if ref in turn_ids))


def parse_locomo_time(date: str) -> int:
    """Convert a date like "1:56 pm on 8 May, 2023" to milliseconds UTC.

    `strptime` would not do: its `%B` depends on the locale.
    """
    match = _DATE.fullmatch(date)
    if match is None or match[5] not in _MONTHS:
        raise Invalid("date", f"is {date!r}", 'write it like "1:56 pm on 8 May, 2023"')
    hour = int(match[1]) % 12 + (12 if match[3] == "p" else 0)
    month = _MONTHS.index(match[5]) + 1
    return (
        int(datetime(int(match[6]), month, int(match[4]), hour, int(match[2]), tzinfo=UTC).timestamp()) * 1000
    )
