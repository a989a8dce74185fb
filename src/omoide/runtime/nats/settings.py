"""What can be set about signals over NATS?"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from omoide.core.contract import check_choice
from omoide.core.recalling import check_positive
from omoide.core.value import Value, check_number
from omoide.errors import Invalid, WrongType

DISCARDS = ("new", "old")
REPLICAS = (1, 3, 5)
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMES = ("nats", "tls", "ws", "wss")


class Settings(Value, frozen=True, kw_only=True):
    """How long signals are kept, how often they are brought, and how long anybody waits."""

    prefix: str = "omoide"
    replicas: int = 1
    max_age: float = 7 * 86_400.0
    max_bytes: int = 256 * 1024 * 1024
    discard: str = "new"
    duplicates: float = 120.0
    max_deliver: int = 5
    ack_wait: float = 10.0
    in_flight: int = 256
    patience: float = 30.0
    connect: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.prefix, str) or not _PREFIX.fullmatch(self.prefix):
            raise Invalid("prefix", f"is {self.prefix!r}", "use 1 to 64 letters, digits, - and _")
        if self.replicas not in REPLICAS:
            raise Invalid("replicas", f"is {self.replicas!r}", "use 1, 3 or 5")
        check_choice(self.discard, "discard", DISCARDS)
        for field in ("max_bytes", "max_deliver", "in_flight"):
            check_positive(getattr(self, field), field)
        for field in ("max_age", "duplicates", "ack_wait", "patience", "connect"):
            if not check_number(getattr(self, field), field) > 0:
                raise Invalid(field, f"is {getattr(self, field)!r}", "use a number of seconds above 0")
        if self.duplicates > self.max_age:
            raise Invalid("duplicates", "lasts longer than signals are kept", "use at most max_age")

    @property
    def all(self) -> str:
        """The stream of what is told to all."""
        return f"{self.prefix}_all"

    @property
    def to(self) -> str:
        """The stream of what is told to one agent."""
        return f"{self.prefix}_to"

    @property
    def dead(self) -> str:
        """The stream of what could not be handled."""
        return f"{self.prefix}_dead"


def servers(url: Any) -> list[str]:
    """The addresses in a list, or in a text with commas between them."""
    given = url.split(",") if isinstance(url, str) else url
    if not isinstance(given, Iterable) or isinstance(given, (bytes, dict)):
        raise WrongType("url", "an address such as nats://host:4222", url)
    found = [one.strip() if isinstance(one, str) else "" for one in given]
    for one in found:
        try:
            parts = urlsplit(one)
            usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:  # it is not repeated here: there may be a password in it
            raise Invalid("url", "is no address of a NATS server", "use nats://host:4222")
    if not found:
        raise Invalid("url", "names no server", "use nats://host:4222")
    return found


def shown(addresses: list[str]) -> str:
    """The addresses as an error may show them, without whoever signs in."""
    parts = (urlsplit(one) for one in addresses)
    return ",".join(f"{one.scheme}://{one.hostname}:{one.port or 4222}" for one in parts)
