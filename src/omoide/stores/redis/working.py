"""How does an operation become one commit?

It reads, decides, and hands in what it wants; where somebody else was faster, it begins again. One that loses
again and again asks the others to wait, so that everybody gets through.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from omoide.errors import Busy, Corrupted, Invalid, OmoideError, ReadOnly
from omoide.stores.redis import keys as naming
from omoide.stores.redis import packing
from omoide.stores.redis.connections import Connections, Writer
from omoide.stores.redis.keys import Keys
from omoide.stores.redis.units import Unit
from omoide.stores.reference_state import State

T = TypeVar("T")

_PATIENCE = 3
"""Times that an operation is overtaken before it asks the others to wait."""
_ALONE_MS = 5_000
_PAUSE_S = 0.001
_LOOKS = 5


class Work:
    """The operations of one process on one store."""

    def __init__(self, server: Connections, prefix: str, *, read_only: bool = False) -> None:
        self.server = server
        self.prefix = prefix
        self.model = ""
        """Whose vectors this process writes."""
        self._read_only = read_only
        self._known: dict[str, Keys] = {}
        self._registered: tuple[int, set[str]] = (-1, set())

    def keys(self, namespace: str) -> Keys:
        """The keys of a namespace."""
        found = self._known.get(namespace)
        if found is None:
            if len(self._known) > 10_000:
                self._known.clear()
            found = self._known[namespace] = Keys(self.prefix, namespace)
        return found

    def unit(self) -> Unit:
        """What a new operation knows: nothing."""
        return Unit(self.server, self.keys, self.model)

    def look(self, work: Callable[[State], T]) -> T:
        """Do something that changes nothing, on what was so at one moment."""
        for left in reversed(range(_LOOKS)):
            unit = self.unit()
            try:
                found = work(unit)
            except Exception:
                if unit.trips > 1 and left and not self._holds(unit):
                    continue
                raise
            if unit.trips < 2 or not left or self._holds(unit):
                return found
        raise AssertionError("the last look is taken as it is")

    def do(self, work: Callable[[State], T]) -> T:
        """Do something that may change the state, once and completely or not at all."""
        if self._read_only:
            raise ReadOnly(self.server.name, "was opened to be read only", "open it without mode=ro")
        until = time.monotonic() + self.server.timeout
        with self.server.writer() as writer:
            attempt = 0
            gates: list[bytes] = []
            try:
                while True:
                    unit = self.unit()
                    found, error = _tried(work, unit)
                    told = self._handed_in(writer, unit, failed=error is not None, alone=bool(gates))
                    if told == "done":
                        gates = [] if unit.changes and error is None else gates
                        if error is not None:
                            raise error
                        return found  # type: ignore[return-value]  # there was no error
                    attempt += told == "changed"
                    if time.monotonic() > until:
                        raise Busy(self.server.name, "is changed by others all the time", "try again")
                    time.sleep(min(_PAUSE_S * (attempt + 1), 0.02) if attempt > 1 or told == "wait" else 0)
                    if attempt >= _PATIENCE:
                        gates = self._alone(unit, writer)
            finally:
                for gate in gates:
                    self.server.leave(gate, writer)

    def _holds(self, unit: Unit) -> bool:
        """Whether what was read in several steps is still so."""
        with self.server.writer() as writer:
            return self._handed_in(writer, unit, failed=True) == "done"

    def _handed_in(self, writer: Writer, unit: Unit, *, failed: bool, alone: bool = False) -> str:
        """Commit what a unit wants, or only make sure of what it read; what the server said."""
        look = failed or not unit.changes
        if not unit.parts or (look and unit.trips < 2):
            return "done"
        if self.server.cluster and len(unit.parts) > 1:
            raise Invalid("requests", f"lie in {len(unit.parts)} namespaces", "write one namespace at a time")
        if not look:
            self._register(unit)
        place: dict[bytes, int] = {}

        def number(key: bytes) -> int:
            return place.setdefault(key, len(place) + 1)

        first = next(iter(unit.parts.values()))
        wanted = {name: part for name, part in unit.parts.items() if part.changes or part.checks or look}
        if look:
            parts = [_checking(part.keys, part.checks, number) for part in wanted.values()]
        else:
            parts = [part.built(number) for part in wanted.values()]
        job: dict[str, Any] = {
            "done": number(first.keys("done", writer.token)),
            "look": int(look),
            "alone": int(alone),
            "parts": parts,
        }
        told, *more = self.server.commit(writer, [*place], job)
        if told == b"broken":
            raise Corrupted(
                self.server.name,
                f"holds something else under {more[0]!r}",
                "let nobody else write under its prefix, or choose another with ?prefix=",
            )
        if not look and told == b"done" and packing.digits(0) in more[0].split():
            self._registered = (-1, set())  # a namespace began: was the server emptied, and its list too?
            self._register(unit)
        return told.decode()

    def _alone(self, unit: Unit, writer: Writer) -> list[bytes]:
        """Ask everybody else to wait with the namespaces of a unit; the keys of those who wait."""
        mine: list[bytes] = []
        for gate in (self.keys(name)("gate") for name in sorted(unit.parts)):
            if not self.server.enter(gate, writer, _ALONE_MS):
                for other in mine:  # who waits while others wait for him would wait for long
                    self.server.leave(other, writer)
                return []
            mine.append(gate)
        return mine

    def _register(self, unit: Unit) -> None:
        """Note that the namespaces exist, before anything is in them: too early does no harm."""
        epoch, known = self._registered
        if epoch != self.server.epoch:
            known = set()
        new = unit.parts.keys() - known
        if new:
            self.server.ask("SADD", naming.of_store(self.prefix, "namespaces"), *new)
            self._registered = (self.server.epoch, known | new)


def _tried(work: Callable[[State], T], unit: Unit) -> tuple[T | None, Exception | None]:
    """What an operation gives, or why it does not."""
    try:
        return work(unit), None
    except OmoideError as error:
        return None, error
    except (KeyError, AssertionError) as error:  # what was read in two steps may not fit together
        return None, error


def _checking(keys: Keys, checks: dict[tuple[bytes, bytes], bytes], place: Callable[[bytes], int]) -> Any:
    return {
        "gate": place(keys("nobody")),
        "checks": [[place(key), field, value] for (key, field), value in checks.items()],
        "kinds": [],
    }
