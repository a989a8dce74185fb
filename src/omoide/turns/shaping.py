"""Does an answer have the shape that was asked for?"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from omoide.core.schema import Schema
from omoide.errors import Invalid, ModelMisbehaved
from omoide.turns.shapes import shape
from omoide.turns.spec import AgentSpec

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)


def shaped(spec: AgentSpec, content: str, model: str | None = None) -> Any:
    """The answer as data of the spec's result, or None where text was all that was asked for."""
    if spec.result is None:
        return None
    name = model or spec.model or spec.id
    fenced = _FENCED.fullmatch(content)
    try:
        plain = msgspec.json.decode(content if fenced is None else fenced.group(1))
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ModelMisbehaved(
            name, f"answered with no JSON ({error})", "ask again, or leave result out"
        ) from error
    if not isinstance(plain, dict):
        raise ModelMisbehaved(name, "answered with JSON that is no object", "ask again")
    wanted = spec.answer or shape(spec.result.to_python(), "result")
    try:
        found = Schema(wanted, "result").check(plain)
    except Invalid as error:
        raise ModelMisbehaved(name, f"answered in another shape ({error})", "ask again") from error
    return plain if spec.answer is None else found
