"""How is LoCoMo read?

Its file has flaws that are repaired here: evidence such as "D8:6; D9:17", "D:11:26" or "D30:05" is read as
the turns it means, evidence that names no turn is dropped, and questions without any are left out. A picture
that a turn shows is told by its caption.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from omoide.errors import Invalid
from omoide.eval.dataset import DataSet, Question, Turn, checked, read

_SESSION = re.compile(r"session_(\d+)")
_REF = re.compile(r"D:?(\d+):(\d+)")
_DATE = re.compile(r"(\d{1,2}):(\d{2}) ([ap])m on (\d{1,2}) ([A-Z][a-z]+), (\d{4})")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def load(path: Path) -> DataSet:
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
        began = moment(conversation[f"session_{number}_date_time"])
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


def moment(date: str) -> int:
    """Milliseconds UTC of a date like "1:56 pm on 8 May, 2023"; read by hand, for `%B` obeys the locale."""
    match = _DATE.fullmatch(date)
    if match is None or match[5] not in _MONTHS:
        raise Invalid("date", f"is {date!r}", 'write it like "1:56 pm on 8 May, 2023"')
    hour = int(match[1]) % 12 + (12 if match[3] == "p" else 0)
    month = _MONTHS.index(match[5]) + 1
    return (
        int(datetime(int(match[6]), month, int(match[4]), hour, int(match[2]), tzinfo=UTC).timestamp()) * 1000
    )
