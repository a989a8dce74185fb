"""What keeps a model from answering, and a turn from ending?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from omoide.errors.giving import OmoideError


class ModelFailed(OmoideError):
    """A language model did not answer; `transient` says whether trying again may help."""

    TRANSIENT: ClassVar[bool] = False

    def __init__(self, model: str, problem: str, remedy: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"model {model!r} {problem}; {remedy}")
        self.model = model
        self.problem = problem
        self.remedy = remedy
        self.retry_after = retry_after
        """How many seconds the provider asked to wait, where it said so."""

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.TRANSIENT


class ModelRefused(ModelFailed):
    """The provider turned the request down, and will do so again."""


class ModelOverloaded(ModelFailed):
    """The provider cannot answer just now."""

    TRANSIENT = True


class ModelUnreachable(ModelFailed):
    """There was no connection, or it broke."""

    TRANSIENT = True


class ModelTimedOut(ModelFailed):
    """No answer came in time."""

    TRANSIENT = True


class ModelMisbehaved(ModelFailed):
    """The answer is not one."""


class TurnFailed(OmoideError):
    """A turn could not be finished."""

    def __init__(self, request_id: str, problem: str, remedy: str) -> None:
        super().__init__(f"turn {request_id!r} {problem}; {remedy}")
        self.request_id = request_id
        self.problem = problem
        self.remedy = remedy


class Blocked(TurnFailed):
    """A control refused the input or the answer."""

    def __init__(self, request_id: str, boundary: str, reason: str) -> None:
        super().__init__(request_id, f"was refused at its {boundary}: {reason}", "say it in another way")
        self.boundary = boundary
        self.reason = reason


class TooManyRounds(TurnFailed):
    """The model asked for tools in every round it was given."""

    def __init__(self, request_id: str, rounds: int) -> None:
        super().__init__(
            request_id,
            f"asked for tools {rounds} times and gave no answer",
            "raise limits.max_rounds, or see which tool does not satisfy the model",
        )
        self.rounds = rounds


class ReviewNeeded(TurnFailed):
    """Somebody has to decide before the turn can go on."""

    def __init__(self, request_id: str, reviews: Iterable[str]) -> None:
        self.reviews = tuple(reviews)
        super().__init__(
            request_id,
            f"waits for a decision on {', '.join(self.reviews)}",
            "approve, deny or settle it, then resume",
        )


class Diverged(TurnFailed):
    """A replay asked for something that its journal does not hold."""

    def __init__(self, request_id: str, effect: str) -> None:
        super().__init__(
            request_id,
            f"asks for {effect}, which its journal does not hold",
            "replay it with the agent it was run with",
        )
        self.effect = effect


class SessionBusy(OmoideError):
    """Somebody else is running the session."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is running elsewhere; wait for it to finish, then try again")
        self.session = session


class TurnPending(OmoideError):
    """The session has a turn that did not finish."""

    def __init__(self, session: str, status: str) -> None:
        super().__init__(
            f"session {session!r} has an unfinished turn ({status}); resume() or cancel() it first"
        )
        self.session = session
        self.status = status
