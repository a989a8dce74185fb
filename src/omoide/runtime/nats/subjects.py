"""Which subject does a signal travel under?

`prefix.all.door.opened` is told to all, `prefix.to.ada.door.opened` to the agent `ada`. Types and ids may
hold any characters, and subjects may not: a byte that is no letter, digit, `-` or `_` becomes `=` and two
hexadecimal digits, so that no two texts become one.
"""

from __future__ import annotations

from hashlib import sha256

from omoide.core import pattern as patterns

LONGEST = 200
"""How long a token may be; a longer one is replaced by a digest, because a subject has to fit into a line."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def token(text: str) -> str:
    """One part of a subject that stands for a text, and for no other one."""
    data = text.encode()
    made = "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in data)
    # `==` begins no other token: an escape is always `=` and a digit.
    return made if len(made) <= LONGEST else f"=={sha256(data).hexdigest()}"


def told(prefix: str, signal_type: str, to: str | None) -> str:
    """The subject of a signal to all, or to one agent."""
    parts = [token(segment) for segment in signal_type.split(".")]
    return ".".join((prefix, "all", *parts) if to is None else (prefix, "to", token(to), *parts))


def inbox(prefix: str, agent: str) -> str:
    """All subjects of signals to one agent."""
    return f"{prefix}.to.{token(agent)}.>"


def wanted(prefix: str, pattern: str) -> list[str]:
    """The subjects of all signals that a pattern speaks of, and of some more.

    What NATS has no word for is left to `signal.matches`: `>` stands for one part or more, and only at the
    end, where `**` stands for any number anywhere.
    """
    parts: list[str] = []
    for segment in pattern.split("."):
        if segment == patterns.ANY:
            rest = ".".join((prefix, "all", *parts))
            return [rest, f"{rest}.>"] if parts else [f"{rest}.>"]
        parts.append("*" if segment == patterns.ANY_ONE else token(segment))
    return [".".join((prefix, "all", *parts))]
