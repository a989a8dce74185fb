"""What can go wrong with agents that live?"""

from __future__ import annotations

from omoide.errors.failing import NotFound
from omoide.errors.giving import IdTaken, Invalid, OmoideError


class NotRunning(NotFound):
    """No agent of this id lives here."""

    def __init__(self, id: str) -> None:
        super().__init__("running agent", id, "start it, or thaw it")


class OwnedElsewhere(IdTaken):
    """An agent that lives in another place of its fleet, and can live in one place only."""

    def __init__(self, id: str, owner: str) -> None:
        Invalid.__init__(
            self, "id", f"{id!r} lives in {owner!r}", "send to it from here, or stop it there first"
        )
        self.id = id
        self.owner = owner


class SignalTooLarge(Invalid):
    """A signal that a transport takes no message of."""

    PLACED = False

    def __init__(self, type: str, allowed: int, actual: int) -> None:
        super().__init__(
            f"signal {type!r}",
            f"has {actual} bytes, and the server takes {allowed}",
            "keep the content in a store, and send where it is",
        )
        self.type = type
        self.allowed = allowed
        self.actual = actual


class Unrouted(OmoideError):
    """A signal of a type that an agent has no route for."""

    def __init__(self, id: str, type: str, problem: str) -> None:
        super().__init__(f"agent {id!r}: {problem}")
        self.agent_id = id
        self.type = type


class Dropped(OmoideError):
    """A signal that will not be handled, and why."""

    def __init__(self, id: str, type: str, reason: str) -> None:
        super().__init__(f"signal {type!r} to agent {id!r} was dropped: {reason}; send it again if need be")
        self.agent_id = id
        self.type = type
        self.reason = reason


class MailboxFull(Dropped):
    """An agent that has as many signals waiting as it takes."""

    def __init__(self, id: str, type: str, size: int) -> None:
        super().__init__(id, type, f"{size} signals are waiting already")
        self.size = size


class TimedOut(OmoideError):
    """Something took longer than it was given; it may still be done."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took longer than {seconds} s; give it more time, or ask again later")
        self.what = what
        self.seconds = seconds


class TooManyAgents(OmoideError):
    """A runtime or a parent that takes no more agents or sessions."""

    def __init__(self, who: str, limit: int) -> None:
        super().__init__(f"{who} takes {limit} at most; stop some, or raise the limit")
        self.who = who
        self.limit = limit


class GaveUp(OmoideError):
    """Something that failed again and again, and is not started any more."""

    def __init__(self, who: str, times: int, seconds: float, last: str) -> None:
        super().__init__(
            f"{who} failed {times} times within {seconds} s, last with {last}; mend it and start it"
        )
        self.who = who
        self.times = times
        self.last = last
