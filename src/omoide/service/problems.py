"""What went wrong, in the words of every face?

An error becomes a `Problem`: a word that programs can go by, a status, one line for people, and what to do.
None of it quotes what was remembered beyond what the error itself says.

"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from omoide import errors
from omoide.errors import OmoideError
from omoide.stores.redaction import mask_url

_STATUS: tuple[tuple[type[OmoideError], int], ...] = (
    (errors.Erased, 410),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.IdTaken, 409),
    (errors.Contradiction, 409),
    (errors.EmbedderChanged, 409),
    (errors.TooLarge, 413),
    (errors.Invalid, 422),
    (errors.NotCapable, 403),
    (errors.ReadOnly, 403),
    (errors.DiskFull, 507),
    (errors.EmbedderFailed, 502),
    (errors.EndpointFailed, 502),
    (errors.QueryStopped, 504),
    (errors.StoreFailed, 503),
    (errors.ModelUnavailable, 503),
    (errors.MissingExtra, 501),
    (errors.SessionBusy, 409),
    (errors.TurnPending, 409),
    (errors.ModelTimedOut, 504),
    (errors.ModelFailed, 502),
    (errors.TooManyAgents, 429),
    (errors.TooManyRequests, 429),
    (errors.NotAllowed, 403),
    (errors.ServiceFailed, 502),
    (errors.TimedOut, 504),
    (errors.Dropped, 503),
    (errors.Unrouted, 422),
    (OmoideError, 500),
)
"""The first that fits counts."""

_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong; the members are those of problem+json, and `field` and `remedy` besides."""

    type: str
    """A word for the kind of problem, such as `not-found`."""
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None
    about: dict[str, Any] = {}
    """What else the error carries: names, numbers, lists of names."""


def to_problem(error: OmoideError) -> Problem:
    """An error as every face tells it."""
    words = _error_name(type(error))
    return Problem(
        type=words.replace(" ", "-"),
        title=words.capitalize(),
        status=http_status(error),
        detail=error_line(error),
        field=_text_attribute(error, "field"),
        remedy=_text_attribute(error, "remedy"),
        about={
            name: mask_url(value) if isinstance(value, str) else value
            for name, value in vars(error).items()
            if name not in _PROBLEM_MEMBERS and _is_plain(value)
        },
    )


def to_error(problem: Problem) -> OmoideError | None:
    """The error that a problem was made from; None where it is none of the library's own."""
    kind = _ERROR_CLASSES.get(problem.type)
    if kind is None:
        return None
    error = kind.__new__(kind)
    error.args = (problem.detail,)
    said = {"field": problem.field, "remedy": problem.remedy}
    error.__dict__.update({name: value for name, value in said.items() if value is not None})
    for name, value in problem.about.items():
        error.__dict__[name] = tuple(value) if isinstance(value, list) else value
    return error


def http_status(error: OmoideError) -> int:
    """The HTTP status that tells of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def error_line(error: object) -> str:
    """An error as one line, whatever it quotes, without the passwords of URLs."""
    return mask_url(" ".join(str(error).split()))


def _error_name(kind: type[OmoideError]) -> str:
    return _CAMEL_BOUNDARY.sub(" ", kind.__name__).lower()


_ERROR_CLASSES: dict[str, type[OmoideError]] = {
    _error_name(kind).replace(" ", "-"): kind for kind in (getattr(errors, name) for name in errors.__all__)
}
_PROBLEM_MEMBERS = ("field", "remedy")


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, (str, int, float, bool))


def _text_attribute(error: OmoideError, name: str) -> str | None:
    value = getattr(error, name, None)
    return error_line(value) if isinstance(value, str) and value else None
