"""What is an evaluation made of?

Conversations: turns, and questions with the ids of the turns that answer them. Any data set can be brought as
JSON lines, each a turn or a question:

```
{"kind": "turn", "conversation": "c1", "id": "t1", "text": "I moved to Rome.", "speaker": "Ann"}
{"kind": "question", "conversation": "c1", "text": "Where does Ann live?", "evidence": ["t1"]}
```
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from omoide.core.value import Count, Id, Millis, Name, Value
from omoide.errors import Invalid, NotFound


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
