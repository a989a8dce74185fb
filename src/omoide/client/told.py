"""What went wrong when a service was asked?

The same errors as without a service in between, made from what it said; and errors of their own where there
is no service, no token, or no time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx2
import msgspec

from omoide.errors import (
    Invalid,
    NotAllowed,
    OmoideError,
    ServiceFailed,
    TimedOut,
    TooManyRequests,
    Unreachable,
)
from omoide.service.problems import Problem, revived

_TOKEN = "make one with omoide token create, and pass its secret as token="


@contextmanager
def told(url: str, seconds: float) -> Iterator[None]:
    """Tell in our own words what keeps a request from being answered."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise TimedOut(f"asking {url}", seconds) from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise Invalid("url", f"is {url!r}", "pass one such as http://localhost:8765") from error
    except httpx2.HTTPError as error:
        problem = f"cannot be reached ({type(error).__name__})"
        raise Unreachable(url, problem, "start it with omoide serve, or check the URL") from error


def error_of(url: str, status: int, headers: Mapping[str, str], data: bytes) -> OmoideError:
    """The error that an answer tells of."""
    try:
        found = msgspec.json.decode(data, type=Problem)
    except (msgspec.DecodeError, UnicodeError):
        remedy = "check that the URL is that of an Omoide service"
        return ServiceFailed(url, f"answered {status} without saying why", remedy, status=status)
    said = f"says: {found.detail}"
    if found.type == "too-many-requests":
        error = TooManyRequests(url, said, "ask less often, or wait", status=status)
        error.retry_after = float(headers.get("retry-after", "1"))
        return error
    known = revived(found)
    if known is not None:
        return known
    if status in (401, 403):
        return NotAllowed(url, said, _TOKEN, status=status)
    if status == 400:
        return Invalid(found.field or "request", said, "correct it and try again")
    return ServiceFailed(url, said, found.remedy or "see the log of the service", status=status)
