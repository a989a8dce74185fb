"""What does a model have to say to use the memory, and how strictly is it taken?"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from omoide.core import memory_types
from omoide.core.memory_types import MEMORY_TYPES
from omoide.core.texts import check_str
from omoide.errors import Invalid
from omoide.longterm.relations import RELATIONS

ALL = "all"
MOST = 50
MOST_TAG = 100
LEVELS = {"high": 0.9, "medium": 0.6, "low": 0.3}

Content = Annotated[
    str,
    Meta(
        description="One self-contained statement, understandable without this conversation. "
        "At most 2000 bytes."
    ),
]
Kind = Annotated[
    str,
    Meta(
        description="What kind of knowledge it is: fact is established, assumption is taken for granted, "
        "hypothesis is to be tested, unknown is an open question.",
        extra_json_schema={"enum": [*MEMORY_TYPES]},
    ),
]
AnyKind = Annotated[
    str,
    Meta(
        description="The kind of knowledge to look for, with the kinds that refine it; all for every kind.",
        extra_json_schema={"enum": [ALL, *MEMORY_TYPES]},
    ),
]
# Some providers want a type beside every choice.
Level = Annotated[Literal["high", "medium", "low"], Meta(extra_json_schema={"type": "string"})]
Confidence = Annotated[
    float | Level, Meta(description="How sure it is: a number from 0 to 1, or high, medium or low.")
]
Floor = Annotated[
    float | Level,
    Meta(description="Leave out what is less sure: a number from 0 to 1, or high, medium or low."),
]
Rationale = Annotated[str, Meta(description="Why it is so, or why it was decided. At most 2000 bytes.")]
Key = Annotated[
    str,
    Meta(
        description="A short name for what it is about, such as database. Two memories of one kind with the "
        "same key and different content contradict each other."
    ),
]
Tags = Annotated[
    tuple[str, ...], Meta(description="Words to find it by. At most 20, of 100 bytes each.", max_length=20)
]
WithTags = Annotated[tuple[str, ...], Meta(description="Only what carries all of these tags.", max_length=20)]
Question = Annotated[
    str, Meta(description="What to look for, in plain words; empty for the newest. At most 1000 bytes.")
]
Limit = Annotated[int, Meta(ge=1, le=MOST, description="How many memories at most.")]
MemoryId = Annotated[str, Meta(min_length=1, description="The id of a memory, as recall gives it.")]
Reason = Annotated[str, Meta(description="Why. At most 500 bytes.")]
Replacement = Annotated[
    str, Meta(description="The id of the memory that takes its place; empty where none does.")
]
RelationName = Annotated[
    str,
    Meta(
        description="How the source relates to the target. "
        + " ".join(f"{one.name}: the source {one.meaning}." for one in RELATIONS.values()),
        extra_json_schema={"enum": [*RELATIONS]},
    ),
]


def text(value: str, field: str, most: int) -> str:
    """A text without the space around it, if it is no longer than allowed."""
    said = check_str(value, field).strip()
    size = len(said.encode())
    if size > most:
        raise Invalid(field, f"has {size} bytes", f"use at most {most}")
    return said


def kinds(value: str) -> tuple[str, ...]:
    """The types that are looked for; none named means all."""
    return () if value == ALL else (memory_types.check(value),)


def labels(value: tuple[str, ...]) -> tuple[str, ...]:
    """Tags without the space around them; empty ones are none."""
    said = [text(tag, "tags", MOST_TAG) for tag in value]
    return tuple(dict.fromkeys(tag for tag in said if tag))


def sureness(value: float | str, field: str = "confidence") -> float:
    """A confidence from a number, which is brought between 0 and 1, or from a level."""
    if isinstance(value, str):
        return LEVELS[value]
    if value != value:
        raise Invalid(field, "is no number", "pass a number from 0 to 1")
    return min(max(float(value), 0.0), 1.0)
