"""What will a commit check and change in one namespace?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from omoide.stores import rules, standing
from omoide.stores.records import Version
from omoide.stores.redis import packing
from omoide.stores.redis.held import FRESH, Held
from omoide.stores.redis.keys import Keys, dimensions
from omoide.stores.redis.packing import NOW, Arg
from omoide.stores.standing import LIVE

MANY = 1_000
"""Arguments of one command."""


def numbered(number: int) -> bytes | int:
    """A number for a command: as it is, or the place of the change that it will be the number of."""
    return number - FRESH if number >= FRESH else packing.digits(number)


class Part:
    """The share of one namespace in a commit."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.checks: dict[tuple[bytes, bytes], bytes] = {}
        """What was read: the beginning of each field's value, nothing where there was none."""
        self.notes: list[bytes] = []
        self.dirty: dict[str, Held] = {}
        self.watched: set[str] = set()
        """What `watch` says has changed."""
        self._frees: dict[tuple[str, bytes], list[Arg]] = {}
        self._commands: list[list[Any]] = []

    @property
    def changes(self) -> bool:
        """Whether there is anything to change."""
        return bool(self.notes or self.dirty or self._commands or self._frees)

    def check(self, name: str, field: bytes | str, value: bytes | None) -> None:
        """Make sure that a field is still as it was read; a first look counts."""
        field = field.encode() if isinstance(field, str) else field
        self.checks.setdefault((self.keys(name), field), (value or b"")[: packing.STAMP])

    def check_whole(self, name: str, field: str, value: bytes | None) -> None:
        """The same of a value without a stamp, all of it."""
        self.checks.setdefault((self.keys(name), field.encode()), value or b"")

    def do(self, verb: str, key: bytes, *args: Arg) -> None:
        """Change something."""
        self._commands.append([verb, key, *args])

    def free(self, verb: str, key: bytes, args: Iterable[Arg]) -> None:
        """Remove something, before anything else is done."""
        given = [*args]
        if given:
            self._frees.setdefault((verb, key), []).extend(given)

    def forget(self, key: bytes) -> None:
        """Remove a whole key."""
        self._frees["DEL", key] = []

    def watch(self, *names: str) -> None:
        """Tell those who read something together that it changed."""
        self.watched.update(names)

    def count(self, name: str, by: int) -> None:
        """Change a counter."""
        if by:
            self.do("HINCRBY", self.keys("meta"), name, str(by))

    # Entries

    def remove(self, one: Held, versions: Sequence[Version]) -> None:
        """Leave nothing of an entry."""
        keys, entry = self.keys, one.entry
        id = entry.id
        self.dirty.pop(id, None)
        if one.was is None:
            return  # it was never written down
        self.free("HDEL", keys("rows"), [id])
        self.free("HDEL", keys("found"), [id])
        head = packing.digits(one.no)
        self.free("HDEL", keys("past"), [head + b"%d" % old.rev for old in versions])
        for name in dimensions(entry):
            self.free("ZREM", keys("time", name), [head + id.encode()])
            self.free("ZREM", keys("all", name), [id])
        self.free("ZREM", keys("expiry"), [id])
        self.free("HDEL", keys("access"), [id])
        self.free("ZREM", keys("used"), [id])
        self.do("PART", keys("same"), rules.content_key(one.was), id)
        self.do("ZADD", keys("gone"), [NOW], id)
        self.count("vectors", -bool(one.had))
        self.watch(*dimensions(entry))

    def sweep(self, one: Held) -> None:
        """Take an entry that expired long ago out of the lists that recall looks at."""
        entry = one.entry
        assert entry.expires_at is not None
        for name in dimensions(entry):
            self.do("ZREM", self.keys("all", name), entry.id)
        self.do("ZADD", self.keys("gone"), [NOW], entry.id)
        self.do("ZREM", self.keys("expiry"), entry.id)
        self.do("MOST", self.keys("meta"), "horizon", str(entry.expires_at))

    def _put(self, id: str, one: Held) -> None:
        keys, entry, was = self.keys, one.entry, one.was
        no = numbered(one.no)
        body = packing.put_row(one.first, one.versions[-1], one.model, one.given, one.flips)
        self.do("HSET", keys("rows"), id, [NOW, numbered(one.written), no, body])
        if one.renewed:
            self.do("HSET", keys("found"), id, packing.put_found(one.model, one.found))
            self.count("vectors", bool(one.model) - bool(one.had))
        for old in one.older:
            self.do("HSET", keys("past"), [no, b"%d" % old.rev], packing.put_past(old))
        if was is None or rules.time_of(was) != rules.time_of(entry):
            for name in dimensions(entry):
                self.do("ZADD", keys("time", name), str(rules.time_of(entry)), [no, id.encode()])
        if was is None or rules.content_key(was) != rules.content_key(entry):
            if was is not None:
                self.do("PART", keys("same"), rules.content_key(was), id)
            self.do("JOIN", keys("same"), rules.content_key(entry), id)
        self._put_live(id, one)
        self.watch(*dimensions(entry))

    def _put_live(self, id: str, one: Held) -> None:
        keys, entry = self.keys, one.entry
        counts = standing.of(entry) == LIVE
        for name in dimensions(entry):
            if counts:
                self.do("ZADD", keys("all", name), [NOW], id)
            else:
                self.do("ZREM", keys("all", name), id)
        if not counts:
            self.do("ZADD", keys("gone"), [NOW], id)
        if counts and entry.expires_at is not None:
            self.do("ZADD", keys("expiry"), str(entry.expires_at), id)
        elif one.was is not None and one.was.expires_at is not None:
            self.do("ZREM", keys("expiry"), id)

    # The commit

    def built(self, place: Any) -> dict[str, Any]:
        """The part as the script takes it; `place` gives the number of a key."""
        for id, one in self.dirty.items():
            self._put(id, one)
        names = sorted(self.watched)
        for at in range(0, len(names), MANY):
            given: list[Arg] = []
            for name in names[at : at + MANY]:
                given += [name, [NOW]]
            self.do("HSET", self.keys("watch"), *given)
        keys = self.keys
        used = {keys("meta"), keys("log"), *(command[1] for command in (*self._frees, *self._commands))}
        frees = [
            [verb, place(key), *args[at : at + MANY]]
            for (verb, key), args in self._frees.items()
            for at in range(0, len(args) or 1, MANY)
        ]
        return {
            "meta": place(keys("meta")),
            "log": place(keys("log")),
            "gate": place(keys("gate")),
            "checks": [[place(key), field, value] for (key, field), value in self.checks.items()],
            "kinds": [[place(key), keys.kind(key)] for key in sorted(used)],
            "notes": self.notes,
            "frees": frees,
            "commands": [[verb, place(key), *args] for verb, key, *args in self._commands],
        }
