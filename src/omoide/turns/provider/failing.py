"""What does it mean for a turn when a provider fails?

Whatever a provider's library raises becomes a `ModelFailed` here, and nowhere else. A failure of the server
itself (500, 502, 504) is `ModelOverloaded`, since it may be over by the next time. A quota that is used up is
`ModelRefused`, since waiting a little does not bring it back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
from pydantic_ai import exceptions

from omoide.errors import (
    ModelFailed,
    ModelMisbehaved,
    ModelOverloaded,
    ModelRefused,
    ModelTimedOut,
    ModelUnreachable,
    OmoideError,
)

Meaning = tuple[type[ModelFailed], str, str]

LATER = "try again later"
BUSY: Meaning = (ModelOverloaded, "cannot answer just now", LATER)
SLOW: Meaning = (ModelTimedOut, "took too long", "try again, or allow it more time")
AWAY: Meaning = (
    ModelUnreachable,
    "cannot be reached, or broke off",
    "check the network and base_url, then try again",
)
UNREADABLE: Meaning = (ModelMisbehaved, "gave an answer that cannot be read", "see the cause")
REJECTED: Meaning = (ModelRefused, "does not take the request", "correct what the cause names")
UNUSABLE: Meaning = (ModelRefused, "cannot be used", "check its name, the provider's package and its key")
UNKNOWN: Meaning = (ModelFailed, "failed", "see the cause")

MEANINGS: tuple[tuple[type[Exception], Meaning], ...] = (
    (
        exceptions.ModelAuthenticationError,
        (ModelRefused, "does not take the key", "check the key"),
    ),
    (exceptions.ModelNotFoundError, (ModelRefused, "is not known there", "check its name and base_url")),
    (
        exceptions.ModelContextWindowExceededError,
        (ModelRefused, "cannot take so much text", "lower window.max_tokens"),
    ),
    (exceptions.ModelRequestRejectedError, REJECTED),
    (exceptions.ModelQuotaExceededError, (ModelRefused, "has no quota left", "see to the account")),
    (exceptions.ModelRateLimitError, (ModelOverloaded, "is asked too often", LATER)),
    (exceptions.ModelUnavailableError, BUSY),
    (exceptions.ModelServerError, (ModelOverloaded, "failed on the provider's side", LATER)),
    (exceptions.ModelTimeoutError, SLOW),
    (exceptions.ModelRequestTimeout, SLOW),
    (exceptions.ModelConnectionError, AWAY),
    (exceptions.ModelAPIError, UNREADABLE),
    (exceptions.ContentFilterError, (ModelRefused, "does not let the content pass", "say it in another way")),
    (exceptions.UnexpectedModelBehavior, UNREADABLE),
    (exceptions.ConcurrencyLimitExceeded, BUSY),
    (exceptions.RunTimedOut, SLOW),
    (exceptions.UserError, UNUSABLE),
    (httpx2.TimeoutException, SLOW),
    (httpx2.TransportError, AWAY),
    (TimeoutError, SLOW),
    (OSError, AWAY),
    (ImportError, UNUSABLE),
)
"""What each error means: the first row that fits holds."""

AGAIN = frozenset({408, 409, 425})
"""Statuses without a category of their own that ask for another try."""

_INSTALL = re.compile(r'pip install "?[\w.\[\]-]+"?')


@contextmanager
def reporting(model: str) -> Iterator[None]:
    """A block in which all that goes wrong is a `ModelFailed`, or an error of ours that says so itself."""
    try:
        yield
    except OmoideError:
        raise
    except Exception as error:
        raise failure(error, model) from error


def failure(error: Exception, model: str) -> ModelFailed:
    """An error of a provider's library, as one of ours."""
    if isinstance(error, ExceptionGroup):
        return failure(error.exceptions[-1], model)
    kind, problem, remedy = meaning(error)
    wait = error.retry_after if isinstance(error, exceptions.ModelAPIError) else None
    if remedy == LATER and wait is not None:
        remedy = f"try again in {wait:.0f} s"
    elif isinstance(error, ImportError) and (install := _INSTALL.search(str(error))):
        remedy = install.group()
    return kind(model, f"{problem} ({_said(error)})", remedy, retry_after=wait)


def meaning(error: Exception) -> Meaning:
    """What an error says about the model, and what to do about it."""
    if type(error) is exceptions.ModelHTTPError:  # it would be of a subclass if its status had a category
        return BUSY if error.status_code in AGAIN else REJECTED
    return next((said for kind, said in MEANINGS if isinstance(error, kind)), UNKNOWN)


def _said(error: Exception) -> str:
    words = " ".join(str(error).split()) or "no reason given"
    words = words if len(words) <= 300 else f"{words[:300]}…"
    known = isinstance(error, (exceptions.AgentRunError, exceptions.UserError))
    return words if known else f"{type(error).__name__}: {words}"
