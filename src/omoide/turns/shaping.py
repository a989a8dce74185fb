"""Does an answer have the shape that was asked for?"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from omoide.core.schema import Schema
from omoide.errors import Invalid, ModelMisbehaved
from omoide.turns.shapes import shape
from omoide.turns.spec import AgentSpec

_FENCED = re.compile(r"```(?:json)?\s*(\{.*?\})\s*```", re.DOTALL)
_BRACES = re.compile(r"\{.*\}", re.DOTALL)


def wanted(spec: AgentSpec) -> Schema | None:
    """The shape of the answer, if it was asked for one; a shape that cannot be checked is refused."""
    if spec.result is None:
        return None
    made = spec.answer or _made(msgspec.json.encode(spec.result.to_python()))
    return Schema(made, "result")


@lru_cache(maxsize=64)
def _made(schema: bytes) -> type:
    return shape(msgspec.json.decode(schema), "result")


def shaped(spec: AgentSpec, content: str, model: str | None = None) -> Any:
    """The answer as data of the spec's result, or None where text was all that was asked for."""
    schema = wanted(spec)
    if schema is None:
        return None
    name = model or spec.model or spec.id
    plain = _read(content)
    if plain is None:
        raise ModelMisbehaved(name, "answered with no JSON object", "ask again")
    known = {key: value for key, value in plain.items() if key in schema.fields}
    try:
        found = schema.check(known)
    except Invalid as error:
        raise ModelMisbehaved(name, f"answered in another shape ({error})", "ask again") from error
    return known if spec.answer is None else found


def _read(content: str) -> dict[str, Any] | None:
    """The object in an answer: all of it, the last fenced block, or what stands in braces."""
    fenced = _FENCED.findall(content)
    braces = _BRACES.search(content)
    for text in (content, *fenced[-1:], *([] if braces is None else [braces.group()])):
        try:
            plain = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        if isinstance(plain, dict):
            return plain
    return None
