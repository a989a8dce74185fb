"""Map errors to `Problem` values, the shape in which REST, MCP and the client report them, and back.

A problem has a type for programs, an HTTP status, one line for people, and a remedy. It holds nothing of the
memories beyond what the error's own message quotes.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from omoide import errors
from omoide.errors import OmoideError, StoreFailed
from omoide.stores.redaction import mask_url

_STATUS: tuple[tuple[type[OmoideError], int], ...] = (
    (errors.Erased, 410),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.IdTaken, 409),
    (errors.Contradiction, 409),
    (errors.TooLarge, 413),
    (errors.Invalid, 422),
    (errors.NotCapable, 403),
    (errors.ReadOnly, 403),
    (errors.DiskFull, 507),
    (errors.EmbedderFailed, 502),
    (errors.RerankerFailed, 502),
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
    (errors.ActionFailed, 422),
    (OmoideError, 500),
)
"""Ordered: the first class that matches decides."""

_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Error as problem+json (RFC 9457), with the additional members `field`, `remedy` and `about`."""

    type: str
    """Kind of problem in kebab case, such as `not-found`."""
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None
    about: dict[str, Any] = {}
    """Attributes of the error: names, numbers, lists of names."""


def to_problem(error: OmoideError) -> Problem:
    """Return the problem that describes an error."""
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


def without_store_name(problem: Problem, error: StoreFailed) -> Problem:
    """Return the problem of a store without its path or URL, for callers who need not know where it lies."""
    name = mask_url(error.store)

    def hide(text: str) -> str:
        return text.replace(f"store {name!r}", "the store").replace(name, "the store")

    about = {name: hide(value) if isinstance(value, str) else value for name, value in problem.about.items()}
    remedy = None if problem.remedy is None else hide(problem.remedy)
    return msgspec.structs.replace(problem, detail=hide(problem.detail), remedy=remedy, about=about)


def to_error(problem: Problem) -> OmoideError | None:
    """Return the error that a problem was made from; None if its type is not an error of the library."""
    error_class = _ERROR_CLASSES.get(problem.type)
    if error_class is None:
        return None
    error = error_class.__new__(error_class)
    error.args = (problem.detail,)
    members = {"field": problem.field, "remedy": problem.remedy}
    error.__dict__.update({name: value for name, value in members.items() if value is not None})
    for name, value in problem.about.items():
        error.__dict__[name] = tuple(value) if isinstance(value, list) else value
    return error


def http_status(error: OmoideError) -> int:
    """Return the HTTP status of an error."""
    return next(status for kind, status in _STATUS if isinstance(error, kind))


def error_line(error: object) -> str:
    """Return an error's message on one line, without the passwords of URLs."""
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
