"""What does it mean when NATS says no?

What nats-py raises becomes one of ours here, and nowhere else. No message repeats an address with a password.
"""

from __future__ import annotations

from omoide.errors import Closed, Invalid, NotAllowed, OmoideError, ServiceFailed, Unreachable

NO_JETSTREAM = (10039, 10076)
FULL = (10077, 10122)
"""That a stream has as many bytes, or messages, as it may."""
NO_ROOM = (10023, 10028, 10047)
NOT_UNIQUE = (10099, 10100)
"""That a queue has a consumer for these subjects already."""
OTHER_CONFIG = 10058
NO_PEERS = 10005
"""That a cluster has too few servers for a stream at the moment; the others may be on their way."""
NO_CLUSTER = 10074
LASTING = (*NO_JETSTREAM, *FULL, *NO_ROOM, *NOT_UNIQUE, OTHER_CONFIG, NO_CLUSTER)
_SIGN_IN = ("authorization", "authentication", "credentials", "nkey", "jwt", "permissions")


def said(error: BaseException) -> str:
    """What an error of nats-py says, in a few words."""
    told = getattr(error, "description", None) or str(error).removeprefix("nats: ")
    return str(told) or type(error).__name__


def code(error: BaseException) -> int | None:
    """The number that JetStream gives an error."""
    found = getattr(error, "err_code", None)
    return found if isinstance(found, int) else None


def is_missing(error: BaseException) -> bool:
    """Whether it says that there is no such stream or consumer."""
    return getattr(error, "code", None) == 404


def is_sign_in(error: BaseException) -> bool:
    """Whether it says that whoever signs in may not."""
    text = f"{type(error).__name__} {error}".lower()
    return any(word in text for word in _SIGN_IN)


def is_passing(error: BaseException) -> bool:
    """Whether asking again in a moment may help: a lost connection, a leader that is being chosen."""
    if code(error) in LASTING or is_missing(error):
        return False
    status = getattr(error, "code", None)
    return code(error) == NO_PEERS or status is None or status in (408, 500, 503)


def is_of_client(error: BaseException) -> bool:
    """Whether nats-py raised it: a connection that broke, which is made again and told elsewhere."""
    return type(error).__module__.partition(".")[0] == "nats"


def unreachable(where: str, problem: str) -> Unreachable:
    """There is no connection."""
    return Unreachable(where, problem, "start the server, or check the address and the network")


def mapped(error: BaseException, where: str) -> OmoideError:
    """The error of ours that stands for one of nats-py."""
    if isinstance(error, OmoideError):
        return error
    if is_sign_in(error):
        return NotAllowed(where, "does not let us in", "check the user, the password or the credentials")
    number = code(error)
    if number in NO_JETSTREAM:
        return no_jetstream(where)
    if number in FULL:
        return ServiceFailed(
            where, "is full: its stream takes no more", "let agents catch up, or raise max_bytes"
        )
    if number in NO_ROOM:
        return ServiceFailed(
            where, f"has no room for the streams ({said(error)})", "lower max_bytes or replicas"
        )
    if number == NO_CLUSTER:
        return ServiceFailed(
            where, "is no cluster, and keeps no replicas", "use replicas=1, or three servers"
        )
    if is_passing(error):
        return unreachable(where, f"did not answer ({said(error)})")
    return ServiceFailed(where, f"refused: {said(error)}", "see what it says")


def no_jetstream(where: str) -> ServiceFailed:
    """A server that keeps nothing."""
    return ServiceFailed(where, "has no JetStream", "start it with JetStream: nats-server -js")


def no_tls(where: str) -> ServiceFailed:
    """A server to which a password would travel in the open."""
    return ServiceFailed(where, "speaks no TLS", "set it up there, or use nats:// where nobody listens")


def closed() -> Closed:
    """A transport that was used after its end."""
    return Closed("nats", "is closed", "publish and subscribe before that, or open another one")


def wrong_loop() -> Invalid:
    """An event loop that nats-py cannot run on."""
    return Invalid("event loop", "is not asyncio's, which NATS needs", "run with asyncio, or use the Bus")
